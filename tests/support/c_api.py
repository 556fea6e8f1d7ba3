# SPDX-License-Identifier: BSD-3-Clause
"""NeutronDriver.h's structs, and a prepared model with buffers of the test's choice."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import byref, c_bool, c_size_t, c_uint32, c_void_p

import numpy as np

from openneutron.device.simulator import DataConfig, ModelConfig, library
from openneutron.isa import Program

Counter = ctypes.CFUNCTYPE(c_uint32)
Cache = ctypes.CFUNCTYPE(None, c_void_p, c_uint32)
Power = ctypes.CFUNCTYPE(None, c_bool)
Copy = ctypes.CFUNCTYPE(None, c_void_p, c_void_p, c_uint32, c_uint32)
Wait = ctypes.CFUNCTYPE(None, c_uint32)
Part = ctypes.CFUNCTYPE(None, c_void_p, c_uint32)
Parallel = ctypes.CFUNCTYPE(None, c_uint32, Part, c_void_p)


class Port(ctypes.Structure):
    """NeutronPort."""

    _fields_ = [
        ("now_cycles", Counter),
        ("now_seconds", Counter),
        ("clean_cache", Cache),
        ("invalidate_cache", Cache),
        ("power", Power),
    ]


class Config(ctypes.Structure):
    """NeutronConfig."""

    _fields_ = [("copy", Copy), ("wait", Wait)]


class Threads(ctypes.Structure):
    """NeutronThreads."""

    _fields_ = [
        ("count", c_uint32),
        ("leastWork", c_uint32),
        ("parallel", Parallel),
        ("scratch", c_void_p),
        ("scratchSize", c_size_t),
    ]


class Prepared:
    """A program prepared through the C API; ``status`` is neutronModelPrepare's error."""

    def __init__(self, program: Program, timeout_seconds: int = 0) -> None:
        self.keep = [np.zeros(len(blob) + 16, np.uint8) for blob in (program.microcode, program.weights)]
        self.blobs = []
        for memory, blob in zip(self.keep, (program.microcode, program.weights), strict=True):
            start = -memory.ctypes.data % 16
            memory[start : start + len(blob)] = np.frombuffer(blob, np.uint8)
            self.blobs.append(memory.ctypes.data + start)
        self.config = ModelConfig(*self.blobs, None, timeout_seconds)
        self.handle = c_void_p()
        self.status = library().neutronModelPrepare(byref(self.config), byref(self.handle))

    def run(self, inputs: Sequence[int | None], outputs: Sequence[int | None], prefetch: int | None = None) -> int:
        """neutronRunBlocking's error; ``outputs`` end with scratch, profile and debug."""
        data = DataConfig(
            (c_void_p * max(1, len(inputs)))(*inputs), (c_void_p * len(outputs))(*outputs), None, prefetch
        )
        return int(library().neutronRunBlocking(self.handle, byref(data)))

    def close(self) -> None:
        assert library().neutronModelUnprepare(self.handle) == 0


class Buffers:
    """The buffers of one run of ``programs.inverted_twice`` or ``programs.striped``: random input, output, scratch."""

    def __init__(self, size: int = 90, seed: int = 0) -> None:
        self.x, self._x = memory_at(0, size)
        self.y, self._y = memory_at(0, size)
        self.scratch, self._scratch = memory_at(0, size + 31)
        self.x[:] = np.random.default_rng(seed).integers(0, 256, size)

    def run(self, model: Prepared) -> int:
        """The run's error; ``y`` is 0 before it."""
        self.y[:] = 0
        return model.run([self.x.ctypes.data], [self.y.ctypes.data, self.scratch.ctypes.data, None, None])

    def right(self) -> bool:
        """Return whether the last run reproduced the input."""
        return bool(np.array_equal(self.x, self.y))


def memory_at(alignment_offset: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """An array that starts ``alignment_offset`` bytes after a 16-byte boundary, and what keeps it."""
    raw = np.zeros(size + 32, np.uint8)
    start = -raw.ctypes.data % 16 + alignment_offset
    return raw[start : start + size], raw
