# SPDX-License-Identifier: BSD-3-Clause
"""Chips: one TOML file each, every number with its source."""

from __future__ import annotations

import difflib
import re
import tomllib
import zlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from openneutron.errors import InvalidTargetError
from openneutron.targets.target import (
    ACTIVATIONS,
    BACKGROUND,
    CONSTANTS,
    CORE,
    CPU,
    FAMILIES,
    GENERATIONS,
    HOST,
    INT8,
    INT16,
    KINDS,
    PORT_NAMES,
    RELEASES,
    SYNCHRONOUS,
    CopyEngine,
    Costs,
    Cpu,
    Entry,
    Fact,
    Host,
    Jobs,
    Memory,
    Npu,
    Number,
    Port,
    Target,
    Threads,
    Words,
    entries,
    release_named,
)

ARENA_ALIGNMENT = 16
"""The alignment of the buffers of a program, in bytes (``isa.rows.ALIGNMENT``). Chips that need another alignment can't
be compiled for."""


MOST_REGIONS = 3
"""The memories of a CPU that may hold activations: a program has a buffer for each (``openneutron.isa.rows.REGIONS``)."""


def contradictions(target: Target) -> Iterator[tuple[str, str]]:
    """Yield each contradiction between the facts of a chip: the path of the entry in the file, and a message."""
    yield from _in_memories(target)
    for index, engine in enumerate(target.copy_engines):
        # This project does not compile for a Neutron-S without a copy engine between two memories (Target.obstacle).
        if engine.source == engine.destination and not target.moves_tiles:
            yield (
                f"copy_engine.{index}.source",
                f"it is '{engine.source}', as the destination is; a copy engine copies between two memories.",
            )
        if target.moves_tiles and engine.mode.value != (BACKGROUND,):
            yield (
                f"copy_engine.{index}.mode",
                f"its value is {SYNCHRONOUS}; the data mover of a {target.family} works beside the kernels. Write '{BACKGROUND}'.",
            )
    if INT8 not in target.npu.data_types.value:
        yield "npu.data_types", f"{INT8} is missing; the compiler takes it for granted. Add '{INT8}'."


def _in_memories(target: Target) -> Iterator[tuple[str, str]]:
    for index, memory in enumerate(target.memories):
        if ACTIVATIONS not in memory.holds.value:
            continue
        for name, words in (("readers", memory.readers), ("writers", memory.writers)):
            if target.processor not in words.value:
                yield (
                    f"memory.{index}.{name}",
                    f"{target.processor} is missing; the {target.processor.upper()} reads and writes the memory of {ACTIVATIONS}. "
                    f"Add '{target.processor}'.",
                )
        if ARENA_ALIGNMENT % memory.alignment.value != 0:
            yield (
                f"memory.{index}.alignment",
                f"its value is {memory.alignment.value:g}; buffers of {ACTIVATIONS} are at multiples of {ARENA_ALIGNMENT} bytes.",
            )
    if not any(CONSTANTS in memory.holds.value for memory in target.memories):
        yield "memory", f"no memory holds {CONSTANTS}; at least one does."


Part = TypeVar("Part")

_TABLE = re.compile(r"\s*\[(\[?)([A-Za-z0-9_.-]+)\]?\]")
_KEY = re.compile(r"\s*([A-Za-z0-9_-]+)\s*=")


def _places(text: str) -> list[tuple[int, str]]:
    """Return the line and the path of each table and entry of a file. Examples of paths are ``npu`` and ``npu.clock``;
    for the second memory, ``memory.1`` and ``memory.1.size``."""
    found: list[tuple[int, str]] = []
    counts: dict[str, int] = {}
    table = ""
    for line, words in enumerate(text.splitlines(), 1):
        if head := _TABLE.match(words):
            table = head[2]
            if head[1]:
                counts[table] = counts.get(table, -1) + 1
                table = f"{table}.{counts[table]}"
            found.append((line, table))
        elif key := _KEY.match(words):
            found.append((line, f"{table}.{key[1]}" if table else key[1]))
    return found


