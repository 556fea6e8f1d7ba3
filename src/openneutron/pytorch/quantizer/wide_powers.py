# SPDX-License-Identifier: BSD-3-Clause
"""Sums of powers of which a root or a logarithm is taken, as norms, power means and standard deviations have them.

A power has several times the dynamic range of its base, and a root or a logarithm shows the small values again. One scale of int8 has
no steps for these: the powers, their sum and the function behind it are int16, where the target computes on int16.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass

import torch
from torch.fx import GraphModule, Node

from openneutron.ops.normalization import MOST_NORMALIZED
from openneutron.pytorch.graph.pointwise import Region, find_regions, jumps
from openneutron.pytorch.graph.rewriting import constant_of
from openneutron.pytorch.operators.annotations import MOVES

_aten = torch.ops.aten

_POWERS = (_aten.pow.Tensor_Scalar, _aten.pow.Tensor_Tensor)

_ROOTS = (
    _aten.sqrt.default,
    _aten.rsqrt.default,
    _aten.log.default,
    _aten.log2.default,
    _aten.log10.default,
)
WIDENING = frozenset((*_ROOTS, *_POWERS))
"""Operators of which a model without any has nothing to widen."""

_SUMS = (
    _aten.mean.dim,
    _aten.mean.default,
    _aten.sum.dim_IntList,
    _aten.sum.default,
    _aten.avg_pool2d.default,
    _aten.add.Tensor,
)

MOST_TERMS = MOST_NORMALIZED
"""Sums of more powers stay int8, as those of normalizations that are taken apart: what rounding adds to each averages out."""


@dataclass(frozen=True, slots=True)
class WidePowers:
    """The nodes that are int16, those of them that add up powers for a root or a logarithm, and the results of the latter, which are
    int8."""

    nodes: Set[Node] = frozenset()
    sums: Set[Node] = frozenset()
    ends: Set[Node] = frozenset()

    def rescales(self, node: Node) -> bool:
        """Return whether a sum of powers has a scale of its own, as the average pool of a few values usually has not."""
        return node in self.sums and node.target in _SUMS


NOTHING_WIDE = WidePowers()


def find_wide_powers(
    module: GraphModule, nodes: Sequence[Node], runs_inside: Callable[[Node], Node | None]
) -> WidePowers:
    """Return the powers, their sums, and the pointwise functions behind a sum that take its root or logarithm.

    nodes: the nodes that may be quantized, in order. runs_inside: as in ``find_regions``.
    """

    def number(item: object) -> float | None:
        known = constant_of(module, item)
        if known is not None and known.numel() == 1:
            return float(known)
        return float(item) if isinstance(item, (int, float)) else None

    def exponent(node: Node) -> float | None:
        return number(node.args[1]) if node.target in _POWERS else None

    def is_power(node: Node) -> bool:
        is_product = node.target is _aten.mul.Tensor and node.args[0] is node.args[1]
        return is_product or node.target is _aten.square.default or (exponent(node) or 0.0) > 1

    def is_root(node: Node) -> bool:
        return node.target in _ROOTS or 0 < abs(exponent(node) or 1.0) < 1

    found: set[Node] = set()
    sums: set[Node] = set()
    ends: set[Node] = set()
    free = set(nodes)
    regions = find_regions(nodes, lambda node: number(node) is not None, runs_inside)
    by_end = {region.end: region for region in regions}
    for region in regions:
        if any(map(is_root, region.nodes)) and not any(map(jumps, region.nodes)):
            behind = _powers_behind(region.root, free, by_end, is_power)
            if behind is not None and not any(_is_result(node) or jumps(node) for node in behind.nodes):
                found |= {*region.nodes, *behind.nodes}
                sums |= behind.sums
                ends.add(region.end)
    return WidePowers(found, sums, ends)


def _is_result(node: Node) -> bool:
    return any(user.op == "output" for user in node.users)


def _powers_behind(
    source: Node, free: Set[Node], by_end: dict[Node, Region], is_power: Callable[[Node], bool]
) -> WidePowers | None:
    """Return the nodes from a sum, or what moves its values, back to the powers that it adds; None for other values."""
    is_move = str(source.target).removeprefix("aten.") in MOVES
    if source not in free or not (is_move or source.target in _SUMS):
        return None
    nodes, sums = {source}, {source}
    data = source.all_input_nodes[0]
    if data.meta["val"].numel() > MOST_TERMS * source.meta["val"].numel():
        return None
    terms = source.all_input_nodes if source.target is _aten.add.Tensor else source.all_input_nodes[:1]
    for term in terms:
        region = by_end.get(term)
        if region is not None and any(is_power(node) for node in region.nodes):
            nodes |= set(region.nodes)
            continue
        behind = _powers_behind(term, free, by_end, is_power)
        if behind is None:
            return None
        nodes |= behind.nodes
        sums |= behind.sums
    return WidePowers(nodes, sums) if len(nodes) > 1 else None
