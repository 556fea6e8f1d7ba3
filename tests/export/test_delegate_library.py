# SPDX-License-Identifier: BSD-3-Clause
"""The bundle's option for ExecuTorch's own runtime builds the delegate."""

from __future__ import annotations

import subprocess
from pathlib import Path

from openneutron.features.export.bundle import export_bundle
from openneutron.pytorch.run.delegate import executorch_package
from tests.export.bundles import cifarnet
from tests.support.tools import required

FOR_THIS_COMPUTER = "set(CMAKE_C_COMPILER cc)\nset(CMAKE_CXX_COMPILER c++)\n"


def test_the_delegate_builds_against_executorch(tmp_path: Path) -> None:
    """For this computer, whose ExecuTorch has headers; the driver and the delegate agree on where a context's memory is from."""
    required("cmake")
    folder = tmp_path / "bundle"
    export_bundle(cifarnet(), folder)
    toolchain = tmp_path / "toolchain.cmake"
    toolchain.write_text(FOR_THIS_COMPUTER)
    include = executorch_package() / "include"
    options = [f"-DCMAKE_TOOLCHAIN_FILE={toolchain}", "-DOPENNEUTRON_EXECUTORCH=ON", "-DCMAKE_BUILD_TYPE=Debug"]
    options += [f"-DEXECUTORCH_INCLUDES={include};{include / 'executorch/runtime/core/portable_type/c10'}"]
    for command in (
        ["cmake", "-B", "build", *options],
        ["cmake", "--build", "build", "--target", "openneutron_executorch"],
    ):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    listed = subprocess.run(
        [required("nm"), "-C", "build/libopenneutron_executorch.a"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert " U neutronGetModelContextSize" in listed, "the delegate allocates the driver's context"
    assert "neutronBackendRegistration" in listed
