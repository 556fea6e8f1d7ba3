# SPDX-License-Identifier: BSD-3-Clause
"""Train recurrent networks on scikit-learn's handwritten digits, read row by row, and measure their accuracy.

Digits have 8 rows of 8 values, a row for each step. Everything is seeded: the same packages give the same figures.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn

from openneutron.api.pytorch import analyse
from openneutron.pytorch.source.models.small import KeywordSpotter

TITLE = "Accuracy on 500 digits outside the training set, read row by row"
LAYERS: dict[str, type[nn.LSTM] | type[nn.GRU]] = {"LSTM": nn.LSTM, "GRU": nn.GRU}
TRAINED, EPOCHS, CALIBRATION = 1297, 16, 32


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Percent of right answers in float, of the quantized module in PyTorch, and on the simulated NPU, whose kernel calls are
    counted; ``on_cpu``: operators that are not delegated."""

    float_percent: float
    int8_percent: float
    npu_percent: float
    kernel_calls: int
    on_cpu: int


def trained(layer: type[nn.LSTM] | type[nn.GRU], epochs: int = EPOCHS) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """Return a network that is trained on the first digits of a seeded order, and all digits and labels in this order."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    torch.manual_seed(0)
    order = torch.randperm(len(digits.images))
    rows, labels = torch.tensor(digits.images / 16, dtype=torch.float32)[order], torch.tensor(digits.target)[order]
    model = KeywordSpotter(layer, features=8, classes=10)
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)
    for _ in range(epochs):
        for batch in torch.randperm(TRAINED).split(64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(rows[batch]), labels[batch]).backward()
            optimizer.step()
    return model.eval(), rows, labels


def accuracy(layer: type[nn.LSTM] | type[nn.GRU], epochs: int = EPOCHS) -> Accuracy:
    """Train a network and return its accuracy on the digits outside the training set."""
    model, rows, labels = trained(layer, epochs)
    calibration = [(each,) for each in rows[:CALIBRATION].split(1)]
    tests, wanted = rows[TRAINED:].split(1), labels[TRAINED:]
    with torch.no_grad():
        in_float = torch.cat([model(each) for each in tests])
        program = analyse(model, calibration[0], calibration=calibration)
        in_int8 = torch.cat([program.quantized(each) for each in tests])
    on_npu = torch.cat([program.run(each)[0].reshape(1, -1) for each in tests])
    shares = (100 * float((found.argmax(1) == wanted).float().mean()) for found in (in_float, in_int8, on_npu))
    calls = sum(len(partition.compiled.report.operators) for partition in program.partitions)
    return Accuracy(*shares, calls, len(program.delegation.on_cpu))


def measure() -> dict[str, Any]:
    """Return the accuracy of each network."""
    return {name: asdict(accuracy(layer)) for name, layer in LAYERS.items()}


def rows(results: dict[str, Any]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the heads and the lines of the printed table."""
    heads = ("layer", "float, %", "int8, %", "NPU, %", "kernel calls", "on the CPU")
    return heads, [
        (
            name,
            *(f"{cell[key]:.1f}" for key in ("float_percent", "int8_percent", "npu_percent")),
            f"{cell['kernel_calls']}",
            f"{cell['on_cpu']}",
        )
        for name, cell in results.items()
    ]
