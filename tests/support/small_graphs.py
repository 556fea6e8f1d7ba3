# SPDX-License-Identifier: BSD-3-Clause
"""Graphs of a few operators that several tests compile."""

from __future__ import annotations

import numpy as np

from openneutron.ir import DType, Graph, Node, Tensor, constant, per_channel, per_tensor
from tests.support import oracle

EVERY = np.arange(-128, 128, dtype=np.int8).reshape(1, 4, 8, 8)
"""All values of int8."""


def sum_with(
    op: str, order: tuple[str, str], zeros: float, zero_point: int, value: int, scale: float = 0.0371
) -> Graph:
    """Return a graph with ``op`` of x and a constant of ``value`` (zeros where it is the zero point), with these
    scales."""
    quant = per_tensor(scale, -7)
    constant = np.full((1, 1, 1, 8), value, np.int8)
    tensors = [
        Tensor("x", EVERY.shape, DType.INT8, quant),
        Tensor("c", constant.shape, DType.INT8, per_tensor(zeros, zero_point), constant),
        Tensor("s", EVERY.shape, DType.INT8, quant),
    ]
    return Graph("g", {t.name: t for t in tensors}, (Node(op, order, ("s",), {"activation": "NONE"}),), ("x",), ("s",))


def small_graph() -> Graph:
    quant = per_tensor(0.1, 3)
    conv = {
        "padding": "SAME",
        "stride_h": 2,
        "stride_w": 1,
        "dilation_h": 1,
        "dilation_w": 1,
        "activation": "RELU6",
    }
    tensors = [
        Tensor("x", (1, 5, 4, 2), DType.INT8, quant),
        constant("w", np.arange(24, dtype=np.int8).reshape(3, 2, 2, 2), per_channel([0.1, 0.2, 0.3], 0)),
        constant("b", np.array([1, -2, 3], np.int32)),
        Tensor("c", (1, 3, 4, 3), DType.INT8, quant),
        constant("shape", np.array([1, 36], np.int32)),
        Tensor("y", (1, 36), DType.INT8, quant),
    ]
    nodes = (
        Node("conv_2d", ("x", "w", "b"), ("c",), conv, "operator 0"),
        Node("reshape", ("c", "shape"), ("y",), {"new_shape": (1, 36)}, "operator 1"),
    )
    return Graph("main", {tensor.name: tensor for tensor in tensors}, nodes, ("x",), ("y",))


ATTRS = {"padding": "VALID", "stride_h": 1, "stride_w": 1, "dilation_h": 1, "dilation_w": 1, "activation": "RELU"}


def dilated_image(
    op: str, block: list[int], pads: list[list[int]], crops: list[list[int]], last: dict[str, str] | None = None
) -> Graph:
    """Return a graph that runs an image of 9 rows, 10 columns and 4 channels through the three operators, with a kernel
    of 3x2."""
    if last is None:
        last = {}
    random = np.random.default_rng(1)
    high, wide = (9 + sum(pads[0])) // block[0], (10 + sum(pads[1])) // block[1]
    count = block[0] * block[1]
    rows, cols = (high - 2) * block[0] - sum(crops[0]), (wide - 1) * block[1] - sum(crops[1])
    filters = random.integers(-127, 128, (6, 3, 2, 4) if op == "conv_2d" else (1, 3, 2, 4)).astype(np.int8)
    channels = 6 if op == "conv_2d" else 4
    others = [
        constant("block", np.array(block, np.int32)),
        constant("pads", np.array(pads, np.int32)),
        constant("crops", np.array(crops, np.int32)),
        constant("weights", filters, per_tensor(0.01, 0)),
        constant("bias", random.integers(-900, 900, channels).astype(np.int32), per_tensor(0.0005, 0)),
        oracle.activation("s", (count, high, wide, 4), 0.05, 7),
        oracle.activation("c", (count, high - 2, wide - 1, channels), 0.2, -100),
        oracle.activation("y", (1, rows, cols, channels), 0.2, -100),
    ]
    nodes = [
        Node("space_to_batch_nd", ("x", "block", "pads"), ("s",)),
        Node(op, ("s", "weights", "bias"), ("c",), ATTRS | last),
        Node("batch_to_space_nd", ("c", "block", "crops"), ("y",)),
    ]
    return oracle.graph_of([oracle.activation("x", (1, 9, 10, 4), 0.05, 7)], nodes, others)
