# SPDX-License-Identifier: BSD-3-Clause
"""Buffers that one delegate call alone reads and writes are kept by the delegate, as int8, from run to run."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import cache

import pytest
import torch
from torch import nn

import openneutron
from openneutron import CompileOptions, DelegationOptions
from openneutron.api.pytorch import CompiledModel
from openneutron.pytorch.run.runner import Runner
from tests.support.stateful_modules import Hidden, Ring, TwoRings


class Returned(nn.Module):
    """A state that is the model's result too."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(8, 16), nn.Linear(16, 16)
        self.register_buffer("hidden", torch.zeros(1, 16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.hidden.copy_(torch.tanh(self.inner(x) + self.outer(self.hidden)))
        return self.hidden


class Mean(nn.Module):
    """A running mean."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 16)
        self.register_buffer("mean", torch.zeros(1, 16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.inner(x)
        self.mean.copy_(0.9 * self.mean + 0.1 * y)
        return torch.relu(y - self.mean)


class Cache(nn.Module):
    """Keys of six positions, one of which each run writes."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.last = nn.Linear(8, 16), nn.Linear(16, 4)
        self.register_buffer("keys", torch.zeros(1, 6, 16))

    def forward(self, x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        self.keys[:, position] = self.inner(x).unsqueeze(1)
        return self.last(self.keys.mean(1))


class Before(nn.Module):
    """The difference to the frame of the run before: the new value of the buffer is an input."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 16)
        self.register_buffer("before", torch.zeros(1, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.inner(x - self.before)
        self.before.copy_(x)
        return y


def samples(model: nn.Module, count: int) -> list[tuple[torch.Tensor, ...]]:
    shapes = {Ring: (1, 8, 1), TwoRings: (1, 8, 1, 6)}
    found = []
    for place in range(count):
        frame = torch.randn(shapes.get(type(model), (1, 8)))
        found.append((frame, torch.tensor([place % 6])) if isinstance(model, Cache) else (frame,))
    return found


def compiled(kind: type[nn.Module], *on_cpu: str) -> tuple[CompiledModel, list[tuple[torch.Tensor, ...]]]:
    """Return a model in its first state, and inputs."""
    model, given = once(kind, *on_cpu)
    model.reset()
    return model, given


@cache
def once(kind: type[nn.Module], *on_cpu: str) -> tuple[CompiledModel, list[tuple[torch.Tensor, ...]]]:
    torch.manual_seed(0)
    model = kind().eval()
    given = samples(model, 10)
    delegation = DelegationOptions(operators_not_to_delegate=on_cpu)
    options = CompileOptions(check=True)
    return openneutron.compile(model, given[0], calibration=given, options=options, delegation=delegation), given


def assert_same_runs(model: CompiledModel, given: Sequence[tuple[torch.Tensor, ...]]) -> None:
    """Compare ExecuTorch's runtime, twice from the first state on, with the quantized module."""
    quantized = copy.deepcopy(model.quantized)  # a run changes the module's state
    wanted = [quantized(*each) for each in given]
    for _ in range(2):
        for each, expected in zip(given, wanted, strict=True):
            torch.testing.assert_close(model.run(*each)[0], expected, rtol=0, atol=0.02)
        model.reset()


@pytest.mark.parametrize(
    ("kind", "states"),
    [
        (Ring, ("frames",)),
        (TwoRings, ("rows", "later")),
        (Hidden, ("hidden",)),
        (Returned, ("hidden",)),
        (Mean, ("mean",)),
        (Cache, ("keys",)),
    ],
)
def test_the_delegate_keeps_the_buffer(kind: type[nn.Module], states: tuple[str, ...]) -> None:
    model, given = compiled(kind)
    assert len(model.partitions) == 1 and not model.delegation.on_cpu
    report = model.partitions[0].compiled.report
    assert report.states == states
    size = sum(-(-dict(kind().named_buffers())[name].numel() // 16) * 16 for name in states)
    assert report.state_bytes == model.report.to_dict()["state_bytes"] == size
    assert f"{size} B kept between runs: {', '.join(states)}" in model.summary()
    assert_same_runs(model, given)


def test_two_instances_of_a_file_keep_two_states() -> None:
    model, given = compiled(Ring)
    one, other = Runner("one", model.buffer), Runner("other", model.buffer)
    wanted = [model.run(*each)[0] for each in given]
    for each, expected in zip(given, wanted, strict=True):
        other.run(given[0])
        assert torch.equal(one.run(each)[0], expected)


def test_an_input_as_the_new_value_stays_with_executorch() -> None:
    """ExecuTorch copies the float input itself; the delegate gets the value of the run before as an input."""
    model, given = compiled(Before)
    assert_same_runs(model, given)


class Shared(nn.Module):
    """A recurrent cell with an operator on the CPU between the two sides of its buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(8, 8), nn.Linear(8, 8)
        self.register_buffer("hidden", torch.zeros(1, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.inner(x) + torch.sigmoid(self.outer(self.hidden)))
        self.hidden.copy_(hidden)
        return self.inner(hidden)


def test_a_buffer_of_two_delegate_calls_stays_with_executorch() -> None:
    model, given = compiled(Shared, "aten.sigmoid")
    assert len(model.partitions) == 2 and model.report.state_bytes == 0
    (found,) = (item for item in model.delegation.on_cpu if item.operator == "buffer")
    assert str(found) == ("buffer 'b_hidden' stays on the CPU: 2 delegate calls share it; one alone can keep it.")
    assert_same_runs(model, given)
