# SPDX-License-Identifier: BSD-3-Clause
"""Bundles for Zephyr and the MCUXpresso SDK: their structure is the documented one, and their build files build.

Neither tree is here: their functions have stand-ins (stand_ins/), which compile for a Cortex-M33 and link with the start code of the
other port, so that the application runs in QEMU.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from openneutron.features.export.bundle import export_bundle
from tests.export.bundles import cifarnet, cifarnet_of, execute
from tests.support.tools import required

STAND_INS = Path(__file__).parent / "stand_ins"
STARTUP = (
    Path(__file__).parents[2]
    / "src"
    / "openneutron"
    / "features"
    / "export"
    / "templates"
    / "cortex_m33"
    / "files"
    / "port"
)

MODULE_KEYS: dict[str, Any] = {
    "name": str,
    "build": {
        "cmake": str,
        "kconfig": str,
        "cmake-ext": bool,
        "kconfig-ext": bool,
        "sysbuild-cmake": str,
        "sysbuild-kconfig": str,
        "sysbuild-cmake-ext": bool,
        "sysbuild-kconfig-ext": bool,
        "depends": list,
        "settings": dict,
    },
    "tests": list,
    "samples": list,
    "boards": list,
    "blobs": list,
    "security": dict,
}
"""module.yml's keys and their types: Zephyr's documentation, "Modules", "Module yaml file description", and the schema in its
scripts/zephyr_module.py, which the MCUXpresso SDK's scripts/misc/mcux_module.py has too."""


@pytest.fixture(scope="module", params=["zephyr", "mcuxpresso", "mcxn947 in zephyr", "mcxn947 in mcuxpresso"])
def bundle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """The build system and the folder; that of the port ``mcxn947`` has the files of both."""
    port, _, system = request.param.partition(" in ")
    folder = tmp_path_factory.mktemp(port) / "bundle"
    export_bundle(cifarnet() if not system else cifarnet_of("mcxn94x", folder.parent), folder, form=port)
    return system or port, folder


def startup_of(folder: Path) -> Path:
    """The folder with start code and toolchain file: the bundle's own, or that of the port for any Cortex-M33."""
    return folder / "port" if (folder / "port").is_dir() else STARTUP


def check_keys(found: dict[str, Any], known: dict[str, Any]) -> None:
    for key, value in found.items():
        if isinstance(known[key], dict):
            check_keys(value, known[key])
        else:
            assert isinstance(value, known[key]), key


def module_of(port: str, folder: Path) -> dict[str, Any]:
    place = {"zephyr": "zephyr", "mcuxpresso": "mcux"}[port]
    found: dict[str, Any] = yaml.safe_load((folder / place / "module.yml").read_text())
    return found


def test_module_yml_has_documented_keys_and_names_files(bundle: tuple[str, Path]) -> None:
    port, folder = bundle
    module = module_of(port, folder)
    check_keys(module, MODULE_KEYS)
    assert (folder / module["build"]["cmake"] / "CMakeLists.txt").is_file()
    assert (folder / module["build"]["kconfig"]).is_file()
    for sample in module.get("samples", ()):
        described = yaml.safe_load((folder / sample / "sample.yaml").read_text())
        assert {"sample", "tests"} == described.keys()
        assert (folder / sample / "prj.conf").is_file()


def test_kconfig_has_what_the_build_files_ask_for(bundle: tuple[str, Path]) -> None:
    kconfiglib = pytest.importorskip("kconfiglib", reason="kconfiglib is not installed: it parses Kconfig")
    port, folder = bundle
    module = module_of(port, folder)
    parsed = kconfiglib.Kconfig(str(folder / module["build"]["kconfig"]), warn_to_stderr=False)
    assert parsed.warnings == []
    switch = {"zephyr": "OPENNEUTRON", "mcuxpresso": f"MCUX_COMPONENT_{module['name'].upper()}"}[port]
    text = (folder / module["build"]["cmake"] / "CMakeLists.txt").read_text()
    options = {f"OPENNEUTRON_{name}" for name in ("ARENA_SECTION", "PORTABLE_KERNELS", "TIMEOUT_SECONDS")}
    for name in {switch, *options}:
        assert f"CONFIG_{name}" in text
        assert name in parsed.syms
    assert parsed.syms["OPENNEUTRON_PORTABLE_KERNELS"].visibility == 0
    parsed.syms[switch].set_value("y")
    assert parsed.syms["OPENNEUTRON_PORTABLE_KERNELS"].visibility == 2
    assert parsed.syms["OPENNEUTRON_ARENA_SECTION"].str_value == ""


def test_the_application_builds_and_checks_itself(bundle: tuple[str, Path], tmp_path: Path) -> None:
    port, folder = bundle
    required("arm-none-eabi-gcc")
    required("cmake")
    source, program = {
        "zephyr": ("samples/selfcheck", "zephyr"),
        "mcuxpresso": ("example", "selfcheck"),
    }[port]
    stand_in = STAND_INS / port
    options = [f"-DSTARTUP={startup_of(folder)}", f"-DSdkRootDirPath={stand_in}", "-DCMAKE_BUILD_TYPE=Release"]
    environment = {**os.environ, "ZEPHYR_BASE": str(stand_in)}
    for command in (
        ["cmake", "-S", str(folder / source), "-B", str(tmp_path), *options],
        ["cmake", "--build", str(tmp_path)],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        assert done.returncode == 0, done.stdout + done.stderr
    done = execute(tmp_path / program)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.match(r"cifarnet\n(output0|softmax_8): 10 of 10 bytes as expected\n", done.stdout + done.stderr)
    assert (done.stdout + done.stderr).endswith("passed\n")


def test_options_reach_the_compiler(bundle: tuple[str, Path], tmp_path: Path) -> None:
    port, folder = bundle
    required("arm-none-eabi-gcc")
    required("cmake")
    source, _ = {"zephyr": ("samples/selfcheck", ""), "mcuxpresso": ("example", "")}[port]
    stand_in = STAND_INS / port
    options = [f"-DSTARTUP={startup_of(folder)}", f"-DSdkRootDirPath={stand_in}", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON"]
    options += ["-DCONFIG_OPENNEUTRON_ARENA_SECTION=.sram.npu", "-DCONFIG_OPENNEUTRON_PORTABLE_KERNELS=y"]
    options += ["-DCONFIG_OPENNEUTRON_TIMEOUT_SECONDS=7"]
    command = ["cmake", "-S", str(folder / source), "-B", str(tmp_path), *options]
    environment = {**os.environ, "ZEPHYR_BASE": str(stand_in)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    commands = (tmp_path / "compile_commands.json").read_text()
    assert "-DNEUTRON_PORTABLE_ONLY" in commands
    assert ".sram.npu" in commands
    assert "-DOPENNEUTRON_TIMEOUT_SECONDS=7" in commands
