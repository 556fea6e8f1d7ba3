# SPDX-License-Identifier: BSD-3-Clause
"""The events of an ETDump that ExecuTorch's runtime wrote: kernel calls of delegates, and operators on the CPU."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from executorch.devtools.etdump.serialize import deserialize_from_etdump_flatcc

from openneutron.errors import InvalidProgramError
from openneutron.features.profile.events import CallEvent, call_event

RUN = "Method::execute"
"""The event of a whole run, by which ExecuTorch's runs are counted."""

ON_CPU = "native_call_"
"""The beginning of the event's name of an operator on the CPU."""


@dataclass(frozen=True, slots=True)
class CpuEvents:
    """All calls of one operator on the CPU, and the sum of their nanoseconds."""

    calls: int
    nanoseconds: int


@dataclass(frozen=True, slots=True)
class Events:
    """The events of all runs in an ETDump. ``others`` counts kernel calls without facts, and those of other delegates."""

    runs: int
    calls: tuple[CallEvent, ...]
    on_cpu: dict[str, CpuEvents]
    others: int


def read_etdump(name: str, data: bytes) -> Events:
    """Return the events. ``name`` is the file's, for messages. Raises InvalidProgramError where it can't be read."""
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
