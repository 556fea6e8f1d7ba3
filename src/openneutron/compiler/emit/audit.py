# SPDX-License-Identifier: BSD-3-Clause
"""Audit a program: follow its instructions one by one, and track for each byte of memory which byte of which tensor it
holds.

The audit finds faults that a run with data may hide: bytes that are read before they are written, buffers that overlap
while both are needed, rows that are no longer in their rolling buffer, constants that have not arrived or belong to
another call, and outputs that are not complete.

The meaning of a byte is a pair: the storage whose byte it holds, and the difference (offset in the storage) - (address
in memory). Contiguous bytes of a storage in contiguous memory have the same meaning, so that the audit compares runs of
bytes (``Memory``), not single bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from openneutron.compiler.emit.accesses import (
    COPIED_BY_KERNEL,
    UNDEFINED,
    Memory,
    Others,
    Shape,
    block_scratch,
    is_element_by_element,
    read_beside_rows,
    rows_read,
    rows_written,
    whole_window,
    written_beside_rows,
)
from openneutron.compiler.emit.emit import Packed, packed_constant
from openneutron.compiler.schedule.schedule import Schedule
from openneutron.compiler.select.calls import KernelCall, Storage, Storages
from openneutron.compiler.select.needs import Reads, Span
from openneutron.isa import Microcode, Program, Record, base_text, decode
from openneutron.isa.rows import BASES, BUFFER, INSTRUCTION_BY_NAME, REGIONS

Addresses = npt.NDArray[np.int64]

MOST_FINDINGS = 20

_OF_THE_NPU = ("PREFETCH", "STATE")
"""The memories of the NPU. If a program copies tensors to them, its kernels read and write no other memories."""

_WEIGHTS = ""
"""The name that stands for all constants where a meaning names a storage."""


@dataclass(frozen=True, slots=True)
class Audit:
    """The result of an audit.

    ``findings`` are sentences, at most ``MOST_FINDINGS``. ``scratch_bytes``, ``prefetch_bytes`` and ``far_bytes`` are the used
    sizes of these memories: from the first byte to the highest one that a kernel or a copy touches.
    """

    findings: tuple[str, ...]
    scratch_bytes: int
    prefetch_bytes: int
    far_bytes: int


def audit(program: Program, schedule: Schedule, storages: Storages, known: Packed | None = None) -> Audit:
    """Audit a program that was emitted from ``schedule``, and return the result.

    The addresses of inputs and outputs are those that the program itself states. ``known`` caches packed constants
    (see ``packed``).
    """
    code = decode(program, checksums=False)
    return _Run(code, program.weights, schedule, storages, {} if known is None else known).audited()


class _Faulty(Exception):
    """Raised where a call accesses bytes outside of a memory. The audit does not follow the other accesses of this
    call."""


class _Access(NamedTuple):
    """A set of bytes that a call reads or writes: ``shape``, from address ``at`` of ``memory`` on. ``meaning`` states
    what the bytes must hold before a read, or what they hold after a write."""

    memory: Memory
    at: int
    shape: Shape
    meaning: int


class _Transfer(NamedTuple):
    """A copy that has started and not ended: the bytes that it writes, and those that it reads.

    ``written_at`` and ``read_at`` have for each access the number of writes to its memory when the copy began. If that
    number is the same when the copy ends, no other call has changed these bytes.
    """

    written: Sequence[_Access]
    written_at: Sequence[int]
    read: Sequence[_Access] = ()
    read_at: Sequence[int] = ()


@dataclass(slots=True)
class _Operand:
    """A buffer of an operator, and the window of it that the operator accesses.

    ``start`` is the address of row 0 of the window. ``difference`` is (offset in the storage) - (address) in the
    first pass through the rolling buffer. ``element_bytes`` is 0 if nothing is accessed. ``rows`` maps output rows to
    the rows of this buffer that they need. ``meanings`` caches the number of the meaning for each pass through the
    rolling buffer. For a buffer that is read, ``beside`` has the indices in the operator's ``writes`` of all other
    buffers in the same memory.
    """

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
    meanings: dict[int, int] = field(default_factory=dict)
    beside: tuple[int, ...] = ()

    def parts(self, rows: Span) -> Sequence[tuple[int, int, int]]:
        """Return the rows, divided into parts that are contiguous in memory. A part is (address of its first row,
        number of rows, pass through the rolling buffer)."""
        first, end = rows
        ring = self.ring
        if end <= ring:
            return ((self.start + first * self.pitch, end - first, 0),) if first < end else ()
        found = []
        while first < end:
            turn = first // ring
            behind = min(end, (turn + 1) * ring)
            found.append((self.start + (first - turn * ring) * self.pitch, behind - first, turn))
            first = behind
        return found


@dataclass(slots=True)
class _Operator:
    """An operator of the program, and the kernel call from which it was emitted.

    ``channel`` is the channel of a transfer, None for other operators. ``block_rows`` is the number of output rows that
    the operator computes before it reads the rows of the next block. ``constants`` has name, memory, address, shape and
    bytes of each constant that is not read from the weights.
    """

    call: KernelCall
    channel: int | None
    rows: int
    block_rows: int
    reads: list[_Operand] = field(default_factory=list)
    writes: list[_Operand] = field(default_factory=list)
    constants: list[tuple[str, Memory, int, Shape, bytes]] = field(default_factory=list)


@dataclass(slots=True)
class _Run:
    """The state of an audit while it follows a program.

    ``memories`` has each memory by its base, the word that names it in the microcode. ``numbers`` maps each meaning
    to its number, and ``pairs`` each number to its meaning. A meaning has the name of a storage. A state has two such
    names: one for its value at the start of the run, and one for its new value.
    """

    microcode: Microcode
    weights: bytes
    schedule: Schedule
    storages: Storages
    known: Packed
    memories: dict[int, Memory] = field(init=False)
    numbers: dict[tuple[str, int], int] = field(default_factory=dict)
    pairs: list[tuple[str, int]] = field(default_factory=lambda: [("", 0)])
    operators: dict[int, _Operator | None] = field(default_factory=dict)
    shapes: dict[tuple[object, ...], Shape] = field(default_factory=dict)
    overlaps: dict[tuple[object, ...], bool] = field(default_factory=dict)
    equal: dict[tuple[int, int], bool] = field(default_factory=dict)
    arriving: dict[int, list[_Transfer]] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        code = self.microcode
        sizes = {BASES.index(kind): code.region_size(kind) for kind in REGIONS}
        sizes[BASES.index("STATE")] = code.state_size
        sizes[BASES.index("WEIGHTS")] = len(self.weights)
        for item in (*code.inputs, *code.outputs):
            sizes[item["base"]] = max(sizes.get(item["base"], 0), item["offset"] + item["size"])
        self.memories = {word: _memory_of(word, size) for word, size in sizes.items()}
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
        return Audit(tuple(self.findings), *(touched[kind] for kind in REGIONS))

    def _find_missing(self, who: str, word: int, at: int, size: int, name: str) -> None:
        memory, meaning = self.memories[word], self._number(name, -at)
        if len(self.findings) < MOST_FINDINGS and not memory.holds(at, Shape(size), meaning):
            self._differs(f"at the end, {who}", memory, at, Shape(size), meaning)

    def _number(self, storage: str, difference: int) -> int:
        """Return the number of a meaning; a meaning without a number gets the next one."""
        number = self.numbers.get((storage, difference))
        if number is None:
            number = self.numbers[storage, difference] = len(self.pairs)
            self.pairs.append((storage, difference))
        return number

    def _fetch(self, source: int, word: int, destination: int, size: int, channel: int) -> None:
        memory, shape, who = self._memory(word), Shape(size), f"a copy on channel {channel}"
        for each, at in ((memory, destination), (self._memory(BASES.index("WEIGHTS")), source)):
            if at + size > each.size:
                self._note_outside(who, each, at + size)
                return
        copy = _Access(memory, destination, shape, self._number(_WEIGHTS, source - destination))
        memory.write(destination, shape, -copy.meaning)
        memory.touched = max(memory.touched, destination + size)
        self.arriving.setdefault(channel, []).append(_Transfer((copy,), (memory.writes,)))

    def _arrive(self, channel: int) -> None:
        """End the copies of a channel: set the final meanings of their bytes, and record bytes that another call has
        changed meanwhile.

        Bytes are compared only if their memory was written since the copy began.
        """
        for copy in self.arriving.pop(channel, ()):
            for each, writes in zip(copy.written, copy.written_at, strict=True):
                if each.memory.writes != writes:
                    self._find_changed(channel, each, -each.meaning, "used before it is there")
                each.memory.write(each.at, each.shape, each.meaning)
            for each, writes in zip(copy.read, copy.read_at, strict=True):
                if each.memory.writes != writes:
                    self._find_changed(channel, each, each.meaning, "overwritten before they are copied")

    def _find_changed(self, channel: int, access: _Access, wanted: int, what: str) -> None:
        memory, at, shape, _ = access
        if not memory.holds(at, shape, wanted):
            others = int((memory.meanings(at, shape) != wanted).sum())
            self.findings.append(f"a copy on channel {channel}: {others} of {shape.size} bytes are {what}")

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
        for key, memory, at, shape, blob in operator.constants:
            self._constant((operator, (first, end), key), memory, at, shape, at, blob)
        try:
            for row in range(first, end, operator.block_rows):
                self._block(operator, (row, min(row + operator.block_rows, end)))
        except _Faulty:
            pass

    # -- the operators, each once ---------------------------------------------------------------------------------------

    def _operator(self, index: int) -> _Operator | None:
        """Return an operator with its buffers. If it has faults, record these and return None, since every call of it
        would repeat them."""
        call, record = self.schedule.calls[index], self.microcode.operators[index]
        row, window, count = record.row, whole_window(call, "output"), len(self.findings)
        if row.name != call.kernel:
            self.findings.append(f"{_who(call)}: it is the kernel {row.name}")
            return None
        words = dict(zip(row.names, record.values, strict=True))
        if not call.params.items() <= words.items():
            for name, value in call.params.items():
                if words[name] != value:
                    self.findings.append(f"{_who(call)}: {name} is {words[name]}, not {value}")
        rows, scratch = window[1][1], block_scratch(call.kernel)
        block_rows = self.microcode.buffers[words[scratch]]["ring"] if scratch else rows
        made = _Operator(call, words["channel"] if row.is_transfer else None, rows, max(block_rows, 1))
        for key, constant in call.constants.items():
            blob = packed_constant(row.packing(key), constant, self.known)
            memory, at = self._memory(words[f"{key}_base"]), words[f"{key}_offset"]
            if at + len(blob) > memory.size:
                self._note_outside(f"{_who(call)}: {key}", memory, at + len(blob))
            elif memory.name != "WEIGHTS" and blob:
                made.constants.append((key, memory, at, Shape(len(blob)), blob))
            elif blob and not self.weights.startswith(blob, at):
                self.findings.append(f"{_who(call)}: {key}: other constants lie there")
        for name in row.results:
            buffer, own = (words[name], row.element_bytes(name)), written_beside_rows(call, name, window)
            operand = self._operand(call, name, buffer, own, rows_written(call, name))
            operand.storage = _new(self.storages[call.views[name].tensor])
            made.writes.append(operand)
        for name in row.read:
            read = read_beside_rows(call, name, window)
            if read is None:
                continue
            buffer = words[name], row.element_bytes(name)
            operand = self._operand(call, name, buffer, read, rows_read(call, name))
            for at, each in enumerate(made.writes):
                if each.memory is operand.memory and each.name != name:
                    operand.beside += (at,)
            made.reads.append(operand)
        self._find_misplaced(made)
        return made if len(self.findings) == count else None

    def _operand(self, call: KernelCall, name: str, given: tuple[int, int], window: Others, rows: Reads) -> _Operand:
        """Return a buffer of an operator, and record each difference between the buffer and the view of the call.

        ``given`` has the index of the buffer and the bytes of an element. ``window`` has the largest ranges that the
        operator accesses.
        """
        view, (index, element_bytes), (batches, cols, channels) = call.views[name], given, window
        values = self.microcode.buffers[index].values
        storage = self.storages[view.tensor]
        extents, pitches = _EXTENTS(values), _PITCHES(values)
        used = view.extents[0] == 1  # The pitch of a single batch says nothing.
        if extents != view.extents or pitches[used:] != view.pitches[used:]:
            for axis, extent, pitch, own_extent, own_pitch in zip(
                _AXES, view.extents, view.pitches, extents, pitches, strict=True
            ):
                if own_extent != extent:
                    self.findings.append(f"{_who(call)}: {name} has {own_extent} {axis[0]}, not {extent}")
                if own_pitch != pitch and extent > 1:
                    self.findings.append(f"{_who(call)}: {name} has {axis[1]} {own_pitch}, not {pitch}")
        word, offset, ring, col0, channel0 = _PLACE(values)
        if ring < 1:
            self.findings.append(f"{_who(call)}: {name} has a ring of {ring} rows")
        batch_pitch, row_pitch, col_pitch, channel_pitch = view.pitches
        inside = batches[0] * batch_pitch + cols[0] * col_pitch + channels[0] * channel_pitch
        held = offset - col0 * col_pitch - channel0 * channel_pitch
        axes = (
            (batches[1] - batches[0], batch_pitch),
            (cols[1] - cols[0], col_pitch),
            (channels[1] - channels[0], channel_pitch),
        )
        is_empty = axes[0][0] < 1 or axes[1][0] < 1 or axes[2][0] < 1
        return _Operand(
            name,
            self._memory(word),
            storage.name,
            held + inside,
            view.offset - held,
            min(max(ring, 1), view.extents[1]),
            row_pitch,
            axes,
            0 if is_empty else element_bytes,
            storage.constant,
            rows,
        )

    def _memory(self, word: int) -> Memory:
        """Return the memory that ``word``, a base in the microcode, names. If the program has no such memory, return
        one of 0 bytes, so that each access is outside of it."""
        memory = self.memories.get(word)
        if memory is None:
            memory = self.memories[word] = _memory_of(word, 0)
        return memory

    def _find_misplaced(self, operator: _Operator) -> None:
        """Record each result of the operator that is in a memory which kernels can't write.

        If the schedule copies tensors to memories of the NPU, also record each operand and result in any other
        memory. This does not apply to a transfer, or to operands that the kernel itself copies.
        """
        call = operator.call
        for operand in operator.writes:
            if not operand.memory.is_written:
                self.findings.append(f"{_who(call)}: {operand.name} is in {operand.memory.name}, which nothing writes")
        if operator.channel is not None or not self.schedule.is_tiled:
            return
        copied = COPIED_BY_KERNEL.get(call.kernel, ())
        for operands, what in ((operator.reads, "read"), (operator.writes, "write")):
            for operand in operands:
                if operand.memory.name not in _OF_THE_NPU and not (what == "read" and operand.name in copied):
                    where = f"{operand.name} is in {operand.memory.name}, where kernels do not {what}"
                    self.findings.append(f"{_who(call)}: {where}")

    # -- calls ----------------------------------------------------------------------------------------------------------

    def _block(self, operator: _Operator, rows: Span) -> None:
        """Record the faults of one block of rows of an operator, and set the meanings of the bytes that it writes.

        Reads are checked before the writes take effect. The bytes that a transfer writes get their final meanings
        when it ends (``_arrive``). Raises _Faulty if an access is outside of its memory.
        """
        written = [(each, self._accesses(operator, rows, each)) for each in operator.writes]
        read: list[_Access] = []
        for operand in operator.reads:
            accesses = self._accesses(operator, rows, operand)
            for memory, at, shape, meaning in accesses:
                if operand.constant is not None:
                    start = -self.pairs[meaning][1]
                    self._constant((operator, rows, operand.name), memory, at, shape, start, operand.constant)
                elif not memory.holds(at, shape, meaning):
                    self._differs(f"{_who(operator.call, rows)}: {operand.name}", memory, at, shape, meaning)
            read += accesses
            for place in operand.beside:
                if _meet(accesses, written[place][1]):
                    self._find_overwritten(operator, rows, (operand, accesses), written[place])
        if operator.channel is None:
            for _, places in written:
                for memory, at, shape, meaning in places:
                    memory.write(at, shape, meaning)
            return
        ((_, places),) = written
        read_at = [each.memory.writes for each in read]
        for memory, at, shape, meaning in places:
            memory.write(at, shape, -meaning)
        copy = _Transfer(places, [each.memory.writes for each in places], read, read_at)
        self.arriving.setdefault(operator.channel, []).append(copy)

    def _accesses(self, operator: _Operator, rows: Span, operand: _Operand) -> list[_Access]:
        """Return the accesses of a buffer for rows of the output. Raises _Faulty where they are outside of the
        memory."""
        found: list[_Access] = []
        if not operand.element_bytes:
            return found
        memory = operand.memory
        for at, count, turn in operand.parts(operand.rows(*rows)):
            key = operand.axes, count, operand.pitch, operand.element_bytes
            shape = self.shapes.get(key)
            if shape is None:
                shape = self.shapes[key] = Shape.of((*operand.axes, (count, operand.pitch)), operand.element_bytes)
            end = at + shape.reach
            if at < 0 or end > memory.size:
                self._note_outside(f"{_who(operator.call, rows)}: {operand.name}", memory, end)
                raise _Faulty
            if end > memory.touched:
                memory.touched = end
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
        """Record a result that the call writes over bytes of an operand that it has not read yet. A state may be read
        and written in place."""
        (operand, reads), (result, writes) = read, written
        # The result depends on distances alone, which repeat in a loop.
        of = reads[0].at
        key = id(operand), id(result), *((each.at - of, id(each.shape)) for each in (*reads, *writes))
        if key not in self.overlaps:
            self.overlaps[key] = _is_safe(operator.call, rows, read, written)
        if not self.overlaps[key]:
            what = "its output" if result.name == "output" else f"its {result.name}"
            who = _who(operator.call, rows)
            self.findings.append(f"{who}: it writes {what} over what it has still to read of {operand.name}")

    def _note_outside(self, who: str, memory: Memory, end: int) -> None:
        self.findings.append(f"{who}: it ends at byte {end} of {memory.name}, which has {memory.size}")

    def _differs(self, who: str, memory: Memory, at: int, shape: Shape, wanted: int) -> None:
        """Record how many bytes do not have the wanted meaning, what they hold instead, and the first address."""
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
        """Record the bytes that differ from a constant, whose bytes ``wanted`` begin at address ``start``."""
        if at + shape.reach > memory.touched:
            memory.touched = at + shape.reach
        number = memory.at(at)
        name, difference = self.pairs[abs(number)]
        if number > 0 and name == _WEIGHTS and memory.holds(at, shape, number):
            key = start + difference, id(wanted)
            if key not in self.equal:
                self.equal[key] = key[0] >= 0 and self.weights.startswith(wanted, key[0])
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


_AXES = (("batches", "batch_pitch"), ("rows", "row_pitch"), ("cols", "col_pitch"), ("channels", "channel_pitch"))
"""The names of the extent and of the pitch of each axis of a buffer."""

_EXTENTS, _PITCHES, _PLACE = (
    itemgetter(*map(BUFFER.places.__getitem__, names))
    for names in (*zip(*_AXES, strict=True), ("base", "offset", "ring", "col0", "channel0"))
)
"""Functions of the words of a buffer. They return its extents, its pitches, and the words that place it in a memory."""


def _memory_of(word: int, size: int) -> Memory:
    """Return a memory of ``size`` bytes for a base."""
    name = base_text(word)
    return Memory(name, size, is_written=not name.startswith(("WEIGHTS", "INPUT")))


def _new(storage: Storage) -> str:
    """Return the name of the value that a call writes to a storage. The new value of a state has a name of its own."""
    return storage.name if storage.state is None else f"the new {storage.name}"


def _who(call: KernelCall, rows: Span | None = None) -> str:
    is_whole = rows in (None, (0, call.views["output"].extents[1]))
    return f"{call.kernel} '{call.name}'" + ("" if is_whole else f", rows {rows}")


def _is_updated(storage: Storage, schedule: Schedule, storages: Storages) -> bool:
    return any(storages.of[call.views[name].tensor] == storage.name for call in schedule.calls for name in call.results)


_FIELDS = {
    name: tuple(map(INSTRUCTION_BY_NAME[name].places.__getitem__, fields))
    for name, fields in (
        ("CALL", ("operator",)),
        ("ROWS", ("operator", "row0", "row1", "step")),
        ("WAIT", ("channel",)),
        ("FETCH", ("source", "base", "destination", "size", "channel")),
    )
}
"""The positions of the fields that the audit reads, by the instruction's name."""


