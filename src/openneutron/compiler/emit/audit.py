# SPDX-License-Identifier: BSD-3-Clause
"""Audit a program instruction by instruction, with the meaning of every byte of memory instead of its value.

The audit finds faults that a run with data may hide: bytes that are read before they are written, buffers that overlap while both are needed, rows
that have left their rolling buffer, constants that have not arrived, and outputs that are not complete.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from openneutron.compiler.emit.accesses import (
    Window,
    block_scratch,
    is_element_by_element,
    read_window,
    whole_window,
    written_window,
)
from openneutron.compiler.emit.packing import packed
from openneutron.compiler.schedule.schedule import Schedule
from openneutron.compiler.select.calls import KernelCall, Storage, Storages, View
from openneutron.isa import Microcode, Program, Record, base_text, decode
from openneutron.isa.rows import BASES

Ids = npt.NDArray[np.int64]

_STORAGE_BITS = 40
MOST_FINDINGS = 20

_OF_THE_NPU = ("PREFETCH", "STATE")
"""Kernels read and write these bases where tensors are copied to a memory of the NPU."""


@dataclass(frozen=True, slots=True)
class Audit:
    """``findings`` as text, at most ``MOST_FINDINGS``, and the bytes used of the scratch and the prefetch buffer: from the start to
    the highest one that a kernel or a copy touches."""

    findings: tuple[str, ...]
    scratch_bytes: int
    prefetch_bytes: int


def audit(program: Program, schedule: Schedule, storages: Storages) -> Audit:
    """Go through a program that was emitted from this schedule; inputs and outputs are taken from its bindings."""
    return _Run(decode(program), program.weights, schedule, storages).audited()


@dataclass(frozen=True, slots=True)
class _Transfer:
    """A copy under way has a destination (base and bytes), the meaning of these bytes after the copy, and a source."""

    word: int
    here: Ids
    arrived: Ids
    source: tuple[int, Ids, Ids] | None = None


@dataclass(slots=True)
class _Run:
    """``tags`` states the meaning of each byte of each base: the upper bits are the number of a storage (0: the weights), the lower bits
    1 more than the byte's offset in this storage; the tags of a copy are negative until the copy is done. A state has two numbers, one
    for its value at the start of the run and one for the new value."""

    microcode: Microcode
    weights: bytes
    schedule: Schedule
    storages: Storages
    tags: dict[int, Ids] = field(init=False)
    numbers: dict[str, int] = field(init=False)
    arriving: dict[int, list[_Transfer]] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)
    touched: dict[str, int] = field(default_factory=lambda: {"SCRATCH": 0, "PREFETCH": 0})

    def __post_init__(self) -> None:
        code = self.microcode
        sizes = {BASES.index("SCRATCH"): code.scratch_size, BASES.index("PREFETCH"): code.prefetch_size}
        sizes[BASES.index("STATE")] = code.state_size
        for item in (*code.inputs, *code.outputs):
            sizes.setdefault(item["base"], item["offset"] + item["size"])
        self.tags = {word: np.zeros(size, np.int64) for word, size in sizes.items()}
        names = [
            *self.storages.storages,
            *(_new(each) for each in self.storages.storages.values() if each.state is not None),
        ]
        self.numbers = {name: number for number, name in enumerate(names, 1)}
        self.tags[BASES.index("WEIGHTS")] = np.arange(1, len(self.weights) + 1)
        for name, storage in self.storages.storages.items():
            if storage.state is not None:
                here = np.arange(storage.state, storage.state + storage.size_bytes)
                self.tags[BASES.index("STATE")][here] = self._ids(name, np.arange(storage.size_bytes))
            if storage.input is not None:
                item = code.inputs[storage.input]
                here = np.arange(item["offset"], item["offset"] + item["size"])
                self.tags[item["base"]][here] = self._ids(name, np.arange(item["size"]))
                self._touch(item["base"], here)

    def audited(self) -> Audit:
        for iteration, instruction in _unrolled(self.microcode.code):
            if len(self.findings) >= MOST_FINDINGS:
                break
            name = instruction.row.name
            if name == "FETCH":
                self._fetch(instruction)
            elif name == "WAIT":
                self._arrive(instruction["channel"])
            else:
                self._call(instruction, iteration)
        for name, storage in self.storages.storages.items():
            if storage.output is not None and len(self.findings) < MOST_FINDINGS:
                item = self.microcode.outputs[storage.output]
                here = np.arange(item["offset"], item["offset"] + item["size"])
                wanted = self._ids(name, np.arange(item["size"]))
                self._compare(f"at the end, output '{name}'", item["base"], here, wanted)
            if storage.state is not None and _is_updated(storage, self.schedule, self.storages):
                here = np.arange(storage.state, storage.state + storage.size_bytes)
                wanted = self._ids(_new(storage), np.arange(storage.size_bytes))
                self._compare(f"at the end, state '{name}'", BASES.index("STATE"), here, wanted)
        return Audit(tuple(self.findings), self.touched["SCRATCH"], self.touched["PREFETCH"])

    def _ids(self, storage: str, places: Ids) -> Ids:
        return (np.int64(self.numbers[storage]) << _STORAGE_BITS) + places + 1

    def _touch(self, word: int, here: Ids) -> None:
        name = base_text(word)
        if name in self.touched and here.size:
            self.touched[name] = max(self.touched[name], int(here.max()) + 1)

    def _fetch(self, instruction: Record) -> None:
        here = np.arange(instruction["destination"], instruction["destination"] + instruction["size"])
        arrived = here - instruction["destination"] + instruction["source"] + 1
        self.tags[instruction["base"]][here] = -arrived
        self._touch(instruction["base"], here)
        self.arriving.setdefault(instruction["channel"], []).append(_Transfer(instruction["base"], here, arrived))

    def _arrive(self, channel: int) -> None:
        for copy in self.arriving.pop(channel, ()):
            others = int((self.tags[copy.word][copy.here] != -copy.arrived).sum())
            if others:
                self.findings.append(
                    f"a copy on channel {channel}: {others} of {copy.here.size} bytes are used before it is there"
                )
            self.tags[copy.word][copy.here] = copy.arrived
            if copy.source is not None:
                word, places, tags = copy.source
                others = int((self.tags[word][places] != tags).sum())
                if others:
                    self.findings.append(
                        f"a copy on channel {channel}: {others} of {places.size} bytes are overwritten before they are copied"
                    )

    def _call(self, instruction: Record, iteration: int) -> None:
        call = self.schedule.calls[instruction["operator"]]
        operator = self.microcode.operators[instruction["operator"]]
        window = _window_of(instruction, iteration, call)
        if window is None:
            return
        who = _who(call, window)
        for key, blob in packed(call).items():
            here = np.arange(operator[f"{key}_offset"], operator[f"{key}_offset"] + len(blob))
            if not self._is_outside(f"{who}: {key}", operator[f"{key}_base"], here):
                self._constant(f"{who}: {key}", operator[f"{key}_base"], here, blob)
        for block in self._blocks(call, operator, window):
            self._block(_who(call, block), call, operator, block)

    def _blocks(self, call: KernelCall, operator: Record, window: Window) -> Iterator[Window]:
        """Yield the windows that a call computes one after the other."""
        scratch, (first, end) = block_scratch(call.kernel), window[1]
        rows = self._buffer(operator[scratch])["ring"] if scratch else end - first
        for row in range(first, end, rows):
            yield window[0], (row, min(row + rows, end)), window[2], window[3]

    def _block(self, who: str, call: KernelCall, operator: Record, window: Window) -> None:
        """Note the faults of a window: its reads, and then its writes."""
        written = self._written(who, call, operator, window)
        if written is None:
            return
        source: tuple[int, Ids, Ids] | None = None
        for name, view in call.views.items():
            if not call.reads(name):
                continue
            read = read_window(call, name, window)
            here = self._places(operator[name], read, operator.row.element_bytes(name))
            word = self._buffer(operator[name])["base"]
            within = _places_in_storage(view, read)
            if self._is_outside(f"{who}: {name}", word, here):
                continue
            self._touch(word, here)
            if not call.is_transfer and self.schedule.is_tiled and base_text(word) not in _OF_THE_NPU:
                self.findings.append(f"{who}: {name} is in {base_text(word)}, where kernels do not read")
            source = word, here, self.tags[word][here]
            storage = self.storages[view.tensor]
            if storage.constant is not None:
                wanted = np.frombuffer(storage.constant, np.uint8)[within].tobytes()
                self._constant(f"{who}: {name}", word, here, wanted)
            else:
                self._compare(f"{who}: {name}", word, here, self._ids(storage.name, within))
            self._find_overwritten(who, call, name, (word, here), written)
        for name, (word, places) in written.items():
            view = call.views[name]
            storage = self.storages[view.tensor]
            own = window if name == "output" else written_window(call, name, window)
            ids = self._ids(_new(storage), _places_in_storage(view, own))
            if call.is_transfer:
                self.tags[word][places] = -ids
                self.arriving.setdefault(operator["channel"], []).append(_Transfer(word, places, ids, source))
            elif self.schedule.is_tiled and base_text(word) not in _OF_THE_NPU:
                self.findings.append(f"{who}: {name} is in {base_text(word)}, where kernels do not write")
            else:
                self.tags[word][places] = ids
            self._touch(word, places)

    def _written(
        self, who: str, call: KernelCall, operator: Record, window: Window
    ) -> dict[str, tuple[int, Ids]] | None:
        """Return the base and the bytes of each result; None where one of them ends outside its base."""
        written = {}
        for name in call.results:
            own = window if name == "output" else written_window(call, name, window)
            here = self._places(operator[name], own, operator.row.element_bytes(name))
            word = self._buffer(operator[name])["base"]
            if self._is_outside(f"{who}: {name}", word, here):
                return None
            written[name] = word, here
        return written

    def _find_overwritten(
        self, who: str, call: KernelCall, name: str, read: tuple[int, Ids], written: dict[str, tuple[int, Ids]]
    ) -> None:
        """Note each result that the call writes over an operand it has still to read. A state is read and written in place."""
        for result, (word, places) in written.items():
            if result != name and word == read[0] and not _is_safe(call, name, read[1], places):
                what = "its output" if result == "output" else f"its {result}"
                self.findings.append(f"{who}: it writes {what} over what it has still to read of {name}")

    def _buffer(self, index: int) -> Record:
        return self.microcode.buffers[index]

    def _places(self, index: int, window: Window, element_bytes: int) -> Ids:
        """Return the bytes of a window of a buffer, from its base: [batch, row, column, channel, byte of the element]."""
        buffer = self._buffer(index)
        n, r, c, k = (np.arange(*span, dtype=np.int64) for span in window)
        return np.asarray(
            buffer["offset"]
            + (n * buffer["batch_pitch"])[:, None, None, None, None]
            + (r % buffer["ring"] * buffer["row_pitch"])[:, None, None, None]
            + ((c - buffer["col0"]) * buffer["col_pitch"])[:, None, None]
            + ((k - buffer["channel0"]) * buffer["channel_pitch"])[:, None]
            + np.arange(element_bytes)
        )

    def _is_outside(self, who: str, word: int, here: Ids) -> bool:
        size = self.tags[word].size if word in self.tags else 0
        outside = bool(here.size) and not 0 <= int(here.min()) <= int(here.max()) < size
        if outside:
            self.findings.append(f"{who}: it ends at byte {int(here.max()) + 1} of {base_text(word)}, which has {size}")
        return outside

    def _compare(self, who: str, word: int, here: Ids, wanted: Ids) -> None:
        there = self.tags[word][here]
        wrong = there != wanted
        if not wrong.any():
            return
        tag = int(there[wrong][0])
        if tag == 0:
            why = "were never written"
        elif tag < 0:
            why = "are still being copied"
        elif tag >> _STORAGE_BITS <= 0:
            why = "hold constants by now"
        elif tag >> _STORAGE_BITS == int(wanted[wrong][0]) >> _STORAGE_BITS:
            why = "hold other rows of the same tensor by now"
        else:
            name = next(name for name, number in self.numbers.items() if number == tag >> _STORAGE_BITS)
            why = f"hold '{name}' by now"
        count = int(wrong.sum())
        first = f"the first at {base_text(word)}+{int(here[wrong].min())}"
        self.findings.append(f"{who}: {count} of {wrong.size} bytes {why}, {first}")

    def _constant(self, who: str, word: int, here: Ids, wanted: bytes) -> None:
        self._touch(word, here)
        sources = self.tags[word][here].reshape(-1)
        late = sources <= 0
        if late.any():
            why = "have not arrived" if (sources < 0).any() else "were never fetched"
            self.findings.append(f"{who}: {int(late.sum())} of {late.size} bytes {why}")
        elif (sources >> _STORAGE_BITS).any():
            self.findings.append(
                f"{who}: {int((sources >> _STORAGE_BITS > 0).sum())} of {late.size} bytes are a tensor's by now"
            )
        elif np.frombuffer(self.weights, np.uint8)[sources - 1].tobytes() != wanted:
            self.findings.append(f"{who}: other constants lie there")


def _new(storage: Storage) -> str:
    """Return the name of the value that a call writes to a storage; a state's is its new value."""
    return storage.name if storage.state is None else f"the new {storage.name}"


