# SPDX-License-Identifier: BSD-3-Clause
"""Audit a program instruction by instruction, with the meaning of every byte of memory instead of its value.

The audit finds faults that a run with data may hide: bytes that are read before they are written, buffers that overlap while both are needed, rows
that have left their rolling buffer, constants that have not arrived or are another call's, and outputs that are not complete.

A meaning is a pair: a storage, and the difference between a byte's place in it and the byte's address. All rows of a storage that lie behind
one another have one meaning, so that an access compares runs of bytes (``meanings.py``), not bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from openneutron.compiler.emit.accesses import (
    COPIED_BY_KERNEL,
    Window,
    block_scratch,
    is_element_by_element,
    read_window,
    rows_read,
    rows_written,
    whole_window,
    written_window,
)
from openneutron.compiler.emit.meanings import UNDEFINED, Memory, Shape
from openneutron.compiler.emit.packing import Packed, packed
from openneutron.compiler.schedule.needs import Reads, Span
from openneutron.compiler.schedule.schedule import Schedule
from openneutron.compiler.select.calls import KernelCall, Storage, Storages
from openneutron.isa import Microcode, Program, Record, base_text, decode
from openneutron.isa.rows import BASES, BUFFER, INSTRUCTION_BY_NAME, KERNELS

Addresses = npt.NDArray[np.int64]

MOST_FINDINGS = 20

_OF_THE_NPU = ("PREFETCH", "STATE")
"""Kernels read and write these bases where tensors are copied to a memory of the NPU."""

_WEIGHTS = ""
"""The name of the weights among the names of storages."""


@dataclass(frozen=True, slots=True)
class Audit:
    """``findings`` as text, at most ``MOST_FINDINGS``, and the bytes used of the scratch and the prefetch buffer: from the start to
    the highest one that a kernel or a copy touches."""

    findings: tuple[str, ...]
    scratch_bytes: int
    prefetch_bytes: int


def audit(program: Program, schedule: Schedule, storages: Storages, known: Packed | None = None) -> Audit:
    """Go through a program that was emitted from this schedule; inputs and outputs are taken from its bindings.

    ``known``: the packed constants of these calls, where the emitter has packed them already.
    """
    return _Run(decode(program), program.weights, schedule, storages, {} if known is None else known).audited()


class _Faulty(Exception):
    """A call accesses bytes outside of a memory: its other accesses are not followed."""


@dataclass(frozen=True, slots=True)
class _Access:
    """Bytes of a memory that a call reads or writes, and the meaning that they have or get."""

    memory: Memory
    at: int
    shape: Shape
    meaning: int


@dataclass(frozen=True, slots=True)
class _Transfer:
    """A copy under way: the bytes that it writes, and those that it reads."""

    written: Sequence[_Access]
    read: Sequence[_Access] = ()


@dataclass(slots=True)
class _Operand:
    """A buffer of an operator: ``start`` is the address of row 0 of the window's columns and channels, ``difference`` that between a byte's
    place in the storage and its address in the first pass of the ring. ``element_bytes``: 0 where nothing is accessed. ``shapes``: by the
    number of rows. ``meanings``: by the pass of the ring. ``rows``: those that rows of the output read or write of it."""

    name: str
    memory: Memory
    storage: str
    start: int
    difference: int
    ring: int
    pitch: int
    axes: tuple[tuple[int, int], ...]
    element_bytes: int
    constant: bytes | None
    rows: Reads
    shapes: dict[int, Shape] = field(default_factory=dict)
    meanings: dict[int, int] = field(default_factory=dict)

    def shape(self, rows: int) -> Shape:
        """Return the shape of so many rows in a row."""
        shape = self.shapes.get(rows)
        if shape is None:
            shape = self.shapes[rows] = Shape.of((*self.axes, (rows, self.pitch)), self.element_bytes)
        return shape

    def parts(self, rows: Span) -> Iterator[tuple[int, int, int]]:
        """Yield the address, the number and the pass of rows that are behind one another in memory."""
        first, end = rows
        ring = self.ring
        if end <= ring:
            if first < end:
                yield self.start + first * self.pitch, end - first, 0
            return
        while first < end:
            turn = first // ring
            behind = min(end, (turn + 1) * ring)
            yield self.start + (first - turn * ring) * self.pitch, behind - first, turn
            first = behind


@dataclass(slots=True)
class _Operator:
    """An operator of the program with its call. ``block_rows``: it computes so many rows of its output before it reads on. ``constants``:
    address and bytes of those in a memory that is not the weights. ``overlaps``: results of ``_is_safe``."""

    call: KernelCall
    channel: int
    rows: int
    block_rows: int
    reads: list[_Operand] = field(default_factory=list)
    writes: list[_Operand] = field(default_factory=list)
    constants: list[tuple[str, Memory, int, bytes]] = field(default_factory=list)
    overlaps: dict[tuple[object, ...], bool] = field(default_factory=dict)


@dataclass(slots=True)
class _Run:
    """``memories`` has the meanings of each base's bytes. A state has two names, one for its value at the start of the run and one for the
    new value. ``numbers`` gives each meaning its number, ``pairs`` the meaning of each number."""

    microcode: Microcode
    weights: bytes
    schedule: Schedule
    storages: Storages
    known: Packed
    memories: dict[int, Memory] = field(init=False)
    numbers: dict[tuple[str, int], int] = field(default_factory=dict)
    pairs: list[tuple[str, int]] = field(default_factory=lambda: [("", 0)])
    operators: dict[int, _Operator | None] = field(default_factory=dict)
    equal: dict[tuple[int, int], bool] = field(default_factory=dict)
    arriving: dict[int, list[_Transfer]] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        code = self.microcode
        sizes = {BASES.index("SCRATCH"): code.scratch_size, BASES.index("PREFETCH"): code.prefetch_size}
        sizes[BASES.index("STATE")] = code.state_size
        sizes[BASES.index("WEIGHTS")] = len(self.weights)
        for item in (*code.inputs, *code.outputs):
            sizes[item["base"]] = max(sizes.get(item["base"], 0), item["offset"] + item["size"])
        self.memories = {word: Memory(base_text(word), size) for word, size in sizes.items()}
        weights = self.memories[BASES.index("WEIGHTS")]
        weights.write(0, Shape(weights.size), self._number(_WEIGHTS, 0))
        for name, storage in self.storages.storages.items():
            if storage.state is not None:
                self._access(BASES.index("STATE"), storage.state, storage.size_bytes, name)
            if storage.input is not None:
                item = code.inputs[storage.input]
                self._access(item["base"], item["offset"], item["size"], name)

    def _access(self, word: int, at: int, size: int, name: str) -> None:
        memory = self.memories[word]
        memory.write(at, Shape(size), self._number(name, -at))
        memory.touched = max(memory.touched, at + size)

    def audited(self) -> Audit:
        for iteration, kind, values in _unrolled(self.microcode.code):
            if len(self.findings) >= MOST_FINDINGS:
                break
            if kind == "FETCH":
                self._fetch(*values)
            elif kind == "WAIT":
                self._arrive(*values)
            else:
                self._call(values, iteration)
        for name, storage in self.storages.storages.items():
            if storage.output is not None:
                item = self.microcode.outputs[storage.output]
                self._find_missing(f"output '{name}'", item["base"], item["offset"], item["size"], name)
            if storage.state is not None and _is_updated(storage, self.schedule, self.storages):
                word = BASES.index("STATE")
                self._find_missing(f"state '{name}'", word, storage.state, storage.size_bytes, _new(storage))
        touched = {memory.name: memory.touched for memory in self.memories.values()}
        return Audit(tuple(self.findings), touched["SCRATCH"], touched["PREFETCH"])

    def _find_missing(self, who: str, word: int, at: int, size: int, name: str) -> None:
        memory, meaning = self.memories[word], self._number(name, -at)
        if len(self.findings) < MOST_FINDINGS and not memory.holds(at, Shape(size), meaning):
            self._differs(f"at the end, {who}", memory, at, Shape(size), meaning)

    def _number(self, storage: str, difference: int) -> int:
        """Return the number of a meaning."""
        number = self.numbers.get((storage, difference))
        if number is None:
            number = self.numbers[storage, difference] = len(self.pairs)
            self.pairs.append((storage, difference))
        return number

    def _fetch(self, source: int, word: int, destination: int, size: int, channel: int) -> None:
        memory, shape, who = self.memories.get(word), Shape(size), f"a copy on channel {channel}"
        if self._is_outside(who, memory, word, destination, size):
            return
        if source + size > len(self.weights):
            self.findings.append(f"{who}: it ends at byte {source + size} of WEIGHTS, which has {len(self.weights)}")
            return
        assert memory is not None
        copy = _Access(memory, destination, shape, self._number(_WEIGHTS, source - destination))
        memory.write(destination, shape, -copy.meaning)
        memory.touched = max(memory.touched, destination + size)
        self.arriving.setdefault(channel, []).append(_Transfer((copy,)))

    def _arrive(self, channel: int) -> None:
        for copy in self.arriving.pop(channel, ()):
            for each in copy.written:
                if not each.memory.holds(each.at, each.shape, -each.meaning):
                    others = int((each.memory.meanings(each.at, each.shape) != -each.meaning).sum())
                    self.findings.append(
                        f"a copy on channel {channel}: {others} of {each.shape.size} bytes are used before it is there"
                    )
                each.memory.write(each.at, each.shape, each.meaning)
            for each in copy.read:
                if not each.memory.holds(each.at, each.shape, each.meaning):
                    others = int((each.memory.meanings(each.at, each.shape) != each.meaning).sum())
                    self.findings.append(
                        f"a copy on channel {channel}: {others} of {each.shape.size} bytes are overwritten before they are copied"
                    )

    def _call(self, values: tuple[int, ...], iteration: int) -> None:
        index = values[0]
        if index not in self.operators:
            self.operators[index] = self._operator(index)
        operator = self.operators[index]
        if operator is None:
            return
        first, end = 0, operator.rows
        if len(values) > 1:
            row0, row1, step = values[1:]
            first, end = max(row0 + step * iteration, 0), min(row1 + step * iteration, end)
            if first >= end:
                return
        for key, memory, at, blob in operator.constants:
            self._constant((operator, (first, end), key), memory, at, Shape(len(blob)), at, blob)
        try:
            for row in range(first, end, operator.block_rows):
                self._block(operator, (row, min(row + operator.block_rows, end)))
        except _Faulty:
            pass

    # -- the operators, each once ---------------------------------------------------------------------------------------

    def _operator(self, index: int) -> _Operator | None:
        """Return an operator with its buffers; None where it has a fault that every call of it would repeat."""
        call, row = self.schedule.calls[index], self.microcode.operators[index].row
        window, count = whole_window(call, "output"), len(self.findings)
        who = _who(call)
        if row.name != call.kernel:
            self.findings.append(f"{who}: it is the kernel {row.name}")
            return None
        operator = dict(zip(_NAMES[row.name], self.microcode.operators[index].values, strict=True))
        for name, value in call.params.items():
            if operator[name] != value:
                self.findings.append(f"{who}: {name} is {operator[name]}, not {value}")
        rows, scratch = window[1][1], block_scratch(call.kernel)
        block_rows = self.microcode.buffers[operator[scratch]]["ring"] if scratch else rows
        sizes = _ELEMENT_BYTES[row.name]
        made = _Operator(call, operator["channel"] if call.is_transfer else 0, rows, max(block_rows, 1))
        for key, blob in packed(call, self.known).items():
            word, at = operator[f"{key}_base"], operator[f"{key}_offset"]
            memory = self.memories.get(word)
            if self._is_outside(f"{who}: {key}", memory, word, at, len(blob)) or memory is None:
                continue
            if memory.name != "WEIGHTS" and blob:
                made.constants.append((key, memory, at, blob))
            elif blob and self.weights[at : at + len(blob)] != blob:
                self.findings.append(f"{who}: {key}: other constants lie there")
        for name in call.views:
            read = read_window(call, name, window) if call.reads(name) else None
            if read is not None:
                buffer = operator[name], sizes[name]
                made.reads.append(self._operand(who, call, name, buffer, read, rows_read(call, name)))
        for name in call.results:
            own, buffer = written_window(call, name, window), (operator[name], sizes[name])
            made.writes.append(self._operand(who, call, name, buffer, own, rows_written(call, name)))
            made.writes[-1].storage = _new(self.storages[call.views[name].tensor])
        self._find_misplaced(who, made)
        return made if len(self.findings) == count else None

    def _operand(
        self, who: str, call: KernelCall, name: str, given: tuple[int, int], window: Window, rows: Reads
    ) -> _Operand:
        """Return a buffer of an operator, of which a call accesses at most a window. Notes where the buffer differs from the call's view.

        ``given``: the number of the buffer, and the bytes of an element.
        """
        view, (index, element_bytes), (batches, _, cols, channels) = call.views[name], given, window
        buffer = dict(zip(_NAMES["buffer"], self.microcode.buffers[index].values, strict=True))
        storage = self.storages[view.tensor]
        for (extent_name, pitch_name), extent, pitch in zip(_AXES, view.extents, view.pitches, strict=True):
            if buffer[extent_name] != extent:
                self.findings.append(f"{who}: {name} has {buffer[extent_name]} {extent_name}, not {extent}")
            if extent > 1 and buffer[pitch_name] != pitch:
                self.findings.append(f"{who}: {name} has {pitch_name} {buffer[pitch_name]}, not {pitch}")
        if buffer["ring"] < 1:
            self.findings.append(f"{who}: {name} has a ring of {buffer['ring']} rows")
        word = buffer["base"]
        memory = self.memories.get(word) or Memory(base_text(word), 0)
        batch_pitch, row_pitch, col_pitch, channel_pitch = view.pitches
        inside = batches[0] * batch_pitch + cols[0] * col_pitch + channels[0] * channel_pitch
        held = buffer["offset"] - buffer["col0"] * col_pitch - buffer["channel0"] * channel_pitch
        axes = (
            (batches[1] - batches[0], batch_pitch),
            (cols[1] - cols[0], col_pitch),
            (channels[1] - channels[0], channel_pitch),
        )
        ring = min(max(buffer["ring"], 1), view.extents[1])
        difference = view.offset - held
        empty = any(count < 1 for count, _ in axes)
        return _Operand(
            name,
            memory,
            storage.name,
            held + inside,
            difference,
            ring,
            row_pitch,
            axes,
            0 if empty else element_bytes,
            storage.constant,
            rows,
        )

    def _find_misplaced(self, who: str, operator: _Operator) -> None:
        """Note the buffers in a memory that no call writes, or that kernels do not access, where tensors are copied to a memory of the NPU."""
        for operand in operator.writes:
            if operand.memory.name == "WEIGHTS" or operand.memory.name.startswith("INPUT"):
                self.findings.append(f"{who}: {operand.name} is in {operand.memory.name}, which nothing writes")
        if operator.call.is_transfer:
            return
        for operand in operator.reads:
            is_copied = operand.name in COPIED_BY_KERNEL.get(operator.call.kernel, ())
            if self.schedule.is_tiled and operand.memory.name not in _OF_THE_NPU and not is_copied:
                self.findings.append(f"{who}: {operand.name} is in {operand.memory.name}, where kernels do not read")
        for operand in operator.writes:
            if self.schedule.is_tiled and operand.memory.name not in _OF_THE_NPU:
                self.findings.append(f"{who}: {operand.name} is in {operand.memory.name}, where kernels do not write")

    # -- calls ----------------------------------------------------------------------------------------------------------

    def _block(self, operator: _Operator, rows: Span) -> None:
        """Note the faults of some rows of an operator: its reads, and then its writes."""
        written = [(each, self._accesses(operator, rows, each, each.rows(*rows))) for each in operator.writes]
        read: list[_Access] = []
        for operand in operator.reads:
            accesses = self._accesses(operator, rows, operand, operand.rows(*rows))
            for each in accesses:
                if operand.constant is not None:
                    start = -self.pairs[each.meaning][1]
                    self._constant(
                        (operator, rows, operand.name), each.memory, each.at, each.shape, start, operand.constant
                    )
                elif not each.memory.holds(each.at, each.shape, each.meaning):
                    who = f"{_who(operator.call, rows)}: {operand.name}"
                    self._differs(who, each.memory, each.at, each.shape, each.meaning)
            read += accesses
            for result, places in written:
                if result.memory is operand.memory and result.name != operand.name:
                    self._find_overwritten(operator, rows, (operand, accesses), (result, places))
        is_transfer = operator.call.is_transfer
        for _, places in written:
            for each in places:
                each.memory.write(each.at, each.shape, -each.meaning if is_transfer else each.meaning)
        if is_transfer:
            (_, places), *_ = written
            self.arriving.setdefault(operator.channel, []).append(_Transfer(places, read))

    def _accesses(self, operator: _Operator, rows: Span, operand: _Operand, own: Span) -> list[_Access]:
        """Return the bytes of some rows of a buffer, with their meanings. Raises _Faulty where they are outside of the memory."""
        found = []
        memory = operand.memory
        for at, count, turn in operand.parts(own) if operand.element_bytes else ():
            shape = operand.shape(count)
            end = at + shape.reach
            if at < 0 or end > memory.size:
                who = f"{_who(operator.call, rows)}: {operand.name}"
                self.findings.append(f"{who}: it ends at byte {end} of {memory.name}, which has {memory.size}")
                raise _Faulty
            memory.touched = max(memory.touched, end)
            meaning = operand.meanings.get(turn)
            if meaning is None:
                difference = operand.difference + turn * operand.ring * operand.pitch
                meaning = operand.meanings[turn] = self._number(operand.storage, difference)
            found.append(_Access(memory, at, shape, meaning))
        return found

    def _find_overwritten(
        self,
        operator: _Operator,
        rows: Span,
        read: tuple[_Operand, list[_Access]],
        written: tuple[_Operand, list[_Access]],
    ) -> None:
        """Note a result that the call writes over an operand it has still to read. A state is read and written in place."""
        (operand, reads), (result, writes) = read, written
        if not any(a.at < b.at + b.shape.reach and b.at < a.at + a.shape.reach for a in reads for b in writes):
            return
        # The result depends on distances alone, which repeat in a loop.
        of = reads[0].at
        key = operand.name, result.name, *((each.at - of, id(each.shape)) for each in (*reads, *writes))
        if key not in operator.overlaps:
            operator.overlaps[key] = _is_safe(operator.call, rows, read, written)
        if not operator.overlaps[key]:
            what = "its output" if result.name == "output" else f"its {result.name}"
            who = _who(operator.call, rows)
            self.findings.append(f"{who}: it writes {what} over what it has still to read of {operand.name}")

    def _is_outside(self, who: str, memory: Memory | None, word: int, at: int, size: int) -> bool:
        there = 0 if memory is None else memory.size
        outside = at < 0 or at + size > there
        if outside:
            self.findings.append(f"{who}: it ends at byte {at + size} of {base_text(word)}, which has {there}")
        return outside

    def _differs(self, who: str, memory: Memory, at: int, shape: Shape, wanted: int) -> None:
        """Note the bytes that do not have a meaning."""
        there = memory.meanings(at, shape)
        wrong = there != wanted
        number = int(there[wrong][0])
        name, _ = self.pairs[abs(number)]
        if number == UNDEFINED:
            why = "were never written"
        elif number < 0:
            why = "are still being copied"
        elif name == _WEIGHTS:
            why = "hold constants by now"
        elif name == self.pairs[wanted][0]:
            why = "hold other rows of the same tensor by now"
        else:
            why = f"hold '{name}' by now"
        first = f"the first at {memory.name}+{int(_addresses(at, shape)[wrong].min())}"
        self.findings.append(f"{who}: {int(wrong.sum())} of {wrong.size} bytes {why}, {first}")

    def _constant(
        self,
        of: tuple[_Operator, Span, str],
        memory: Memory,
        at: int,
        shape: Shape,
        start: int,
        wanted: bytes,
    ) -> None:
        """Note where bytes are not those of a constant that begins at ``start``."""
        memory.touched = max(memory.touched, at + shape.reach)
        number = memory.at(at)
        name, difference = self.pairs[abs(number)]
        if number > 0 and name == _WEIGHTS and memory.holds(at, shape, number):
            key = start + difference, id(wanted)
            if key not in self.equal:
                self.equal[key] = self.weights[key[0] : key[0] + len(wanted)] == wanted
            if self.equal[key]:
                return
        operator, rows, what = of
        who = f"{_who(operator.call, rows)}: {what}"
        there = memory.meanings(at, shape)
        late = there <= 0
        if late.any():
            why = "have not arrived" if (there < 0).any() else "were never fetched"
            self.findings.append(f"{who}: {int(late.sum())} of {late.size} bytes {why}")
            return
        others = sum(int((there == each).sum()) for each in np.unique(there) if self.pairs[each][0] != _WEIGHTS)
        why = f"{others} of {there.size} bytes are a tensor's by now" if others else "other constants lie there"
        self.findings.append(f"{who}: {why}")


_NAMES = {row.name: tuple(column.name for column in row.fields) for row in (*KERNELS, BUFFER)}
"""The names of the words of each kernel's parameter block, and of a buffer's."""

_ELEMENT_BYTES = {row.name: {column.name: column.element_bytes for column in row.fields} for row in KERNELS}
"""The bytes of an element of each buffer of each kernel."""

_AXES = (("batches", "batch_pitch"), ("rows", "row_pitch"), ("cols", "col_pitch"), ("channels", "channel_pitch"))
"""The extent and the pitch of each axis of a buffer."""


def _new(storage: Storage) -> str:
    """Return the name of the value that a call writes to a storage; a state's is its new value."""
    return storage.name if storage.state is None else f"the new {storage.name}"


