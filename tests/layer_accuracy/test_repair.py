# SPDX-License-Identifier: BSD-3-Clause
"""The search for measures: a target that is reached, an interrupt, and a search that goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import openneutron
from openneutron import CompileOptions, QuantizationOptions
from openneutron.errors import InvalidOptionError
from openneutron.features.accuracy.report import RepairReport

EXAMPLE = (torch.zeros(1, 3, 8, 8),)


class Block(nn.Module):
    """Three convolutions as in a block of MobileNetV2, with plain ReLUs."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.expand = nn.Conv2d(channels, 3 * channels, 1)
        self.depth = nn.Conv2d(3 * channels, 3 * channels, 3, padding=1, groups=3 * channels)
        self.project = nn.Conv2d(3 * channels, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.project(self.depth(self.expand(x).relu()).relu())


def heavy_tailed() -> nn.Module:
    """Return a network whose expanded channels differ in size by factors up to some thousand."""
    torch.manual_seed(2)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.ReLU(),
        Block(8),
        Block(8),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 5),
    ).eval()
    for layer in model.modules():
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            nn.init.kaiming_normal_(layer.weight)
            nn.init.normal_(layer.bias, 0.0, 0.1)
    tails = torch.distributions.StudentT(3.0)
    with torch.no_grad():
        for block in (model[2], model[3]):
            for first, second in ((block.expand, block.depth), (block.depth, block.project)):
                sizes = torch.exp(1.6 * tails.sample((24,)).clamp(-4, 4))
                first.weight *= sizes.reshape(-1, 1, 1, 1)
                first.bias *= sizes
                second.weight /= sizes.reshape((-1, 1, 1, 1) if second is block.depth else (1, -1, 1, 1))
    return model


def samples() -> list[tuple[torch.Tensor, ...]]:
    generator = torch.Generator().manual_seed(3)
    return [(torch.randn(EXAMPLE[0].shape, generator=generator),) for _ in range(4)]


def searched(target_db: float = 30.0, **options: Any) -> RepairReport:
    return openneutron.repair(heavy_tailed(), EXAMPLE, target_db=target_db, calibration=samples(), **options)


@pytest.fixture(scope="module")
def found() -> RepairReport:
    return searched()


def test_heavy_tails_are_repaired_for_nothing(found: RepairReport) -> None:
    assert found.before_db < 15.0
    assert found.after_db >= 30.0
    assert found.is_reached
    assert found.quantization["equalize"] is True
    assert found.after.cycles == found.before.cycles
    assert [item.cost for item in found.chosen] == [None] * len(found.chosen)


def test_the_file_gives_the_same_model(found: RepairReport, tmp_path: Path) -> None:
    path = tmp_path / "net.json"
    path.write_text(json.dumps(found.quantization))
    options = QuantizationOptions.from_file(path)
    report = openneutron.accuracy(heavy_tailed(), EXAMPLE, calibration=samples(), quantization=options)
    assert report.result_db == pytest.approx(found.after_db)
    made = openneutron.compile(heavy_tailed(), EXAMPLE, calibration=samples(), quantization=options)
    assert made.report.cycles == found.after.cycles


def test_an_interrupted_search_keeps_the_best_and_goes_on(found: RepairReport, tmp_path: Path) -> None:
    journal = tmp_path / "net.journal"

    def interrupt(name: str, done: int, _total: int) -> None:
        if name == "Searching measures" and done == 3:
            raise KeyboardInterrupt

    first = searched(journal=journal, progress=interrupt)
    assert not first.complete
    assert first.tried == 3
    assert len(json.loads(journal.read_text())["known"]) == 3
    began: list[str] = []
    again = searched(journal=journal, progress=lambda name, done, total: began.append(name))
    assert again == found
    assert not journal.exists()


def bought(target: str, host_calls: bool = True) -> RepairReport:
    """Return a search whose target needs more than the measures that cost nothing."""
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(8, 12), nn.ReLU(), nn.Linear(12, 4)).eval()
    free = QuantizationOptions(smooth=0.5, correct_biases=True, observer="minmax")
    data = [(torch.randn(1, 8),) for _ in range(4)]
    options = CompileOptions(target=target, host_calls=host_calls)
    return openneutron.repair(model, data[0], target_db=60.0, calibration=data, quantization=free, options=options)


def test_layers_get_16_bits_for_what_is_missing() -> None:
    """On an MCX N the host core computes them, in the program."""
    report = bought("mcxn94x")
    assert report.is_reached
    assert report.quantization["layer_activations"] == [["2", "int16"]]
    assert "keep_float" not in report.quantization


def test_layers_become_float_where_programs_take_no_int16() -> None:
    report = bought("mcxn94x", host_calls=False)
    assert "keep_float" in report.quantization
    assert "layer_activations" not in report.quantization
    paid = [item for item in report.chosen if item.cost is not None]
    assert paid
    assert paid[-1].cost is not None
    assert paid[-1].cost.cpu_macs > report.before.cpu_macs


@pytest.mark.parametrize("target_db", [0.0, 500.0])
def test_a_target_out_of_range_is_an_error(target_db: float) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        searched(target_db)
    assert str(caught.value) == f"target_db: it is {target_db:g}; a ratio to reach is above 0 and at most 150 dB."


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Sums in one order on every machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
