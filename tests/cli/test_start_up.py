# SPDX-License-Identifier: BSD-3-Clause
"""Short commands stay short: each imports no package that it does not use. The time of a start is that of its imports."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.support.litert_files import mixed_file

REPORTING = """
import json, sys
from openneutron.cli import main
code = main(sys.argv[2:])
loaded = {name.partition(".")[0] for name in sys.modules if not name.startswith("_")}
found = {"code": code, "packages": sorted(loaded - set(sys.stdlib_module_names)), "modules": sorted(sys.modules)}
open(sys.argv[1], "w").write(json.dumps(found))
"""

TYPER = {"annotated_doc", "click", "openneutron", "shellingham", "typer"}
"""The modules that typer imports, by its release, before it converts a value."""


def imported(tmp_path: Path, *arguments: str) -> tuple[set[str], set[str]]:
    """Return the packages beside Python's own, and all modules, after a command in a process of its own."""
    report = tmp_path / "report.json"
    done = subprocess.run(
        [sys.executable, "-c", REPORTING, str(report), *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(report.read_text())
    assert found["code"] == 0, done.stderr
    return set(found["packages"]), set(found["modules"])


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_the_help_of_all_commands_imports_typer_alone(tmp_path: Path, option: str) -> None:
    packages, modules = imported(tmp_path, option)
    assert packages <= TYPER
    assert {name for name in modules if name.startswith("openneutron")} == {
        "openneutron",
        "openneutron.cli",
        "openneutron.cli.app",
        "openneutron.cli.ending",
        "openneutron.cli.values",
        "openneutron.errors",
    }


def test_a_compile_of_a_small_tflite_imports_neither_solver_nor_interpreter(tmp_path: Path) -> None:
    model = tmp_path / "mixed.tflite"
    model.write_bytes(mixed_file())
    packages, modules = imported(tmp_path, "compile", str(model), "-o", str(tmp_path / "out.tflite"))
    assert packages == TYPER & packages | {"ai_edge_litert", "flatbuffers", "numpy", "rich"}
    unused = {"ai_edge_litert.interpreter", "hashlib", "importlib.metadata", "numpy.random", "rich.progress"}
    unused |= {"openneutron.litert.interpret", "openneutron.simulator"}
    assert unused & modules == set()
    assert not any(name.startswith("openneutron.pytorch") for name in modules)


def test_a_run_of_a_pte_imports_neither_torch_nor_executorch(tmp_path: Path) -> None:
    pytest.importorskip("executorch")
    from tests.support import programs
    from tests.support.delegate_calls import SHAPE, method, plain, random_bytes

    file = tmp_path / "inverts.pte"
    file.write_bytes(method(plain(programs.through_scratch()).compose(), (random_bytes(SHAPE),)).pte)
    x = random_bytes(SHAPE, 3).numpy()
    np.save(tmp_path / "x.npy", x)
    packages, _ = imported(
        tmp_path, "run", str(file), "--input", str(tmp_path / "x.npy"), "--output", str(tmp_path / "out")
    )
    assert {"executorch", "ortools", "torch", "torchao"} & packages == set()
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "output0.npy"), ~x)
