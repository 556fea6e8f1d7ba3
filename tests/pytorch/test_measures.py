# SPDX-License-Identifier: BSD-3-Clause
"""Measures beside the usual quantization: observers, equalized channels, corrected biases, and files that name them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn

import openneutron
from openneutron import QuantizationOptions
from openneutron.api.pytorch import compile_module
from openneutron.errors import InvalidOptionError
from openneutron.layer_accuracy import session
from openneutron.options import CompileOptions, DataOptions, DelegationOptions

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


def decibels(**options: object) -> float:
    """Return the ratio at the results of the uneven network, on the NPU."""
    quantization = QuantizationOptions(**options)  # type: ignore[arg-type]
    model = uneven()
    whole = session.Session(
        model,
        EXAMPLE,
        None,
        samples(),
        DataOptions(),
        CompileOptions(),
        quantization,
        DelegationOptions(),
        "net",
        compile_module,
    )
    found = session.report(whole, None)
    assert found.result_db is not None
    return found.result_db


@pytest.fixture(scope="module")
def usual() -> float:
    return decibels()


@pytest.mark.parametrize(
    ("options", "gain"),
    [({"equalize": True}, 0.5), ({"smooth": 0.5, "equalize": True}, 3.0), ({"correct_biases": True}, 0.0)],
    ids=["equalize", "smooth", "biases"],
)
def test_a_measure_gains(usual: float, options: dict[str, object], gain: float) -> None:
    assert decibels(**options) > usual + gain


def test_equalized_channels_compute_the_same_in_float() -> None:
    model, call = uneven(), samples(1)[0]
    options = QuantizationOptions(equalize=True, smooth=0.5)
    whole = session.Session(
        model,
        EXAMPLE,
        None,
        samples(),
        DataOptions(),
        CompileOptions(),
        options,
        DelegationOptions(),
        "net",
        compile_module,
    )
    real = whole.twins().real
    torch.testing.assert_close(real(*call), model(*call), rtol=1e-4, atol=1e-4)


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
        keep_float=("0",), layer_observers=(("2", "percentile"),), equalize=True, smooth=0.5, correct_biases=True
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