def _who(call: KernelCall, window: Window) -> str:
    return f"{call.kernel} '{call.name}'" + ("" if window == whole_window(call, "output") else f", rows {window[1]}")


def _is_updated(storage: Storage, schedule: Schedule, storages: Storages) -> bool:
    return any(storages.of[call.views[name].tensor] == storage.name for call in schedule.calls for name in call.results)


def _unrolled(code: tuple[Record, ...]) -> Iterator[tuple[int, Record]]:
    """Yield each instruction that runs, with the iteration of the loop around it."""
    place = 0
    while code[place].row.name != "END":
        instruction = code[place]
        place += 1
        if instruction.row.name != "LOOP":
            yield 0, instruction
            continue
        first, words = place, instruction["body_words"]
        while words > 0:
            words -= 1 + len(code[place].values)
            place += 1
        for iteration in range(instruction["count"]):
            yield from ((iteration, inner) for inner in code[first:place])


def _window_of(instruction: Record, iteration: int, call: KernelCall) -> Window | None:
    """Return the output window that an instruction computes, clipped to the output; None where nothing is left."""
    batches, rows, cols, channels = whole_window(call, "output")
    if instruction.row.name == "ROWS":
        first, end = (instruction[name] + instruction["step"] * iteration for name in ("row0", "row1"))
        rows = min(max(first, 0), rows[1]), min(max(end, 0), rows[1])
    return None if rows[0] >= rows[1] else (batches, rows, cols, channels)


def _places_in_storage(view: View, window: Window) -> Ids:
    n, r, c, k = (np.arange(*span, dtype=np.int64) * pitch for span, pitch in zip(window, view.pitches, strict=True))
    places = view.offset + n[:, None, None, None, None] + r[:, None, None, None] + c[:, None, None] + k[:, None]
    return np.asarray(places + np.arange(view.element_bytes))


def _is_safe(call: KernelCall, name: str, read: Ids, written: Ids) -> bool:
    """Return whether a call may write there although it reads there: nowhere the same, or each element at its own or before it."""
    if not read.size or read.max() < written.min() or written.max() < read.min():
        return True
    if not np.intersect1d(read, written).size:
        return True
    if not is_element_by_element(call.kernel, name) or read.shape != written.shape:
        return False
    if (written == read).all():
        return True
    return bool((written <= read).all() and (np.diff(read.reshape(-1)) > 0).all())
