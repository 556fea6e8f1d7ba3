# SPDX-License-Identifier: BSD-3-Clause
"""Let copies at the border of two segments run while kernels of both compute.

A segment ends with stores that nothing hides, and the next one begins with loads that its first kernel waits for. The first loads move in front of
the last kernels before them, and the wait for the last stores moves behind the kernels after it. Example, where k and l are the last kernel
of a segment and the first one of the next::

    before   k  store  wait for stores  load  wait for loads  l
    after    load  k  store  wait for loads  l  wait for stores

A load stays behind the wait for the store of its tensor, and behind the last wait for loads, which would wait for this load too. Buffers are
live for longer, which the placement follows from the steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from openneutron.compiler.schedule.schedule import Loop, Schedule, Step, Wait, calls_in
from openneutron.compiler.search.tiles.moves import LOADS, STORES
from openneutron.compiler.select.calls import KernelCall, Storages

FURTHEST = 6
"""A load moves in front of at most so many steps, and a wait behind as many: kernels of one or two stripes hide it."""


def overlapped(schedule: Schedule, storages: Storages) -> Schedule:
    """Return the schedule with loads earlier and waits for stores later, across at most ``FURTHEST`` steps."""
    steps = [*schedule.steps]
    border = _Border(schedule.calls, storages)
    for index in range(len(steps)):
        if border.is_load(steps[index]):
            place = border.earliest(steps, index)
            steps.insert(place, steps.pop(index))
    for index in range(len(steps) - 1, -1, -1):
        if steps[index] == Wait(STORES):
            place = border.latest(steps, index)
            if place > index:
                steps.insert(place - 1, steps.pop(index))
    return replace(schedule, steps=tuple(steps))


class _Border:
    """The tensors that steps load and store."""

    def __init__(self, calls: Sequence[KernelCall], storages: Storages) -> None:
        self._calls, self._of = calls, storages.of

    def is_load(self, step: Step) -> bool:
        """Return whether a step is one load, outside a loop."""
        return not isinstance(step, Loop) and self._moves(step, LOADS)

    def earliest(self, steps: Sequence[Step], index: int) -> int:
        """Return the first place for the load at ``index``: behind kernels of earlier loops, waits for loads and stores of its tensor."""
        (load,) = calls_in(steps[index])
        tensor, place = self._of[self._calls[load].views["input"].tensor], index
        for at in range(index - 1, max(-1, index - 1 - FURTHEST), -1):
            step = steps[at]
            if isinstance(step, Loop) or step == Wait(LOADS) or self._writes(step, tensor) or self._moves(step, LOADS):
                break
            if step == Wait(STORES) and self._is_stored(steps, at, tensor):
                break
            place = at
        return place

    def latest(self, steps: Sequence[Step], index: int) -> int:
        """Return the place of the first step that the wait for stores at ``index`` must come before."""
        stored = self._stored(steps, index)
        for at in range(index + 1, min(len(steps), index + 1 + FURTHEST)):
            step = steps[at]
            reads = {
                self._of[self._calls[call].views["input"].tensor]
                for call in calls_in(step)
                if self._calls[call].is_transfer
            }
            if isinstance(step, Loop) or step == Wait(STORES) or self._moves(step, STORES) or reads & stored:
                return at
        return min(len(steps), index + 1 + FURTHEST)

    def _moves(self, step: Step, channel: int) -> bool:
        return any(
            self._calls[call].is_transfer and self._calls[call].params["channel"] == channel for call in calls_in(step)
        )

    def _writes(self, step: Step, tensor: str) -> bool:
        return any(self._of[self._calls[call].views["output"].tensor] == tensor for call in calls_in(step))

    def _stored(self, steps: Sequence[Step], wait: int) -> set[str]:
        """Return the tensors whose stores the wait at ``wait`` ends."""
        found: set[str] = set()
        for step in reversed(steps[:wait]):
            if step == Wait(STORES):
                break
            found |= {
                self._of[self._calls[call].views["output"].tensor]
                for call in calls_in(step)
                if self._moves(step, STORES)
            }
        return found

    def _is_stored(self, steps: Sequence[Step], wait: int, tensor: str) -> bool:
        return tensor in self._stored(steps, wait)
