# SPDX-License-Identifier: BSD-3-Clause
"""Inputs of bytes and words that a model converts to float are read by the NPU; integer constants are folded."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import openneutron
from openneutron import CompileOptions
from openneutron.api.pytorch import CompiledModel


class Reads(nn.Module):
    """A convolution over what ``read`` makes of the input."""

    def __init__(self, read: Callable[[Tensor], Tensor], channels: int) -> None:
        super().__init__()
        self.read, self.conv = read, nn.Conv2d(channels, 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(self.read(x))


class Joins(nn.Module):
    """A linear layer and an operator of its result and a constant."""

    def __init__(self, join: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.linear, self.join = nn.Linear(8, 4), join

    def forward(self, x: Tensor) -> Tensor:
        return self.join(self.linear(x))


def compiled(
    model: nn.Module, samples: list[tuple[Tensor, ...]], target: str = "imxrt700", host_calls: bool = True
) -> CompiledModel:
    options = CompileOptions(target=target, host_calls=host_calls)
    made: CompiledModel = openneutron.compile(model.eval(), samples[0], calibration=samples, options=options)
    return made


def whole_range(dtype: torch.dtype, *shape: int) -> list[tuple[Tensor, ...]]:
    """Return samples of all values of a type, both ends included."""
    ends = torch.iinfo(dtype)
    draw = torch.Generator().manual_seed(0)
    samples = [torch.randint(ends.min, ends.max + 1, shape, generator=draw).to(dtype) for _ in range(3)]
    samples[0].view(-1)[:2] = torch.tensor([ends.min, ends.max]).to(dtype)
    return [(sample,) for sample in samples]


MEAN = torch.tensor([0.48, 0.46, 0.41]).view(1, 3, 1, 1)


@pytest.mark.parametrize(
    ("read", "samples", "channels"),
    [
        (lambda x: x.permute(0, 3, 1, 2).float() / 255 - MEAN, whole_range(torch.uint8, 1, 8, 9, 3), 3),
        (lambda x: (x / 255 - 0.5)[:, :, ::2], whole_range(torch.uint8, 1, 2, 8, 9), 2),
        (lambda x: x.to(torch.float32) * 0.01, whole_range(torch.int8, 1, 2, 8, 9), 2),
        (lambda x: x.float() / 32768, whole_range(torch.int16, 1, 1, 8, 9), 1),
    ],
    ids=["camera", "quotient of bytes", "int8", "int16"],
)
def test_an_input_of_bytes_or_words_runs_on_the_npu(
    read: Callable[[Tensor], Tensor], samples: list[tuple[Tensor, ...]], channels: int
) -> None:
    torch.manual_seed(0)
    made = compiled(Reads(read, channels), samples)
    assert made.report.whole
    assert made.graphs[0][made.graphs[0].inputs[0]].dtype.numpy == samples[0][0].numpy().dtype
    for sample in samples:
        found, expected = torch.as_tensor(made.run(*sample)[0]), made.quantized(*sample)
        assert torch.allclose(found, expected, atol=0.05), (found - expected).abs().max()


def test_channels_last_bytes_are_read_as_they_are() -> None:
    torch.manual_seed(0)
    samples = [(x.contiguous(memory_format=torch.channels_last),) for (x,) in whole_range(torch.uint8, 1, 3, 8, 9)]
    made = compiled(Reads(lambda x: x.float() / 255, 3), samples)
    assert made.report.whole
    assert torch.allclose(torch.as_tensor(made.run(*samples[1])[0]), made.quantized(*samples[1]), atol=0.05)


def test_words_are_converted_on_the_cpu_where_the_npu_computes_on_int8_alone() -> None:
    torch.manual_seed(0)
    model, samples = Reads(lambda x: x.float() / 32768, 1), whole_range(torch.int16, 1, 1, 8, 9)
    made = compiled(model, samples, "mcxn94x")
    reason = "its activations are int16; mcxn94x computes on int8 activations"
    assert made.report.whole and [item.on_cpu for item in made.report.partitions[0].report.cpu_calls] == [reason]
    assert torch.equal(
        torch.as_tensor(made.run(*samples[1])[0]), torch.as_tensor(compiled(model, samples).run(*samples[1])[0])
    )
    apart = compiled(model, samples, "mcxn94x", host_calls=False)
    (left,) = [item for item in apart.delegation.on_cpu if item.converts]
    assert left.reason == reason and not apart.report.cpu_calls


@pytest.mark.parametrize(
    "join",
    [
        lambda y: y + torch.arange(4),
        lambda y: y * (torch.arange(4) < 3),
        lambda y: y / torch.arange(1, 5),
        lambda y: torch.arange(4) - y,
        lambda y: torch.maximum(y, torch.tensor([0, 0, 1, 0])),
    ],
    ids=["sum", "product with booleans", "quotient", "difference", "maximum"],
)
def test_constants_of_integers_are_folded(join: Callable[[Tensor], Tensor]) -> None:
    torch.manual_seed(0)
    samples = [(torch.randn(1, 8),) for _ in range(4)]
    made = compiled(Joins(join), samples)
    assert made.report.whole
    assert torch.allclose(torch.as_tensor(made.run(*samples[1])[0]), made.quantized(*samples[1]), atol=0.05)


class Orders(nn.Module):
    """Comparisons of integers with constants, integers as numbers, and a choice in each row."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 4)
        self.register_buffer("pairs", torch.triu_indices(6, 6, 1))

    def forward(self, x: Tensor, n: Tensor, k: Tensor, j: Tensor) -> tuple[Tensor, ...]:
        y = self.linear(x)
        grid = y[:, :, None] * torch.ones(4)
        return (
            torch.arange(6) < n[:, None],
            n >= 253,
            n == 0,
            n.float(),
            k[:, None].float(),
            y[torch.arange(9), j],
            grid[:, self.pairs[0, :3], self.pairs[1, :3]],
            grid[:, 2, j],
        )


