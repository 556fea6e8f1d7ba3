# SPDX-License-Identifier: BSD-3-Clause
"""Single calls of the kernels that go through elements, window by window, on buffers laid out in memory in any way."""

from __future__ import annotations

import ctypes
import functools
import itertools
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from openneutron.compiler.emit.accesses import read_window
from openneutron.compiler.emit.emit import packed
from openneutron.compiler.legalize.legalize import legalize
from openneutron.compiler.select.calls import KernelCall, View
from openneutron.compiler.select.select import select_node
from openneutron.ir import Graph
from openneutron.isa import rows
from tests.support import convolution_calls, oracle
from tests.support.built_once import built_once
from tests.support.convolution_calls import (
    FLAGS,
    RUNTIME,
    Bases,
    BindingWords,
    BufferWords,
    Call,
    Int8Array,
    Layout,
    ProgramView,
    Window,
)
from tests.support.objects import compiled

KERNELS = tuple(
    row.name
    for row in rows.KERNELS
    if row.name not in convolution_calls.KERNELS
    and len(row.results) == 1
    and not row.traits.kernels
    and not row.name.endswith("_f32")
)
SOURCES = (
    *sorted({path for name in KERNELS for path in (RUNTIME / "kernels" / name.rsplit("_", 1)[0]).glob(f"{name}*.c")}),
    RUNTIME / "kernels" / "conv_2d" / "convolution_check.c",
    RUNTIME / "kernels" / "convolution_16.c",
    RUNTIME / "kernels" / "check.c",
    RUNTIME / "kernels" / "elements_16.c",
)
VARIANTS: Mapping[str, tuple[str, ...]] = {
    "portable": ("-DNEUTRON_PORTABLE_ONLY",),
    "native": (),
}
"""The compiled sources: the portable code alone, or with the variants for the machine's processor."""

Range = tuple[int, int]
Ranges = tuple[Range, Range, Range, Range]
"""First and end of batches, rows, columns and channels."""


@functools.cache
def library(variant: str) -> ctypes.CDLL:
    """The kernels and their checks in a shared object of their own."""

    def build(folder: Path) -> None:
        objects = compiled(folder, "gcc", [*FLAGS, *VARIANTS[variant], "-O3", "-fPIC"], SOURCES)
        subprocess.run(["gcc", "-shared", "-o", "kernels.so", *objects], cwd=folder, check=True)

    loaded = ctypes.CDLL(str(built_once(f"element-calls-{variant}", build) / "kernels.so"))
    for name in KERNELS:
        getattr(loaded, f"{name}_check").restype = ctypes.c_bool
        getattr(loaded, f"{name}_run").restype = None
    return loaded


def logical(view: View, tensor: npt.NDArray[Any]) -> Int8Array:
    """The bytes that a view shows of a tensor, with the view's extents and an axis of the bytes of an element."""
    flat = np.ascontiguousarray(tensor).reshape(-1).view(np.int8)[view.offset :]
    extents, pitches = (*view.extents, view.element_bytes), (*view.pitches, 1)
    return np.lib.stride_tricks.as_strided(flat, extents, pitches, writeable=False)


def needed(call: KernelCall, field: str, window: Ranges) -> Ranges:
    """The part of the input ``field`` that a window of the output is made of, by the audit's rules; no buffer is empty."""
    read = read_window(call, field, window) or ((0, 0),) * 4
    spans = [
        (min(first, extent - 1), max(end, min(first, extent - 1) + 1))
        for (first, end), extent in zip(read, call.views[field].extents, strict=True)
    ]
    # The checks of resizes ask for all columns.
    cols = (0, call.views[field].extents[2]) if "map" in call.constants else spans[2]
    return spans[0], spans[1], cols, spans[3]


