# SPDX-License-Identifier: BSD-3-Clause
"""The Cortex-M33 build in QEMU: the portable kernels on a 32-bit machine give the bytes that the host's fast ones do."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest

from openneutron.errors import DriverError
from openneutron.simulator import Simulator
from tests.fuzz.test_fuzz import seeds

ROOT = Path(__file__).parents[2]
RUNTIME = ROOT / "runtime"
HERE = Path(__file__).parent
FLAGS = ["-mcpu=cortex-m33", "-mthumb", "-Os", "-std=c11", "-Wall", "-Wextra", "-Wconversion", "-Werror"]


def required(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed: it builds or runs for the Cortex-M33")
    return found


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = required("arm-none-eabi-gcc")
    path = tmp_path_factory.mktemp("cortex_m33") / "runner.elf"
    includes = [f"-I{RUNTIME / name}" for name in ("include", "kernels", "driver")]
    sources = [HERE / "runner.c", *RUNTIME.glob("driver/*.c"), *RUNTIME.glob("kernels/**/*.c")]
    link = ["--specs=rdimon.specs", f"-Wl,-T{HERE / 'mps2_an505.ld'}"]
    subprocess.run([compiler, *FLAGS, *includes, *sources, *link, "-o", path], check=True)
    return path


def _host_run(simulator: Simulator, random: np.random.Generator) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Random inputs, zeros where those can't be the indices that some are, and what the host makes of them."""
    inputs = [random.integers(0, 256, item["size"], np.uint8) for item in simulator.microcode.inputs]
    try:
        return inputs, simulator.run(inputs)
    except DriverError:
        inputs = [np.zeros_like(values) for values in inputs]
        return inputs, simulator.run(inputs)


def test_same_bytes_as_on_the_host(runner: Path, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    wanted = []
    with (tmp_path / "cases").open("wb") as cases:
        for program in seeds():
            with Simulator(program) as simulator:
                given, got = (b"".join(x.tobytes() for x in tensors) for tensors in _host_run(simulator, random))
            blobs = (program.microcode, program.weights, given)
            cases.write(struct.pack("<4I", *map(len, (*blobs, got))) + b"".join(blobs))
            wanted.append(got)
    command = [
        required("qemu-system-arm"),
        "-M",
        "mps2-an505",
        "-display",
        "none",
        "-monitor",
        "none",
        "-serial",
        "none",
    ]
    command += ["-semihosting-config", "enable=on,target=native", "-kernel", str(runner)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    results = (tmp_path / "outputs").read_bytes()
    for number, want in enumerate(wanted):
        assert results[: len(want)] == want, number
        results = results[len(want) :]
    assert results == b""