def _lines(text: str) -> dict[str, int]:
    """Return the first line of each table and entry, by its path."""
    return {place: line for line, place in reversed(_places(text))}


def _no_toml(text: str, line: int, words: str) -> str:
    """Return the message for a file that is not valid TOML. It names the entry or table that occurs twice, or else
    repeats the parser's message."""
    before = [(number, place) for number, place in _places(text) if number < line]
    here = dict(_places(text)).get(line, "")
    for number, place in before:
        if here and place == here:
            return f"{here}: line {number} has it too. Delete one of the two."
        if here.removesuffix(".0") == place and here != place:
            return f"{place}: line {number} has [{place}] and this line [[{place}]]. Write [[{place}]] in both."
    return f"it is no TOML: {words}."


class _ChipFile:
    """A chip's file while it is read, with the line of each entry for error messages."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            text = path.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            words = error.strerror if isinstance(error, OSError) else "it is no text in UTF-8"
            raise InvalidTargetError(f"{path}: it can't be read: {words}. Give the path of a .toml file.") from error
        try:
            self.content = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            found = re.search(r"at line (\d+)", str(error))
            line = int(found[1]) if found else 1
            raise InvalidTargetError(f"{path}:{line}: {_no_toml(text, line, str(error))}") from error
        self.lines = _lines(text)

    def error(self, place: str, words: str) -> InvalidTargetError:
        """Return the error for an entry, with its line. For an absent entry, it is the line of its table, or else the
        first line of the file."""
        where = place
        while where and where not in self.lines:
            where = where.rpartition(".")[0]
        line = self.lines.get(where) or self.lines.get(f"{place}.0", 1)
        return InvalidTargetError(f"{self.path}:{line}: {place}: {words}")

    def check_names(self, place: str, given: Mapping[str, Any], known: Collection[str]) -> None:
        """Raise InvalidTargetError for an entry that is not among ``known``."""
        for name in given:
            if name not in known:
                near = difflib.get_close_matches(name, known, 1)
                hint = f" Did you mean '{near[0]}'?" if near else f" There are {', '.join(known)}."
                raise self.error(f"{place}.{name}" if place else name, f"it is unknown.{hint}")

    def text(self, place: str, given: Mapping[str, Any], choices: Collection[str] = ()) -> str:
        """Return an entry whose value is a text. Raises InvalidTargetError if it is not a text, or not one of
        ``choices`` (if there are any)."""
        value = given.get(place.rpartition(".")[2])
        if not isinstance(value, str):
            said = "it is missing" if value is None else f"it is {value!r}"
            raise self.error(place, f"{said}; it is a text in quotes.")
        if choices and value not in choices:
            raise self.error(
                place,
                f"it is '{value}'; it is one of {', '.join(filter(None, choices))}{' or empty' if '' in choices else ''}.",
            )
        return value

    def table(self, place: str) -> Mapping[str, Any]:
        """Return a table that the file has exactly once."""
        value = self.content.get(place)
        if not isinstance(value, dict):
            said = "it is missing" if value is None else f"it is no table [{place}]"
            raise self.error(place, f"{said}. Write one table [{place}].")
        return value

    def tables(self, place: str) -> list[Mapping[str, Any]]:
        """Return the tables of a kind that a file may have several times, such as ``memory``. Each has a unique name."""
        value = self.content.get(place)
        if not isinstance(value, list) or not value or not all(isinstance(item, dict) for item in value):
            said = "it is missing" if value is None else f"it is no table [[{place}]]"
            raise self.error(place, f"{said}. Write at least one table [[{place}]].")
        taken: list[str] = []
        for index, given in enumerate(value):
            if (name := self.text(f"{place}.{index}.name", given)) in taken:
                raise self.error(f"{place}.{index}.name", f"'{name}' is the name of another one. Choose another name.")
            taken.append(name)
        return value

    def facts(self, place: str, part: type, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the facts of a table by name."""
        self.check_names(place, given, [item.name for item in fields(part)])
        return {name: self.fact(f"{place}.{name}", entry, given.get(name)) for name, entry in entries(part).items()}

    def fact(self, place: str, entry: Entry, given: Any) -> Fact:
        """Return one fact of an inline table with a value, a unit and a source."""
        if given is None:
            raise self.error(
                place, f"it is missing: {entry.doc}. Write {place.rpartition('.')[2]} = {_example(entry)}."
            )
        if not isinstance(given, dict):
            raise self.error(place, f"it is {given!r}; it has a value and a source: {_example(entry)}.")
        self.check_names(place, given, ("value", "unit", "source"))
        source = given.get("source")
        if not isinstance(source, str) or not re.match(f"({'|'.join(KINDS)}): .", source):
            said = "it has no source" if source is None else f"its source is {source!r}"
            raise self.error(
                place, f'{said}; a source begins with one of {", ".join(KINDS)}, then ": " and by whom or why.'
            )
        if entry.is_sizes:
            return Words(self._sizes(place, given.get("value")), source)
        if entry.choices:
            return Words(self._words(place, entry, given.get("value")), source)
        if given.get("unit", "") != entry.unit:
            said = f"its unit is '{given['unit']}'" if "unit" in given else "it has no unit"
            raise self.error(
                place, f"{said}; it is in {entry.unit}." if entry.unit else f"{said}; it has none. Leave it out."
            )
        return Number(self._value(place, entry, given.get("value")), entry.unit, source)

    def _value(self, place: str, entry: Entry, value: Any) -> float:
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        most = 2**53 - 1 if entry.most is None else entry.most
        if not is_number or not entry.least <= value <= most or (entry.is_whole and value != int(value)):
            kind = "a whole number" if entry.is_whole else "a number"
            end = "on" if entry.most is None else f"to {entry.most:g}"
            raise self.error(place, f"its value is {value!r}; it is {kind} from {entry.least:g} {end}.")
        return float(value)

    def _sizes(self, place: str, value: Any) -> tuple[str, ...]:
        whole = isinstance(value, list) and all(isinstance(item, int) and item > 0 for item in value)
        if not whole or len(set(value)) != len(value):
            raise self.error(place, f"its value is {value!r}; it is a list of whole numbers from 1 on, each once.")
        return tuple(map(str, value))

    def _words(self, place: str, entry: Entry, value: Any) -> tuple[str, ...]:
        found = [value] if isinstance(value, str) else value
        if entry.is_one_word and (not isinstance(found, list) or len(found) != 1):
            raise self.error(place, f"its value is {value!r}; it is one of {', '.join(entry.choices)}.")
        if not isinstance(found, list) or not all(item in entry.choices for item in found):
            raise self.error(place, f"its value is {value!r}; it is a list of words from {', '.join(entry.choices)}.")
        return tuple(found)


