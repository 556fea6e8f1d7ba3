# SPDX-License-Identifier: BSD-3-Clause
"""The driver on the host: run a program with the same results as on the chip, bit for bit, and trace it."""

from __future__ import annotations

import ctypes
import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from ctypes import CFUNCTYPE, POINTER, Structure, byref, c_char_p, c_int32, c_size_t, c_uint32, c_void_p
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from openneutron.errors import DriverError, InvalidOptionError, MissingToolError
from openneutron.isa import Microcode, Program, Record, base, base_text, decode
from openneutron.isa.rows import ALIGNMENT

__all__ = ["THREADS", "CallTime", "Closing", "Moment", "ProfileEvent", "Simulator", "Trace", "shared_by"]


KERNEL_CAUSE_MASK = 0xFFFF
KERNEL_CAUSE = 0x613
"""The low 16 bits of ENEUTRON_KERNEL (NeutronErrors.h). The bits above KERNEL_CAUSE_MASK have the number of the kernel."""

LIBRARY = Path(__file__).parent / "libneutron.so"

THREADS = "OPENNEUTRON_THREADS"
"""The environment variable with the number of threads that compute each kernel call, in the simulator and in the ExecuTorch delegate."""

NPU_DRIVER = "OPENNEUTRON_NEUTRON_DRIVER"
"""The environment variable with the path of the library that computes matrix products on the NPU (NEUTRON_HOST_JOBS_LIBRARY)."""

JOBS = {"conv_2d_job_s8", "batch_matmul_job_s8", "recurrent_job_s8", "unidirectional_sequence_lstm_job_s8"}
"""The kernels of matrix products on the NPU, beside dynamic_linear_f32, which may have some."""

PAGE = 4096
"""The alignment in bytes of scratch behind the weights in the memory of the NPU's own driver."""

MOST_THREADS = 16
"""The value of NEUTRON_MAX_THREADS."""


class ModelConfig(Structure):
    """The struct NeutronModelConfig."""

    _fields_ = [
        ("microcode", c_void_p),
        ("weights", c_void_p),
        ("kernels", c_void_p),
        ("timeoutSeconds", c_uint32),
    ]


class DataConfig(Structure):
    """The struct NeutronDataConfig."""

    _fields_ = [
        ("inputs", POINTER(c_void_p)),
        ("outputs", POINTER(c_void_p)),
        ("scratch", c_void_p),
        ("scratchWeights", c_void_p),
    ]


KERNEL_LEVEL = 1
"""The value of TRACE_CONFIG_KERNEL_LEVEL."""

CallHook = CFUNCTYPE(None, c_void_p, c_uint32, c_uint32, c_uint32)


class TraceConfig(Structure):
    """The struct NeutronTraceConfig."""

    _fields_ = [
        ("traceConfig", c_uint32),
        ("traceBuffer", c_void_p),
        ("traceBufferSize", c_size_t),
        ("afterCall", CallHook),
        ("user", c_void_p),
    ]


def npu_driver() -> str:
    """Return the name or path of the library that computes matrix products on the NPU. On aarch64 it is NXP's driver;
    on other computers it is the model of the NPU. A user chooses another library by the environment variable
    OPENNEUTRON_NEUTRON_DRIVER."""
    # Imported here, since a compile that runs nothing does not need it.
    from openneutron.device.device_model import LIBRARY as MODEL

    return "libNeutronDriver.so" if platform.machine() == "aarch64" else str(MODEL)


