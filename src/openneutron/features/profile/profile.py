# SPDX-License-Identifier: BSD-3-Clause
"""The profile of a compiled file: the events of its runs, modelled cycles and measured times of each operator, and sums over operators."""

from __future__ import annotations

import struct
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from openneutron import targets
from openneutron.compiler.cost.cycles import host_of
from openneutron.compiler.cost.estimate import work_of_kernels
from openneutron.compiler.cost.host import HostOperator
from openneutron.errors import InvalidOptionError, InvalidProgramError
from openneutron.features.profile.timeline import Kind, Slice, overlap_cycles, timeline
from openneutron.features.report.latency import Latency, latency_text, parts_text
from openneutron.features.report.table import Column, Table, duration_text, facts, plural, right, size_text
from openneutron.isa import Program, decode
from openneutron.isa.listing import profile as costs_of
from openneutron.isa.microcode import OperatorFacts, calls, facts_of
from openneutron.isa.rows import KERNEL_BY_CODE, KERNEL_BY_NAME
from openneutron.targets import Target
from openneutron.targets.target import CPU, NPU

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
    """Return the kernel call that an event's metadata describe. Return None for an event of another delegate, or of a
    program that was compiled without profiling.

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
    """The events of all runs in an ETDump. ``calls`` are the kernel calls of the NPU, and ``on_cpu`` are the
    operators on the CPU by name. ``others`` is the number of other delegate events, such as those of programs that
    were compiled without profiling."""

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


LAYER, MODULE, KERNEL = "layer", "module", "kernel"

HOST = "host nanoseconds"
"""The unit of times that are measured on the host. Times of a device have the unit of its counter: ``cycles`` or
``instructions``."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """The times of the kernel calls of one operator: the number of calls that were measured, and the sum of their times."""

    calls: int
    time: int


Key = tuple[int, int]
"""The key of an operator in measurements: the checksum of its program's microcode, and its index in the program."""


def summed(times: Iterable[tuple[int, int, int]]) -> dict[Key, Measurement]:
    """Return the number of kernel calls and the sum of their times for each operator. An item of ``times`` has the
    checksum of a program, the index of an operator in it, and the time of one call."""
    found: dict[Key, Measurement] = {}
    for program, operator, time in times:
        known = found.get((program, operator), Measurement(0, 0))
        found[program, operator] = Measurement(known.calls + 1, known.time + time)
    return found


@dataclass(frozen=True, slots=True)
class OperatorProfile:
    """An operator of a program. ``cycles``, ``calls``, ``bytes`` and ``time`` are those of one run.

    ``program`` is the program's title, and ``operator`` is the operator's index in the program. ``cycles`` are
    modelled, without copies. ``time`` is the mean time of the measured calls, times ``calls``, in the unit of the
    profile; None where nothing was measured.
    """

    program: str
    operator: int
    layer: str
    module: str
    kernel: str
    operators: tuple[str, ...]
    lines: tuple[str, ...]
    calls: int
    cycles: int
    bytes: int
    time: float | None = None