def _unrolled(code: tuple[Record, ...]) -> Iterator[tuple[int, str, tuple[int, ...]]]:
    """Yield each instruction that runs: the iteration of its loop (0 outside of loops), its name, and the fields of
    ``_FIELDS``."""
    place = 0
    while code[place].row.name != "END":
        instruction = code[place]
        place += 1
        if instruction.row.name != "LOOP":
            name, values = _read(instruction)
            yield 0, name, values
            continue
        first, words = place, instruction["body_words"]
        while words > 0:
            words -= 1 + len(code[place].values)
            place += 1
        body = [_read(inner) for inner in code[first:place]]
        for iteration in range(instruction["count"]):
            for name, values in body:
                yield iteration, name, values


def _read(instruction: Record) -> tuple[str, tuple[int, ...]]:
    name, values = instruction.row.name, instruction.values
    return name, tuple([values[place] for place in _FIELDS[name]])


def _addresses(at: int, shape: Shape) -> Addresses:
    """Return the address of each byte of a shape that begins at ``at``."""
    found = np.arange(at, at + shape.run)
    for count, pitch in shape.axes:
        found = found + (np.arange(count) * pitch).reshape(-1, *(1,) * found.ndim)
    return found


def _meet(reads: Sequence[_Access], writes: Sequence[_Access]) -> bool:
    """Return whether the address range of a read, from its first to its last byte, overlaps that of a write."""
    for _, at, shape, _ in reads:
        for _, to, written, _ in writes:
            if at < to + written.reach and to < at + shape.reach:
                return True
    return False


def _is_safe(
    call: KernelCall,
    rows: Span,
    read: tuple[_Operand, Sequence[_Access]],
    written: tuple[_Operand, Sequence[_Access]],
) -> bool:
    """Return whether a call's writes leave intact the bytes that it has not read yet.

    This holds if no byte is both read and written. It also holds if the kernel goes element by element and writes each
    element at its own address, or at a lower address in ascending order.
    """
    (operand, reads), (result, writes) = read, written
    if not any(_share_bytes(one, other) for one in reads for other in writes):
        return True
    alike = operand.axes == result.axes and operand.element_bytes == result.element_bytes
    if not is_element_by_element(call.kernel, operand.name) or not alike:
        return False
    if (operand.start, operand.ring, operand.pitch) == (result.start, result.ring, result.pitch):
        return True
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
    """Return the address of each byte of some rows, an array of [batch, row, column, channel, byte of the element]."""
    n, c, k = (np.arange(count) * pitch for count, pitch in operand.axes)
    r = np.arange(*rows) % operand.ring * operand.pitch
    places = n[:, None, None, None, None] + r[:, None, None, None] + c[:, None, None] + k[:, None]
    return operand.start + places + np.arange(operand.element_bytes)
