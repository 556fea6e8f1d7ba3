# SPDX-License-Identifier: BSD-3-Clause
"""Adaptive rounding: no weight can be rounded the other way for a smaller error, in all kinds of layers."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from torch import nn

from openneutron import QuantizationOptions
from openneutron.api.pytorch import compile_module
from openneutron.features.accuracy import session
from openneutron.features.accuracy.npu_tensors import Twins, tensor_of
from openneutron.options import Request
from openneutron.pytorch.quantizer.improvements import DAMPING, nearest

LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(12, 6), (1, 5, 12)),
    "conv2d": (lambda: nn.Conv2d(4, 6, (3, 2), stride=(1, 2), padding=(1, 0)), (1, 4, 9, 8)),
    "conv2d of two groups": (lambda: nn.Conv2d(4, 6, 3, padding=2, dilation=2, groups=2, bias=False), (1, 4, 9, 8)),
    "depthwise conv2d": (lambda: nn.Conv2d(6, 6, 3, padding=1, groups=6), (1, 6, 9, 8)),
    "conv1d": (lambda: nn.Conv1d(4, 6, 3, stride=2, padding=1), (1, 4, 20)),
}


def quantized(case: str, rounding: bool) -> tuple[Twins, list[torch.Tensor]]:
    """Return a network of one layer, quantized, and its samples."""
    torch.manual_seed(1)
    make, shape = LAYERS[case]
    model = make().eval()
    samples = [torch.randn(shape).abs() for _ in range(4)]
    options = QuantizationOptions(adaptive_rounding=rounding)
    calibration = [(sample,) for sample in samples]
    request = Request(
        model=model, example_inputs=calibration[0], calibration=calibration, quantization=options, name="net"
    )
    asked = session.Session(request, compile_module)
    return asked.twins(), samples


def weights(both: Twins) -> torch.Tensor:
    """Return the integers of the layer's weights."""
    found = [tensor_of(both.quantized, node) for node in both.quantized.graph.find_nodes(op="get_attr")]
    (stored,) = (each for each in found if each.dtype == torch.int8 and each.dim() > 1)
    return stored


class Before(torch.fx.Interpreter):
    """Keeps the result of the layer before it is quantized."""

    found: torch.Tensor

    def run_node(self, n: torch.fx.Node) -> object:
        result = super().run_node(n)
        if n.op == "call_function" and getattr(n.target, "namespace", "") == "aten":
            assert isinstance(result, torch.Tensor)
            self.found = result
        return result


def error(both: Twins, samples: list[torch.Tensor]) -> float:
    """Return the squared error of the layer's results."""
    layer = Before(both.quantized)
    total = 0.0
    for sample in samples:
        layer.run(sample)
        total += float((layer.found - both.real(sample)).double().square().sum())
    return total


@pytest.mark.parametrize("case", LAYERS)
def test_the_error_is_less_and_each_weight_is_one_of_two(case: str) -> None:
    (usual, samples), (better, _) = quantized(case, rounding=False), quantized(case, rounding=True)
    assert error(better, samples) < error(usual, samples)
    change = (weights(better).int() - weights(usual).int()).abs()
    assert int(change.sum()) > 0 and int(change.max()) == 1
    again, _ = quantized(case, rounding=True)
    assert torch.equal(weights(again), weights(better))


def test_no_weight_alone_can_be_rounded_better() -> None:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(2, 40, 5, generator=generator, dtype=torch.float64)
    weight = torch.randn(2, 5, 3, generator=generator, dtype=torch.float64)
    scales = torch.full_like(weight, 0.5)
    energy, wanted = inputs.mT @ inputs, inputs.mT @ (inputs @ weight)
    ends = (weight / scales).floor(), (weight / scales).ceil()
    found = nearest(energy, wanted, (weight / scales).round(), weight, scales, ends)

    def cost(integers: torch.Tensor) -> torch.Tensor:
        damping = DAMPING * energy.diagonal(dim1=1, dim2=2).mean(1).reshape(-1, 1)
        distance = integers * scales - weight
        return (inputs @ distance).square().sum(1) + damping * distance.square().sum(1)

    for place in range(5):
        for end in ends:
            other = found.clone()
            other[:, place] = end[:, place]
            assert bool((cost(other) >= cost(found) - 1e-9).all())
    best = torch.stack([
        cost(torch.stack([ends[side][:, place] for place, side in enumerate(sides)], 1))
        for sides in itertools.product((0, 1), repeat=5)
    ]).amin(0)  # fmt: skip
    assert bool((cost(found) <= 1.5 * best + 1e-9).all())


def test_inputs_that_are_always_zero_leave_the_weights_at_the_nearest_integers() -> None:
    weight = torch.tensor([[[0.3], [0.8]]], dtype=torch.float64)
    nothing = torch.zeros(1, 2, 2, dtype=torch.float64)
    found = nearest(
        nothing,
        torch.zeros_like(weight),
        weight.round(),
        weight,
        torch.ones_like(weight),
        (weight.floor(), weight.ceil()),
    )
    assert torch.equal(found, weight.round())
