# SPDX-License-Identifier: BSD-3-Clause
"""Run a method of a ``.pte`` in ExecuTorch's runtime without importing torch, which takes most of the time of a short run.

The methods have inputs of fixed shapes, and all their delegates are this project's. ``opened`` returns None for any other method and
for a method that the runtime can't load: ``Runner`` uses ExecuTorch's own bindings, runs these methods and reports the failures.
"""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ctypes import POINTER, byref, c_char_p, c_int32, c_size_t, c_uint8, c_uint32, c_void_p

import numpy as np

from openneutron.device import pte
from openneutron.errors import warn
from openneutron.pytorch.run.delegate import load_runtime

METHOD = "forward"
MOST_AXES = 16
"""The largest rank of an output in the C interface (runtime/ports/host/executorch_method.cpp)."""

NUMPY = {number: np.dtype(name) for number, name in pte.SCALAR_TYPES.items()}
EMBEDDING = "aten::embedding.out"
QUANTIZE = "quantized_decomposed::quantize_per_tensor"


class _Output(ctypes.Structure):
    _fields_ = (
        ("data", c_void_p),
        ("size", c_size_t),
        ("type", c_int32),
        ("axes", c_uint32),
        ("extents", c_int32 * MOST_AXES),
        ("order", c_uint8 * MOST_AXES),
    )


class LoadedMethod:
    """A loaded method of a program.

    ``tensors`` has the type, the shape and the memory order of each input. ``table_sizes`` has a number for each input whose values are
    indices of embeddings: the number of entries of the smallest embedding. It has None for any other input.
    """

    def __init__(self, library: ctypes.CDLL, handle: int, data: bytes, described: pte.Method, name: str) -> None:
        self._library, self._handle = library, c_void_p(handle)
        self.tensors = [described.tensor(place) for place in described.inputs]
        self.table_sizes = _table_sizes(described)
        self._name = name
        self._quantized = _quantized(described)
        # The runtime reads the bytes until the method is closed.
        self._close = weakref.finalize(self, lambda _data: library.neutronMethodClose(c_void_p(handle)), data)

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray] | None:
        """Run the method on arrays of the inputs' types and shapes, and return the outputs.

        The result is None where the run fails, or where NumPy has no type for an output.
        """
        kept = []
        for place in self._quantized:
            if np.isnan(inputs[place]).any():
                warn_of_nan(self._name, place)
        with _without_stderr():
            for index, (value, tensor) in enumerate(zip(inputs, self.tensors, strict=True)):
                stored = np.ascontiguousarray(value.transpose(tensor.order))
                kept.append(stored)
                if self._library.neutronMethodSetInput(self._handle, index, stored.ctypes.data, stored.nbytes):
                    return None
            if self._library.neutronMethodRun(self._handle):
                return None
        outputs = [self._output(index) for index in range(self._library.neutronMethodOutputs(self._handle))]
        return None if any(output is None for output in outputs) else [item for item in outputs if item is not None]

    def _output(self, index: int) -> np.ndarray | None:
        found = _Output()
        if self._library.neutronMethodOutput(self._handle, index, byref(found)) or found.type not in NUMPY:
            return None
        order, extents = list(found.order[: found.axes]), list(found.extents[: found.axes])
        stored = np.frombuffer(ctypes.string_at(found.data, found.size), NUMPY[found.type])
        return stored.reshape([extents[axis] for axis in order]).transpose(np.argsort(order))


def opened(data: bytes, name: str) -> LoadedMethod | None:
    """Return the loaded method ``forward`` of a program. Return None if it can't be run without ExecuTorch's Python
    bindings, or can't be loaded: then ``Runner`` runs the program, or reports the error.

    ``name`` is the file's name in messages. Raises InvalidProgramError where the file is damaged, and
    MissingToolError as ``load_runtime`` does.
    """
    described = next((method for method in pte.methods(data, name) if method.name == METHOD), None)
    if described is None or not _is_simple(described):
        return None
    library = load_runtime()
    if not hasattr(library, "neutronMethodOpen"):
        return None
    _declare(library)
    handle = c_void_p()
    with _without_stderr():
        status = library.neutronMethodOpen(data, len(data), METHOD.encode(), byref(handle))
    return None if status or handle.value is None else LoadedMethod(library, handle.value, data, described, name)


def _declare(library: ctypes.CDLL) -> None:
    library.neutronMethodOpen.argtypes = (c_char_p, c_size_t, c_char_p, POINTER(c_void_p))
    library.neutronMethodSetInput.argtypes = (c_void_p, c_size_t, c_void_p, c_size_t)
    library.neutronMethodOutput.argtypes = (c_void_p, c_size_t, POINTER(_Output))
    for name in ("neutronMethodOpen", "neutronMethodSetInput", "neutronMethodRun", "neutronMethodOutput"):
        getattr(library, name).restype = c_uint32
    library.neutronMethodRun.argtypes = library.neutronMethodOutputs.argtypes = (c_void_p,)
    library.neutronMethodOutputs.restype = c_size_t
    library.neutronMethodClose.argtypes = (c_void_p,)
    library.neutronMethodClose.restype = None


def _is_simple(method: pte.Method) -> bool:
    values = [method.values[place] if 0 <= place < len(method.values) else None for place in method.inputs]
    known = set(pte.SCALAR_TYPES.values())
    return all(delegate.backend == pte.BACKEND_ID for delegate in method.delegates) and all(
        isinstance(value, pte.TensorValue) and not value.free and value.dtype in known for value in values
    )


def _table_sizes(method: pte.Method) -> list[int | None]:
    found: dict[int, int] = {}
    for call in method.instructions:
        if isinstance(call, pte.KernelCall) and call.operator == EMBEDDING:
            entries, indices = method.tensor(call.arguments[0]).shape[0], call.arguments[1]
            found[indices] = min(found.get(indices, entries), entries)
    return [found.get(place) for place in method.inputs]


def _quantized(method: pte.Method) -> list[int]:
    """Return the places of the inputs that an operator of the method quantizes."""
    calls = [call for call in method.instructions if isinstance(call, pte.KernelCall)]
    read = {call.arguments[0] for call in calls if call.operator == f"{QUANTIZE}.out"}
    return [place for place, index in enumerate(method.inputs) if index in read]


def warn_of_nan(name: str, place: int) -> None:
    """Warn that an input that is quantized has NaN."""
    warn(f"'{name}': input {place} has NaN, for which int8 has no value; the results mean nothing. Repair the input.")


class _Quiet:
    """Discards the output on stderr between ``enter`` and ``leave``.

    Several threads share one redirection: the first one to enter begins it, and the last one to leave ends it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._kept = -1

    def enter(self) -> None:
        with self._lock:
            if self._inside == 0:
                sys.stderr.flush()
                with tempfile.TemporaryFile() as dropped:
                    self._kept = os.dup(2)
                    os.dup2(dropped.fileno(), 2)
            self._inside += 1

    def leave(self) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                os.dup2(self._kept, 2)
                os.close(self._kept)


_QUIET = _Quiet()


@contextmanager
def _without_stderr() -> Iterator[None]:
    """Discard what ExecuTorch's libraries write to stderr. After a failure, ``Runner`` reports the reason."""
    _QUIET.enter()
    try:
        yield
    finally:
        _QUIET.leave()
