# SPDX-License-Identifier: BSD-3-Clause
"""Compute the maximum stack of the driver's functions from the machine code of a compiler.

Frames are those that the compiler states (-fstack-usage), and for the C library's functions, which come without, what their
code pushes. Who calls whom is read from the objects' relocations, so that it holds for any compiler. A call through a
pointer goes, in the driver, to the functions of the kernel table, and in a kernel to each function whose address is taken in
its own object or in one that led to it. What an application gives the driver (NeutronConfig, NeutronPort, a trace) is not in the sums.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from scripts.firmware_build import COMMANDS, Library, needed_symbols, run

TABLE = "table.o"


class UnboundedStackError(ValueError):
    """A function calls itself, has a frame whose size is not known before it runs, or calls what nobody knows."""


@dataclass(slots=True, eq=False)
class Function:
    """A function in an object."""

    name: str
    object: str
    frame: int
    pushed: int = 0
    """Return the stack bytes of all its instructions together: an upper bound of its frame."""
    calls: set[str] = field(default_factory=set)
    calls_pointers: bool = False


CALLS_THE_APPLICATION = {"embedding_lookup_s8.o", "jobs.o", "move_s8.o"}
"""The objects of kernels that start copies by the application's NeutronConfig, or matrix products by its NeutronJobs."""

_Place = tuple[str, str, frozenset[str]]
"""Object and name of a function, and the objects of the chain that leads to it."""


@dataclass(frozen=True, slots=True)
class Depth:
    """The deepest chain of calls below a function, that function's own frame included."""

    bytes: int
    chain: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CallGraph:
    """The functions of a library by (object, name), and what its kernel table points to."""

    functions: Mapping[tuple[str, str], Function]
    addressed: Mapping[str, frozenset[str]]
    """For each object, the functions whose address is taken in it."""
    driver: frozenset[str]
    """The driver's objects."""

    def runs(self) -> dict[str, str]:
        """Return the run functions that the library's kernel table points to, each with its object."""
        return {name: self.find(TABLE, name).object for name in sorted(self.addressed[TABLE]) if "_run" in name}

    def checks(self) -> set[str]:
        """Return the check functions that the library's kernel table points to."""
        return {name for name in self.addressed[TABLE] if name.endswith("_check")}

    def find(self, place: str, name: str) -> Function:
        """Return the function that a name refers to in an object: the object's own, or that of the whole library."""
        own = self.functions.get((place, name))
        if own is not None:
            return own
        others = [key for key in self.functions if key[1] == name]
        if len(others) != 1:
            raise UnboundedStackError(f"stack: {place} calls {name}, of which there are {len(others)}")
        return self.functions[others[0]]

    def depth(self, root: str, runs: Collection[str] = (), checks: Collection[str] | None = None) -> Depth:
        """Return the deepest chain below ``root`` where the driver calls these of the kernels' run functions, and these
        of their checks: without ``checks``, any.

        Raises UnboundedStackError where there is a recursion.
        """
        checked = self.checks() if checks is None else checks
        return self._below(self.find(TABLE, root), frozenset((*runs, *checked)), (), {})

    def _below(
        self, function: Function, called: frozenset[str], above: tuple[Function, ...], known: dict[_Place, Depth]
    ) -> Depth:
        chain = (*above, function)
        if function in above:
            raise UnboundedStackError(f"stack: {' -> '.join(item.name for item in chain)} is a recursion")
        place = (function.object, function.name, frozenset(item.object for item in chain))
        if place not in known:
            deepest = Depth(0, ())
            for home, callee in sorted(self._callees(chain, called)):
                below = self._below(self.find(home, callee), called, chain, known)
                deepest = max(deepest, below, key=lambda depth: depth.bytes)
            known[place] = Depth(function.frame + deepest.bytes, (function.name, *deepest.chain))
        return known[place]

    def _callees(self, chain: tuple[Function, ...], called: frozenset[str]) -> set[tuple[str, str]]:
        """Return the functions that the last function of a chain can call: (object that names it, name)."""
        function = chain[-1]
        calls = {(function.object, name) for name in function.calls}
        if not function.calls_pointers:
            return calls
        if function.object not in self.driver:
            kernels = {item.object for item in chain} - self.driver
            given = {(place, name) for place in kernels for name in self.addressed[place]}
            if function.object in CALLS_THE_APPLICATION:
                return calls
            if not given:
                raise UnboundedStackError(f"stack: {function.name} calls through a pointer from elsewhere")
            return calls | given
        pointed = self.addressed[TABLE]
        chosen = {name for name in pointed if "_takes_" in name}
        if function.object == "validate.o":
            chosen |= called & self.checks()
        elif not function.name.startswith("neutron_find_variant"):
            chosen |= called - self.checks()
        return calls | {(TABLE, name) for name in chosen}