def test_integers_are_ordered_and_converted_whatever_their_size() -> None:
    torch.manual_seed(0)
    far = torch.tensor([-(2**40), -256, -1, 0, 3, 6, 253, 256, 2**40])
    x, j, k = torch.randn(9, 6), torch.arange(9) % 4, torch.arange(-4, 5, dtype=torch.int32) * 31
    made = compiled(Orders(), [(x, torch.arange(9) * 25, k, j), (x, torch.zeros(9, dtype=torch.int64), k, j)])
    assert not [item for item in made.delegation.on_cpu if item.computes]
    k = torch.where(k == 0, torch.tensor(-(2**31)), k).int()
    before, reached, zero, number, signed, *taken = made.run(x, far, k, j)
    assert torch.equal(before, torch.arange(6) < far[:, None])
    assert torch.equal(reached, far >= 253)
    assert torch.equal(zero, far == 0)
    # Calibration saw 0 to 200 and -124 to 124; numbers outside saturate, as quantized numbers do.
    assert torch.allclose(number, far.clamp(0, 200).float(), atol=0.5)
    assert torch.allclose(signed, k.clamp(-124, 124)[:, None].float(), atol=1.0)
    for found, wanted in zip(taken, made.quantized(x, far, k, j)[5:], strict=True):
        assert torch.allclose(found, wanted, atol=0.05)


TOKENS = 135


class Positions(nn.Module):
    """Positions of the tokens that are no padding, as RoBERTa has them, and other integers that follow from booleans."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, TOKENS)

    def forward(self, x: Tensor, ids: Tensor) -> tuple[Tensor, ...]:
        mask = ids.ne(1).int()
        score = self.linear(x).sigmoid()
        positions = (torch.cumsum(mask, 1).type_as(mask) * mask).long() + 1
        lengths = (ids != 1).sum(1, keepdim=True)
        return positions, lengths, torch.arange(TOKENS) < lengths, score * mask, (score * 10).long(), lengths - 200


def test_sums_of_booleans_are_exact_on_the_npu() -> None:
    torch.manual_seed(0)
    places = torch.arange(TOKENS)
    samples = [(torch.randn(1, 8), torch.where(places < count, 5, 1)[None]) for count in (1, 100, TOKENS)]
    made = compiled(Positions(), samples)
    assert [item.operator for item in made.delegation.on_cpu if item.computes] == ["aten.sub"]
    for sample in samples:
        found, expected = made.run(*sample), made.quantized(*sample)
        for place in (0, 1, 2, 4, 5):
            assert torch.equal(found[place], expected[place]), place


class Thresholds(nn.Module):
    """Comparisons with numbers of values whose steps are above 1, or below 1/256: LiteRT's operators take neither as they are."""

    def forward(self, x: Tensor, m: Tensor) -> tuple[Tensor, ...]:
        return x > 300, x <= -300, x * 0.0002 > 0.06, m > 127, m == 200


@pytest.mark.parametrize("target", ["imxrt700", "imx95"])
def test_coarse_and_fine_values_are_compared_with_numbers(target: str) -> None:
    x, m = torch.linspace(-1000, 1000, 256), torch.arange(256).to(torch.uint8)
    made = compiled(Thresholds(), [(x, m)] * 2, target)
    assert not [item for item in made.delegation.on_cpu if item.computes]
    above, below, fine, bright, exact = made.run(x, m)
    near = 1000 / 127  # a step of the input
    for found, wanted, threshold in ((above, x > 300, 300), (below, x <= -300, -300), (fine, x > 300, 300)):
        assert not bool(((found != wanted) & ((x - threshold).abs() > 2 * near)).any())
    assert torch.equal(bright, m > 127)
    assert torch.equal(exact, m == 200)
