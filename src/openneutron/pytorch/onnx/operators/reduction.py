# SPDX-License-Identifier: BSD-3-Clause
"""Reductions over axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from openneutron.pytorch.onnx.operators.table import NodeView, Values, axes_of, cast, converts, integers


def _product(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    for axis in sorted(axes, reverse=True):
        x = cast(torch.prod(x, axis, keepdim=keep), x.dtype)
    return x


_REDUCTIONS: dict[str, Callable[[Tensor, list[int], bool], Tensor]] = {
    "ReduceSum": lambda x, axes, keep: torch.sum(x, axes, keep, dtype=x.dtype),
    "ReduceMean": lambda x, axes, keep: torch.mean(x, axes, keep),
    "ReduceMax": lambda x, axes, keep: torch.amax(x, axes, keep),
    "ReduceMin": lambda x, axes, keep: torch.amin(x, axes, keep),
    "ReduceProd": _product,
    "ReduceL1": lambda x, axes, keep: torch.sum(torch.abs(x), axes, keep),
    "ReduceL2": lambda x, axes, keep: cast(torch.linalg.vector_norm(cast(x, torch.float32), 2, axes, keep), x.dtype),
    "ReduceSumSquare": lambda x, axes, keep: torch.sum(x * x, axes, keep),
    "ReduceLogSum": lambda x, axes, keep: torch.log(torch.sum(x, axes, keep)),
    "ReduceLogSumExp": lambda x, axes, keep: torch.logsumexp(x, axes, keep),
}


def _reduction(operator: str) -> None:
    function = _REDUCTIONS[operator]

    def converter(node: NodeView, x: Tensor, given: Any = None) -> Values:
        axes = axes_of(node, given, max(x.dim(), 1))
        if not axes:
            if node.get("noop_with_empty_axes", 0):
                # A reduction of one element each, such as the square of ReduceSumSquare, is still made.
                return function(x.unsqueeze(-1), [x.dim()], False)
            axes = list(range(x.dim()))
        if x.dtype == torch.bool:
            return function(x.to(torch.uint8), axes, bool(node.get("keepdims", 1))).to(torch.bool)
        return function(x, axes, bool(node.get("keepdims", 1))) if x.dim() else function(x.reshape(1), [0], False)

    converts(operator, structure=(1,))(converter)


for _operator in _REDUCTIONS:
    _reduction(_operator)


@converts("ArgMax", "ArgMin")
def _arg(node: NodeView, x: Tensor) -> Values:
    axis, keep = node.get("axis", 0), bool(node.get("keepdims", 1))
    function = torch.argmax if node.operator == "ArgMax" else torch.argmin
    if not node.get("select_last_index", 0):
        return function(x, axis, keep)
    return x.shape[axis] - 1 - function(x.flip(axis), axis, keep)


@converts("TopK", structure=(1,))
def _top_k(node: NodeView, x: Tensor, k: Any = None) -> Values:
    count = node.get("k") if k is None else integers(k)[0]
    axis, largest = node.get("axis", -1), bool(node.get("largest", 1))
    # ExecuTorch's runtime has no kernel for a stable sort, so that equal values may come in another order than ONNX states.
    values, indices = torch.topk(x, min(count, x.shape[axis]), axis, largest)
    return values, indices
