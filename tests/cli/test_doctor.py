# SPDX-License-Identifier: BSD-3-Clause
"""``openneutron doctor``: what it finds, and what it says of what it does not find."""

from __future__ import annotations

import importlib.metadata
import json
import re
import sys
import tomllib
from pathlib import Path

import pytest

from openneutron import targets
from openneutron.device.third_party import EXTRAS
from openneutron.features.doctor import command as checks
from openneutron.features.doctor.command import Check, Requirement, State
from openneutron.features.report.text import plain
from tests.cli.conftest import Command

FINE = Check("C++ compiler", State.FINE, "c++")


@pytest.mark.parametrize(
    ("bounds", "version", "admitted"),
    [
        ("==2.13.0", "2.13.0+cpu", True),
        ("==2.13.0", "2.12.1", False),
        (">=2.1", "2.10", True),
        (">=0.18,<0.19", "0.18.0", True),
        (">=0.18,<0.19", "0.19.0", False),
        ("<0.19,>=0.18", "0.19.dev3", False),
        (">=24", "25.12.19", True),
        ("", "1.0", True),
    ],
)
def test_versions_are_compared_as_numbers(bounds: str, version: str, admitted: bool) -> None:
    assert Requirement("package", bounds, "").admits(version) is admitted


def test_requirements_are_the_packages_own() -> None:
    found = {item.name: item for item in checks.requirements()}
    assert {"numpy", "ai-edge-litert", "torch", "executorch", "torchao"} <= found.keys()
    assert (found["torch"].bounds, found["torch"].extra, found["numpy"].extra) == ("==2.13.0", "pytorch", "")
    assert "scikit-learn" not in found and "pytest" not in found


def test_packages_of_other_extras_are_not_required(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["numpy>=2", "torch==2.13.0; extra == 'pytorch'", 'ai-edge-model-explorer>=0.1; extra == "model-explorer"']
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: lines)
    assert [item.name for item in checks.requirements()] == ["numpy", "torch"]


def test_a_missing_package_and_a_wrong_version_say_what_to_do() -> None:
    wanted = [Requirement("no-such-package", ">=1", ""), Requirement("numpy", "==1.0", "pytorch")]
    missing, wrong = map(checks.package_check, wanted)
    assert (missing.state, missing.found) == (State.BROKEN, "not installed")
    assert missing.to_do == "pip install openneutron, or this alone: pip install 'no-such-package>=1'"
    assert wrong.state is State.BROKEN
    assert wrong.to_do == "pip install 'openneutron[pytorch]', or this alone: pip install 'numpy==1.0'"


