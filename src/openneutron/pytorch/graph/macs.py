# SPDX-License-Identifier: BSD-3-Clause
"""Multiply-accumulates of a node, by the formulas of ``torch.utils.flop_counter``."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node
from torch.fx.node import map_arg
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from openneutron.pytorch.graph.program import overload_of

FLOPS_PER_MAC = 2
"""``torch.utils.flop_counter`` counts a multiplication and an addition as two operations."""


def macs(node: Node) -> int:
    """Return the multiply-accumulates of a convolution or matrix product, 0 for other operators and for symbolic
    shapes.

    ``node`` is in the ATen or the edge dialect. A composite operator (``aten.linear``) counts as its decomposition in
    torch.
    """
    overload = overload_of(node)
    if overload is None:
        return 0
    formula = flop_registry.get(overload.overloadpacket)
    composite = overload._can_decompose()
    if formula is None and not composite:
        return 0
    result = node.meta.get("val")
    args, kwargs = map_arg((node.args, node.kwargs), lambda source: source.meta.get("val"))
    if any(_varies(value) for value in (result, *(source.meta.get("val") for source in node.all_input_nodes))):
        return 0
    flops = (
        formula(*args, **kwargs, out_val=result) if formula is not None else _flops_of_pieces(overload, args, kwargs)
    )
    return int(flops) // FLOPS_PER_MAC


def _varies(value: object) -> bool:
    """Return whether the value is a tensor with symbolic extents, or unknown."""
    values = value if isinstance(value, (list, tuple)) else (value,)
    return any(
        not isinstance(each, torch.Tensor) or any(not isinstance(extent, int) for extent in each.shape)
        for each in values
    )


def _flops_of_pieces(overload: torch._ops.OpOverload, args: Any, kwargs: Any) -> int:
    """Return torch's count while the operator runs on tensors without data."""

    def without_data(value: Any) -> Any:
        return torch.empty_like(value, device="meta") if isinstance(value, torch.Tensor) else value

    given, named = torch.utils._pytree.tree_map(without_data, (args, kwargs))
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        overload(*given, **named)
    return counter.get_total_flops()
