# SPDX-License-Identifier: BSD-3-Clause
"""A program gone through instruction by instruction, with what every byte of memory stands for instead of its value.

It finds what a run with data may hide: bytes that are read before they are written, buffers that overlap while both are needed, rows
that have left their rolling buffer, constants that have not arrived, and outputs that are not complete.

The rules of what a kernel reads are written from the kernels' definitions (docs/microcode.md) and shared with nothing that schedules,
so that a mistake there does not hide itself here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import numpy.typing as npt

from openneutron.compiler.emit.packing import packed
from openneutron.compiler.schedule.schedule import Schedule
from openneutron.compiler.select.calls import KernelCall, Maps, Storages, View
from openneutron.isa import Microcode, Program, Record, base_text, decode
from openneutron.isa.rows import BASES

Span = tuple[int, int]
"""First and end."""

Window = tuple[Span, Span, Span, Span]
"""Batches, rows, columns and channels of a view."""

Rule = Callable[[KernelCall, str, Window], Window]
"""(call, input, window of the output) to the window of the input that is read."""


def whole_window(call: KernelCall, name: str) -> Window:
    """Return all of a view."""
    batches, rows, cols, channels = call.views[name].extents
    return (0, batches), (0, rows), (0, cols), (0, channels)


def _taps(span: Span, stride: int, before: int, kernel: int, dilation: int, extent: int) -> Span:
    """Return the part that a sliding window touches of an input's rows or columns."""
    first = span[0] * stride - before
    end = (span[1] - 1) * stride - before + (kernel - 1) * dilation + 1
    return max(0, min(first, extent)), max(0, min(end, extent))


def _slid(call: KernelCall, name: str, window: Window) -> tuple[Span, Span]:
    p = call.params
    _, rows, cols, _ = call.views[name].extents
    return (
        _taps(window[1], p["stride_h"], p["pad_top"], p["kernel_h"], p.get("dilation_h", 1), rows),
        _taps(window[2], p["stride_w"], p["pad_left"], p["kernel_w"], p.get("dilation_w", 1), cols),
    )


def _convolution(call: KernelCall, name: str, window: Window) -> Window:
    inputs, outputs = call.params["group_inputs"], call.params["group_outputs"]
    first, last = window[3][0] // outputs, (window[3][1] - 1) // outputs
    return window[0], *_slid(call, name, window), (first * inputs, (last + 1) * inputs)


def _pool(call: KernelCall, name: str, window: Window) -> Window:
    return window[0], *_slid(call, name, window), window[3]


def _same(_call: KernelCall, _name: str, window: Window) -> Window:
    return window


def _padded(call: KernelCall, name: str, window: Window) -> Window:
    before = [call.params[f"pad_{side}"] for side in ("batch", "top", "left", "channel")]
    spans = [
        (max(0, min(first - pad, extent)), max(0, min(end - pad, extent)))
        for (first, end), pad, extent in zip(window, before, call.views[name].extents, strict=True)
    ]
    return spans[0], spans[1], spans[2], spans[3]


def _mapped(call: KernelCall, name: str, window: Window, maps: int) -> Window:
    """Return the window of which the first ``maps`` tables name input rows, and as many input columns."""
    tables = call.constants["map"]
    assert isinstance(tables, Maps)
    _, rows, cols, _ = call.views[name].extents
    spans = []
    for span, own, extent in ((window[1], tables.rows, rows), (window[2], tables.cols, cols)):
        read = [min(max(int(own[table, place]), 0), extent - 1) for table in range(maps) for place in range(*span)]
        spans.append((min(read), max(read) + 1))
    return window[0], spans[0], spans[1], window[3]


def _lines(call: KernelCall, name: str, window: Window) -> Window:
    """Return all channels of the same places."""
    return window[0], window[1], window[2], (0, call.views[name].extents[3])


def _reduced(call: KernelCall, name: str, window: Window) -> Window:
    """Return all rows and columns of the same batches and channels."""
    _, rows, cols, _ = call.views[name].extents
    return window[0], (0, rows), (0, cols), window[3]


def _product(call: KernelCall, name: str, window: Window) -> Window:
    """Return the rows of a, or the columns of b; both along the whole depth."""
    depth = (0, call.params["depth"])
    return (window[0], window[1], (0, 1), depth) if name == "input_a" else (window[0], depth, (0, 1), window[3])


def _gathered(call: KernelCall, name: str, window: Window) -> Window:
    """Return any column of the same rows, by the indices of the same columns."""
    _, _, cols, channels = call.views[name].extents
    if name == "indices":
        return window[0], (0, 1), window[2], (0, channels)
    return window[0], window[1], (0, cols), window[3]


_KERNELS: tuple[tuple[Rule, tuple[str, ...]], ...] = (
    (_convolution, ("conv_2d_s8", "conv_2d_1x1_s8", "depthwise_conv_2d_s8")),
    (_convolution, ("conv_2d_s16", "depthwise_conv_2d_s16")),
    (_pool, ("average_pool_2d_s8", "max_pool_2d_s8", "average_pool_2d_s16", "max_pool_2d_s16")),
    (_same, ("add_s8", "mul_s8", "maximum_s8", "prelu_s8", "squared_difference_s8", "compare_s8", "select_s8")),
    (_same, ("lookup_s8", "copy_s8", "add_s16", "copy_s16")),
    (_same, ("mul_s16", "maximum_s16", "prelu_s16", "compare_s16")),
    (_same, ("rescale_s16", "rescale_s8s16", "rescale_s16s8", "lookup_s16", "logistic_s16")),
    (_padded, ("pad_s8",)),
    (partial(_mapped, maps=1), ("resize_nearest_neighbor_s8",)),
    (partial(_mapped, maps=2), ("resize_bilinear_s8", "resize_bilinear_s16")),
    (_lines, ("softmax_s8", "softmax_s16", "log_softmax_s8", "l2_normalization_s8", "arg_max_s8")),
    (_product, ("batch_matmul_s8", "batch_matmul_s16")),
    (_gathered, ("gather_s8",)),
    (_reduced, ("mean_s8", "reduce_max_s8", "mean_s16", "reduce_max_s16")),
)

