# SPDX-License-Identifier: BSD-3-Clause
"""Find or compile the ExecuTorch delegate of the host, and load it.

ExecuTorch has no stable C++ ABI, so a delegate is compiled for one ExecuTorch. A wheel has the delegate of the release that
``openneutron[pytorch]`` names. For another ExecuTorch, and in a source tree, the delegate is compiled on first use and kept
in ``$XDG_CACHE_HOME/openneutron`` (``~/.cache/openneutron``). Its file name has a digest of all that it depends on.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib
import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from openneutron.device.runtime_sources import runtime_folder
from openneutron.device.simulator import library
from openneutron.errors import MissingToolError
from openneutron.pytorch.run.compile_delegate import FLAGS, SOURCES, compile_delegate, file_name

COMPILERS = ("c++", "g++", "clang++")
"""The C++ compilers that are tried in this order where ``$CXX`` is not set."""

INCLUDED = Path(__file__).parents[2] / "_delegate"
"""The folder of the delegates in a wheel."""

ALREADY_REGISTERED = 0x16
"""ExecuTorch's Error::RegistrationAlreadyRegistered."""

BINDINGS = "executorch.extension.pybindings._C"
"""The module of ExecuTorch's bindings. This project imports it directly: portable_lib would first import all of
executorch.exir, which takes seconds."""

RUNTIME = ("libexecutorch.so", "libexecutorch_kernels_optimized.so", "libexecutorch_kernels_quantized.so")
"""The libraries of ExecuTorch that run a method: the runtime with its registries, and the CPU operators."""


@cache
def load() -> Path:
    """Register the backend ``NeutronBackend`` with ExecuTorch's runtime in this process, and return the path of the delegate.

    Further calls return the same path. Raise MissingToolError where executorch or a library of it is missing, where the delegate can't
    be compiled or loaded, and where ExecuTorch does not register it.
    """
    executorch_package()
    importlib.import_module("torch")  # whose libraries the bindings need
    importlib.import_module(BINDINGS)  # libexecutorch.so, with the one registry
    return registered()[0]


def load_runtime() -> ctypes.CDLL:
    """Load ExecuTorch's runtime without its bindings and without torch, and return the delegate, which is registered.

    Raises MissingToolError as ``load`` does.
    """
    package = executorch_package()
    for name in RUNTIME:
        _shared(package / "lib" / name)
    return registered()[1]


@cache
def registered() -> tuple[Path, ctypes.CDLL]:
    """Load the delegate's library, which registers itself with the loaded ExecuTorch runtime. Return the library's
    path and the library.

    The delegate is compiled if neither the package nor the cache has it.
    """
    package = executorch_package()
    library()  # half of the delegate's undefined symbols
    _shared(package / "lib" / RUNTIME[0])  # the other half
    path = included(package) or build(package)
    delegate = _shared(path, "Delete it, and it is compiled when it is needed again.")
    status = ctypes.c_uint32.in_dll(delegate, "neutronBackendRegistration").value
    if status:
        why = "another library has taken the name" if status == ALREADY_REGISTERED else f"error 0x{status:x}"
        raise MissingToolError(f"delegate: ExecuTorch does not register NeutronBackend: {why}.")
    return path, delegate


def _shared(path: Path, suggestion: str = "Install executorch again.") -> ctypes.CDLL:
    """Load a library, and make its symbols visible to the libraries that are loaded later.

    Raise MissingToolError with ``suggestion`` where it can't be loaded.
    """
    try:
        return ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise MissingToolError(f"delegate: {path} can't be loaded: {error}. {suggestion}") from error


def executorch_package() -> Path:
    """Return the folder of the installed executorch. Raise MissingToolError where it has no headers or no libexecutorch.so."""
    found = importlib.util.find_spec("executorch")
    if found is None or not found.submodule_search_locations:
        raise MissingToolError("delegate: executorch is not installed: pip install 'openneutron[pytorch]'.")
    for place in found.submodule_search_locations:
        package = Path(place)
        if (package / "include").is_dir() and (package / "lib" / "libexecutorch.so").exists():
            return package
    raise MissingToolError(
        "delegate: the installed executorch has no headers or no libexecutorch.so. "
        "Install the release this project is made for: pip install 'openneutron[pytorch]'."
    )


def included(package: Path) -> Path | None:
    """Return the path of the wheel's delegate for the executorch in ``package``; None where the wheel has no such delegate."""
    if not INCLUDED.is_dir():
        return None
    path = INCLUDED / file_name(importlib.metadata.version("executorch"), package)
    return path if path.exists() else None


def compiler() -> str:
    """Return the path of the C++ compiler: that of ``$CXX`` if it is set, or else the first of ``COMPILERS`` that is found.

    Raise MissingToolError where no compiler is found.
    """
    wanted = os.environ.get("CXX")
    for name in (wanted,) if wanted else COMPILERS:
        found = shutil.which(name)
        if found:
            return found
    raise MissingToolError(
        f"delegate: there is no C++ compiler ({wanted or ', '.join(COMPILERS)}); running a .pte on this computer takes one, "
        "once. Install one (Debian: apt install g++), or set CXX to yours."
    )


def cache_directory() -> Path:
    """Return the folder of compiled delegates."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "openneutron"


def build(package: Path) -> Path:
    """Return the path of the delegate for the executorch in ``package``. It is compiled where the cache does not have it.

    Raise MissingToolError where there is no compiler, where the compiler fails, or where the cache can't be written.
    """
    command = compiler()
    runtime = runtime_folder()
    path = cache_directory() / f"neutron_backend-{_key(command, runtime, package)}.so"
    if path.exists():
        return path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as work:
            made = Path(work) / path.name
            _compile(command, runtime, package, made)
            made.replace(path)  # atomic, since two processes may compile at once
    except OSError as error:
        raise MissingToolError(
            f"delegate: {path.parent} can't be written: {error}. Set XDG_CACHE_HOME to a folder that can."
        ) from error
    return path


def _key(command: str, runtime: Path, package: Path) -> str:
    version = importlib.metadata.version("executorch")
    identity = subprocess.run([command, "--version"], capture_output=True, check=False).stdout
    digest = hashlib.sha256()
    headers = sorted(path for folder in ("include", "ports/host") for path in (runtime / folder).glob("*.h"))
    sources = sorted((runtime / "delegate").iterdir())
    for file in (*headers, *sources, *(runtime / name for name in SOURCES)):
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    for text in (version, str(package), command, identity.decode(errors="replace"), *FLAGS):
        digest.update(hashlib.sha256(text.encode()).digest())
    return f"{version}-{digest.hexdigest()[:16]}"


def _compile(command: str, runtime: Path, package: Path, path: Path) -> None:
    done = compile_delegate(command, runtime, package, path)
    if done.returncode != 0:
        said = "\n".join(line for line in done.stderr.splitlines() if "error" in line)[:2000] or done.stderr[-2000:]
        raise MissingToolError(
            f"delegate: {command} can't compile it against executorch {importlib.metadata.version('executorch')} "
            f"(exit code {done.returncode}). Is this the release that pyproject.toml names? It said:\n{said}"
        )