def call_graph(library: Library) -> CallGraph:
    """Return the call graph of a library with the C library's functions that it needs."""
    functions: dict[tuple[str, str], Function] = {}
    addressed: dict[str, frozenset[str]] = {}
    for path in (*library.objects, _c_library(library)):
        listing = run("arm-none-eabi-objdump", "-tdr", "--no-show-raw-insn", path)
        aliases = _aliases(listing)
        for function in _functions(path.name, listing, _frames(path.with_suffix(".su"))):
            for name in aliases.get(function.name, {function.name}):
                functions[path.name, name] = function
        relocations = run("arm-none-eabi-objdump", "-r", path)
        addressed[path.name] = frozenset(
            re.findall(r" R_ARM_(?:ABS32|REL32|(?:THM_)?MOVW_(?:ABS|PREL)_NC) +(\S+)", relocations)
        )
    names = {name for _, name in functions}
    driver = frozenset(name for name, source in library.sources.items() if source.parent.name == "driver")
    return CallGraph(functions, {place: found & names for place, found in addressed.items()}, driver)


def _c_library(library: Library) -> Path:
    """One object of what the library needs from newlib and the compiler."""
    path = library.folder / "c_library.o"
    wanted = [f"-Wl,--undefined={name}" for name in sorted(needed_symbols(library))]
    run(COMMANDS["gcc"], "-mcpu=cortex-m33", "-mthumb", "-nostdlib", "-r", *wanted, "-lc_nano", "-lgcc", "-o", path)
    return path


def _frames(path: Path) -> dict[str, int]:
    """Return the bytes of each function's frame, by name, from a .su file; empty without such a file."""
    frames = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        where, size, kind = line.split("\t")
        if kind != "static":
            raise UnboundedStackError(f"stack: {where} has a {kind} frame: its size is not known before it runs")
        frames[where.rpartition(":")[2]] = int(size)
    return frames


_SYMBOL = re.compile(r"^([0-9a-f]{8}) .....(?:.)F (\S+)\t[0-9a-f]{8} (?:\.hidden )?(\S+)$", re.MULTILINE)
_START = re.compile(r"^[0-9a-f]+ <([^>]+)>:$")
_INSTRUCTION = re.compile(r"^ +[0-9a-f]+:\t(\S+)(?:\t(.*))?$")
_CALL = re.compile(r"^\t+[0-9a-f]+: R_ARM_THM_(?:CALL|JUMP\d+)\t(\S+)$")


def _aliases(listing: str) -> dict[str, set[str]]:
    """For each function's name, all names of its address."""
    places: dict[tuple[str, str], set[str]] = {}
    for value, section, name in _SYMBOL.findall(listing):
        places.setdefault((section, value), set()).add(name)
    return {name: names for names in places.values() for name in names}


def _functions(place: str, listing: str, frames: Mapping[str, int]) -> Iterator[Function]:
    """Return the functions of a disassembled object."""
    function: Function | None = None
    stated: int | None = None
    for line in listing.splitlines():
        if start := _START.match(line):
            if function is not None:
                yield function
            stated = _stated(start[1], frames)
            function = Function(start[1], place, stated or 0)
        elif function is not None and (call := _CALL.match(line)):
            function.calls.add(call[1])
        elif function is not None and (instruction := _INSTRUCTION.match(line)):
            code, operands = instruction[1], (instruction[2] or "").split("@")[0].strip()
            if (code == "blx" and operands.startswith(("r", "ip"))) or (code == "bx" and operands != "lr"):
                function.calls_pointers = True
            function.pushed += pushed_bytes(code, operands)
            if stated is None:
                function.frame = function.pushed
    if function is not None:
        yield function


def _stated(name: str, frames: Mapping[str, int]) -> int | None:
    """Return the frame in a .su file of a function, which may be a compiler's copy of it (name.constprop.0)."""
    while name not in frames and "." in name:
        name = name.rpartition(".")[0]
    return frames.get(name)


def pushed_bytes(code: str, operands: str) -> int:
    """By how much an instruction lowers the stack pointer."""
    code = code.removesuffix(".w")
    if code == "push" or (code == "stmdb" and operands.startswith("sp!")):
        return 4 * sum(_registers(part) for part in re.sub(r"[{}]|sp!", "", operands).split(",") if part.strip())
    if code in ("sub", "subw") and re.match(r"sp, (sp, )?#", operands):
        return int(operands.rpartition("#")[2], 0)
    if code in ("str", "strd") and (before := re.search(r"\[sp, #-(\d+)\]!", operands)):
        return int(before[1])
    if code.startswith(("sub", "mov")) and operands.startswith("sp,"):
        raise UnboundedStackError(f"stack: {code} {operands} moves the stack by what is not known before it runs")
    return 0


def _registers(part: str) -> int:
    first, _, last = part.strip().partition("-")
    return int(last[1:]) - int(first[1:]) + 1 if last else 1
