# SPDX-License-Identifier: BSD-3-Clause
"""Single calls of the convolution kernels, variant by variant, on tensors laid out in memory in any way."""

from __future__ import annotations

import ctypes
import functools
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from openneutron.compiler.emit.emit import packed
from openneutron.compiler.select.calls import KernelCall, View
from openneutron.isa import rows
from openneutron.isa.kernels.row import Row
from tests.support.built_once import built_once
from tests.support.objects import compiled
from tests.support.runtime_builds import NARROW

RUNTIME = Path(__file__).parents[2] / "runtime"
KERNELS = ("conv_2d_s8", "conv_2d_1x1_s8", "depthwise_conv_2d_s8")
SOURCES = (
    *sorted(RUNTIME.glob("kernels/conv_2d/*.c")),
    *sorted(RUNTIME.glob("kernels/conv_2d_1x1/*.c")),
    *sorted(RUNTIME.glob("kernels/depthwise_conv_2d/*.c")),
    RUNTIME / "kernels" / "convolution_16.c",
    RUNTIME / "kernels" / "check.c",
    RUNTIME / "kernels" / "elements_16.c",
    RUNTIME / "kernels" / "elements_dsp.c",
)
FLAGS = ("-std=c11", f"-I{RUNTIME / 'include'}", f"-I{RUNTIME / 'kernels'}", NARROW)
CPU_FLAGS = {
    "portable": (),
    "plain": (),
    "avx2": ("avx2",),
}

Int8Array = npt.NDArray[np.int8]


@functools.cache
def library(*flags: str) -> ctypes.CDLL:
    """The kernels and their checks in a shared object of their own, with every variant's entry point."""

    def build(folder: Path) -> None:
        objects = compiled(folder, "gcc", [*FLAGS, *flags, "-O3", "-fPIC"], SOURCES)
        subprocess.run(["gcc", "-shared", "-o", "kernels.so", *objects], cwd=folder, check=True)

    return ctypes.CDLL(str(built_once("".join(("convolution-calls", *flags)), build) / "kernels.so"))


def entry(kernel: str, variant: str) -> Callable[[object], bool | None]:
    """A variant's run function; "plain" is the portable one without a single vector instruction of its own."""
    if variant == "plain":
        run = getattr(library("-DNEUTRON_PORTABLE_ONLY"), f"{kernel}_run_portable")
    else:
        run = getattr(library(), f"{kernel}_run_{variant}")
    run.restype = None if variant in ("portable", "plain") else ctypes.c_bool
    return run


@functools.cache
def variants() -> tuple[str, ...]:
    """The variants that this machine can run; "portable" is always the first."""
    try:
        words = set(Path("/proc/cpuinfo").read_text().split())
    except OSError:
        words = set()
    return tuple(name for name, flags in CPU_FLAGS.items() if words.issuperset(flags))


def _structure(name: str, fields: Sequence[tuple[str, type]]) -> type[ctypes.Structure]:
    return type(name, (ctypes.Structure,), {"_fields_": list(fields)})


def _row_structure(row: Row) -> type[ctypes.Structure]:
    return _structure(row.name, [(f.name, ctypes.c_int32 if f.signed else ctypes.c_uint32) for f in row.fields])


BufferWords = _row_structure(rows.BUFFER)
BindingWords = _row_structure(rows.BINDING)
ConvolutionWords = _row_structure(rows.KERNEL_BY_NAME["conv_2d_s8"])
WINDOW_WORDS = ("batch0", "batch1", "row0", "row1", "col0", "col1", "channel0", "channel1")
Window = _structure("Window", [(name, ctypes.c_int32) for name in WINDOW_WORDS])
Bases = _structure(
    "Bases", [(name, ctypes.c_void_p) for name in ("inputs", "outputs", "weights", "scratch", "prefetch", "state")]
)
Call = _structure(
    "Call",
    [
        ("params", ctypes.c_void_p),
        ("buffers", ctypes.c_void_p),
        ("bases", ctypes.c_void_p),
        ("window", Window),
        ("error", ctypes.c_void_p),
    ],
)
ProgramView = _structure(
    "ProgramView",
    [
        ("buffers", ctypes.c_void_p),
        ("buffer_count", ctypes.c_uint32),
        ("bindings", ctypes.c_void_p),
        ("input_count", ctypes.c_uint32),
        ("output_count", ctypes.c_uint32),
        ("weights_size", ctypes.c_uint32),
        ("scratch_size", ctypes.c_uint32),
        ("prefetch_size", ctypes.c_uint32),
        ("state_size", ctypes.c_uint32),
    ],
)


@dataclass(frozen=True, slots=True)
class Layout:
    """The memory layout of a 4-D int8 tensor: the words of a buffer except its extents."""

    pitches: tuple[int, int, int, int]
    ring: int
    cols: tuple[int, int]
    channels: tuple[int, int]

    def offsets(self, row0: int, row1: int, batches: int) -> npt.NDArray[np.int64]:
        """Byte offsets of rows [row0, row1) with the columns and channels held."""
        n, r, c, k = np.ogrid[:batches, row0:row1, self.cols[0] : self.cols[1], self.channels[0] : self.channels[1]]
        batch, row, col, channel = self.pitches
        return n * batch + (r % self.ring) * row + (c - self.cols[0]) * col + (k - self.channels[0]) * channel

    def size(self, batches: int) -> int:
        return int(self.offsets(0, self.ring, batches).max()) + 1

    def words(self, base: int, extents: tuple[int, int, int, int]) -> ctypes.Structure:
        return BufferWords(
            base,
            0,
            *extents,
            *self.pitches,
            self.ring,
            self.cols[0],
            self.cols[1] - self.cols[0],
            self.channels[0],
            self.channels[1] - self.channels[0],
        )