@cache
def library() -> ctypes.CDLL:
    """Return the driver, loaded and initialised. Its symbols are global, so that the ExecuTorch delegate finds them.
    The environment variable OPENNEUTRON_NEUTRON_DRIVER is set to ``npu_driver()`` if it is not set.

    Raises MissingToolError where the package was not built, or the library can't be loaded.
    """
    if not LIBRARY.exists():
        raise MissingToolError(
            f"simulator: {LIBRARY} does not exist. Install the package again, or in a source tree run "
            "`cmake -S . -B build/develop && cmake --build build/develop --target develop`."
        )
    try:
        driver = ctypes.CDLL(str(LIBRARY), mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise MissingToolError(f"simulator: {LIBRARY} can't be loaded: {error}. Install the package again.") from error
    handle, status = c_void_p, c_int32
    driver.neutronErrorText.restype = c_char_p
    driver.neutronErrorText.argtypes = [status]
    for name in ("getNeutronErrorComponent", "getNeutronErrorCategory"):
        getattr(driver, name).restype = c_char_p
        getattr(driver, name).argtypes = [status]
    driver.neutronErrorKernelName.restype = c_char_p
    driver.neutronErrorKernelName.argtypes = [status]
    driver.neutron_host_port.restype = c_void_p
    driver.neutronSetPort.argtypes = [c_void_p]
    driver.neutronModelCheck.argtypes = [POINTER(ModelConfig), c_size_t, c_size_t, POINTER(c_uint32)]
    driver.neutronModelPrepare.argtypes = [POINTER(ModelConfig), POINTER(handle)]
    driver.neutronModelUnprepare.argtypes = [handle]
    driver.neutronSetTrace.argtypes = [handle, POINTER(TraceConfig)]
    driver.neutronSetState.argtypes = [handle, c_void_p, c_size_t]
    driver.neutronReset.argtypes = [handle]
    driver.neutronGetThreadScratchSize.restype = c_size_t
    driver.neutronGetThreadScratchSize.argtypes = [handle]
    driver.neutron_host_threads_set.argtypes = [handle, c_uint32, c_void_p, c_size_t]
    driver.neutronRunBlocking.argtypes = [handle, POINTER(DataConfig)]
    driver.neutron_host_jobs_problem.restype = c_char_p
    driver.neutron_host_jobs_allocate.restype = c_void_p
    driver.neutron_host_jobs_allocate.argtypes = [c_size_t]
    driver.neutron_host_jobs_release.argtypes = [c_void_p]
    driver.neutron_host_jobs_release.restype = None
    driver.neutron_host_jobs_place.argtypes = [c_void_p, c_void_p, c_size_t]
    os.environ.setdefault(NPU_DRIVER, npu_driver())
    driver.neutronSetPort(driver.neutron_host_port())
    driver.neutronInit()
    return driver


def _kernel_words(error: int) -> str:
    """Return the words for an ENEUTRON_KERNEL error, with the kernel that the error names."""
    name = library().neutronErrorKernelName(error)
    kernel = f"kernel {'of an unknown name' if name is None else name.decode()} ({error >> 16 & 0x3FFF})"
    subject = f"a variant that the program calls of {kernel}" if error >> 30 & 1 else kernel
    return f"{subject} is not registered: link the kernel selection of this model"


def require(step: str, error: int, detail: int | None = None) -> None:
    """Raise DriverError with the driver's words where ``error`` is not 0."""
    if error == 0:
        return
    if error & KERNEL_CAUSE_MASK == KERNEL_CAUSE:
        raise DriverError(f"{step}: {_kernel_words(error)}; error 0x{error & 0xFFFFFFFF:x}.", error)
    words = library().neutronErrorText(error).decode()
    at = "" if detail is None else f" (detail 0x{detail:x})"
    raise DriverError(f"{step}: the driver says that {words}{at}; error 0x{error & 0xFFFFFFFF:x}.", error)


def thread_count(wanted: int | None = None) -> int:
    """Return the number of threads that compute each kernel call: ``wanted``, or that of the environment variable, or 1.

    Raises InvalidOptionError where the number is not 1 to ``MOST_THREADS``.
    """
    text = os.environ.get(THREADS, "1") if wanted is None else str(wanted)
    if not text.isdecimal() or not 1 <= int(text) <= MOST_THREADS:
        name = THREADS if wanted is None else "threads"
        raise InvalidOptionError(f"{name}: it is '{text}'; it is a number of threads from 1 to {MOST_THREADS}.")
    return int(text)


@contextmanager
def shared_by(threads: int | None) -> Iterator[None]:
    """Let ``threads`` threads compute each kernel call of the programs that are loaded in the ``with`` block. With
    None the number stays as outside of the block.

    Raises InvalidOptionError as ``thread_count`` does.
    """
    before = os.environ.get(THREADS)
    os.environ[THREADS] = str(thread_count(threads))
    try:
        yield
    finally:
        if before is None:
            del os.environ[THREADS]
        else:
            os.environ[THREADS] = before


Bytes = NDArray[np.uint8]

_PAINTS = (0xA5, 0x5A)
_EVENT = np.dtype([("start", "u1", 4), ("start_time", "<u4"), ("stop", "u1", 4), ("stop_time", "<u4")])


@dataclass(frozen=True, slots=True)
class ProfileEvent:
    """One kernel call of a profiled run. ``start_cycles`` and ``stop_cycles`` are modelled cycles. ``operator`` is the
    operator's index modulo 256."""

    kernel: int
    operator: int
    start_cycles: int
    stop_cycles: int


@dataclass(frozen=True, slots=True)
class CallTime:
    """One kernel call of a timed run. ``operator`` is the operator's index. ``nanoseconds`` is the host's time since
    the end of the call before, or since the start of the run."""

    operator: int
    nanoseconds: int


@dataclass(frozen=True, slots=True)
class Moment:
    """The state of a run directly after a kernel call: the operator's index, its kernel, the modelled cycles, and the
    memory."""

    operator: int
    kernel: int
    cycles: int
    microcode: Microcode
    memory: dict[str, Bytes]
    """The bytes of ``INPUT0`` …, ``OUTPUT0`` …, ``WEIGHTS``, ``SCRATCH``, ``PREFETCH``, ``FAR`` and ``STATE``. They are valid
    inside the callback only."""

    def read(self, buffer: Record) -> NDArray[np.int8]:
        """Return a copy of a buffer's contents, with the axes batches, rows held (the rolling buffer's), columns held
        and channels held."""
        data = self.memory[base_text(buffer["base"])][buffer["offset"] :].view(np.int8)
        shape = (buffer["batches"], buffer["ring"], buffer["cols_held"], buffer["channels_held"])
        pitches = tuple(buffer[f"{axis}_pitch"] for axis in ("batch", "row", "col", "channel"))
        return np.lib.stride_tricks.as_strided(data, shape, pitches, writeable=False).copy()

    def output(self) -> NDArray[np.int8]:
        """Return the contents of the operator's output buffer."""
        return self.read(self.microcode.buffers[self.microcode.operators[self.operator]["output"]])


Trace = Callable[[Moment], None]


class Closing:
    """The base of objects that a ``with`` statement closes at its end."""

    def close(self) -> None:
        """Release all that the object holds. A second call does nothing."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class Simulator(Closing):
    """A program that is prepared to run on the host. Use it in a ``with`` statement, or call ``close``.

    A program with state keeps the state from run to run, until ``reset``. Two simulators of one program have separate
    states.

    ``threads`` is the number of threads that compute each kernel call together; None: that of the environment
    variable OPENNEUTRON_THREADS, or 1. The results do not depend on it.

    Raises InvalidProgramError or DriverError where the program is not sound, and InvalidOptionError where the number
    of threads is not 1 to ``MOST_THREADS``. Raises MissingToolError where the driver was not built, or where the
    program has matrix products on the NPU and the library for them, or its memory, is missing.
    """

    def __init__(self, program: Program, *, timeout_seconds: int = 0, threads: int | None = None) -> None:
        self._driver = library()
        self._handle = c_void_p()
        self._shared: int | None = None
        self._microcode = _aligned_copy(program.microcode)
        self._weights = _aligned_copy(program.weights)
        config = ModelConfig(self._microcode.ctypes.data, self._weights.ctypes.data, None, timeout_seconds)
        detail = c_uint32()
        error = self._driver.neutronModelCheck(
            byref(config), len(program.microcode), len(program.weights), byref(detail)
        )
        require("program", error, detail.value)
        self.microcode = decode(program)
        self._scratch = _aligned(self.microcode.scratch_size)
        if any(_has_jobs(operator) for operator in self.microcode.operators):
            self._share_memory()
            config.weights = self._weights.ctypes.data
        self._prefetch = _aligned(self.microcode.prefetch_size)
        self._far = _aligned(self.microcode.far_size)
        self._profile = _aligned(self.microcode.profile_size)
        self._state = _aligned(self.microcode.state_size)
        require("program", self._driver.neutronModelPrepare(byref(config), byref(self._handle)))
        if self.keeps_state:
            require("program", self._driver.neutronSetState(self._handle, self._state.ctypes.data, self._state.size))
        threads = thread_count(threads)
        size = self._driver.neutronGetThreadScratchSize(self._handle)
        self._thread_scratch = _aligned(size * (threads - 1))
        scratch = self._thread_scratch.ctypes.data
        require("threads", self._driver.neutron_host_threads_set(self._handle, threads, scratch, size))

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Release the driver's context. A second call does nothing."""
        if getattr(self, "_handle", None):
            self._driver.neutronModelUnprepare(self._handle)
            self._handle = c_void_p()
        if getattr(self, "_shared", None) is not None:
            self._driver.neutron_host_jobs_release(self._shared)
            self._shared = None

    def _share_memory(self) -> None:
        """Move weights and scratch to one buffer of the library that computes matrix products on the NPU, so that the
        library can read and write them.

        Raises MissingToolError where there is no such library or not so much contiguous memory.
        """
        if self._driver.neutron_host_jobs_open():
            raise MissingToolError(f"matrix products: {self._driver.neutron_host_jobs_problem().decode()}.")
        start = -(-self._weights.size // PAGE) * PAGE
        size = start + max(1, self._scratch.size)
        self._shared = self._driver.neutron_host_jobs_allocate(size)
        if self._shared is None:
            raise MissingToolError(f"matrix products: {self._driver.neutron_host_jobs_problem().decode()}.")
        place = self._driver.neutron_host_jobs_place(self._shared, self._weights.ctypes.data, self._weights.size)
        require("matrix products", place)
        memory = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(self._shared))
        self._weights, self._scratch = memory[: self._weights.size], memory[start : start + self._scratch.size]

    @property
    def keeps_state(self) -> bool:
        """Return whether the program has tensors that last from one run to the next."""
        return self.microcode.state_size > 0

    def reset(self) -> None:
        """Set the states to their values before the first run. Raises DriverError if a run is in progress."""
        require("reset", self._driver.neutronReset(self._handle))

    def run(self, inputs: Sequence[np.ndarray], trace: Trace | None = None) -> list[Bytes]:
        """Return the bytes of each output. ``inputs`` are arrays of any dtype and shape; the bytes of each must fill
        the program's input.

        ``trace`` is called after every kernel call. After an exception of ``trace`` it is not called any more, and
        the exception is raised here once the run has ended. Raises ValueError for a wrong number of inputs, a wrong
        size, or a simulator that is closed, and DriverError where the driver reports an error.
        """
        if not self._handle:
            raise ValueError("simulator: it is closed; make a new one.")
        sources = self._input_bytes(inputs)
        outputs = [np.zeros(binding["size"], np.uint8) for binding in self.microcode.outputs]
        raised: list[BaseException] = []
        if trace is None:
            self._run(sources, outputs)
            return outputs
        memory = {
            "WEIGHTS": self._weights,
            "SCRATCH": self._scratch,
            "PREFETCH": self._prefetch,
            "FAR": self._far,
            "STATE": self._state,
            **{base_text(base("INPUT", i)): data for i, data in enumerate(sources)},
            **{base_text(base("OUTPUT", i)): data for i, data in enumerate(outputs)},
        }

        def after_call(_user: int | None, operator: int, kernel: int, cycles: int) -> None:
            try:
                if not raised:
                    trace(Moment(operator, kernel, cycles, self.microcode, memory))
            except BaseException as error:  # it must not travel through the driver's frames
                raised.append(error)

        self._run_with(after_call, sources, outputs)
        if raised:
            raise raised[0]
        return outputs

    def timed(self, inputs: Sequence[np.ndarray]) -> tuple[list[Bytes], list[CallTime]]:
        """Return the outputs as ``run`` does, and the host's time of each kernel call. Raises ValueError for a wrong
        number or size of inputs, and DriverError for a simulator that is closed."""
        sources = self._input_bytes(inputs)
        outputs = [np.zeros(binding["size"], np.uint8) for binding in self.microcode.outputs]
        stops: list[tuple[int, int]] = []

        def after_call(_user: int | None, operator: int, _kernel: int, _cycles: int) -> None:
            stops.append((operator, time.perf_counter_ns()))

        begun = time.perf_counter_ns()
        self._run_with(after_call, sources, outputs)
        starts = [begun, *(stop for _, stop in stops)]
        return outputs, [
            CallTime(operator, stop - start) for (operator, stop), start in zip(stops, starts[:-1], strict=True)
        ]

    def _run_with(self, hook: Callable[..., None], sources: list[Bytes], outputs: list[Bytes]) -> None:
        """Run the program and call ``hook`` after each kernel call."""
        config = TraceConfig(KERNEL_LEVEL, None, 0, CallHook(hook), None)
        require("trace", self._driver.neutronSetTrace(self._handle, byref(config)))
        try:
            self._run(sources, outputs)
        finally:
            self._driver.neutronSetTrace(self._handle, None)

    def profile(self, inputs: Sequence[np.ndarray]) -> tuple[ProfileEvent, ...]:
        """Return the kernel calls of one run, in order; an empty tuple where the program was compiled without
        profiling."""
        self.run(inputs)
        events = self._profile[: len(self._profile) // _EVENT.itemsize * _EVENT.itemsize].view(_EVENT)
        return tuple(
            ProfileEvent(int(e["start"][1]), int(e["start"][2]), int(e["start_time"]), int(e["stop_time"]))
            for e in events
            if e["start"][1]
        )

    def scratch_used(self, inputs: Sequence[np.ndarray]) -> int:
        """Return the size of scratch up to the last byte that a run writes, as ``memory_used`` does."""
        return self.memory_used(inputs)[0]

    def memory_used(self, inputs: Sequence[np.ndarray]) -> tuple[int, int]:
        """Return how many bytes of the scratch and of the prefetch buffer a run uses: the size of each up to the last
        byte that is written, or 0 if none is.

        The program runs twice, on memory filled with two different patterns. A byte counts as written if it differs
        from the pattern after either run: a value that equals one pattern differs from the other.
        """
        places = (self._scratch, self._prefetch)
        after: list[tuple[Bytes, ...]] = []
        for paint in _PAINTS:
            for place in places:
                place[:] = paint
            self.run(inputs)
            after.append(tuple(place.copy() for place in places))
        scratch, prefetch = (_used(*pair) for pair in zip(*after, strict=True))
        return scratch, prefetch

    def _input_bytes(self, inputs: Sequence[np.ndarray]) -> list[Bytes]:
        bindings = self.microcode.inputs
        if len(inputs) != len(bindings):
            raise ValueError(f"simulator: {len(inputs)} inputs were given; the program has {len(bindings)}.")
        sources = []
        for index, (given, binding) in enumerate(zip(inputs, bindings, strict=True)):
            data = np.frombuffer(np.ascontiguousarray(given).tobytes(), np.uint8)
            if len(data) != binding["size"]:
                raise ValueError(
                    f"simulator: input {index} has {len(data)} bytes; the program takes {binding['size']}."
                )
            sources.append(data)
        return sources

    def _run(self, sources: list[Bytes], outputs: list[Bytes]) -> None:
        places = [data.ctypes.data for data in sources]
        results = [data.ctypes.data for data in (*outputs, self._scratch, self._profile, self._far)]
        data = DataConfig(
            (c_void_p * max(1, len(places)))(*places),
            (c_void_p * len(results))(*results),
            None,
            self._prefetch.ctypes.data,
        )
        require("run", self._driver.neutronRunBlocking(self._handle, byref(data)))


def _has_jobs(operator: Record) -> bool:
    """Return whether a call of a program has matrix products on the NPU, in some of its runs at least."""
    return operator.row.name in JOBS or (operator.row.name == "dynamic_linear_f32" and operator["job_from"] > 0)


def _used(first: Bytes, second: Bytes) -> int:
    """Return the size up to the last byte that differs from its pattern in ``_PAINTS`` after the first or the second
    run; 0 where no byte differs."""
    touched = np.flatnonzero((first != _PAINTS[0]) | (second != _PAINTS[1]))
    return int(touched[-1]) + 1 if len(touched) else 0


def _aligned(size: int) -> Bytes:
    """Return ``size`` zeros at an aligned address. An array of size 0 has an address too."""
    raw = np.zeros(max(size, 1) + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + size]


def _aligned_copy(blob: bytes) -> Bytes:
    copy = _aligned(len(blob))
    copy[:] = np.frombuffer(blob, np.uint8)
    return copy
