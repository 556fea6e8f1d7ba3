# SPDX-License-Identifier: BSD-3-Clause
"""The host library for Linux on aarch64 as the wheel for aarch64 has it, built once for all processes of a run of the tests."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.built_once import built_once
from tests.support.runtime_builds import ROOT, WARNINGS
from tests.support.tools import required

if TYPE_CHECKING:
    from openneutron.isa import Program

LINKED = ("-L.", "-lneutron", "-Wl,-rpath,$ORIGIN")


def library_folder() -> Path:
    """Return the folder with ``libneutron.so``, whose kernels are in ``kernels.a`` too, and the model of the NPU of i.MX 95."""
    required("aarch64-linux-gnu-gcc")
    required("ninja")
    return built_once("aarch64-library", _build)


def _build(folder: Path) -> None:
    toolchain = ROOT / "runtime" / "ports" / "host" / "aarch64.cmake"
    options = ("-G", "Ninja", "--toolchain", toolchain, "-DOPENNEUTRON_WERROR=ON")
    cmake = required("cmake")
    called(cmake, "-S", ROOT, "-B", folder, *options)
    called(cmake, "--build", folder, "--target", "neutron", "neutron_device_model")
    called(required("aarch64-linux-gnu-ar"), "rcs", folder / "kernels.a", *sorted(folder.rglob("kernels/**/*.o")))


def called(*command: str | Path, folder: Path | None = None, timeout: float = 300) -> str:
    """Run a command that must not fail, and return what it prints. ``timeout`` is in seconds."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=timeout)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@dataclass(frozen=True, slots=True)
class Built:
    """The folder with the host library for aarch64, and the command in front of a program for aarch64."""

    folder: Path
    emulated: tuple[str | Path, ...]


def library_in(folder: Path) -> Built:
    """Copy the library and the model of the NPU into a folder."""
    compiler, emulator = required("aarch64-linux-gnu-gcc"), required("qemu-aarch64")
    for name in ("libneutron.so", "libneutron_device_model.so"):
        shutil.copy(library_folder() / name, folder)
    found = called(compiler, "-print-file-name=libc.so.6", folder=folder).strip()
    return Built(folder, (emulator, "-L", Path(found).resolve().parents[1]))


def runner_of_jobs(library: Built) -> Callable[[Program, bytes], bytes]:
    """Return a function that runs a program with matrix products on the modelled NPU in qemu-user, from the bytes of all inputs to those of
    all outputs, once for each set of inputs. States are kept between these runs. The model's library is found as NXP's driver is."""
    folder = library.folder
    includes = [f"-I{ROOT / 'runtime' / name}" for name in ("include", "ports/host")]
    source = ROOT / "tests" / "driver" / "run_jobs.c"
    called(required("aarch64-linux-gnu-gcc"), *WARNINGS, *includes, source, *LINKED, "-o", "run_jobs", folder=folder)
    (folder / "libNeutronDriver.so").symlink_to("libneutron_device_model.so")
    emulator, *options = library.emulated
    # Both take packages, which prepared.py can't.
    from openneutron.device.simulator import NPU_DRIVER
    from tests.support.fuzz_seeds import write_seeds

    command = (emulator, "-U", NPU_DRIVER, "-E", f"LD_LIBRARY_PATH={folder}", *options, "./run_jobs")

    def run(program: Program, inputs: bytes) -> bytes:
        (path,) = write_seeds(folder, [program])
        (folder / "input").write_bytes(inputs)
        called(*command, path, "input", "output", folder=folder, timeout=7200)
        return (folder / "output").read_bytes()

    return run
