# SPDX-License-Identifier: BSD-3-Clause
"""``openneutron profile`` of a .pte."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import openneutron as package
from tests.cli.conftest import Command

NETWORK = """
import torch
from torch import nn


def small() -> tuple[nn.Module, tuple[torch.Tensor]]:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 1)).eval(), (torch.randn(1, 3, 8, 8),)


def other() -> tuple[nn.Module, tuple[torch.Tensor]]:
    torch.manual_seed(1)
    return nn.Sequential(nn.Conv2d(3, 16, 3), nn.Conv2d(16, 4, 1)).eval(), (torch.randn(1, 3, 8, 8),)
"""


@pytest.fixture
def compiled(openneutron: Command, folder: Path) -> Command:
    (folder / "net.py").write_text(NETWORK)
    assert openneutron("compile", "net.py:small", "--profile", "-o", "small.pte").code == 0
    return openneutron


def test_layers_have_modules_and_source_lines(compiled: Command, folder: Path) -> None:
    data = json.loads(compiled("profile", "small.pte", "--random", "0", "--etdump", "run.etdump", "--json").out)
    modules = {item["layer"]: item["module"] for item in data["operators"]}
    assert [module for module in modules.values() if module] == ["0", "2"]
    first = next(item for item in data["operators"] if item["module"] == "0")
    assert first["operators"] == ["conv2d (aten.convolution)", "aten.relu"]
    assert all(item["time"] > 0 for item in data["operators"])
    assert {item["operator"] for item in data["on_cpu"]} >= {"quantize_per_tensor.out", "dequantize_per_tensor.out"}
    assert data["modelled_cycles"] == package.load("small.pte").report.cycles

    again = json.loads(compiled("profile", "small.pte", "--from", "run.etdump", "--json").out)
    assert again["rows"] == data["rows"] and again["on_cpu"] == data["on_cpu"]


def test_an_etdump_of_another_model(compiled: Command, refused: Callable[..., str]) -> None:
    assert compiled("compile", "net.py:other", "--profile", "-o", "other.pte").code == 0
    assert compiled("profile", "other.pte", "--random", "0", "--etdump", "other.etdump").code == 0
    ((_, program),) = package.load("other.pte").programs
    assert refused("profile", "small.pte", "--from", "other.etdump") == (
        "--from other.etdump: it is an ETDump of another model, or of another build of it: 'small.pte' has no program with the "
        f"checksum 0x{program.header['microcode_crc']:08x}. Give the file that ran."
    )


def test_a_damaged_etdump(compiled: Command, refused: Callable[..., str], folder: Path) -> None:
    assert compiled("profile", "small.pte", "--random", "0", "--etdump", "run.etdump").code == 0
    (folder / "run.etdump").write_bytes((folder / "run.etdump").read_bytes()[:200])
    assert refused("profile", "small.pte", "--from", "run.etdump") == (
        "'run.etdump' is no ETDump, or a damaged one. Record it again."
    )


def test_a_pte_without_profiling_facts(compiled: Command, refused: Callable[..., str]) -> None:
    assert compiled("compile", "net.py:small", "-o", "plain.pte").code == 0
    assert refused("profile", "plain.pte", "--random", "0") == (
        "'plain.pte' was compiled without profiling: forward, delegate 0 has no names of layers, and its runs leave no events. "
        "Compile the model again with --profile."
    )