RULES = {kernel: rule for rule, kernels in _KERNELS for kernel in kernels}
"""One rule for each kernel of the microcode."""

ELEMENT_BY_ELEMENT = frozenset(kernel for kernel, rule in RULES.items() if rule is _same)
"""Kernels that have read an element of each input before they write that element, in ascending order."""


def read_window(call: KernelCall, name: str, window: Window) -> Window:
    """Return the window that a call reads of its input ``name`` to compute a window of its output."""
    return RULES[call.kernel](call, name, window)


Ids = npt.NDArray[np.int64]

_STORAGE_BITS = 40
MOST_FINDINGS = 20


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


@dataclass(slots=True)
class _Run:
    """``tags`` say for each byte of each base what it stands for: the number of a storage in the upper bits (0: the weights) and 1
    more than the byte's place in it in the lower ones; of what is fetched negative until it is there."""

    microcode: Microcode
    weights: bytes
    schedule: Schedule
    storages: Storages
    tags: dict[int, Ids] = field(init=False)
    numbers: dict[str, int] = field(init=False)
    arriving: dict[int, list[tuple[int, Ids, Ids]]] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)
    touched: dict[str, int] = field(default_factory=lambda: {"SCRATCH": 0, "PREFETCH": 0})

    def __post_init__(self) -> None:
        code = self.microcode
        sizes = {BASES.index("SCRATCH"): code.scratch_size, BASES.index("PREFETCH"): code.prefetch_size}
        for item in (*code.inputs, *code.outputs):
            sizes.setdefault(item["base"], item["offset"] + item["size"])
        self.tags = {word: np.zeros(size, np.int64) for word, size in sizes.items()}
        self.numbers = {name: number for number, name in enumerate(self.storages.storages, 1)}
        self.tags[BASES.index("WEIGHTS")] = np.arange(1, len(self.weights) + 1)
        for name, storage in self.storages.storages.items():
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
        self.arriving.setdefault(instruction["channel"], []).append((instruction["base"], here, arrived))

    def _arrive(self, channel: int) -> None:
        for word, here, arrived in self.arriving.pop(channel, ()):
            others = int((self.tags[word][here] != -arrived).sum())
            if others:
                self.findings.append(
                    f"a copy on channel {channel}: {others} of {here.size} bytes are used before it is there"
                )
            self.tags[word][here] = arrived

    def _call(self, instruction: Record, iteration: int) -> None:
        call = self.schedule.calls[instruction["operator"]]
        operator = self.microcode.operators[instruction["operator"]]
        window = _window_of(instruction, iteration, call)
        if window is None:
            return
        who = f"{call.kernel} '{call.name}'" + ("" if window == whole_window(call, "output") else f", rows {window[1]}")
        for key, blob in packed(call).items():
            here = np.arange(operator[f"{key}_offset"], operator[f"{key}_offset"] + len(blob))
            if not self._is_outside(f"{who}: {key}", operator[f"{key}_base"], here):
                self._constant(f"{who}: {key}", operator[f"{key}_base"], here, blob)
        written = self._places(operator["output"], window, operator.row.element_bytes("output"))
        output_word = self._buffer(operator["output"])["base"]
        if self._is_outside(f"{who}: output", output_word, written):
            return
        for name, view in call.views.items():
            if name == "output":
                continue
            read = read_window(call, name, window)
            here = self._places(operator[name], read, operator.row.element_bytes(name))
            word = self._buffer(operator[name])["base"]
            within = _places_in_storage(view, read)
            if self._is_outside(f"{who}: {name}", word, here):
                continue
            self._touch(word, here)
            storage = self.storages[view.tensor]
            if storage.constant is not None:
                wanted = np.frombuffer(storage.constant, np.uint8)[within].tobytes()
                self._constant(f"{who}: {name}", word, here, wanted)
            else:
                self._compare(f"{who}: {name}", word, here, self._ids(storage.name, within))
            if word == output_word and not _is_safe(call, here, written):
                self.findings.append(f"{who}: it writes its output over what it has still to read of {name}")
        storage = self.storages[call.views["output"].tensor]
        self.tags[output_word][written] = self._ids(storage.name, _places_in_storage(call.views["output"], window))
        self._touch(output_word, written)

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


def _is_safe(call: KernelCall, read: Ids, written: Ids) -> bool:
    """Return whether a call may write there although it reads there: nowhere the same, or each element at its own or before it."""
    if not read.size or read.max() < written.min() or written.max() < read.min():
        return True
    if not np.intersect1d(read, written).size:
        return True
    if call.kernel not in ELEMENT_BY_ELEMENT or read.shape != written.shape:
        return False
    if (written == read).all():
        return True
    return bool((written <= read).all() and (np.diff(read.reshape(-1)) > 0).all())
