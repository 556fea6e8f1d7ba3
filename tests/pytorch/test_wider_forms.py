# SPDX-License-Identifier: BSD-3-Clause
"""Values that one int8 scale does not hold keep their accuracy: small results of sigmoid and tanh, inputs of different ranges,
powers in front of logarithms and roots, positions."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.quantization_quality import sqnr
from openneutron.api.pytorch import CompiledModel, analyse

STEPS = 32


def squash(s: Tensor) -> Tensor:
    """Return the vectors of a capsule network with lengths below 1."""
    squares = (s * s).sum(-1, keepdim=True)
    return squares / (1 + squares) * s / torch.sqrt(squares + 1e-8)


class Parts(nn.Module):
    """Small models beside each other: from features, pressures, images and sounds."""

    basis: Tensor
    closed: Tensor
    levels: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.rare, self.small, self.gate = nn.Linear(16, 4), nn.Linear(16, 8), nn.Linear(16, 16)
        self.both, self.filters = nn.Linear(32, 16), nn.Conv2d(8, 8, 3)
        with torch.no_grad():
            self.rare.bias.fill_(-5)
            self.small.weight.mul_(0.02)
            self.small.bias.zero_()
            self.both.weight[:, 16:] /= 100
            self.filters.weight[:, 4:] /= 100
        self.register_buffer("closed", torch.tensor([0.0] * 8 + [-4.0] * 8))
        self.register_buffer("levels", torch.tensor([1, 0.5, 0.25, 0.125])[:, None, None])
        angles = torch.arange(STEPS // 2)[:, None] * torch.arange(STEPS) * 2 * math.pi / STEPS
        waves = torch.stack([angles.cos(), angles.sin()]).view(-1, 1, STEPS)
        self.register_buffer("basis", waves * torch.hann_window(STEPS))

    def spectrum(self, sound: Tensor) -> tuple[Tensor, Tensor]:
        real, imaginary = F.conv1d(sound, self.basis, stride=STEPS // 2).chunk(2, 1)
        return real, imaginary

    def forward(self, x: Tensor, pressure: Tensor, image: Tensor, sound: Tensor) -> dict[str, Tensor]:
        real, imaginary = self.spectrum(sound)
        channels = image * self.levels
        return {
            "rare events": self.rare(x).sigmoid(),
            "small tanh": self.small(x).tanh(),
            "closed gate": F.glu(self.gate(x) + self.closed, -1),
            "linear of two ranges": self.both(torch.cat([x, pressure], -1)),
            "convolution of two ranges": self.filters(torch.cat([image, image.flip(1) * 100], 1)),
            "logarithm of a power": torch.log(real**2 + imaginary**2 + 1e-6),
            "decibels": 10 * torch.log10((real * real + imaginary.square()).clamp(min=1e-5)),
            "magnitude": torch.sqrt(real.pow(2) + imaginary.pow(2)),
            "power-average pool": F.lp_pool2d(image.relu(), 2.0, 2),
            "generalized mean": F.avg_pool2d(channels.relu().clamp(min=0.01).pow(3), 8).pow(1 / 3),
            "norms of rows": channels.norm(dim=-1),
            "squash": squash(channels.view(1, 16, 16)),
        }


LEAST_DB = {
    "rare events": 34,
    "small tanh": 38,
    "closed gate": 35,
    "linear of two ranges": 34,
    "convolution of two ranges": 34,
    "logarithm of a power": 28,
    "decibels": 28,
    "magnitude": 30,
    "power-average pool": 36,
    "generalized mean": 24,
    "norms of rows": 36,
    "squash": 31,
}


@pytest.fixture(scope="module")
def parts() -> tuple[CompiledModel, dict[str, float]]:
    torch.manual_seed(3)
    module = Parts().eval()
    samples = [
        (torch.randn(1, 16), 100 + 20 * torch.randn(1, 16), torch.randn(1, 4, 8, 8), torch.randn(1, 1, 256))
        for _ in range(16)
    ]
    program = analyse(module, samples[0], calibration=samples)
    with torch.no_grad():
        want, have = [module(*sample) for sample in samples], [program.run(*sample) for sample in samples]
    found = {}
    for place, name in enumerate(LEAST_DB):
        results = [torch.as_tensor(item[place]) for item in have]
        found[name] = sqnr([item[name] for item in want], results)
    return program, found


def test_they_stay_one_call(parts: tuple[CompiledModel, dict[str, float]]) -> None:
    program, _ = parts
    assert [str(item) for item in program.delegation.on_cpu] == []
    assert len(program.partitions) == 1


@pytest.mark.parametrize("name", LEAST_DB)
def test_accuracy(parts: tuple[CompiledModel, dict[str, float]], name: str) -> None:
    _, found = parts
    assert found[name] >= LEAST_DB[name]


class Turned(nn.Module):
    """PyTorch's spatial transformer."""

    unit: Tensor

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function, self.layer = function, nn.Linear(144, 6)
        self.register_buffer("unit", torch.tensor([[[1.0, 0, 0], [0, 1, 0]]]))

    def forward(self, x: Tensor) -> Tensor:
        turn = self.function(self.layer(x.flatten(1))).view(-1, 2, 3) * 0.2 + self.unit
        grid = F.affine_grid(turn, list(x.shape), align_corners=False)
        return F.grid_sample(x, grid, align_corners=False)


def test_positions_stay_float() -> None:
    torch.manual_seed(0)
    module, samples = Turned(torch.tanh).eval(), [(torch.rand(1, 1, 12, 12),) for _ in range(8)]
    program = analyse(module, samples[0], calibration=samples)
    (part,) = program.partitions
    # The layer is the last operator on the NPU.
    assert [node.op for node in part.graph.nodes if node.op != "reshape"] == ["fully_connected"]
    with torch.no_grad():
        want = [module(*sample) for sample in samples]
    assert sqnr(want, [torch.as_tensor(program.run(*sample)[0]) for sample in samples]) >= 40
