# SPDX-License-Identifier: BSD-3-Clause
"""Convolutions cut into groups of output channels, so that their constants can come to SRAM piece by piece."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping

from openneutron.compiler.schedule.needs import some_channels, takes_channels
from openneutron.compiler.schedule.schedule import Loop, Rows, Schedule, Step, Whole, Window, fetched_bytes
from openneutron.compiler.select.calls import KernelCall, Storages
from openneutron.isa.rows import LANES


@dataclasses.dataclass(frozen=True, slots=True)
class Cuttable:
    """A call that may be cut into pieces of whole ``blocks`` of 8 output channels; 1 where it can't be.

    A convolution of several groups stays as it is, and one that reads a constant operand.
    """

    call: KernelCall
    storages: Storages

    @property
    def blocks(self) -> int:
        """Return the blocks of output channels that can be cut apart; 1 where the call stays whole."""
        call, channels = self.call, self.call.traits.channels
        if channels is None or channels.same or not takes_channels(call):
            return 1
        if any(self.storages[view.tensor].constant is not None for view in call.views.values()):
            return 1
        return -(-call.views["output"].extents[3] // LANES)

    def piece_bytes(self, blocks: int) -> int:
        """Return the bytes of SRAM of the constants of so many blocks."""
        whole = blocks >= self.blocks
        return fetched_bytes(self.call if whole else self.piece(0, blocks, ""), self.storages)

    def piece(self, first: int, last: int, name: str) -> KernelCall:
        """Return the call that computes the channels of blocks [first, last)."""
        channels = self.call.views["output"].extents[3]
        part = some_channels(self.call, (first * LANES, min(last * LANES, channels)))
        return dataclasses.replace(part, name=name)


def edges(blocks: int, count: int) -> Iterator[tuple[int, int]]:
    """Yield ``count`` ranges of nearly one size that cover the blocks."""
    return itertools.pairwise(blocks * part // count for part in range(count + 1))


def split_calls(schedule: Schedule, storages: Storages, counts: Mapping[int, int]) -> Schedule:
    """Return the schedule with call ``index`` in ``counts[index]`` pieces of fewer output channels.

    Each piece reads the whole input and writes its channels of the output. Only calls that are computed whole can be cut.
    """
    calls: list[KernelCall] = []
    places: dict[int, range] = {}
    for index, call in enumerate(schedule.calls):
        start, count = len(calls), counts.get(index, 1)
        if count > 1:
            cuttable = Cuttable(call, storages)
            for part, (first, last) in enumerate(edges(cuttable.blocks, count)):
                calls.append(cuttable.piece(first, last, f"{call.name}/{part}"))
        else:
            calls.append(call)
        places[index] = range(start, len(calls))
    steps: list[Step] = []
    for step in schedule.steps:
        steps += _moved(step, places)
    return dataclasses.replace(schedule, calls=tuple(calls), steps=tuple(steps))


def _moved(step: Step, places: dict[int, range]) -> Iterator[Step]:
    if isinstance(step, Loop):
        yield Loop(step.count, tuple(dataclasses.replace(part, call=places[part.call][0]) for part in step.body))
    elif isinstance(step, Whole | Rows | Window):
        assert isinstance(step, Whole) or len(places[step.call]) == 1, "a call in stripes is not cut"
        for place in places[step.call]:
            yield dataclasses.replace(step, call=place)
    else:
        yield step
