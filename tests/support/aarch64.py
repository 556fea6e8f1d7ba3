# SPDX-License-Identifier: BSD-3-Clause
"""The host library for Linux on aarch64 as the wheel for aarch64 has it, built once for all processes of a run of the tests."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.support.built_once import built_once
from tests.support.runtime_builds import ROOT
from tests.support.tools import required


def library_folder() -> Path:
    """Return the folder with ``libneutron.so``, whose kernels are in ``kernels.a`` too, and the model of the NPU of i.MX 95."""
    required("aarch64-linux-gnu-gcc")
    required("ninja")
    return built_once("aarch64-library", _build)


def _build(folder: Path) -> None:
    toolchain = ROOT / "runtime" / "ports" / "host" / "aarch64.cmake"
    options = ("-G", "Ninja", "--toolchain", toolchain, "-DOPENNEUTRON_WERROR=ON")
    cmake = required("cmake")
    _run(cmake, "-S", ROOT, "-B", folder, *options)
    _run(cmake, "--build", folder, "--target", "neutron", "neutron_device_model")
    _run(required("aarch64-linux-gnu-ar"), "rcs", folder / "kernels.a", *sorted(folder.rglob("kernels/**/*.o")))


def _run(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
