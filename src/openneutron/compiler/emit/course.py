# SPDX-License-Identifier: BSD-3-Clause
"""The course of a run as data: its steps with their cycles, and the bytes that each kernel call moves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from openneutron.compiler.cost.cycles import fetch_cycles
from openneutron.compiler.emit.packing import Packed, packed
from openneutron.compiler.schedule.schedule import (
    Fetch,
    Loop,
    Rows,
    Schedule,
    Step,
    Wait,
    Whole,
    calls_in,
    compute_cycles,
    constant_operands,
    fetched_bytes,
)
from openneutron.compiler.select.calls import KernelCall, Storages, View
from openneutron.targets import Target

KINDS = {Whole: "whole", Rows: "rows", Loop: "loop", Fetch: "copy", Wait: "wait"}
"""The name of each kind of step in reports."""


@dataclass(frozen=True, slots=True)
class StepReport:
    """A step of a run: its kind (``whole``, ``rows``, ``loop``, ``copy`` or ``wait``), the numbers of its kernel calls, the
    number of its iterations, and its cycles, all iterations included.

    A copy of constants has the number of the call that needs them, with the address in the arena (behind its end: in the
    prefetch buffer) and the size.
    """

    kind: str
    calls: tuple[int, ...]
    times: int
    cycles: int
    offset: int = 0
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Traffic:
    """The storages that a kernel call reads and writes, by name, and the bytes: each byte of a tensor counts once.

    ``weights_bytes`` are the constants of the call, tables whole. Equal constants of two calls are in a program once.
    """

    reads: tuple[str, ...]
    writes: tuple[str, ...]
    read_bytes: int
    written_bytes: int
    weights_bytes: int


def steps_of(schedule: Schedule, sizes: Mapping[int, int], target: Target) -> tuple[StepReport, ...]:
    """Return the steps of a schedule; ``sizes`` are the bytes of each call's constants, by the call's index."""
    return tuple(_step(step, schedule, sizes, target) for step in schedule.steps)


def _step(step: Step, schedule: Schedule, sizes: Mapping[int, int], target: Target) -> StepReport:
    kind = KINDS[type(step)]
    if isinstance(step, Fetch):
        size = sizes[step.call]
        return StepReport(kind, (step.call,), 1, fetch_cycles(size, target), step.destination, size)
    times = step.count if isinstance(step, Loop) else 1
    return StepReport(kind, calls_in(step), times, compute_cycles(step, schedule, target))


def traffic(call: KernelCall, storages: Storages) -> Traffic:
    """Return the storages and the bytes that a call reads and writes."""
    inputs: dict[str, View] = {}
    for name, view in call.views.items():
        if call.reads(name) and storages[view.tensor].constant is None:
            inputs.setdefault(storages.of[view.tensor], view)
    results = {storages.of[call.views[name].tensor]: call.views[name] for name in call.results}
    return Traffic(
        reads=tuple(inputs),
        writes=tuple(results),
        read_bytes=sum(view.distinct_bytes for view in inputs.values()),
        written_bytes=sum(view.distinct_bytes for view in results.values()),
        weights_bytes=fetched_bytes(call, storages)
        + sum(map(len, constant_operands(call, storages, kept=True).values())),
    )


def least_traffic_bytes(schedule: Schedule, storages: Storages, known: Packed | None = None) -> int:
    """Return a lower bound of the bytes that any schedule of the calls copies between external memory and the memory of the NPU.

    The bound counts the largest part of each input that a call reads, each output once, and each constant once. ``known``: see ``packed``.
    """
    total = sum(storage.size_bytes for storage in storages.storages.values() if storage.output is not None)
    read: dict[str, int] = {}
    constants: dict[object, int] = {}
    for call in schedule.calls:
        for name, view in call.views.items():
            storage = storages[view.tensor]
            if storage.input is not None and call.reads(name):
                read[storage.name] = max(read.get(storage.name, 0), view.distinct_bytes)
        for blob in (*packed(call, known).values(), *constant_operands(call, storages).values()):
            constants[blob] = len(blob)
    return total + sum(read.values()) + sum(constants.values())


def rows_held(schedule: Schedule, storages: Storages) -> dict[str, tuple[int, int]]:
    """Return the rows of each rolling buffer, and the rows of its tensor, by the storage's name."""
    rows: dict[str, tuple[int, int]] = {}
    for call in schedule.calls:
        for view in call.views.values():
            name = storages.of[view.tensor]
            if name in schedule.rings:
                whole = max(view.extents[1], rows.get(name, (0, 0))[1])
                rows[name] = (schedule.rings[name], whole)
    return rows
