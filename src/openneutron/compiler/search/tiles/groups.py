# SPDX-License-Identifier: BSD-3-Clause
"""Calls in groups of output channels, where the memory of the NPU holds neither their constants nor their tensors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from openneutron.compiler.schedule.schedule import Cuttable, edges, fetched_bytes
from openneutron.compiler.select.calls import KernelCall, Storages

MOST_CONSTANTS = 0.4
"""The part of the memory of the NPU that the constants of a group may take. The rest is for stripes of its tensors."""


def in_groups(calls: Sequence[KernelCall], storages: Storages, budget: int) -> tuple[KernelCall, ...]:
    """Return the calls, with those in groups of channels that a memory of ``budget`` bytes could not run otherwise.

    A call in stripes has all of its constants in memory, a whole call all of its tensors. Where neither fits, each group of channels is
    a call of its own, which reads the input anew.
    """
    return tuple(part for call in calls for part in _groups(call, storages, budget))


def _groups(call: KernelCall, storages: Storages, budget: int) -> Iterator[KernelCall]:
    constants = fetched_bytes(call, storages)
    cuttable = Cuttable(call, storages)
    if constants <= MOST_CONSTANTS * budget or cuttable.blocks == 1:
        yield call
        return
    tensors = sum(view.distinct_bytes for view in call.views.values())
    if tensors + 2 * cuttable.piece_bytes(1) <= budget:
        yield call
        return
    count = min(cuttable.blocks, -(-constants // int(MOST_CONSTANTS * budget)))
    for number, (first, last) in enumerate(edges(cuttable.blocks, count)):
        yield cuttable.piece(first, last, f"{call.name}/{number}")
