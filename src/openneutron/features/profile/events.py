# SPDX-License-Identifier: BSD-3-Clause
"""The events that the ExecuTorch delegate logs, as read from an ETDump and as ExecuTorch's Inspector gets them."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from openneutron import targets
from openneutron.errors import InvalidOptionError, InvalidProgramError
from openneutron.isa.microcode import OperatorFacts
from openneutron.isa.rows import KERNEL_BY_CODE

_HEAD = struct.Struct("<BBHIIIQ")
"""The binary layout of the struct EventFacts in runtime/delegate/profile.h."""

VERSION = 1

PER_SECOND = {"ns": 1e9, "us": 1e6, "ms": 1e3, "s": 1.0}
"""The units of time that the Inspector's TimeScale has, each with its number in a second."""

CYCLES = "cycles"


@dataclass(frozen=True, slots=True)
class CallEvent:
    """A kernel call in an ETDump.

    ``program`` is the checksum of the microcode, which distinguishes the programs of a model. ``cycles`` are modelled;
    ``host_nanoseconds`` is the time of the kernel on the machine that ran it, with the driver's own time.
    """

    program: int
    operator: int
    kernel: str
    cycles: int
    host_nanoseconds: int
    facts: OperatorFacts


def call_event(metadata: bytes) -> CallEvent | None:
    """Return the kernel call that an event's metadata describe; None for an event of another delegate, or of a program
    without facts.

    Raises InvalidProgramError where the metadata are of another version, or damaged.
    """
    if len(metadata) < _HEAD.size:
        return None
    _, version, kernel, operator, cycles, program, nanoseconds = _HEAD.unpack_from(metadata)
    if version != VERSION:
        raise InvalidProgramError(
            f"event: the version of its metadata is {version}; this version reads {VERSION}. Run the model again."
        )
    row = KERNEL_BY_CODE.get(kernel)
    try:
        facts = OperatorFacts.of_line(f"\t{metadata[_HEAD.size :].decode()}")
    except ValueError as error:
        raise InvalidProgramError("event: its metadata can't be read. Run the model again.") from error
    return CallEvent(program, operator, "unknown" if row is None else row.name, cycles, nanoseconds, facts)


def parse_delegate_metadata(metadatas: Sequence[bytes]) -> dict[str, Any]:
    """Return what an event's metadata state, for the Inspector's ``delegate_metadata_parser``.

    Args:
        metadatas: The metadata of an event, one item for each run.

    Returns:
        ``module``, ``source`` (the lines of the model's code), ``operators``, ``kernel``, ``npu_cycles`` (modelled),
        ``host_us`` (the mean time of the kernel on the machine that ran it) and ``bytes``. Metadata of other delegates give
        an empty dict.

    >>> from executorch.devtools import Inspector  # doctest: +SKIP
    >>> inspector = Inspector(
    ...     etdump_path="net.etdump",
    ...     etrecord="net.etrecord",
    ...     delegate_metadata_parser=parse_delegate_metadata,
    ...     delegate_time_scale_converter=delegate_time_scale_converter(),
    ... )  # doctest: +SKIP
    """
    events = [event for item in metadatas if isinstance(item, bytes) and (event := call_event(item)) is not None]
    if not events:
        return {}
    first = events[0]
    return {
        "module": first.facts.module,
        "source": ", ".join(first.facts.lines),
        "operators": ", ".join(first.facts.operators),
        "kernel": first.kernel,
        "npu_cycles": first.cycles,
        "host_us": sum(event.host_nanoseconds for event in events) / len(events) / 1e3,
        "bytes": first.facts.bytes,
    }


def delegate_time_scale_converter(
    target: str = "imxrt700", time_scale: Any = "ms"
) -> Callable[[int | str, int | float], int | float]:
    """Return a function that converts modelled NPU cycles, for the Inspector's ``delegate_time_scale_converter``.

    Args:
        target: The chip, whose clock converts cycles to a time.
        time_scale: The Inspector's ``target_time_scale``, or its value: ``ns``, ``us``, ``ms``, ``s``, or ``cycles``, which
            leaves cycles as they are.

    Returns:
        The function of an event's name and of its cycles.

    Raises:
        InvalidTargetError: The target is unknown.
        InvalidOptionError: The time scale is unknown.

    >>> delegate_time_scale_converter()("0 conv", 324_000)
    1.0
    """
    unit = getattr(time_scale, "value", time_scale)
    clock = targets.get(target).clock.value * 1e6
    if unit == CYCLES:
        return lambda _name, cycles: cycles
    if unit not in PER_SECOND:
        known = ", ".join((*PER_SECOND, CYCLES))
        raise InvalidOptionError(f"time_scale: '{unit}' is unknown; it is one of {known}.")
    return lambda _name, cycles: cycles / clock * PER_SECOND[unit]


RUN = "Method::execute"
"""The name of the event of a whole run. The number of these events is the number of runs."""

ON_CPU = "native_call_"
"""The prefix of the name of an event for an operator on the CPU."""


@dataclass(frozen=True, slots=True)
class CpuEvents:
    """The number of calls of one operator on the CPU, and the sum of their times in nanoseconds."""

    calls: int
    nanoseconds: int


@dataclass(frozen=True, slots=True)
class Events:
    """The events of all runs in an ETDump. ``calls`` are the kernel calls of the NPU, ``on_cpu`` the operators on the
    CPU by name. ``others`` is the number of delegates' events that have no facts of this project."""

    runs: int
    calls: tuple[CallEvent, ...]
    on_cpu: dict[str, CpuEvents]
    others: int


def read_etdump(name: str, data: bytes) -> Events:
    """Return the events in an ETDump. Messages call the file ``name``. Raises InvalidProgramError where the file can't
    be read, and ModuleNotFoundError without ExecuTorch."""
    from executorch.devtools.etdump.serialize import deserialize_from_etdump_flatcc

    try:
        dump = deserialize_from_etdump_flatcc(data)
    # flatc's failures are RuntimeErrors, those of ExecuTorch's reader any exception.
    except Exception as error:
        raise InvalidProgramError(f"'{name}' is no ETDump, or a damaged one. Record it again.") from error
    calls: list[CallEvent] = []
    on_cpu: dict[str, list[int]] = defaultdict(list)
    runs = others = 0
    for event in (event.profile_event for run in dump.run_data for event in run.events or ()):
        if event is None:
            continue
        if event.delegate_debug_id_str is None and event.delegate_debug_id_int in (None, -1):
            runs += event.name == RUN
            if event.name and event.name.startswith(ON_CPU):
                on_cpu[event.name.removeprefix(ON_CPU)].append(event.end_time - event.start_time)
            continue
        call = call_event(bytes(event.delegate_debug_metadata or b""))
        if call is None:
            others += 1
        else:
            calls.append(call)
    operators = {operator: CpuEvents(len(times), sum(times)) for operator, times in on_cpu.items()}
    return Events(max(runs, 1), tuple(calls), operators, others)
