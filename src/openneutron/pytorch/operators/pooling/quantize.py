# SPDX-License-Identifier: BSD-3-Clause
"""The quantization of pools, means and sums."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from openneutron.pytorch.operators.rules.annotation import FUNCTION, MOVE, AnnotationRule, Result
from openneutron.pytorch.operators.separable.sums import (
    Pair,
    Separable,
    adaptive_average_pool,
    average_pool,
    litert_padding,
    window_of,
)


def _arguments(node: Node) -> dict[str, Any]:
    """Return every argument of a call by name, with the schema's defaults."""
    assert isinstance(node.target, torch._ops.OpOverload)
    arguments = node.target._schema.arguments
    found = {item.name: item.default_value for item in arguments if item.has_default_value()}
    found |= {item.name: value for item, value in zip(arguments, node.args, strict=False)}
    return found | dict(node.kwargs)


def _size(value: object) -> tuple[int, int] | None:
    """Return rows and columns of a node's result; None where they are no fixed numbers."""
    assert isinstance(value, Node)
    rows, columns = value.meta["val"].shape[-2:]
    return (rows, columns) if isinstance(rows, int) and isinstance(columns, int) else None


def _pair(item: Any) -> tuple[int, int]:
    items = list(item) if isinstance(item, (list, tuple)) else [item]
    return items[0], items[-1]


@dataclass(frozen=True, slots=True)
class _Pool:
    """An average pool of images as matrices, and its window."""

    averages: Separable
    kernel: Pair
    stride: Pair
    before: Pair

    @property
    def values(self) -> int:
        """Return the number of values in the mean of one result."""
        return self.kernel[0] * self.kernel[1]


def _average(node: Node) -> _Pool | None:
    given = _arguments(node)
    size = _size(given["self"])
    if size is None:
        return None
    kernel, before = _pair(given["kernel_size"]), _pair(given["padding"])
    return _Pool(average_pool(given, size), kernel, _pair(given["stride"] or kernel), before)


def _adaptive_average(node: Node) -> _Pool | None:
    size, result = _size(node.args[0]), _size(node)
    if size is None or result is None:
        return None
    averages = adaptive_average_pool(size, result)
    kernel, stride = zip(window_of(averages.rows), window_of(averages.columns), strict=True)
    return _Pool(averages, kernel, stride, (0, 0))


_POOLS = {
    "aten.avg_pool2d.default": _average,
    "aten.adaptive_avg_pool2d.default": _adaptive_average,
}


def _average_rescales(node: Node) -> bool:
    """Return whether an average pool gets a scale of its own."""
    pool = _POOLS[str(node.target)](node)
    return pool is not None and _rescales(pool, _values_of_chain(node))


def _values_of_chain(node: Node) -> int:
    """Return the number of values in the mean of one result, including adjacent pools, such as those that a pool in
    three dimensions is decomposed into."""
    chain, pool = [node], _source_pool(node)
    while pool is not None:
        chain.append(pool)
        pool = _source_pool(pool)
    pool = _user_pool(node)
    while pool is not None:
        chain.append(pool)
        pool = _user_pool(pool)
    pools = [_POOLS[str(item.target)](item) for item in chain]
    return math.prod(pool.values for pool in pools if pool is not None)


def _source_pool(node: Node) -> Node | None:
    """Return the average pool that a pool reads through views, if nothing else reads it."""
    source = node.args[0]
    while isinstance(source, Node) and str(source.target) in _VIEWS and len(source.users) == 1:
        source = source.args[0]
    if isinstance(source, Node) and str(source.target) in _POOLS and len(source.users) == 1:
        return source
    return None


def _user_pool(node: Node) -> Node | None:
    """Return the average pool that reads a pool through views, if nothing else reads the pool."""
    users = tuple(node.users)
    while len(users) == 1 and str(users[0].target) in _VIEWS:
        users = tuple(users[0].users)
    return users[0] if len(users) == 1 and str(users[0].target) in _POOLS else None


_VIEWS = ("aten.reshape.default", "aten.view.default", "aten.squeeze.dim", "aten.unsqueeze.default")

FINER_FROM = 5
"""Values under a window from which on a plain average gets steps of its own, for which it needs the weights of a depthwise
convolution. On noise that is 3 dB for 3x3, 5 for 4x4, 13 for 8x8; for 2x2 less than 2."""


def _rescales(pool: _Pool, values: int) -> bool:
    """Return whether a result in finer steps than the input's is of use: a mean's is, and any that is rounded once; but
    small windows are left to LiteRT's pool, which keeps the scale. ``values``: how many the result is the mean of."""
    if pool.averages.mean_axes:
        return True
    is_window = pool.averages.is_window(pool.kernel, pool.stride, pool.before)
    if litert_padding(pool.averages, pool.kernel, pool.stride) is not None:
        return is_window and pool.values > 1 and values >= FINER_FROM
    return is_window or pool.averages.fits_whole


RULES = {
    "aten.mean.default": FUNCTION,
    "aten.mean.dim": FUNCTION,
    "aten.sum.default": FUNCTION,
    "aten.sum.dim_IntList": FUNCTION,
    "aten.adaptive_avg_pool2d.default": AnnotationRule(result=Result.SHARED, own_if=_average_rescales),
    "aten.avg_pool2d.default": AnnotationRule(result=Result.SHARED, own_if=_average_rescales),
    "aten.max_pool2d.default": MOVE,
}