def windows(call: KernelCall, random: np.random.Generator) -> Iterator[Ranges]:
    """Windows that cover a call's output once, in random order; channels of packed constants are cut between their blocks."""
    extents = call.views["output"].extents
    steps = (1, 1, 1, rows.LANES if "requant" in call.constants else 1)
    cuts = [
        sorted({0, extent, *(random.integers(0, extent // step + 1, random.integers(0, 3)) * step).tolist()})
        for extent, step in zip(extents, steps, strict=True)
    ]
    spans = [list(itertools.pairwise(cut)) for cut in cuts]
    made = [(b, r, c, k) for b in spans[0] for r in spans[1] for c in spans[2] for k in spans[3]]
    for index in random.permutation(len(made)):
        yield made[index]


def random_layout(view: View, held: Ranges, random: np.random.Generator) -> Layout:
    """Any order of dimensions, gaps between them, and no more rows, columns and channels than asked for, or a few more."""
    _, height, cols, channels = view.extents
    ring = min(height, held[1][1] - held[1][0] + int(random.integers(0, 2)))
    kept_cols = held[2] if random.random() < 0.5 else (0, cols)
    kept_channels = held[3] if random.random() < 0.5 else (0, channels)
    counts = (view.extents[0], ring, kept_cols[1] - kept_cols[0], kept_channels[1] - kept_channels[0])
    order = (3, 2, 1, 0) if random.random() < 0.5 else tuple(int(axis) for axis in random.permutation(4))
    pitches, pitch = [0, 0, 0, 0], view.element_bytes
    for axis in order:
        if view.pitches[axis] == 0:
            continue  # broadcast
        pitches[axis] = pitch
        pitch = pitch * counts[axis] + int(random.integers(0, 3) if random.random() < 0.3 else 0)
    return Layout((pitches[0], pitches[1], pitches[2], pitches[3]), ring, kept_cols, kept_channels)


@dataclass(frozen=True, slots=True)
class Buffer:
    """A tensor's part in memory, laid out."""

    layout: Layout
    memory: npt.NDArray[np.uint8]
    part: Ranges

    def offsets(self, view: View) -> npt.NDArray[np.int64]:
        """The places of a view's bytes in memory, with an axis of the bytes of an element."""
        extents = view.extents
        batches, height, cols, channels = self.part
        all_offsets = self.layout.offsets(height[0], height[1], extents[0])[batches[0] : batches[1]]
        inner = (
            slice(c[0] - kept[0], c[1] - kept[0])
            for c, kept in ((cols, self.layout.cols), (channels, self.layout.channels))
        )
        return all_offsets[(slice(None), slice(None), *inner)][..., None] + np.arange(view.element_bytes)


def run_window(
    variant: str, call: KernelCall, inputs: Mapping[str, Int8Array], window: Ranges, random: np.random.Generator
) -> Int8Array:
    """One window of a call's output, with every buffer laid out anew. Asserts that nothing else of the output is written."""
    fields = list(call.views)
    buffers: dict[str, Buffer] = {}
    for field, view in call.views.items():
        part = window if field == "output" else needed(call, field, window)
        layout = random_layout(view, part, random)
        memory = random.integers(0, 256, layout.size(view.extents[0]) + view.element_bytes - 1, np.uint8)
        buffers[field] = Buffer(layout, memory, part)
        if field != "output":
            chosen = tuple(slice(*range_) for range_ in part)
            memory[buffers[field].offsets(view)] = inputs[field][chosen].view(np.uint8)
    before = buffers["output"].memory.copy()
    _call(variant, call, fields, buffers, window)
    offsets = buffers["output"].offsets(call.views["output"])
    after = buffers["output"].memory
    untouched = np.ones(after.size, bool)
    untouched[offsets] = False
    np.testing.assert_array_equal(after[untouched], before[untouched], f"{call} wrote outside its window {window}")
    return after[offsets].view(np.int8)


def _call(variant: str, call: KernelCall, fields: list[str], buffers: Mapping[str, Buffer], window: Ranges) -> None:
    row = rows.KERNEL_BY_NAME[call.kernel]
    sources = [field for field in fields if field != "output"]
    table = (BufferWords * len(fields))()
    values: dict[str, int] = dict(call.params)
    for index, field in enumerate(fields):
        home = 1 if field == "output" else sources.index(field) << 8
        table[index] = buffers[field].layout.words(home, call.views[field].extents)
        values[field] = index
    blob = b""
    for stem, content in packed(call).items():
        values[f"{stem}_base"], values[f"{stem}_offset"] = rows.BASES.index("WEIGHTS"), len(blob)
        blob += content + bytes(-len(content) % 16)
    weights = np.frombuffer(blob + bytes(16), np.uint8).copy()
    words = (ctypes.c_uint32 * len(row.fields))(*(values[field.name] & 0xFFFFFFFF for field in row.fields))
    memories = [buffers[field].memory for field in (*sources, "output")]
    bindings = (BindingWords * len(memories))(*(BindingWords(0, 0, memory.size) for memory in memories))
    ins = (ctypes.c_void_p * len(sources))(*(memory.ctypes.data for memory in memories[:-1]))
    outs = (ctypes.c_void_p * 1)(memories[-1].ctypes.data)
    bases = Bases(ctypes.addressof(ins), ctypes.addressof(outs), weights.ctypes.data, None, None)
    program = ProgramView(
        ctypes.addressof(table), len(fields), ctypes.addressof(bindings), len(sources), 1, weights.size, 0, 0
    )
    flat = Window(*(bound for range_ in window for bound in range_))
    check = getattr(library(variant), f"{call.kernel}_check")
    assert check(ctypes.byref(program), words, ctypes.byref(flat)), f"{call} refuses {window}"
    made = Call(ctypes.addressof(words), ctypes.addressof(table), ctypes.addressof(bases), flat, None)
    getattr(library(variant), f"{call.kernel}_run")(ctypes.byref(made))


def assert_bit_exact(graph: Graph, seed: int) -> None:
    """A graph of one operator, the whole way and window by window in every variant, byte for byte against LiteRT."""
    random = np.random.default_rng(seed)
    inputs = oracle.random_inputs(graph, random)
    (want,) = oracle.reference_outputs(graph, inputs)
    compiled = oracle.compile_graph(graph, oracle.TARGET)
    np.testing.assert_array_equal(oracle.simulated_outputs(compiled, inputs)[0], want, str(graph))
    values = dict(zip(graph.inputs, inputs, strict=True))
    values |= {name: tensor.data for name, tensor in graph.tensors.items() if tensor.data is not None}
    (node,) = legalize(graph).nodes
    if node.op == "reshape":
        return
    for call in select_node(graph, node):
        sources = {f: logical(view, values[view.tensor]) for f, view in call.views.items() if f != "output"}
        expected = logical(call.views["output"], want)
        for variant in VARIANTS:
            for window in windows(call, random):
                got = run_window(variant, call, sources, window, random)
                chosen = expected[tuple(slice(*range_) for range_ in window)]
                np.testing.assert_array_equal(got, chosen, f"{variant} {window}\n{call}\n{graph}")
