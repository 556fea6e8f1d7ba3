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
import sys
at_start = set(sys.modules)
import json
from openneutron.cli import main
code = main(sys.argv[2:])
loaded = {name.partition(".")[0] for name in set(sys.modules) - at_start if not name.startswith("_")}
found = {"code": code, "packages": sorted(loaded - set(sys.stdlib_module_names)), "modules": sorted(sys.modules)}
open(sys.argv[1], "w").write(json.dumps(found))
"""

TYPER = {"annotated_doc", "click", "openneutron", "shellingham", "typer"}
"""The modules that typer imports, by its release, before it converts a value."""


def imported(tmp_path: Path, *arguments: str, code: int = 0) -> tuple[set[str], set[str]]:
    """Return the packages beside Python's own, and all modules, after a command in a process of its own that ends with ``code``.

    Debian's Python imports a ``sitecustomize`` before any command; what is there at the start is no package of the command.
    """
    report = tmp_path / "report.json"
    done = subprocess.run(
        [sys.executable, "-c", REPORTING, str(report), *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(report.read_text())
    assert found["code"] == code, done.stderr
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
    unused |= {"openneutron.litert.interpret", "openneutron.device.simulator"}
    assert unused & modules == set()
    assert not any(name.startswith("openneutron.pytorch") for name in modules)


NET = """
import torch
from torch import nn

def net():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()).eval(), (torch.randn(1, 3, 8, 8),)
"""


def test_a_compile_of_a_module_imports_no_code_generator(tmp_path: Path) -> None:
    pytest.importorskip("executorch")
    (tmp_path / "net.py").write_text(NET)
    packages, modules = imported(
        tmp_path, "compile", f"{tmp_path / 'net.py'}:net", "-o", str(tmp_path / "net.pte"), "--quiet"
    )
    assert {"matplotlib", "ortools", "pandas", "scipy", "sklearn", "transformers"} & packages == set()
    unused = {"lowering", "pattern_matcher", "decomposition", "fx_passes.post_grad", "scheduler"}
    assert {f"torch._inductor.{name}" for name in unused} & modules == set()
    assert "executorch.backends.nxp" not in modules


@pytest.mark.parametrize(
    "arguments",
    [
        ("compile", "net.py:net", "--sram-budget", "100000"),
        ("compile", "net.py:nett"),
        ("compile", "absent.pt2"),
        ("accuracy", "made.pte"),
        ("evaluate", "net.py:net", "--data", "absent.npz"),
    ],
    ids=" ".join,
)
def test_what_the_command_line_shows_to_be_wrong_is_refused_before_pytorch_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(NET)
    (tmp_path / "made.pte").write_bytes(b"")
    packages, _ = imported(tmp_path, *arguments, code=2)
    assert {"executorch", "torch", "torchao"} & packages == set()


LATER = """
import sys
import openneutron.api.pytorch
import torch
from importlib.resources import files
from executorch.exir.dialects.edge import _ops
from ruamel.yaml import YAML

rows = YAML(typ="safe").load((files("executorch.exir.dialects.edge") / "edge.yaml").read_text())
assert _ops._edge_dialect_info == {row["inherits"]: row for row in rows}

assert "torch._inductor.decomposition" not in sys.modules
import torch._inductor.decomposition as made
assert torch.ops.torchao.quantize_affine.default in made.decompositions

@torch.library.custom_op("later::fill", mutates_args=("x",))
def fill(x: torch.Tensor, value: float) -> None:
    x.fill_(value)

class Net(torch.nn.Module):
    def forward(self, x):
        y = x + 1
        fill(y, 3.0)
        return y

program = torch.export.export(Net(), (torch.ones(2),)).run_decompositions({})
from torch.export import _remove_auto_functionalized_pass as last
assert "auto_functionalized" in str(program.graph)
assert "torch._inductor.fx_passes.post_grad" not in sys.modules
program = last.unsafe_remove_auto_functionalized_pass(program)
assert "auto_functionalized" not in str(program.graph) and "later.fill" in str(program.graph)
"""


def test_what_a_start_leaves_out_is_there_when_it_is_used() -> None:
    pytest.importorskip("executorch")
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", LATER], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


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
