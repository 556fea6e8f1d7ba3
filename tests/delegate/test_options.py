# SPDX-License-Identifier: BSD-3-Clause
"""The delegate's options: the time limit of a run, and power gating. See options.cpp."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from openneutron.device.simulator import LIBRARY
from openneutron.isa.payload import Format, Payload
from openneutron.pytorch.run import delegate
from tests.support import programs

ROOT = Path(__file__).parents[2]
INTERNAL, INVALID_ARGUMENT = 1, 0x12
SWITCHES = {
    "plain": (),
    "gating": ("NEUTRON_NPU_POWER_GATING",),
    "for ever": ("NEUTRON_NPU_POWER_GATING", "NEUTRON_TIMEOUT_SECONDS=0"),
    "threads": ("NEUTRON_NPU_POWER_GATING", "NEUTRON_THREADS"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Has ``payload``, and an executable for each of the switches."""
    folder = tmp_path_factory.mktemp("options")
    formats = (Format.CONTIGUOUS,)
    (folder / "payload").write_bytes(Payload(programs.inverted_twice(), formats, formats, (0,), (0,), 1).compose())
    package = delegate.executorch_package()
    include = package / "include"
    own = (ROOT / "runtime/include", ROOT / "runtime/ports/host")
    others = (include, include / "executorch/runtime/core/portable_type/c10")
    common = [delegate.compiler(), "-std=c++17", "-O1", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror"]
    common += [
        "-DC10_USING_CUSTOM_GENERATED_MACROS",
        *(f"-isystem{path}" for path in others),
        *(f"-I{path}" for path in own),
    ]
    subprocess.run([*common, "-c", str(Path(__file__).with_name("options.cpp"))], cwd=folder, check=True)
    linked = [f"-L{package / 'lib'}", "-lexecutorch", str(LIBRARY)]
    linked += [f"-Wl,-rpath,{package / 'lib'}:{LIBRARY.parent}"]
    for name, switches in SWITCHES.items():
        source = ROOT / "runtime/delegate/neutron_backend.cpp"
        command = [*common, *(f"-D{switch}" for switch in switches), str(source), "options.o", *linked, "-o", name]
        subprocess.run(command, cwd=folder, check=True)
    return folder


def ran(folder: Path, switches: str, seconds: int, *spec: int | str) -> tuple[list[str], str]:
    """Return its output and ExecuTorch's log."""
    command = [str(folder / switches), "payload", str(seconds), *map(str, spec)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.splitlines(), done.stderr


RIGHT = ["init 0", "execute 0", "right", "power on off"]
LATE = ["init 0", f"execute {INTERNAL}", "not right", "power on off"]


@pytest.mark.parametrize(
    ("seconds", "spec", "lines"),
    [
        (0, (), RIGHT),
        (30, (), RIGHT),  # 60 seconds as it comes, and the second call starts in time
        (31, (), LATE),
        (1, (2,), RIGHT),
        (2, (2,), LATE),
        (1 << 20, (0,), RIGHT),
    ],
)
def test_time_and_power(seconds: int, spec: tuple[int, ...], lines: list[str], folder: Path) -> None:
    """The power is taken again also where the run fails."""
    said, log = ran(folder, "gating", seconds, *spec)
    assert said == lines
    assert ("the run took longer than timeoutSeconds" in log) == (lines == LATE)


def test_the_builds_own_time(folder: Path) -> None:
    assert ran(folder, "for ever", 1 << 20)[0] == RIGHT
    assert ran(folder, "for ever", 31, 60)[0] == LATE  # the application knows better


def test_without_gating_the_power_is_the_applications(folder: Path) -> None:
    said, log = ran(folder, "plain", 0)
    assert said == ["init 0", "execute 2", "not right", "power"]
    assert "neutronInit was not called, or the NPU is suspended" in log


def test_a_time_that_is_none(folder: Path) -> None:
    said, log = ran(folder, "gating", 0, -1)
    assert said == [f"init {INVALID_ARGUMENT}"]
    assert "the runtime spec timeout_seconds must be a number of seconds, 0 or more" in log


@pytest.mark.parametrize("spec", [(), (1, "threads"), (2, "threads"), (99, "threads")])
def test_threads(spec: tuple[int | str, ...], folder: Path) -> None:
    assert ran(folder, "threads", 0, *spec)[0] == RIGHT


def test_a_number_of_threads_that_is_none(folder: Path) -> None:
    said, log = ran(folder, "threads", 0, 0, "threads")
    assert said == [f"init {INVALID_ARGUMENT}"]
    assert "the runtime spec threads must be a number of threads, 1 or more" in log