def _example(entry: Entry) -> str:
    value = f'["{entry.choices[0]}"]' if entry.choices else "[16]" if entry.is_sizes else f"{max(entry.least, 1):g}"
    unit = f'unit = "{entry.unit}", ' if entry.unit else ""
    return f'{{ value = {value}, {unit}source = "assumed: ..." }}'


def read_chip(path: Path, taken: Collection[str] = ()) -> Target:
    """Return the target in a file.

    ``taken`` are names that the target must not have. Raises InvalidTargetError, with the line, where the file has a
    mistake.
    """
    file = _ChipFile(path)
    content = file.content
    family = file.text("family", content, FAMILIES)
    tables = ("memory", "copy_engine", "host", "port")
    own = (
        ("cpu", *tables, "threads")
        if family == CORE
        else ("hw_version", "npu", *tables[:3], "costs", "jobs", *tables[3:], "limits")
    )
    file.check_names("", content, ("name", "title", "family", *own))
    name = file.text("name", content)
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", name):
        raise file.error("name", f"it is '{name}'; it has letters, digits, '_' and '-' only, a letter first.")
    if name in taken:
        raise file.error(
            "name", f"'{name}' is the name of a chip that comes with OpenNeutron. Give the chip another name."
        )
    host, port = file.table("host"), file.table("port")
    memories = _memories(file, MOST_REGIONS if family == CORE else 1)
    cpu = Cpu(**file.facts("cpu", Cpu, file.table("cpu"))) if family == CORE else None
    target = Target(
        name=name,
        title=file.text("title", content),
        family=family,
        hw_version=file.text("hw_version", content, GENERATIONS) if cpu is None else "",
        npu=Npu(**file.facts("npu", Npu, file.table("npu"))) if cpu is None else cpu.as_npu,
        memories=memories,
        copy_engines=_copy_engines(file, memories),
        host=Host(core=file.text("host.core", host), **file.facts("host", Host, host)),
        costs=Costs(**file.facts("costs", Costs, file.table("costs"))) if cpu is None else cpu.as_costs,
        port=_port(file, port),
        limits=_limits(file),
        cpu=cpu,
        jobs=Jobs(**file.facts("jobs", Jobs, file.table("jobs"))) if "jobs" in content else None,
        threads=Threads(**file.facts("threads", Threads, file.table("threads"))) if "threads" in content else None,
    )
    for place, words in contradictions(target):
        raise file.error(place, words)
    return target