@dataclass(frozen=True, slots=True)
class CpuProfile:
    """An operator on the CPU: its name, its calls in one run, and their time in nanoseconds of the host."""

    operator: str
    calls: float
    time: float


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table: the sums over operators of the NPU that belong to one layer, module or kernel called
    ``name``."""

    name: str
    kernels: tuple[str, ...]
    lines: tuple[str, ...]
    calls: int
    cycles: int
    bytes: int
    time: float | None


@dataclass(frozen=True, slots=True)
class Profile:
    """A profile of one inference. ``unit`` is the unit of the operators' times, ``host`` are the operators on the
    CPU.

    ``delegate_cycles`` are the cycles of the programs, which stop while constants are copied. ``copy_cycles`` is the
    part for the copies. ``overlapped_cycles`` are the cycles of an inference if the driver copies in the background,
    and ``slices`` are the schedule for this case. All three contain ``implied_copy_cycles``: copies of weights that
    the chip's SRAM does not hold, which no program contains.

    If the chip's copy engine itself works in the background, ``delegate_cycles`` too are computed from ``slices``,
    and ``copy_cycles`` are those in which kernels wait for copies.
    """

    file: str
    target: Target
    unit: str
    operators: tuple[OperatorProfile, ...] = field(repr=False)
    on_cpu: tuple[CpuProfile, ...] = field(repr=False)
    delegate_cycles: int
    slices: tuple[Slice, ...] = field(repr=False)
    host: tuple[HostOperator, ...] = field(default=(), repr=False)
    implied_copy_cycles: int = 0

    @property
    def latency(self) -> Latency:
        """Return the modelled latency of one inference with its parts."""
        npu = self.delegate_cycles - self.copy_cycles - self.cpu_call_cycles
        costs = ((KERNEL_BY_NAME[item.kernel], item.calls, item.cycles) for item in self.operators)
        spent = work_of_kernels(costs, self.copy_cycles, self.target)
        return Latency(self.target, npu, self.copy_cycles, self.host, self.cpu_call_cycles, spent)

    @property
    def cpu_call_cycles(self) -> int:
        """Return the cycles of the operators of the programs that the host core computes, beside the NPU."""
        return sum(item.cycles for item in self.operators if self.is_on_cpu(item.kernel))

    def is_on_cpu(self, kernel: str) -> bool:
        """Return whether the host core makes the calls of a kernel, beside the NPU."""
        return host_of(KERNEL_BY_NAME[kernel], self.target) is not None

    @property
    def copy_cycles(self) -> int:
        """Return the cycles of all copies of constants. If the chip's copy engine works in the background, count only
        the cycles in which kernels wait for copies."""
        if self.target.copies_in_background:
            return sum(item.cycles for item in self.slices if item.kind is Kind.WAIT) + self.implied_copy_cycles
        return self.delegate_cycles - sum(item.cycles for item in self.operators)

    @property
    def overlapped_cycles(self) -> int:
        """Return the cycles of an inference with a port that copies in the background."""
        return max((item.end for item in self.slices), default=0) + self.implied_copy_cycles + self.latency.host_cycles

    def rows(self, by: str) -> list[Row]:
        """Return the operators grouped in rows. ``by`` is ``LAYER``, ``MODULE`` or ``KERNEL``; a layer has one
        operator. A row has the position of its first operator."""
        groups: dict[object, list[OperatorProfile]] = {}
        for item in self.operators:
            key = (item.program, item.operator) if by == LAYER else item.kernel if by == KERNEL else module_of(item)
            groups.setdefault(key, []).append(item)
        return [_row(items[0].layer if by == LAYER else str(key), items) for key, items in groups.items()]

    def to_dict(self, by: str) -> dict[str, Any]:
        """Return the profile as values for JSON, with its rows by ``by``."""
        return {
            "file": self.file,
            "target": self.target.name,
            "clock_mhz": self.target.clock.value,
            "unit_of_time": self.unit,
            "modelled_cycles": self.latency.cycles,
            "npu_cycles": self.latency.npu_cycles,
            "cpu_call_cycles": self.cpu_call_cycles,
            "copy_cycles": self.copy_cycles,
            "host_cycles": self.latency.host_cycles,
            "host_operators_not_modelled": self.latency.operators_not_modelled,
            "overlapped_cycles": self.overlapped_cycles,
            "by": by,
            "rows": [asdict(row) for row in self.rows(by)],
            "operators": [asdict(item) for item in self.operators],
            "on_cpu": [asdict(item) for item in self.on_cpu],
        }


TOP_LEVEL = "(top level)"


def module_of(item: OperatorProfile) -> str:
    """Return the module of an operator; TOP_LEVEL for operators of the model itself. LiteRT files have no modules:
    for their operators, return the layer's name up to the last ``/``, or the whole name if it has none."""
    if item.module or item.operators or item.lines:
        return item.module or TOP_LEVEL
    return item.layer.rpartition("/")[0] or item.layer


def _row(name: str, items: Sequence[OperatorProfile]) -> Row:
    times = [item.time for item in items if item.time is not None]
    return Row(
        name,
        tuple(dict.fromkeys(item.kernel for item in items)),
        tuple(dict.fromkeys(line for item in items for line in item.lines)),
        sum(item.calls for item in items),
        sum(item.cycles for item in items),
        sum(item.bytes for item in items),
        sum(times) if times else None,
    )


Programs = Sequence[tuple[str, Program]]


def modelled(
    file: str,
    programs: Programs,
    target: Target,
    host: tuple[HostOperator, ...] = (),
    implied_copy_cycles: int = 0,
) -> Profile:
    """Return the profile of a file without measured times. ``implied_copy_cycles`` is that of ``LoadedSummary``.

    Raises InvalidProgramError where a program was compiled without profiling.
    """
    slices: list[Slice] = []
    operators = [item for title, program in programs for item in _operators(file, title, program)]
    for _, program in programs:
        start = max((item.end for item in slices), default=0)
        slices += timeline(decode(program), [item.layer for item in facts_of(program)], target, start)
    cycles = sum(decode(program).cycles for _, program in programs)
    if target.copies_in_background:
        cycles = max((item.end for item in slices), default=0)
    cycles += implied_copy_cycles
    return Profile(file, target, HOST, tuple(operators), (), cycles, tuple(slices), host, implied_copy_cycles)


