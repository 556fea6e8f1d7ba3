# SPDX-License-Identifier: BSD-3-Clause
"""The files and programs that ExecuTorch's NXP tests expect of an installed SDK."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import openneutron
from openneutron.errors import InvalidOptionError, MissingToolError
from openneutron.features.compat import sdk_folder
from openneutron.features.compat.executor_runner import main as run
from tests.cortex_m33.firmware import required

EXPECTED = """
import os
from shutil import which
from importlib.metadata import version
import eiq_neutron_sdk
from eiq_neutron_sdk import merge_kernel_selection_files, neutron_converter, neutron_library_utils
import eiq_neutron_sdk.neutron_library_utils.merge_kernel_selection_code
target = os.path.join(os.path.dirname(eiq_neutron_sdk.__file__), "target", "imxrt700")
for name in ("cmodel/NeutronFirmware.elf", "driver/include/NeutronDriver.h", "driver/include/NeutronErrors.h",
             "common/include/NeutronEnvConfig.h"):
    assert os.path.exists(os.path.join(target, name)), name
assert neutron_library_utils.isNeutronTarget("imxrt700")
print(version("eiq_neutron_sdk"), version("eiq_nsys"), neutron_converter.__name__)
print(which("nsys"), which("nxp_executor_runner"))
"""


def test_what_executorchs_tests_look_for_is_found(tmp_path: Path) -> None:
    """The names and paths of executorch/backends/nxp/tests/config.py and nsys_testing.py."""
    folder = tmp_path / "sdk"
    assert sdk_folder.main([str(folder), "--no-library"]) == 0
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(folder), *sys.path]),
        "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
    }
    done = subprocess.run(
        [sys.executable, "-c", EXPECTED], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    version, programs = done.stdout.splitlines()
    here = openneutron.__version__
    assert version == f"{here} {here} openneutron.features.compat.eiq_neutron_sdk.neutron_converter"
    assert programs == f"{folder / 'bin/nsys'} {folder / 'bin/nxp_executor_runner'}"
    said = subprocess.run([folder / "bin/nsys", "--version"], capture_output=True, text=True, check=True).stdout
    assert said == f"openneutron {here}\n"
    with pytest.raises(InvalidOptionError) as caught:
        sdk_folder.lay_out(folder)
    assert str(caught.value) == f"'{folder}' exists and is not an empty folder. Choose another name."


PROGRAM = """
#include "NeutronDriver.h"
#include "NeutronEnvConfig.h"
int main(void) {
    storeNsysPath("nsys"), storeFirmwarePath("f"), storeNsysConfigPath("c");
    NeutronError error = neutronInit();
    return error != ENONE || neutronDeinit() != ENONE;
}
"""


def test_the_library_links_and_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    required("cc")
    monkeypatch.setattr(sdk_folder, "FLAGS", ("-std=c11", "-O0", "-DNEUTRON_PORTABLE_ONLY"))
    sdk_folder.lay_out(tmp_path / "sdk")
    target = tmp_path / "sdk/eiq_neutron_sdk/target/imxrt700"
    (tmp_path / "main.c").write_text(PROGRAM)
    include = [f"-I{target / name}/include" for name in ("common", "driver")]
    command = ["cc", *include, "main.c", str(target / "cmodel/libNeutronDriver.a"), "-lm", "-o", "main"]
    subprocess.run(command, cwd=tmp_path, check=True)
    subprocess.run([tmp_path / "main"], check=True)


def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-cc")
    with pytest.raises(MissingToolError) as caught:
        sdk_folder.driver_library()
    assert str(caught.value) == (
        "sdk_folder: there is no 'no-such-cc', which libNeutronDriver.a takes. Install a C compiler (Debian: apt install "
        "gcc), or leave the library out with --no-library."
    )


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, torch.nn.Module]:
    """Return a model that adds an image with channels innermost and a row, beside both as raw files of two runs."""

    class Two(torch.nn.Module):
        def forward(self, image: torch.Tensor, row: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return image.relu(), (row * 2).sum(1)

    folder = tmp_path_factory.mktemp("runs")
    inputs = (torch.linspace(-1, 1, 24).reshape(1, 3, 2, 4).to(memory_format=torch.channels_last), torch.ones(1, 5))
    openneutron.compile(Two(), inputs, calibration=[inputs], name="two").save(folder / "two.pte")
    for number in range(2):
        place = folder / "inputs" / f"{number:04d}"
        place.mkdir(parents=True)
        generator = np.random.default_rng(number)
        generator.uniform(-1, 1, (1, 2, 4, 3)).astype(np.float32).tofile(place / "00.bin")
        generator.uniform(0, 1, (1, 5)).astype(np.float32).tofile(place / "01.bin")
    return folder, Two()


def test_the_runner_reads_and_writes_raw_files(model: tuple[Path, torch.nn.Module], tmp_path: Path) -> None:
    folder, module = model
    names = ",".join(str(path) for path in sorted((folder / "inputs").iterdir()))
    ignored = ["--firmware", "f", "--nsys", "n", "--nsys_config", "c"]
    assert (
        run(["--model", str(folder / "two.pte"), "--inputs", names, "--output", str(tmp_path / "out"), *ignored]) == 0
    )
    for number in range(2):
        place = folder / "inputs" / f"{number:04d}"
        image = np.fromfile(place / "00.bin", np.float32).reshape(1, 2, 4, 3)
        row = np.fromfile(place / "01.bin", np.float32).reshape(1, 5)
        wanted = module(torch.from_numpy(image).permute(0, 3, 1, 2), torch.from_numpy(row))
        got = [np.fromfile(tmp_path / "out" / f"{number:04d}" / f"000{index}.bin", np.float32) for index in range(2)]
        np.testing.assert_allclose(got[0].reshape(1, 2, 4, 3), wanted[0].permute(0, 2, 3, 1).numpy(), atol=0.02)
        np.testing.assert_allclose(got[1], wanted[1].numpy(), atol=0.1)
    files = ",".join(str(path) for path in sorted((folder / "inputs/0001").iterdir()))
    assert run(["--model", str(folder / "two.pte"), "--inputs", files, "--output", str(tmp_path / "one")]) == 0
    assert (tmp_path / "one/0000.bin").read_bytes() == (tmp_path / "out/0001/0000.bin").read_bytes()


def test_what_the_runner_can_not_run(
    model: tuple[Path, torch.nn.Module], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, _ = model
    command = ["--model", str(folder / "two.pte"), "--output", str(tmp_path)]
    assert run(command) == 255
    assert capsys.readouterr().err == "error: nxp_executor_runner: give either --dataset or --inputs.\n"
    assert run([*command, "--dataset", str(folder / "inputs/0000")]) == 255
    assert capsys.readouterr().err == "error: nxp_executor_runner: '00.bin' has 1 inputs; the model takes 2.\n"
    assert run([*command, "--dataset", str(folder / "inputs")]) == 255
    assert capsys.readouterr().err == (
        f"error: --dataset: '{folder / 'inputs'}' has no file. Each file is the input of one run.\n"
    )
    shutil.copytree(folder / "inputs/0000", tmp_path / "short")
    (tmp_path / "short/01.bin").write_bytes(bytes(3))
    assert run([*command, "--inputs", str(tmp_path / "short")]) == 255
    assert capsys.readouterr().err == (
        f"error: nxp_executor_runner: '{tmp_path / 'short/01.bin'}' has 3 bytes; the model takes float32[1, 5], which is 20.\n"
    )
