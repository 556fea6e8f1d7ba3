# SPDX-License-Identifier: BSD-3-Clause
"""Linear layers with one operator behind them, which compile to one call."""

from __future__ import annotations

import numpy as np

from openneutron.ir import Graph, Node, constant, per_channel
from tests.support import oracle

FLAT = {"activation": "NONE", "weights_format": "DEFAULT"}


def graph_of(
    op: str, turned: bool = False, shape: tuple[int, ...] = (12, 24), outputs: tuple[str, ...] = ("z",)
) -> Graph:
    """Return a linear layer of 20 outputs with an operator behind it; ``turned``: the layer's result is the second operand."""
    random = np.random.default_rng(3)
    result = (*shape[:-1], 20)
    weights = constant("w", random.integers(-127, 128, (20, shape[-1])).astype(np.int8), per_channel([0.01] * 20, 0))
    bias = constant("b", random.integers(-900, 900, 20).astype(np.int32), per_channel([0.0004] * 20, 0))
    x = oracle.activation("x", shape, 0.04, 5)
    y, z, r = (
        oracle.activation(name, result, scale, zero)
        for name, scale, zero in (("y", 0.11, -9), ("z", 0.13, 3), ("r", 0.07, 30))
    )
    layer = Node("fully_connected", ("x", "w", "b"), ("y",), {**FLAT, "keep_num_dims": len(shape) != 2})
    if op == "gelu":
        second = Node("gelu", ("y",), ("z",), {"approximate": False})
        return oracle.graph_of([x], [layer, second], [weights, bias, y, z], outputs)
    attrs = {"activation": "RELU" if op == "add" else "NONE"}
    second = Node(op, ("r", "y") if turned else ("y", "r"), ("z",), attrs)
    return oracle.graph_of([x, r], [layer, second], [weights, bias, y, z, r], outputs)