def _operators(file: str, title: str, program: Program) -> Iterator[OperatorProfile]:
    facts = facts_of(program)
    if not facts:
        raise InvalidProgramError(
            f"'{file}' was compiled without profiling: {title} has no names of layers, and its runs leave no events. Compile "
            "the model again with --profile."
        )
    for index, (fact, cost) in enumerate(zip(facts, costs_of(program), strict=True)):
        yield OperatorProfile(
            title,
            index,
            fact.layer,
            fact.module,
            cost.kernel,
            fact.operators,
            fact.lines,
            cost.calls,
            cost.cycles,
            fact.bytes,
        )


def checksum(program: Program) -> int:
    """Return the checksum of a program's microcode, which identifies the program in measurements."""
    return program.header["microcode_crc"]


def measured(
    profile: Profile,
    programs: Programs,
    unit: str,
    times: Mapping[Key, Measurement],
    on_cpu: Iterable[CpuProfile] = (),
) -> Profile:
    """Return the profile with the measured times of a run. The time of an operator is the mean time of its measured
    calls, times its calls in one run. ``unit`` is the unit of ``times``."""
    checksums = {title: checksum(program) for title, program in programs}
    operators = []
    for item in profile.operators:
        found = times.get((checksums[item.program], item.operator))
        time = None if found is None else found.time / found.calls * item.calls
        operators.append(replace(item, time=time))
    return replace(profile, unit=unit, operators=tuple(operators), on_cpu=tuple(on_cpu))


def check_times(source: str, file: str, what: str, programs: Programs, times: Mapping[Key, Measurement]) -> None:
    """Check that measurements are of whole runs of these programs. Raises InvalidProgramError if a measured program
    is unknown, since it belongs to another model or build, or if the operators were measured in different numbers of
    runs."""
    made = {checksum(program): Counter(step.operator for step in calls(decode(program))) for _, program in programs}
    unknown = next((number for number, _ in times if number not in made), None)
    if unknown is not None:
        raise InvalidProgramError(
            f"--from {source}: it is {what} of another model, or of another build of it: '{file}' has no program with the "
            f"checksum 0x{unknown:08x}. Give the file that ran."
        )
    for number, counts in made.items():
        found = {operator: times.get((number, operator), Measurement(0, 0)).calls for operator in counts}
        runs = max(found[operator] / count for operator, count in counts.items())
        for operator, count in counts.items():
            if found[operator] != runs * count:
                raise InvalidProgramError(
                    f"--from {source}: it has {plural(found[operator], 'call')} of operator {operator}, which '{file}' calls "
                    f"{count} times a run, but {runs:g} runs of another operator. Record it again, whole runs alone."
                )


KERNELS_SHOWN = 3


def profile_table(profile: Profile, by: str) -> RenderableType:
    """Return the totals of a profile, a table of its operators by ``by``, and a table of its operators on the CPU."""
    rows = profile.rows(by)
    parts: list[RenderableType] = [
        Text.assemble((profile.file, "bold"), f"  for {profile.target.name} ({profile.target.title})"),
        facts(_totals(profile)),
        "",
        Table((Column(by, [row.name for row in rows], names=True), *_columns(profile, rows, by))),
    ]
    if profile.on_cpu:
        columns = (
            Column("on the CPU", [item.operator for item in profile.on_cpu], names=True),
            right("calls", [item.calls for item in profile.on_cpu], text="{:g}".format),
            right("this computer", [item.time / 1e6 for item in profile.on_cpu], text=duration_text),
        )
        parts += ["", Table(columns)]
    return Group(*parts)


def _totals(profile: Profile) -> list[tuple[str, str]]:
    target = profile.target
    rows = [("Latency", latency_text(profile.latency)), ("Time on", parts_text(profile.latency))]
    if target.copies_in_background:
        copying = sum(item.cycles for item in profile.slices if item.kind is Kind.COPY)
        words = f"{copying:,} cycles in parallel to the kernels, which wait {profile.copy_cycles:,} cycles for them"
        rows.append(("Copies", words))
    elif profile.copy_cycles:
        hidden = overlap_cycles(profile.slices)
        rows.append(
            (
                "Copies",
                f"{profile.copy_cycles:,} cycles; {hidden:,} of them behind kernels with a port that copies in the "
                f"background, which takes {profile.overlapped_cycles:,} cycles",
            )
        )
    times = [item.time for item in profile.operators if item.time is not None]
    if times and profile.unit == HOST:
        rows.append(
            ("Simulator", f"{duration_text(sum(times) / 1e6)} of this computer in kernels of the simulated NPU")
        )
    elif times:
        rows.append(("Device", f"{round(sum(times)):,} counted {profile.unit} in kernels"))
    rows.append(("Calls", plural(sum(item.calls for item in profile.operators), "kernel call")))
    return rows