def _who(call: KernelCall, rows: Span | None = None) -> str:
    is_whole = rows in (None, (0, call.views["output"].extents[1]))
    return f"{call.kernel} '{call.name}'" + ("" if is_whole else f", rows {rows}")


def _is_updated(storage: Storage, schedule: Schedule, storages: Storages) -> bool:
    return any(storages.of[call.views[name].tensor] == storage.name for call in schedule.calls for name in call.results)


_PLACES = {
    name: tuple(map(INSTRUCTION_BY_NAME[name].index, fields))
    for name, fields in (
        ("CALL", ("operator",)),
        ("ROWS", ("operator", "row0", "row1", "step")),
        ("WAIT", ("channel",)),
        ("FETCH", ("source", "base", "destination", "size", "channel")),
    )
}
"""The places of the fields that the audit reads, by the instruction's name."""


def _unrolled(code: tuple[Record, ...]) -> Iterator[tuple[int, str, tuple[int, ...]]]:
    """Yield each instruction that runs, with the iteration of the loop around it in front: its name and its fields."""
    place = 0
    while code[place].row.name != "END":
        instruction = code[place]
        place += 1
        if instruction.row.name != "LOOP":
            yield 0, *_read(instruction)
            continue
        first, words = place, instruction["body_words"]
        while words > 0:
            words -= 1 + len(code[place].values)
            place += 1
        body = [_read(inner) for inner in code[first:place]]
        for iteration in range(instruction["count"]):
            yield from ((iteration, *inner) for inner in body)


