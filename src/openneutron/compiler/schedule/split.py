# SPDX-License-Identifier: BSD-3-Clause
"""Convolutions cut into groups of output channels, so that their constants can come to SRAM piece by piece."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping

from openneutron.compiler.schedule.schedule import Loop, Rows, Schedule, Step, Whole, Window, fetched_bytes
from openneutron.compiler.select.calls import KernelCall
from openneutron.compiler.select.storage import Storages
from openneutron.isa import aligned
from openneutron.isa.rows import LANES

_SPLITTABLE = ("conv_2d_s8", "conv_2d_1x1_s8")


@dataclasses.dataclass(frozen=True, slots=True)
class Cuttable:
    """A call that may be cut into pieces of whole ``blocks`` of 8 output channels; 1 where it can't be.

    A convolution of several groups stays as it is, and one that reads a constant operand.
    """

    call: KernelCall
    storages: Storages

    @property
    def blocks(self) -> int:
        """Blocks of output channels that can be cut apart; 1 where the call stays whole."""
        call = self.call
        channels = call.views["output"].extents[3]
        if call.kernel not in _SPLITTABLE or call.params["group_outputs"] != channels:
            return 1
        if any(self.storages[view.tensor].constant is not None for view in call.views.values()):
            return 1
        return -(-channels // LANES)

    def piece_bytes(self, blocks: int) -> int:
        """What the constants of so many blocks take in SRAM."""
        of = self.blocks
        if blocks >= of:
            return fetched_bytes(self.call, self.storages)
        return sum(aligned(len(blob) // of * blocks) for blob in self.call.constants.values())

    def piece(self, first: int, last: int, name: str, constants: bool = True) -> KernelCall:
        """The call that computes the channels of blocks [first, last); for its cost alone it needs no constants."""
        call, of = self.call, self.blocks
        output = call.views["output"]
        k0, k1 = first * LANES, min(last * LANES, output.extents[3])
        view = dataclasses.replace(
            output, extents=(*output.extents[:3], k1 - k0), offset=output.offset + k0 * output.pitches[3]
        )
        blobs = {}
        for key, blob in call.constants.items() if constants else ():
            size = len(blob) // of
            assert size * of == len(blob), "constants are whole blocks"
            blobs[key] = blob[size * first : size * last]
        params = {**call.params, "group_outputs": k1 - k0, "constant_channels": k1 - k0}
        return KernelCall(call.kernel, name, {**call.views, "output": view}, params, blobs)


def edges(blocks: int, count: int) -> Iterator[tuple[int, int]]:
    """``count`` ranges of nearly one size that cover the blocks."""
    return itertools.pairwise(blocks * part // count for part in range(count + 1))


def split_calls(schedule: Schedule, storages: Storages, counts: Mapping[int, int]) -> Schedule:
    """The schedule with call ``index`` in ``counts[index]`` pieces of fewer output channels.

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
    """A step with the calls' new numbers."""
    if isinstance(step, Loop):
        yield Loop(step.count, tuple(dataclasses.replace(part, call=places[part.call][0]) for part in step.body))
    elif isinstance(step, Whole | Rows | Window):
        assert isinstance(step, Whole) or len(places[step.call]) == 1, "a call in stripes is not cut"
        for place in places[step.call]:
            yield dataclasses.replace(step, call=place)
    else:
        yield step