def _memories(file: _ChipFile, most: int) -> tuple[Memory, ...]:
    """Return the memories of a chip. Raises InvalidTargetError unless one to ``most`` of them hold activations."""
    found = tuple(
        Memory(
            name=file.text(f"memory.{index}.name", given),
            section=file.text(f"memory.{index}.section", given) if "section" in given else "",
            **file.facts(f"memory.{index}", Memory, given),
        )
        for index, given in enumerate(file.tables("memory"))
    )
    holders = [memory.name for memory in found if ACTIVATIONS in memory.holds.value]
    if not 1 <= len(holders) <= most:
        number = "exactly one does" if most == 1 else f"one to {most} do"
        raise file.error("memory", f"{len(holders)} memories hold {ACTIVATIONS}; {number}.")
    return found


def _copy_engines(file: _ChipFile, memories: tuple[Memory, ...]) -> tuple[CopyEngine, ...]:
    names = [memory.name for memory in memories]
    found = []
    for index, given in enumerate(file.tables("copy_engine")):
        place = f"copy_engine.{index}"
        name = file.text(f"{place}.name", given)
        source = file.text(f"{place}.source", given, names)
        destination = file.text(f"{place}.destination", given, names)
        found.append(CopyEngine(name, source, destination, **file.facts(place, CopyEngine, given)))
    arena = next(memory.name for memory in memories if ACTIVATIONS in memory.holds.value)
    if arena not in [engine.destination for engine in found]:
        raise file.error("copy_engine", f"no copy engine's destination is '{arena}', which holds {ACTIVATIONS}.")
    return tuple(found)


def _port(file: _ChipFile, given: Mapping[str, Any]) -> Port:
    file.check_names("port", given, [item.name for item in fields(Port)])
    boards = given.get("boards", [])
    if not isinstance(boards, list) or not all(isinstance(board, str) for board in boards):
        raise file.error("port.boards", f"it is {boards!r}; it is a list of names.")
    return Port(file.text("port.name", given, PORT_NAMES), tuple(boards))


def _limits(file: _ChipFile) -> tuple[tuple[str, Number], ...]:
    found = []
    for name, given in (file.table("limits") if "limits" in file.content else {}).items():
        fact = file.fact(f"limits.{name}", Entry("a limit of an operator", is_whole=True), given)
        assert isinstance(fact, Number)
        found.append((name, fact))
    return tuple(found)


