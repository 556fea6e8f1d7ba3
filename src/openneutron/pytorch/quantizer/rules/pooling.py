# SPDX-License-Identifier: BSD-3-Clause
"""How pools, means and sums are quantized."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from openneutron.pytorch.quantizer.rules.table import FUNCTION, MOVE, AnnotationRule, Result
from openneutron.pytorch.separable import (
    Pair,
    Separable,
    adaptive_average_pool,
    average_pool,
    litert_padding,
    window_of,
)


def _arguments(node: Node) -> dict[str, Any]:
    """Every argument of a call by name, with the schema's defaults."""
    assert isinstance(node.target, torch._ops.OpOverload)
    arguments = node.target._schema.arguments
    found = {item.name: item.default_value for item in arguments if item.has_default_value()}
    found |= {item.name: value for item, value in zip(arguments, node.args, strict=False)}
    return found | dict(node.kwargs)


def _size(value: object) -> tuple[int, int] | None:
    """Rows and columns of a node's result; None where they are no fixed numbers."""
    assert isinstance(value, Node)
    rows, columns = value.meta["val"].shape[-2:]
    return (rows, columns) if isinstance(rows, int) and isinstance(columns, int) else None


def _pair(item: Any) -> tuple[int, int]:
    items = list(item) if isinstance(item, (list, tuple)) else [item]
    return items[0], items[-1]


def _average_rescales(node: Node) -> bool:
    """Whether an average pool gets a scale of its own."""
    given = _arguments(node)
    size = _size(given["self"])
    if size is None:
        return False
    kernel, before = _pair(given["kernel_size"]), _pair(given["padding"])
    return _rescales(average_pool(given, size), kernel, _pair(given["stride"] or kernel), before)


def _adaptive_average_rescales(node: Node) -> bool:
    """Whether an adaptive average pool gets a scale of its own."""
    size, result = _size(node.args[0]), _size(node)
    if size is None or result is None:
        return True
    averages = adaptive_average_pool(size, result)
    kernel, stride = zip(window_of(averages.rows), window_of(averages.columns), strict=True)
    return _rescales(averages, kernel, stride, (0, 0))


FINER_FROM = 5
"""Values under a window from which on a plain average gets steps of its own, for which it needs the weights of a depthwise
convolution. On noise that is 3 dB for 3x3, 5 for 4x4, 13 for 8x8; for 2x2 less than 2."""


def _rescales(averages: Separable, kernel: Pair, stride: Pair, before: Pair) -> bool:
    """Whether a result in finer steps than the input's is of use: a mean's is, and any that is rounded once; but small
    windows are left to LiteRT's pool, which keeps the scale."""
    if averages.mean_axes:
        return True
    is_window = averages.is_window(kernel, stride, before)
    if litert_padding(averages, kernel, stride) is not None:
        return is_window and kernel[0] * kernel[1] >= FINER_FROM
    return is_window or averages.fits_whole


RULES = {
    "aten.mean.default": FUNCTION,
    "aten.mean.dim": FUNCTION,
    "aten.sum.default": FUNCTION,
    "aten.sum.dim_IntList": FUNCTION,
    "aten.adaptive_avg_pool2d.default": AnnotationRule(result=Result.SHARED, own_if=_adaptive_average_rescales),
    "aten.avg_pool2d.default": AnnotationRule(result=Result.SHARED, own_if=_average_rescales),
    "aten.max_pool2d.default": MOVE,
}