def dense(extents: tuple[int, int, int, int], ring: int | None = None) -> Layout:
    """Without gaps, channels innermost."""
    _, height, width, channels = extents
    held = ring or height
    return Layout((held * width * channels, width * channels, channels, 1), held, (0, width), (0, channels))


@dataclass(frozen=True, slots=True)
class Prepared:
    """A kernel call with its constants and layouts; ``run`` computes windows of it."""

    call: KernelCall
    input: Layout
    output: Layout

    @property
    def input_extents(self) -> tuple[int, int, int, int]:
        return self.call.views["input"].extents

    @property
    def output_extents(self) -> tuple[int, int, int, int]:
        return self.call.views["output"].extents

    def words(self) -> ctypes.Structure:
        """The parameter block; requantization table in the weights base, after the weights."""
        size = self.call.packed_bytes()["weights"]
        at = -size % 16 + size
        weights = rows.BASES.index("WEIGHTS")
        places = {"input": 0, "output": 1, "weights_base": weights, "weights_offset": 0}
        places |= {"requant_base": weights, "requant_offset": at}
        given = {**self.call.params, **places}
        return ConvolutionWords(*(given[name] for name, _ in ConvolutionWords._fields_))

    def constants(self) -> npt.NDArray[np.uint8]:
        blobs = packed(self.call)
        weights, requant = blobs["weights"], blobs["requant"]
        return np.frombuffer(weights + bytes(-len(weights) % 16) + requant, np.uint8).copy()

    def whole(self) -> dict[str, int]:
        n, r, c, k = self.output_extents
        return {"batch1": n, "row1": r, "col1": c, "channel1": k}

    def run(
        self,
        variant: str,
        source: Int8Array,
        windows: Sequence[Mapping[str, int]] | None = None,
        rows_needed: Sequence[tuple[int, int]] | None = None,
    ) -> Int8Array | None:
        """The output after these windows (default: the whole), or None where the variant does not take the call.

        With ``rows_needed``, the input's memory is filled anew for each window, with these rows alone (rolling buffer).
        What no window writes is 99.
        """
        kernel = self.call.kernel
        params, weights = self.words(), self.constants()
        memory = np.full(self.input.size(source.shape[0]), 77, np.uint8)
        output = np.full(self.output.size(self.output_extents[0]), 99, np.uint8)
        buffers = (BufferWords * 2)(self.input.words(0, self.input_extents), self.output.words(1, self.output_extents))
        inputs, outputs = (ctypes.c_void_p * 1)(memory.ctypes.data), (ctypes.c_void_p * 1)(output.ctypes.data)
        bases = Bases(ctypes.addressof(inputs), ctypes.addressof(outputs), weights.ctypes.data, None, None)
        bindings = (BindingWords * 2)(BindingWords(0, 0, memory.size), BindingWords(1, 0, output.size))
        program = ProgramView(ctypes.addressof(buffers), 2, ctypes.addressof(bindings), 1, 1, weights.size, 0, 0)
        for i, given in enumerate(windows or [{}]):
            window = Window(**{**self.whole(), **given})
            row0, row1 = rows_needed[i] if rows_needed else (0, source.shape[1])
            cols, channels = slice(*self.input.cols), slice(*self.input.channels)
            memory[:] = 77
            memory[self.input.offsets(row0, row1, source.shape[0])] = source[:, row0:row1, cols, channels].view(
                np.uint8
            )
            check = getattr(library(), f"{kernel}_check")
            check.restype = ctypes.c_bool
            assert check(ctypes.byref(program), ctypes.byref(params), ctypes.byref(window)), f"{self.call} {given}"
            call = Call(ctypes.addressof(params), ctypes.addressof(buffers), ctypes.addressof(bases), window, None)
            if entry(kernel, variant)(ctypes.byref(call)) is False:
                return None
        return self._stored(output)

    def _stored(self, memory: npt.NDArray[np.uint8]) -> Int8Array:
        batches, height, _, _ = self.output_extents
        result = np.full(self.output_extents, 99, np.int8)
        offsets = self.output.offsets(0, height, batches)
        result[:, :, slice(*self.output.cols), slice(*self.output.channels)] = memory[offsets].view(np.int8)
        touched = np.zeros(memory.size, bool)
        touched[offsets] = True
        assert np.all(memory[~touched] == 99), "wrote between the output's elements"
        return result

    def with_layouts(self, source: Layout | None = None, output: Layout | None = None) -> Prepared:
        return replace(self, input=source or self.input, output=output or self.output)


def prepare(call: KernelCall) -> Prepared:
    """A selected call on dense tensors."""
    call.verify()
    return Prepared(call, dense(call.views["input"].extents), dense(call.views["output"].extents))


def flat(view: View, tensor: Int8Array) -> Int8Array:
    """The tensor with the view's extents."""
    return np.ascontiguousarray(tensor).reshape(view.extents)