def _files(folder: str) -> dict[str, Path]:
    return {path.stem: path for path in sorted((Path(__file__).parent / folder).glob("*.toml"))}


NPUS = _files("chips")
"""The files of the chips with an NPU that come with this package, by the chip's name."""

CPUS = _files("cores")
"""The files of the processors without an NPU."""

KNOWN = {**NPUS, **CPUS}
"""The files of all chips and processors that come with this package, by name."""

DEFAULT = "imxrt700"
"""The target where none is specified: the chip for which ExecuTorch's NXP backend compiles."""

SUFFIX = ".toml"
"""The suffix of a target that is the path of a file."""


def names() -> list[str]:
    """Return the known targets with an NPU that this project compiles for."""
    return [name for name in NPUS if described(name).obstacle is None]


HOST_SUFFIX = "-cpu"
"""The end of the name of a chip's host core as a target, such as ``mcxn94x-cpu``."""


def host_alone(chip: Target) -> Target:
    """Return a target without an NPU: the host core of a chip that has one. The target has the facts of the core, the
    clock that the core has in this chip, and the memories that the core reads.

    Activations are in the first memory that the core reads and writes. The C port is that of the chip if it has one,
    or else that of the core.
    """
    core = described(chip.host.core.lower())
    assert core.cpu is not None
    there = [memory for memory in chip.memories if HOST in memory.readers.value]
    arena = next(memory for memory in there if HOST in memory.writers.value)
    share = chip.clock.value / chip.host.clock.value
    memories = []
    for memory in there:
        holds = (ACTIVATIONS, CONSTANTS) if memory is arena else (CONSTANTS,)
        memories.append(
            replace(
                memory,
                holds=replace(memory.holds, value=holds),
                bandwidth=replace(memory.bandwidth, value=memory.bandwidth.value * share),
                readers=replace(memory.readers, value=(CPU, HOST)),
                writers=replace(memory.writers, value=(CPU, HOST) if memory is arena else ()),
            )
        )
    source = next((memory.name for memory in memories if memory.name != arena.name), arena.name)
    engine = replace(core.copy_engines[0], source=source, destination=arena.name)
    cpu = replace(core.cpu, clock=chip.host.clock)
    return replace(
        chip,
        name=chip.name + HOST_SUFFIX,
        title=f"{chip.title.partition(',')[0]}, {chip.host.core}",
        family=CORE,
        hw_version="",
        npu=cpu.as_npu,
        costs=cpu.as_costs,
        memories=tuple(memories),
        copy_engines=(engine,),
        limits=(),
        cpu=cpu,
        jobs=None,
        port=chip.port if chip.port.name else core.port,
        threads=core.threads,
    )


@lru_cache(maxsize=32)
def host_beside(chip: Target) -> Target | None:
    """Return the host core as a target if it can make kernel calls inside the NPU's programs; otherwise None.

    For that, the core must read and write the memory of activations, and its facts must be known. On a Neutron-S it
    can't, since the NPU works on a memory of its own.
    """
    arena = chip.arena_memory
    reaches = HOST in arena.readers.value and HOST in arena.writers.value
    return host_alone(chip) if chip.cpu is None and reaches and chip.host.core.lower() in CPUS else None


def takes_int16(target: Target, host_calls: bool) -> bool:
    """Return whether programs for ``target`` may have int16 activations. They may if the NPU computes on int16, or
    with ``host_calls`` if the host core can run kernels for the program."""
    return INT16 in target.npu.data_types.value or (host_calls and host_beside(target) is not None)


MOST_THREADS = 16
"""The most threads of a driver: its NEUTRON_MAX_THREADS."""

DRIVER_SUFFIX = "-driver"
"""The end of the name of a target that is a chip's host core and gives matrix products to the NPU's driver, such as
``imx95-driver``. The name of a release of the driver may follow: ``imx95-driver-second``."""


