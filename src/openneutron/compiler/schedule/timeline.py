# SPDX-License-Identifier: BSD-3-Clause
"""Modelled cycles of steps, and of a run in which constants are copied while kernels compute."""

from __future__ import annotations

from collections.abc import Mapping

from openneutron.compiler.cost.cycles import call_cost, fetch_cycles
from openneutron.compiler.schedule.schedule import Fetch, Loop, Rows, Schedule, Step, Wait, Whole, Window, calls_in
from openneutron.compiler.select.calls import KernelCall
from openneutron.targets import Target


def part_cycles(step: Whole | Rows | Window, call: KernelCall, target: Target) -> int:
    """Cycles of a call that computes all of its output, some rows, or a window."""
    extents = call.views["output"].extents
    if isinstance(step, Whole):
        return call_cost(call, target).cycles
    if isinstance(step, Rows):
        return call_cost(call, target, min(step.row1 - step.row0, extents[1])).cycles
    whole = call_cost(call, target, min(step.rows[1] - step.rows[0], extents[1]))
    part = _area(step, extents) / max(1, extents[0] * extents[2] * extents[3])
    return int(whole.compute_cycles * part) + whole.issue_cycles


def _area(step: Window, extents: tuple[int, int, int, int]) -> int:
    spans = zip((step.batches, step.cols, step.channels), (extents[0], extents[2], extents[3]), strict=True)
    area = 1
    for (start, end), extent in spans:
        area *= max(0, min(end, extent) - max(start, 0))
    return area


def compute_cycles(step: Step, schedule: Schedule, target: Target) -> int:
    """Cycles of the kernel calls that a step runs."""
    if isinstance(step, Loop):
        return step.count * sum(part_cycles(part, schedule.calls[part.call], target) for part in step.body)
    if isinstance(step, Whole | Rows | Window):
        return part_cycles(step, schedule.calls[step.call], target)
    return 0


def durations(schedule: Schedule, target: Target) -> dict[Step, int]:
    """Cycles of each step that runs kernel calls."""
    return {step: compute_cycles(step, schedule, target) for step in schedule.steps if calls_in(step)}


def spent_on_calls(schedule: Schedule, target: Target) -> list[tuple[int, int]]:
    """For each call of the schedule how often it runs, and its cycles in all."""
    runs, cycles = [0] * len(schedule.calls), [0] * len(schedule.calls)
    for step in schedule.steps:
        count, parts = (step.count, step.body) if isinstance(step, Loop) else (1, (step,))
        for part in parts:
            if isinstance(part, Whole | Rows | Window):
                runs[part.call] += count
                cycles[part.call] += count * part_cycles(part, schedule.calls[part.call], target)
    return list(zip(runs, cycles, strict=True))


def overlapped_cycles(
    schedule: Schedule, sizes: Mapping[int, int], computed: Mapping[Step, int], target: Target
) -> int:
    """Cycles of a run with a port that copies in the background, one transfer after the other.

    ``sizes`` are the bytes of each call's constants, by the call's index; ``computed`` is what ``durations`` says. A copy starts
    when its FETCH is reached and the copies before it are done; what starting one costs the host is not known and not counted.
    """
    now = copied = 0
    done: dict[int, int] = {}
    for step in schedule.steps:
        if isinstance(step, Fetch):
            copied = max(copied, now) + fetch_cycles(sizes[step.call], target)
            done[step.channel] = copied
        elif isinstance(step, Wait):
            now = max(now, done.get(step.channel, 0))
        else:
            now += computed[step]
    return now


def copy_cycles(schedule: Schedule, sizes: Mapping[int, int], target: Target) -> int:
    """Cycles that all copies of a run take together."""
    return sum(fetch_cycles(sizes[step.call], target) for step in schedule.steps if isinstance(step, Fetch))
