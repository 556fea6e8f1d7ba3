# SPDX-License-Identifier: BSD-3-Clause
"""Convolutions cut into groups of output channels, so that their constants can come to SRAM piece by piece."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator

from openneutron.compiler.calls import KernelCall
from openneutron.compiler.schedule import Loop, Rows, Schedule, Step, Whole, Window
from openneutron.isa import aligned
from openneutron.isa.rows import LANES

_SPLITTABLE = ("conv_2d_s8", "conv_2d_1x1_s8")


def split_calls(schedule: Schedule, most_bytes: int) -> Schedule:
    """The schedule with each whole convolution whose constants exceed ``most_bytes`` cut into calls of fewer output channels.

    Each piece reads the whole input and writes its channels of the output. A convolution of several groups, one that is
    computed in stripes, and a block of 8 channels that is larger by itself stay as they are.
    """
    calls: list[KernelCall] = []
    places: dict[int, range] = {}
    whole = {step.call for step in schedule.steps if isinstance(step, Whole)}
    for index, call in enumerate(schedule.calls):
        first = len(calls)
        calls += _pieces(call, most_bytes) if index in whole else [call]
        places[index] = range(first, len(calls))
    steps: list[Step] = []
    for step in schedule.steps:
        steps += _moved(step, places)
    return dataclasses.replace(schedule, calls=tuple(calls), steps=tuple(steps))


def _moved(step: Step, places: dict[int, range]) -> Iterator[Step]:
    """A step with the calls' new numbers."""
    if isinstance(step, Loop):
        yield Loop(step.count, tuple(dataclasses.replace(part, call=places[part.call][0]) for part in step.body))
    elif isinstance(step, Whole | Rows | Window):
        for place in places[step.call]:
            yield dataclasses.replace(step, call=place)
    else:
        yield step


def _pieces(call: KernelCall, most_bytes: int) -> list[KernelCall]:
    output = call.views["output"]
    channels = output.extents[3]
    if call.kernel not in _SPLITTABLE or call.params["group_outputs"] != channels:
        return [call]
    blocks = -(-channels // LANES)
    size = {key: len(blob) // blocks for key, blob in call.constants.items()}
    assert all(size[key] * blocks == len(blob) for key, blob in call.constants.items()), "constants are whole blocks"
    total = sum(aligned(len(blob)) for blob in call.constants.values())
    at_once = max(1, blocks * most_bytes // total)
    if at_once >= blocks:
        return [call]
    # Pieces of nearly one size: as many as the largest that fits makes.
    count = -(-blocks // at_once)
    edges = [blocks * part // count for part in range(count + 1)]
    pieces = []
    for part, (first, last) in enumerate(itertools.pairwise(edges)):
        k0, k1 = first * LANES, min(last * LANES, channels)
        view = dataclasses.replace(
            output, extents=(*output.extents[:3], k1 - k0), offset=output.offset + k0 * output.pitches[3]
        )
        pieces.append(
            KernelCall(
                call.kernel,
                f"{call.name}/{part}",
                {**call.views, "output": view},
                {**call.params, "group_outputs": k1 - k0, "constant_channels": k1 - k0},
                {key: blob[size[key] * first : size[key] * last] for key, blob in call.constants.items()},
            )
        )
    return pieces
