# SPDX-License-Identifier: BSD-3-Clause
"""The host build of the runtime, as ctypes sees it: NeutronDriver.h's structs and functions."""

from __future__ import annotations

import ctypes
from ctypes import CFUNCTYPE, POINTER, Structure, c_char_p, c_int32, c_size_t, c_uint32, c_void_p
from functools import cache
from pathlib import Path

from openneutron.errors import DriverError, MissingToolError

KERNEL_CAUSE_MASK = 0xFFFF
KERNEL_CAUSE = 0x613
"""ENEUTRON_KERNEL of NeutronErrors.h; the bits above its mask say which kernel it is."""

LIBRARY = Path(__file__).parent / "libneutron.so"


class ModelConfig(Structure):
    """NeutronModelConfig."""

    _fields_ = [
        ("microcode", c_void_p),
        ("weights", c_void_p),
        ("kernels", c_void_p),
        ("timeoutSeconds", c_uint32),
    ]


class DataConfig(Structure):
    """NeutronDataConfig."""

    _fields_ = [
        ("inputs", POINTER(c_void_p)),
        ("outputs", POINTER(c_void_p)),
        ("scratch", c_void_p),
        ("scratchWeights", c_void_p),
    ]


KERNEL_LEVEL = 1
"""TRACE_CONFIG_KERNEL_LEVEL."""

CallHook = CFUNCTYPE(None, c_void_p, c_uint32, c_uint32, c_uint32)


class TraceConfig(Structure):
    """NeutronTraceConfig."""

    _fields_ = [
        ("traceConfig", c_uint32),
        ("traceBuffer", c_void_p),
        ("traceBufferSize", c_size_t),
        ("afterCall", CallHook),
        ("user", c_void_p),
    ]


@cache
def library() -> ctypes.CDLL:
    """Return the loaded and initialised driver; its symbols are global, so that the ExecuTorch delegate finds them.

    Raises MissingToolError where the package was not built.
    """
    if not LIBRARY.exists():
        raise MissingToolError(
            f"simulator: {LIBRARY} does not exist. Install the package (pip install .), or in a source tree run "
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
    driver.neutronRunBlocking.argtypes = [handle, POINTER(DataConfig)]
    driver.neutronSetPort(driver.neutron_host_port())
    driver.neutronInit()
    return driver


def _kernel_words(error: int) -> str:
    """Return the words for the kernel that an ENEUTRON_KERNEL error carries."""
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
