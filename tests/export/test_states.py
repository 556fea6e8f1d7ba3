# SPDX-License-Identifier: BSD-3-Clause
"""A bundle of a model with state keeps it between runs, on this computer and on a Cortex-M33, byte-equal with the simulator."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from openneutron.features.export import read
from openneutron.features.export.bundle import export_bundle
from openneutron.isa import aligned
from tests.export.bundles import SANITIZERS, built, checked_on_the_host, host_program, run
from tests.support.stream_files import compiled_stream
from tests.support.tools import required

STATES = Path(__file__).parent / "states_main.c"
OUTPUT_BYTES = 24


def exported(folder: Path) -> Path:
    model = folder / "stream.tflite"
    model.write_bytes(compiled_stream())
    bundle = export_bundle(model, folder / "bundle")
    assert bundle.memory["state"] == aligned(16)
    assert f"&golden_stream.openneutron, {read.FRAMES}, " in (folder / "bundle/example/golden.c").read_text()
    return folder / "bundle"


def test_frames_on_this_computer(tmp_path: Path) -> None:
    done = checked_on_the_host(exported(tmp_path), tmp_path)
    size = (read.FRAMES + 1) * OUTPUT_BYTES  # a reset and the first frame again
    assert done.stdout == f"stream\ny: {size} of {size} bytes as expected\npassed\n"


def test_frames_on_a_cortex_m33(tmp_path: Path) -> None:
    required("arm-none-eabi-gcc")
    required("qemu-system-arm")
    folder = exported(tmp_path)
    built(folder, "-DOPENNEUTRON_WERROR=ON")
    done = run(folder)
    size = (read.FRAMES + 1) * OUTPUT_BYTES
    assert f"y: {size} of {size} bytes as expected\n" in done.stdout + done.stderr
    assert done.returncode == 0


@pytest.mark.parametrize("sanitizers", [SANITIZERS])
def test_the_c_api_refuses_a_reset_before_init(tmp_path: Path, sanitizers: tuple[str, ...]) -> None:
    program = host_program(exported(tmp_path), tmp_path, STATES, sanitizers=sanitizers)
    assert subprocess.run([program], check=False).returncode == 0