def divided(name: str) -> tuple[str, str] | None:
    """Split a name such as ``imx95-driver-second``, of a host core that gives matrix products to the NPU's driver
    (``DRIVER_SUFFIX``), into the chip and the release of the driver.

    The release is empty if the name has none. Return None for any other name.
    """
    chip, suffix, release = name.rpartition(DRIVER_SUFFIX)
    found = suffix and release in ("", *(f"-{name}" for name in RELEASES))
    return (chip, release.removeprefix("-")) if found else None


def with_release(name: str, release: str) -> str:
    """Return the name of a target with matrix products, with the given release of the driver in it."""
    found = divided(name)
    assert found is not None, f"{name} has no matrix products"
    return f"{found[0]}{DRIVER_SUFFIX}-{release}"


def host_with_jobs(chip: Target, release: str = "") -> Target:
    """Return the host core of a chip as ``host_alone`` does, as a target that gives matrix products to the NPU's
    driver, as jobs.

    The jobs have the form of the driver's ``release``. If that is empty, it is the release in the chip's file. Raises
    InvalidTargetError if nothing is published about jobs of the chip.
    """
    if chip.jobs is None:
        known = [name for name in NPUS if described(name).jobs is not None]
        raise InvalidTargetError(
            f"Target `{chip.name}` has no published matrix products for converter='driver'. Choose one of `{known}`."
        )
    host = replace(host_alone(chip), name=chip.name + DRIVER_SUFFIX, jobs=chip.jobs)
    if not release:
        return host
    chosen = Words((release,), "assumed: chosen by the option converter_release")
    return replace(host, name=with_release(host.name, release), jobs=replace(chip.jobs, release=chosen))


_IN_THREADS = re.compile(r"(.+)-([1-9][0-9]?)-threads")


def in_threads(name: str, count: int) -> str:
    """Return the name of the target ``name`` with ``count`` threads, which share each kernel call. A number of
    threads that ``name`` already has is replaced. With one thread, the name has no number.

    >>> in_threads("cortex-a55-2-threads", 4)
    'cortex-a55-4-threads'
    """
    core = without_threads(name)
    return core if count == 1 else f"{core}-{count}-threads"


def without_threads(name: str) -> str:
    """Return the name of a target with its number of threads removed."""
    found = _IN_THREADS.fullmatch(name)
    return name if found is None else found[1]


def _with_threads(core: Target, count: int) -> Target:
    """Return a target whose kernel calls ``count`` threads share. Raises InvalidTargetError where it has no threads or fewer cores."""
    if core.threads is None or core.cpu is None:
        raise InvalidTargetError(
            f"Target `{core.name}` has no threads that share a kernel call. Compile for it without threads, or for a core such as cortex-a55."
        )
    cores = int(core.cpu.cores.value)
    if count > cores:
        raise InvalidTargetError(
            f"Target `{core.name}` has {cores} cores; {count} threads share them. Give at most {cores}."
        )
    words = f"{core.title}, {count} threads" if count > 1 else core.title
    return replace(core, name=in_threads(core.name, count), title=words, thread_count=count)


def checksum(name: str) -> int:
    """Return the number that identifies a target in programs: the CRC-32 of the target's name."""
    return zlib.crc32(name.encode())


def with_checksum(number: int) -> Target | None:
    """Return the known target whose name has this ``checksum``; None if there is none. Host cores of chips and
    targets with threads are among the known targets."""
    suffixes = (DRIVER_SUFFIX, *(f"{DRIVER_SUFFIX}-{release}" for release in RELEASES))
    with_jobs = (name + suffix for name in NPUS if described(name).jobs is not None for suffix in suffixes)
    names = (*KNOWN, *(name + HOST_SUFFIX for name in NPUS), *with_jobs)
    found = next((described(name) for name in names if checksum(name) == number), None)
    if found is not None:
        return found
    shared = (in_threads(name, count) for name in names if _has_threads(name) for count in range(2, MOST_THREADS + 1))
    return next((described(name) for name in shared if checksum(name) == number), None)