def test_each_extra_has_a_row_with_what_it_gives(monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
    assert checks.extra_check("pytorch") == Check(
        "extra pytorch", State.FINE, "installed", "for PyTorch models, and running `.pte` files"
    )
    monkeypatch.setitem(EXTRAS, "sounds", (("numpy", "no-such-package"), "sounds"))
    found = checks.extra_check("sounds")
    assert found == Check(
        "extra sounds", State.OPTIONAL, "not installed: pip install 'openneutron[sounds]'", "for sounds"
    )
    assert " pip install 'openneutron[sounds]' " in plain(checks.findings([found]))


def test_the_extras_are_those_of_the_package_and_of_the_page(root: Path) -> None:
    declared = tomllib.loads((root / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    page = (root / "docs/how-to/install.md").read_text()
    assert EXTRAS.keys() <= declared.keys()
    for extra, (packages, gives) in EXTRAS.items():
        named = {re.split(r"[\[=<>]", line)[0] for line in declared[extra]}
        assert set(packages) <= named, extra
        assert f"| `{extra}` | {gives} |" in page
    for extra in declared.keys() - EXTRAS.keys():
        assert f"| `{extra}` | " in page, extra


def test_a_missing_compiler_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    found = checks.compiler_check()
    assert (found.state, found.found) == (State.BROKEN, "none")
    assert found.to_do == (
        "delegate: there is no C++ compiler (c++, g++, clang++); running a .pte on this computer takes one, once. "
        "Install one (Debian: apt install g++), or set CXX to yours."
    )
    assert checks.delegate_check(found).found == "needs a C++ compiler"


def test_a_package_with_the_delegate_takes_no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from openneutron.pytorch.run import delegate
    from openneutron.pytorch.run.compile_delegate import file_name

    monkeypatch.setattr(delegate, "INCLUDED", tmp_path)
    monkeypatch.setattr(checks, "delegate_check", lambda compiler: FINE if compiler is None else compiler)
    package = delegate.executorch_package()
    (tmp_path / file_name("0.1", package)).touch()
    assert not checks.delegate_is_included()
    (tmp_path / file_name(importlib.metadata.version("executorch"), package)).touch()
    assert checks.delegate_is_included()
    found = [check.what for check in checks.all_checks(lambda *_: None)]
    assert found.count("C++ compiler") == 1 and found[-1] == "C++ compiler" and "cache for the delegate" not in found


def test_headers_of_another_build_have_another_delegate(tmp_path: Path) -> None:
    from openneutron.pytorch.run.compile_delegate import HEADERS, file_name

    headers = tmp_path / "include" / HEADERS
    headers.mkdir(parents=True)
    (headers / "a.h").write_text("int a;")
    first = file_name("1.5.1", tmp_path)
    (headers / "a.h").write_text("long a;")
    changed = file_name("1.5.1", tmp_path)
    (headers / "a.h").rename(headers / "b.h")
    assert len({first, changed, file_name("1.5.1", tmp_path), file_name("1.5.2", tmp_path)}) == 4


def test_a_driver_that_was_not_built_says_how_to_build_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from openneutron.device import simulator as library

    library.library.cache_clear()
    monkeypatch.setattr(library, "LIBRARY", tmp_path / "libneutron.so")
    try:
        assert checks.host_library_check().to_do.startswith(f"simulator: {tmp_path / 'libneutron.so'} does not exist. ")
        assert checks.self_test().state is State.BROKEN
    finally:
        library.library.cache_clear()


def test_a_delegate_that_does_not_load_passes_its_last_words_on() -> None:
    said = "import sys; print('noise', file=sys.stderr); sys.exit('openneutron.errors.MissingToolError: delegate: no.')"
    found = checks.delegate_check(FINE, [sys.executable, "-c", said])
    assert (found.state, found.to_do) == (State.BROKEN, "delegate: no.")
    crashed = checks.delegate_check(FINE, [sys.executable, "-c", "import os; os.abort()"])
    assert (crashed.state, crashed.to_do) == (State.BROKEN, "exit code -6")


def test_a_cache_that_can_not_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("os.access", lambda *_: False)
    found = checks.cache_check()
    assert found.state is State.BROKEN
    assert found.to_do == f"'{tmp_path}' can't be written; set XDG_CACHE_HOME to a folder that can."


def test_compiler_and_simulator_agree_with_litert() -> None:
    assert checks.self_test() == Check("compiler and simulator", State.FINE, "the same bytes as LiteRT")


def test_exit_code_says_whether_everything_works(openneutron: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openneutron.features.doctor.command.all_checks", lambda _: [FINE])
    ended = openneutron("doctor")
    assert ended.code == 0
    assert ended.out.splitlines()[-1] == "Everything works: try `openneutron compile cifarnet`."
    broken = Check("torch", State.BROKEN, "not installed", "==2.13.0", "pip install it")
    monkeypatch.setattr("openneutron.features.doctor.command.all_checks", lambda _: [FINE, broken])
    ended = openneutron("doctor")
    assert ended.code == 1
    assert ended.out.splitlines()[-3:] == [
        "torch: pip install it",
        "",
        "PyTorch models do not work yet; see the instructions above. An int8 .tflite compiles and runs without.",
    ]
    numpy = Check("numpy", State.BROKEN, "not installed", ">=2.0", "pip install it")
    monkeypatch.setattr("openneutron.features.doctor.command.all_checks", lambda _: [numpy, broken])
    assert openneutron("doctor").out.splitlines()[-1] == "Not everything works yet; see the instructions above."
    monkeypatch.setattr("openneutron.features.doctor.command.all_checks", lambda _: [FINE, broken])
    said = json.loads(openneutron("doctor", "--json").out)
    assert said["works"] is False
    assert said["checks"][1] == {
        "what": "torch", "state": "missing", "found": "not installed", "wanted": "==2.13.0", "to_do": "pip install it",
    }  # fmt: skip


def test_targets_and_version(openneutron: Command) -> None:
    assert openneutron("--version").out == "openneutron 0.1.0\n"
    ended = openneutron("targets")
    rows = [" ".join(line.split()) for line in ended.out.splitlines()]
    assert "imxrt700 NXP i.MX RT700, eIQ Neutron N3-64 Neutron-C int8, int16 64 324 MHz 7,680 KiB 12 of 34" in rows
    said = json.loads(openneutron("targets", "--json").out)["targets"]
    compiled_for = [target["name"] for target in said if target["compiled_for"]]
    assert compiled_for == [*targets.names(), *targets.CPUS]
    one = openneutron("targets", "mcxn94x").out.splitlines()
    assert one[0] == "mcxn94x  NXP MCXN94x, eIQ Neutron N1-16, Neutron-C, generation N1"
    assert one[1] == (
        "Host core Cortex-M33; C port mcxn947 (`openneutron export --for mcxn947`), boards frdmmcxn947, frdm_mcxn947"
    )
    assert openneutron("targets", "imx95").out.splitlines()[1] == "Host core Cortex-A55; no C port"
    assert one[3].startswith("15 of 34 facts about mcxn94x are assumed; ")
    two = [line.split("  ") for line in openneutron("targets", "mcxn94x", "imx95").out.splitlines()]
    cells = {row[0]: [cell.strip() for cell in row[1:] if cell] for row in two if len(row) > 1}
    assert cells["fact"] == ["mcxn94x", "imx95"]
    assert cells["class"] == ["Neutron-C", "Neutron-S"]
    assert cells["npu.clock"] == ["150 MHz", "1,000 MHz"]
    assert cells["memory tcm: size"] == ["1,024 KiB"]
    assert "npu.accumulators" not in cells
    assert [
        chip["name"] for chip in json.loads(openneutron("targets", "mcxn94x", "imx95", "--json").out)["targets"]
    ] == [
        "mcxn94x",
        "imx95",
    ]
    (chip,) = json.loads(openneutron("targets", "imxrt700", "--json").out)["targets"]
    assert chip["numbers"]["npu.clock"]["source"].startswith("published")
