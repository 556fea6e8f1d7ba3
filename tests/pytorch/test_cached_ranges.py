# SPDX-License-Identifier: BSD-3-Clause
"""Calibrated ranges from a cache."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import openneutron
from openneutron import CompileOptions, QuantizationOptions
from openneutron.api import pytorch
from openneutron.api.pytorch import CompiledModel
from openneutron.pytorch.quantizer import calibrate

IMAGES = torch.randn(3, 3, 12, 12, generator=torch.Generator().manual_seed(0))
SAMPLES = [(image[None],) for image in IMAGES]


def small(scale: float = 1.0) -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Dropout(), nn.Softmax(1)).eval()
    with torch.no_grad():
        model[0].weight *= scale
    return model


@pytest.fixture
def calibrations(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of samples of each calibration."""
    counts: list[int] = []
    inner = calibrate.calibrate

    def counted(prepared: Any, samples: Any, *others: Any) -> None:
        samples = list(samples)
        counts.append(len(samples))
        inner(prepared, samples, *others)

    monkeypatch.setattr(calibrate, "calibrate", counted)
    return counts


def compiled(
    cache: Path | None, model: nn.Module | None = None, samples: Any = SAMPLES, **others: Any
) -> CompiledModel:
    return openneutron.compile(model or small(), SAMPLES[0], calibration=samples, cache=cache, **others)


@pytest.fixture(autouse=True)
def without_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """No entry for what comes after the ranges: each compile looks the ranges up."""
    monkeypatch.setattr(pytorch, "has_key", lambda *_: False)


def test_ranges_are_taken_from_the_cache(tmp_path: Path, calibrations: list[int]) -> None:
    plain = compiled(None)
    first = compiled(tmp_path)
    again = compiled(tmp_path, samples=iter(SAMPLES))
    smaller = compiled(tmp_path, options=CompileOptions(io_place="arena"))
    assert calibrations == [3, 3]
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".program", ".program", ".ranges"]
    assert first.buffer == again.buffer == plain.buffer
    assert smaller.buffer == first.recompile(io_place="arena").buffer
    assert first.report == again.report


def test_what_calibration_depends_on_is_in_the_key(tmp_path: Path, calibrations: list[int]) -> None:
    compiled(tmp_path)
    compiled(tmp_path, small(2.0))
    compiled(tmp_path, samples=SAMPLES[:2])
    compiled(tmp_path, quantization=QuantizationOptions(keep_float=["3"]))
    assert calibrations == [3, 3, 2, 3]


def test_a_damaged_entry_is_calibrated_again(tmp_path: Path, calibrations: list[int]) -> None:
    first = compiled(tmp_path)
    (entry,) = tmp_path.glob("*.ranges")
    entry.write_bytes(entry.read_bytes()[:-1])
    assert compiled(tmp_path).buffer == first.buffer
    assert calibrations == [3, 3]


class Noisy(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x + torch.rand_like(x))


def test_random_operators_are_calibrated_each_time(tmp_path: Path, calibrations: list[int]) -> None:
    for _ in range(2):
        compiled(tmp_path, Noisy(), delegation=openneutron.DelegationOptions(any_runtime=True, must_delegate=False))
    assert calibrations == [3, 3]
    assert [*tmp_path.glob("*.ranges")] == []