def _has_threads(name: str) -> bool:
    return described(name).threads is not None


def is_file(name: str) -> bool:
    """Return whether a target is the path of a file, rather than the name of a known chip."""
    return name.endswith(SUFFIX)


UNPUBLISHED = {
    "imx937": "It has an eIQ Neutron of about 2 TOPS beside Cortex-A55 (secondary: emb-exp.com, NXP NPUs).",
    "imxrt2660": "Its board runs NXP's examples on its NPU (published: nxp-mcuxpresso/mcuxsdk-examples).",
    "s32k5": "It is a target of NXP's converter, with a Neutron-C (secondary: doc.edgefirst.ai, Neutron Converter).",
    "s32n79": "It is a target of NXP's converter (secondary: doc.edgefirst.ai, Neutron Converter).",
}
"""The chips with an eIQ Neutron of which too little is published, and what is known of each."""


def described(name: str) -> Target:
    """Return the target with this name or in this file, whether or not it can be compiled for.

    Raises InvalidTargetError if the name is unknown or not a text, or if the file has a mistake.
    """
    if not isinstance(name, str):
        raise InvalidTargetError(
            f"target: it is {name!r}; it is the name of a chip, or the path of a {SUFFIX} file, as a text."
        )
    if name in KNOWN:
        return _read(KNOWN[name])
    if shared := _IN_THREADS.fullmatch(name):
        return _with_threads(described(shared[1]), int(shared[2]))
    if (found := divided(name)) is not None:
        return host_with_jobs(described(found[0]), found[1])
    if is_file(name):
        path = Path(name)
        return _read(path, _state(path), tuple(KNOWN))
    if name.endswith(HOST_SUFFIX) and (chip := name.removesuffix(HOST_SUFFIX)) in NPUS:
        return host_alone(described(chip))
    if name in UNPUBLISHED:
        raise InvalidTargetError(
            f"Target `{name}`: too little is published about its NPU for a model of it. {UNPUBLISHED[name]} Its multipliers, its clock and its "
            f"memories are not published. Write what you know of it into a {SUFFIX} file and give its path."
        )
    raise InvalidTargetError(
        f"Target `{name}` is not a valid target. Must be one of `{[*names(), *CPUS]}`, or the path of a .toml file.{_hint(name)}"
    )


def get(name: str) -> Target:
    """Return the target with this name or in this file. Raises InvalidTargetError if it is unknown or can't be compiled
    for."""
    target = described(name)
    if target.obstacle is not None:
        raise InvalidTargetError(f"Target `{name}` {target.obstacle} Choose one of `{names()}`.")
    return target


def _hint(name: str) -> str:
    """Return a suggestion for an unknown name: a file, or a chip of a similar name. It is empty where there is neither."""
    if Path(name + SUFFIX).is_file():
        return f" Did you mean '{name}{SUFFIX}'?"
    if Path(name).is_file():
        return f" The name of the file '{name}' does not end in {SUFFIX}; rename it."
    near = difflib.get_close_matches(name, KNOWN, 1)
    return f" Did you mean '{near[0]}'?" if near else ""


def _state(path: Path) -> tuple[int, int]:
    """Return the values by which a change of a file is noticed (its time and size); zeros if the file is absent."""
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size


@lru_cache(maxsize=32)
def _read(path: Path, _state_of_file: tuple[int, int] = (0, 0), taken: tuple[str, ...] = ()) -> Target:
    # Imported on use: only a compile, and not every command, needs a chip.

    return read_chip(path, taken)


__all__ = [
    "CPUS",
    "DEFAULT",
    "DRIVER_SUFFIX",
    "HOST_SUFFIX",
    "KNOWN",
    "NPUS",
    "Jobs",
    "Number",
    "Target",
    "checksum",
    "described",
    "get",
    "host_beside",
    "in_threads",
    "is_file",
    "names",
    "release_named",
    "takes_int16",
    "with_checksum",
    "without_threads",
]
