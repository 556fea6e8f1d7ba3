# SPDX-License-Identifier: BSD-3-Clause
"""The model of i.MX 95's NPU behind the calls of NXP's driver: a library that computes jobs as their header has them."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, byref, c_bool, c_char_p, c_int, c_uint64, c_void_p
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from openneutron.errors import DriverError, InvalidOptionError, MissingToolError

LIBRARY = Path(__file__).parent / "libneutron_device_model.so"
"""The library, which a program may load in the place of libNeutronDriver.so."""

SLOT_BYTES = 512 * 1024 * 1024

OPTIONS = {
    "release": ("third", "second", "first"),
    "rounding": ("half_up", "half_even", "half_away", "truncate", "toward_zero"),
    "zero_point": ("ignored", "added"),
    "saturation": ("saturate", "wrap"),
    "firmware": ("none", "3.1.1"),
    "clean_input": ("required", "by_call"),
}
"""The options of the model with their values, the default first; ``memory_mib`` is a number, 1024 by default."""


class Counts(Structure):
    """The struct NeutronDeviceCounts: what the model did and the violations of cache maintenance since the last reset."""

    _fields_ = [
        (name, c_uint64)
        for name in (
            "jobs",
            "refused",
            "multiplications",
            "cleaned_bytes",
            "not_cleaned",
            "shared_lines",
            "wrong_ranges",
            "dirty_results",
        )
    ]

    @property
    def violations(self) -> int:
        """Return the number of violations of cache maintenance, of three kinds. The NPU read bytes that the CPU wrote
        but did not clean from its cache. A result shares cache lines with bytes that the CPU wrote and did not clean.
        A call states other ranges than the job's header."""
        return int(self.not_cleaned + self.shared_lines + self.wrong_ranges)


@dataclass(frozen=True, slots=True)
class Buffer:
    """A buffer that CPU and NPU share: its address, and the CPU's view of it as bytes."""

    address: int
    bytes: NDArray[np.uint8]


class DeviceModel:
    """The model of the NPU in this process. All objects of this class share it, with its options and its counts.

    ``options`` are set on creation; an option that is not given has its default. The counts are set to 0. As a
    context manager the object releases its buffers at the end, and all options have their defaults again. Raises
    InvalidOptionError for an unknown option or value, and MissingToolError where the library was not built.
    """

    def __init__(self, **options: str | int) -> None:
        self._library = _load()
        self._buffers: list[int] = []
        self._set_defaults()
        for name, value in options.items():
            self.set(name, value)
        self.reset()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._buffers:
            self._library.releaseBuffer(self._buffers.pop())
        self._set_defaults()

    def _set_defaults(self) -> None:
        self.set("memory_mib", 1024)
        for name, values in OPTIONS.items():
            self.set(name, values[0])

    def set(self, name: str, value: str | int) -> None:
        """Set an option of the model. Raises InvalidOptionError for an unknown name or value."""
        if not self._library.neutron_device_model_set(name.encode(), str(value).encode()):
            known = ", ".join(OPTIONS.get(name, ())) or f"options are memory_mib, {', '.join(OPTIONS)}"
            raise InvalidOptionError(f"device model: {name} can't be '{value}'; {known}.")

    def allocate(self, size_bytes: int) -> Buffer:
        """Return a new buffer, filled with zeros. Raises DriverError where the contiguous memory does not suffice."""
        address = c_void_p()
        self._require("allocateBuffer", self._library.allocateBuffer(size_bytes, byref(address), True))
        assert address.value is not None
        self._buffers.append(address.value)
        view = (ctypes.c_uint8 * size_bytes).from_address(address.value)
        return Buffer(address.value, np.ctypeslib.as_array(view))

    def release(self, buffer: Buffer) -> None:
        """Release a buffer, whose bytes must not be used any more."""
        self._buffers.remove(buffer.address)
        self._require("releaseBuffer", self._library.releaseBuffer(buffer.address))

    def clean(self, buffer: Buffer, start: int = 0, size_bytes: int | None = None) -> None:
        """Clean the cache for a range of a buffer, or for all of it. Raises DriverError for a range outside of it."""
        size_bytes = len(buffer.bytes) - start if size_bytes is None else size_bytes
        self._require("clean_cache", self._library.clean_cache(buffer.address + start, size_bytes))

    def matmul(self, buffer: Buffer, header: int, header_words: NDArray[np.int32] | None = None) -> None:
        """Run the job whose header lies at an offset of a buffer; ``header_words`` is written there first.

        The ranges of A and of the result are those of the header. Raises DriverError for a refused job, with the model's
        reason.
        """
        place = buffer.bytes[header : header + 64].view(np.int32)
        if header_words is not None:
            place[:] = header_words
        m, k, n = (int(word) for word in place[2:5])
        result_bytes = m * (n & 0x3FFFF) * int(place[11])
        at = buffer.address + header
        error = self._library.matmul(
            at, 64, at + int(place[5]), m * k, at + int(place[9]), result_bytes, header // SLOT_BYTES
        )
        self._require("matmul", error)

    def counts(self) -> Counts:
        """Return the counts since the last reset."""
        counts = Counts()
        self._library.neutron_device_model_counts(byref(counts))
        return counts

    def violation(self) -> str:
        """Return the last violation of cache maintenance in words, or an empty string."""
        text: bytes = self._library.neutron_device_model_violation()
        return text.decode()

    def reset(self) -> None:
        """Set the counts to 0, and clear the texts of the last violation and the last refusal."""
        self._library.neutron_device_model_reset()

    def _require(self, step: str, error: int) -> None:
        if error:
            reason: bytes = self._library.neutron_device_model_reason()
            raise DriverError(f"device model: {step}: {reason.decode()}.", error)


@cache
def _load() -> ctypes.CDLL:
    if not LIBRARY.exists():
        raise MissingToolError(
            f"device model: {LIBRARY} does not exist. Install the package again, or in a source tree run "
            "`cmake -S . -B build/develop && cmake --build build/develop --target develop`."
        )
    try:
        library = ctypes.CDLL(str(LIBRARY))
    except OSError as error:
        raise MissingToolError(
            f"device model: {LIBRARY} can't be loaded: {error}. Install the package again."
        ) from error
    library.allocateBuffer.argtypes = [c_uint64, POINTER(c_void_p), c_bool]
    library.releaseBuffer.argtypes = [c_void_p]
    library.clean_cache.argtypes = [c_void_p, c_int]
    library.matmul.argtypes = [c_void_p, c_int, c_void_p, c_int, c_void_p, c_int, c_int]
    library.neutron_device_model_set.argtypes = [c_char_p, c_char_p]
    library.neutron_device_model_set.restype = c_bool
    library.neutron_device_model_counts.argtypes = [POINTER(Counts)]
    library.neutron_device_model_counts.restype = None
    library.neutron_device_model_reset.argtypes = []
    library.neutron_device_model_reset.restype = None
    library.neutron_device_model_reason.restype = c_char_p
    library.neutron_device_model_violation.restype = c_char_p
    return library


__all__ = ["LIBRARY", "Buffer", "Counts", "DeviceModel"]
