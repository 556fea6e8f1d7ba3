# SPDX-License-Identifier: BSD-3-Clause
"""Measures beside the usual quantization: observers, equalized channels, corrected biases, and files that name them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import openneutron
from openneutron import QuantizationOptions
from openneutron.api.pytorch import compile_module
from openneutron.errors import InvalidOptionError
from openneutron.features.accuracy import session
from openneutron.options import Request
from openneutron.pytorch.quantizer.improvements import below

EXAMPLE = (torch.zeros(1, 3, 12, 12),)


def samples(count: int = 6) -> list[tuple[torch.Tensor, ...]]:
    generator = torch.Generator().manual_seed(3)
    return [(torch.randn(EXAMPLE[0].shape, generator=generator),) for _ in range(count)]


def uneven() -> nn.Module:
    """Return a network whose channels differ in size by powers of two, up to 64, between its layers."""
    torch.manual_seed(4)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=1, groups=16),
        nn.ReLU(),
        nn.Conv2d(16, 8, 1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 16),
        nn.ReLU(),
        nn.Linear(16, 4),
    ).eval()
    sizes = 2.0 ** (torch.arange(16) % 7)
    with torch.no_grad():
        for first, second in ((model[0], model[2]), (model[2], model[4]), (model[7], model[9])):
            grown = sizes[torch.randperm(16)]
            first.weight *= grown.reshape(-1, *[1] * (first.weight.dim() - 1))
            first.bias *= grown
            depthwise = getattr(second, "groups", 1) > 1
            shape = (-1, 1, 1, 1) if depthwise else (1, -1, *[1] * (second.weight.dim() - 2))
            second.weight /= grown.reshape(shape)
    return model


def asked(model: nn.Module, **options: object) -> session.Session:
    """Return the model with the samples and these options of its quantization."""
    quantization = QuantizationOptions(**options)  # type: ignore[arg-type]
    request = Request(model=model, example_inputs=EXAMPLE, calibration=samples(), quantization=quantization, name="net")
    return session.Session(request, compile_module)


def decibels(model: nn.Module | None = None, **options: object) -> float:
    """Return the ratio at the results of a network, of the uneven one without a model, on the NPU."""
    found = session.report(asked(model or uneven(), **options), None)
    assert found.result_db is not None
    return found.result_db


@pytest.fixture(scope="module")
def usual() -> float:
    return decibels()


@pytest.mark.parametrize(
    ("options", "gain"),
    [
        ({"equalize": True}, 0.5),
        ({"smooth": 0.5, "equalize": True}, 3.0),
        ({"correct_biases": True}, 0.0),
        ({"adaptive_rounding": True}, 3.0),
    ],
    ids=["equalize", "smooth", "biases", "rounding"],
)
def test_a_measure_gains(usual: float, options: dict[str, object], gain: float) -> None:
    assert decibels(**options) > usual + gain


def test_equalized_channels_compute_the_same_in_float() -> None:
    model, call = uneven(), samples(1)[0]
    real = asked(model, equalize=True, smooth=0.5).twins().real
    torch.testing.assert_close(real(*call), model(*call), rtol=1e-4, atol=1e-4)


class Clamped(nn.Module):
    """Three convolutions with two clamps between them, and channels of uneven size, some of which reach the clamps."""

    def __init__(self, clamp: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        torch.manual_seed(6)
        self.clamp = clamp
        self.expand = nn.Conv2d(3, 24, 1)
        self.depth = nn.Conv2d(24, 24, 3, padding=1, groups=24)
        self.project = nn.Conv2d(24, 4, 1)
        sizes = 2.0 ** -(torch.arange(24) % 9 - 2)
        with torch.no_grad():
            for first, second in ((self.expand, self.depth), (self.depth, self.project)):
                first.weight *= sizes.reshape(-1, 1, 1, 1)
                first.bias *= sizes
                second.weight /= sizes.reshape((-1, 1, 1, 1) if second is self.depth else (1, -1, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.project(self.clamp(self.depth(self.clamp(self.expand(x)))))


CLAMPS: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], bool]] = {
    "ReLU6": (nn.ReLU6(inplace=True), True),
    "clamp": (lambda x: x.clamp(0, 1.5), True),
    "one-sided": (lambda x: x.clamp(min=0), True),
    "from -1": (lambda x: x.clamp(-1, 1), False),
}


@pytest.mark.parametrize("case", CLAMPS)
def test_channels_below_a_clamp_are_equalized_without_a_change_in_float(case: str) -> None:
    clamp, is_passed = CLAMPS[case]
    model = Clamped(clamp).eval()
    usual, equalized = decibels(model), decibels(model, equalize=True)
    assert equalized > usual + 3.0 if is_passed else equalized == usual
    real = asked(model, equalize=True).twins().real
    for call in samples():
        torch.testing.assert_close(real(*call), model(*call), rtol=1e-4, atol=1e-4)


def test_channels_that_reach_a_clamp_keep_their_size() -> None:
    factors = torch.tensor([0.5, 2.0, 8.0, 0.1])
    shares = torch.tensor([1.0, 0.25, 1.0, 0.5])
    # The factors are in parts of 2, the mean of the channels that reach the bound; the last would make its channel reach it.
    torch.testing.assert_close(below(factors, shares), torch.tensor([1.0, 1.0, 1.0, 0.5]))
    free = below(factors, shares / 2)
    assert float((shares / 2 / free).max()) == pytest.approx(1.0)
    torch.testing.assert_close(free / free[0], factors / factors[0])


def test_an_observer_decides_the_range() -> None:
    ranges = {}
    names: set[str] = set()
    for observer in ("histogram", "minmax", "percentile", "entropy"):
        quantization = QuantizationOptions(observer=observer)
        made = openneutron.compile(uneven(), EXAMPLE, calibration=samples(), quantization=quantization)
        ranges[observer] = made.graphs[0]["conv2d"].quant.scale  # type: ignore[union-attr]
        nodes = {str(node.name) for node in made.quantized.graph.nodes}
        # A reader has the observer of what it reads: nothing is quantized twice.
        assert nodes == names or not names
        names = nodes
    assert ranges["histogram"] < ranges["minmax"]
    assert ranges["percentile"] <= ranges["minmax"]


def test_one_layer_has_an_observer_of_its_own() -> None:
    quantization = QuantizationOptions(layer_observers=[("3", "minmax")])
    usual = openneutron.compile(uneven(), EXAMPLE, calibration=samples())
    made = openneutron.compile(uneven(), EXAMPLE, calibration=samples(), quantization=quantization)
    quants = [
        [tensor.quant for name, tensor in each.graphs[0].tensors.items() if name == "conv2d_1"]
        for each in (usual, made)
    ]
    assert quants[0] != quants[1]
    nodes = [[str(node.target) for node in each.quantized.graph.nodes] for each in (usual, made)]
    assert nodes[0] == nodes[1]


def test_a_file_has_the_options(tmp_path: Path) -> None:
    options = QuantizationOptions(
        keep_float=("0",),
        layer_observers=(("2", "percentile"),),
        equalize=True,
        smooth=0.5,
        adaptive_rounding=True,
        correct_biases=True,
    )
    path = tmp_path / "net.json"
    path.write_text(json.dumps(options.to_file()))
    assert QuantizationOptions.from_file(path) == options
    assert QuantizationOptions().to_file() == {"version": 1}


WRONG = {
    "{": "it can't be read: Expecting property name enclosed in double quotes: line 1 column 2 (char 1). Give a JSON file.",
    "[]": "it holds a list; a JSON object is needed here.",
    '{"version": 2}': "its version is 2; this release reads 1. Make the file again.",
    '{"version": 1, "equalise": true}': "'equalise' is unknown. Did you mean 'equalize'?",
    '{"version": 1, "equalize": "yes"}': "'equalize' is 'yes'; it must be true or false.",
    '{"version": 1, "layer_observers": [["a"]]}': "'layer_observers' is [['a']]; it must be a list of pairs of a name and an "
    "observer.",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_file_is_an_error(text: str, tmp_path: Path) -> None:
    path = tmp_path / "net.json"
    path.write_text(text)
    with pytest.raises(InvalidOptionError) as caught:
        QuantizationOptions.from_file(path)
    assert str(caught.value) == f"quantization file '{path}': {WRONG[text]}"


def test_wrong_options_are_errors() -> None:
    with pytest.raises(InvalidOptionError) as caught:
        QuantizationOptions(layer_observers=[("1", "largest")])
    assert str(caught.value) == (
        "layer_observers: 'largest' is unknown; there are histogram, minmax, percentile, entropy."
    )
    with pytest.raises(InvalidOptionError) as caught:
        QuantizationOptions(smooth=2.0)
    assert str(caught.value) == "smooth: it is 2.0; the exponent is from 0 to 1."
    with pytest.raises(InvalidOptionError) as caught:
        openneutron.compile(
            uneven(), EXAMPLE, quantization=QuantizationOptions(train_fn=lambda model: None, equalize=True)
        )
    assert str(caught.value) == (
        "equalize: it is for calibration; a model that is trained adapts by itself. Leave it out."
    )