def _columns(profile: Profile, rows: Sequence[Row], by: str) -> list[Column]:
    total = sum(row.cycles for row in rows) or 1
    shown = []
    if by != KERNEL:
        shown.append(Column("kernel", [_listed(row.kernels) for row in rows], style="cyan"))
    if by == LAYER and any(row.lines for row in rows):
        shown.append(Column("source", [row.lines[0] if row.lines else "" for row in rows], goes=2))
    if any(row.time is not None for row in rows):
        heading = "simulator" if profile.unit == HOST else f"device {profile.unit}"
        shown.append(right(heading, [_time_text(profile.unit, row.time) for row in rows]))
    beside = [any(map(profile.is_on_cpu, row.kernels)) for row in rows]
    if any(beside):
        shown.append(Column("on", [_places(profile, row) for row in rows]))
    return [
        *shown,
        right("cycles" if any(beside) else "NPU cycles", [row.cycles for row in rows]),
        right("share", [f"{100 * row.cycles / total:.1f} %" for row in rows], goes=1),
        right("calls", [row.calls for row in rows], goes=3),
        right("bytes", [row.bytes for row in rows], goes=4, text=size_text),
    ]


def _places(profile: Profile, row: Row) -> str:
    """Return the processors that make the calls of a row's kernels."""
    places = dict.fromkeys(CPU if profile.is_on_cpu(kernel) else NPU for kernel in row.kernels)
    return ", ".join(place.upper() for place in places)


def _listed(names: Sequence[str]) -> str:
    more = ", ..." if len(names) > KERNELS_SHOWN else ""
    return ", ".join(names[:KERNELS_SHOWN]) + more


def _time_text(unit: str, time: float | None) -> str:
    if time is None:
        return ""
    return duration_text(time / 1e6) if unit == HOST else f"{round(time):,}"


BEGIN = "openneutron-profile,1,"
END = "openneutron-profile,end,"
COLUMNS = ("program", "checksum", "call", "kernel", "time")


def read_device_csv(name: str, text: str, programs: Programs) -> tuple[str, dict[Key, Measurement]]:
    """Return the times in a CSV that a device printed: their unit, ``cycles`` or ``instructions``, and the sum for each
    operator.

    ``name`` is the file's name for messages. Times of a program that is not in ``programs`` are counted for its
    operator 0. Raises InvalidProgramError where the text has no profile, or a damaged or incomplete one.
    """
    operators = {checksum(program): [step.operator for step in calls(decode(program))] for _, program in programs}
    lines = [line.strip() for line in text.splitlines()]
    begun = next((at for at, line in enumerate(lines) if line.startswith(BEGIN)), None)
    if begun is None:
        raise InvalidProgramError(
            f"--from {name}: it is no profile: it is no ETDump, and no line of it begins with '{BEGIN}', as the profile of a "
            "bundle's example does."
        )
    ended = next((at for at in range(begun, len(lines)) if lines[at].startswith(END)), None)
    rows = lines[begun + 2 : ended]
    if ended is None or lines[ended] != f"{END}{len(rows)}" or lines[begun + 1] != ",".join(COLUMNS):
        raise InvalidProgramError(
            f"--from {name}: the profile that begins in line {begun + 1} is incomplete. Record it again, up to the line that "
            f"begins with '{END}'."
        )
    times: list[tuple[int, int, int]] = []
    for number, row in enumerate(rows, begun + 3):
        fields = row.split(",")
        if len(fields) != len(COLUMNS) or not all(field.isascii() and field.isdigit() for field in fields):
            raise InvalidProgramError(
                f"--from {name}: line {number} is '{row}'; a row has {len(COLUMNS)} numbers: {', '.join(COLUMNS)}. Record it "
                "again."
            )
        _, program, call, _, time = map(int, fields)
        known = operators.get(program, [])
        if program in operators and call >= len(known):
            raise InvalidProgramError(
                f"--from {name}: line {number} has kernel call {call} of a program that makes {plural(len(known), 'call')} a run. "
                "Record it again."
            )
        times.append((program, known[call] if known else 0, time))
    return lines[begun].removeprefix(BEGIN), summed(times)