def _read(instruction: Record) -> tuple[str, tuple[int, ...]]:
    name = instruction.row.name
    return name, tuple(instruction.values[place] for place in _PLACES[name])


def _addresses(at: int, shape: Shape) -> Addresses:
    """Return the address of each byte of a shape."""
    found = np.arange(at, at + shape.run)
    for count, pitch in shape.axes:
        found = found + (np.arange(count) * pitch).reshape(-1, *(1,) * found.ndim)
    return found


def _is_safe(
    call: KernelCall,
    rows: Span,
    read: tuple[_Operand, Sequence[_Access]],
    written: tuple[_Operand, Sequence[_Access]],
) -> bool:
    """Return whether a call may write there although it reads there: nowhere the same, or each element at its own or before it."""
    (operand, reads), (result, writes) = read, written
    if not any(_share_bytes(one, other) for one in reads for other in writes):
        return True
    alike = operand.axes == result.axes and operand.element_bytes == result.element_bytes
    if not is_element_by_element(call.kernel, operand.name) or not alike:
        return False
    read_from, written_to = (_elements(each, rows) for each in (operand, result))
    if (written_to == read_from).all():
        return True
    return bool((written_to <= read_from).all() and (np.diff(read_from.reshape(-1)) > 0).all())


def _share_bytes(one: _Access, other: _Access) -> bool:
    if one.at >= other.at + other.shape.reach or other.at >= one.at + one.shape.reach:
        return False
    pitches = [pitch for _, pitch in (*one.shape.axes, *other.shape.axes)]
    if not pitches:
        return True
    step = min(pitches)
    gap = (other.at - one.at) % step
    if not any(pitch % step for pitch in pitches) and one.shape.run <= gap <= step - other.shape.run:
        return False
    first = min(one.at, other.at)
    marks = np.zeros(max(one.at + one.shape.reach, other.at + other.shape.reach) - first, np.int32)
    one.shape.of_array(marks, one.at - first)[...] = 1
    return bool(other.shape.of_array(marks, other.at - first).any())


def _elements(operand: _Operand, rows: Span) -> Addresses:
    """Return the address of each byte of some rows: [batch, row, column, channel, byte of the element]."""
    n, c, k = (np.arange(count) * pitch for count, pitch in operand.axes)
    r = np.arange(*rows) % operand.ring * operand.pitch
    places = n[:, None, None, None, None] + r[:, None, None, None] + c[:, None, None] + k[:, None]
    return operand.start + places + np.arange(operand.element_bytes)
