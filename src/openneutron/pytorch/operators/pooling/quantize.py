# SPDX-License-Identifier: BSD-3-Clause
"""The quantization of average pools."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch.fx import Node

from openneutron.pytorch.graph.program import arguments_of, pair
from openneutron.pytorch.operators.annotations import AnnotationRule, Result
from openneutron.pytorch.operators.convolution.lower import Window
from openneutron.pytorch.operators.separable.sums import (
    Separable,
    adaptive_average_pool,
    average_pool,
    litert_padding,
    window_of,
)


def _size(value: object) -> tuple[int, int] | None:
    """Return rows and columns of a node's result; None where they are no fixed numbers."""
    assert isinstance(value, Node)
    rows, columns = value.meta["val"].shape[-2:]
    return (rows, columns) if isinstance(rows, int) and isinstance(columns, int) else None


@dataclass(frozen=True, slots=True)
class Pool:
    """An average pool of images as matrices, and its window."""

    averages: Separable
    window: Window

    @property
    def values(self) -> int:
        """Return the number of values in the mean of one result."""
        return math.prod(self.window.kernel)


def pool_of(node: Node) -> Pool | None:
    """Return the average pool that a node is; None where the extents of its images are no fixed numbers."""
    given = arguments_of(node)
    size, result = _size(given["self"]), _size(node)
    if size is None or result is None:
        return None
    if "kernel_size" in given:
        kernel = pair(given["kernel_size"])
        window = Window(kernel, pair(given["stride"], kernel), pair(given["padding"]))
        return Pool(average_pool(given, size), window)
    averages = adaptive_average_pool(size, result)
    kernel, stride = zip(window_of(averages.rows), window_of(averages.columns), strict=True)
    return Pool(averages, Window(kernel, stride, (0, 0)))


_POOLS = ("aten.avg_pool2d.default", "aten.adaptive_avg_pool2d.default")


def _average_rescales(node: Node) -> bool:
    pool = pool_of(node)
    return pool is not None and _rescales(pool, _values_of_chain(node))


def _values_of_chain(node: Node) -> int:
    """Return the number of values in the mean of one result, including adjacent pools, such as those that a pool in
    three dimensions is decomposed into."""
    chain = [node]
    for beside in (_source_pool, _user_pool):
        pool = beside(node)
        while pool is not None:
            chain.append(pool)
            pool = beside(pool)
    return math.prod(pool.values for pool in map(pool_of, chain) if pool is not None)


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


def _rescales(pool: Pool, values: int) -> bool:
    """Return whether a result in finer steps than the input's is of use: a mean's is, and any that is rounded once; but
    small windows are left to LiteRT's pool, which keeps the scale. ``values``: how many the result is the mean of."""
    if pool.averages.mean_axes:
        return True
    is_window = pool.averages.is_window(pool.window)
    if litert_padding(pool.averages, pool.window) is not None:
        return is_window and pool.values > 1 and values >= FINER_FROM
    return is_window or pool.averages.fits_whole


RULES = dict.fromkeys(_POOLS, AnnotationRule(result=Result.SHARED, own_if=_average_rescales))
