# SPDX-License-Identifier: BSD-3-Clause
"""List the ways of computing a graph in kernel calls: with copies as views or not, and in fewer or more calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from openneutron.compiler.rewrite.attention import fuse_attention
from openneutron.compiler.rewrite.chain import chain, merge
from openneutron.compiler.rewrite.fold import copies_as_views, fold_moves
from openneutron.compiler.rewrite.join import join, join_excitations, join_products
from openneutron.compiler.select.calls import KernelCall, Storages
from openneutron.compiler.select.select import Selection, calls_of_nodes
from openneutron.ir import Graph


def select_calls(legal: Graph, known: Mapping[str, list[KernelCall]] = MappingProxyType({})) -> Selection:
    """Return the selection of ``calls_of_nodes`` with copies, tables and attention folded into fewer calls."""
    storages, calls = calls_of_nodes(legal, known)
    storages, fused = fuse_attention(storages, fold_moves(storages, calls))
    return storages, fold_moves(storages, fused)


def selections(legal: Graph, known: Mapping[str, list[KernelCall]] = MappingProxyType({})) -> list[Selection]:
    """Return the selections to compile: ``select_calls``, and variants with copies as views (copies_as_views) or joined calls, where there
    are any; of joined calls also merged and chained ones. These variants are faster; in cascades or with prefetch they may take more memory.
    They do not depend on the budget."""
    storages, calls = select_calls(legal, known)
    found: list[Selection] = []
    joined = [_in_one(storages, each) for each in (copies_as_views(storages, calls), calls)]
    joined.insert(1, join_products(*joined[0]))
    for own, each in (*(_fewest(*selection) for selection in joined), *joined, (storages, calls)):
        if all(len(each) != len(other) for _, other in found):
            found.append((own, each))
    return found


def _in_one(storages: Storages, calls: Sequence[KernelCall]) -> Selection:
    after, excited = join_excitations(storages, calls)
    return after, join(after, excited)


def _fewest(storages: Storages, joined: Sequence[KernelCall]) -> Selection:
    """Return joined calls with linear layers of one input merged, and with pairs of calls chained."""
    storages, merged = merge(storages, joined)
    return storages, chain(storages, merged)
