# SPDX-License-Identifier: BSD-3-Clause
"""PyTorch models on three sides: inputs of several kinds, state, exported programs, several processes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import openneutron
from openneutron.errors import InvalidOptionError
from openneutron.options import QuantizationOptions

torch = pytest.importorskip("torch")
nn = torch.nn
SAMPLES = 6


class TwoInputs(nn.Module):
    """Takes an image, a number and a vector by keyword; returns a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.linear = nn.Linear(5, 4)

    def forward(self, image: Any, factor: float, *, vector: Any) -> dict[str, Any]:
        return {"scores": self.conv(image).mean((2, 3)) * factor + self.linear(vector), "vector": self.linear(vector)}


class Counter(nn.Module):
    """Adds the number of its runs."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("runs", torch.zeros(1))
        self.linear = nn.Linear(5, 4)

    def forward(self, vector: Any) -> Any:
        self.runs.add_(1)
        return self.linear(vector) + self.runs


def inputs(seed: int) -> tuple[Any, Any]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(1, 3, 8, 8, generator=generator), torch.randn(1, 5, generator=generator)


@pytest.fixture(scope="module")
def two_inputs() -> tuple[Any, Any]:
    torch.manual_seed(0)
    model = TwoInputs().eval()
    calibration = [((image, 2.0), {"vector": vector}) for image, vector in map(inputs, range(8))]
    (args, kwargs) = calibration[0]
    program = openneutron.compile(model, args, example_kwargs=kwargs, calibration=calibration)
    return model, program


def test_inputs_by_place_and_by_keyword_beside_numbers(two_inputs: tuple[Any, Any]) -> None:
    model, program = two_inputs
    data = [(inputs(seed), seed % 4) for seed in range(SAMPLES)]
    found = openneutron.evaluate(program, data, model=model, workers=1)
    assert found.samples == SAMPLES
    right = sum(int(model(image, 2.0, vector=vector)["scores"].argmax()) == label for (image, vector), label in data)
    assert found.sides[0].right == right
    assert all(pair.sqnr_db is None or pair.sqnr_db > 20 for pair in found.pairs)


def test_the_model_stays_as_it_is_and_results_are_the_same_in_another_process(two_inputs: tuple[Any, Any]) -> None:
    model, program = two_inputs
    model.train()
    data = [(inputs(seed), seed % 4) for seed in range(SAMPLES)]
    try:
        alone = openneutron.evaluate(program, data, model=model, workers=1)
        assert model.training
    finally:
        model.eval()
    assert openneutron.evaluate(program, data, model=model, workers=2) == alone


def test_an_exported_program_is_a_float_model(two_inputs: tuple[Any, Any]) -> None:
    model, program = two_inputs
    image, vector = inputs(0)
    exported = torch.export.export(model, (image, 2.0), {"vector": vector})
    data = [(inputs(seed), seed % 4) for seed in range(SAMPLES)]
    assert openneutron.evaluate(program, data, model=exported, workers=1) == openneutron.evaluate(
        program, data, model=model, workers=1
    )


def test_each_sample_begins_with_the_first_state() -> None:
    torch.manual_seed(0)
    model = Counter().eval()
    vectors = [inputs(seed)[1] for seed in range(SAMPLES)]
    program = openneutron.compile(model, vectors[0], calibration=vectors)
    wanted = [model.linear(vector).detach().numpy() + 1 for vector in vectors]
    data = list(zip(vectors, wanted, strict=True))
    found = openneutron.evaluate(program, data, model=from_the_start(model), workers=1)
    assert found.metric == "mse"
    assert found.sides[0].metric == pytest.approx(0, abs=1e-10)


def from_the_start(model: Any) -> Any:
    """Return a model with the same weights whose state is that of the start."""
    made = Counter().eval()
    made.linear.load_state_dict(model.linear.state_dict())
    return made


@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_inputs_and_outputs_that_are_quantized_are_real_values(dtype: str) -> None:
    image = torch.randn(1, 3, 6, 6, generator=torch.Generator().manual_seed(0))
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU()).eval()
    quantization = QuantizationOptions(io_dtype=dtype, activations=dtype)
    program = openneutron.compile(model, (image,), calibration=[(image,)], quantization=quantization)
    found = openneutron.evaluate(program, [image.numpy()], model=model, workers=1)
    assert all(pair.sqnr_db is None or pair.sqnr_db > 35 for pair in found.pairs), found.pairs
    assert len(found.pairs) == 3


def test_without_the_float_model_two_sides_are_left(two_inputs: tuple[Any, Any]) -> None:
    _, program = two_inputs
    found = openneutron.evaluate(program, [inputs(0)], workers=1)
    assert [side.side for side in found.sides] == ["int8", "npu"]
    assert found.notes == (
        "The float model is not given: there is no float side.",
        "The samples have no labels: agreement and SQNR alone.",
    )


def test_samples_of_another_shape_are_refused(two_inputs: tuple[Any, Any]) -> None:
    _, program = two_inputs
    image, _ = inputs(0)
    with pytest.raises(InvalidOptionError) as caught:
        openneutron.evaluate(program, [((image, np.zeros((1, 6), np.float32)), 1)], workers=1)
    assert str(caught.value).startswith("data: ")
    assert "float32[1,6]" in str(caught.value) and "float32[1,5]" in str(caught.value)


@pytest.mark.parametrize("observer", ["minmax", "percentile", "entropy"])
def test_an_observer_changes_the_scales(observer: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2048, 4), nn.ReLU()).eval()
    vectors = [torch.randn(1, 2048) ** 3 for _ in range(8)]  # long tails

    def scales(name: str) -> list[float]:
        options = QuantizationOptions(observer=name)
        program = openneutron.compile(model, vectors[0], calibration=vectors, quantization=options)
        return [scale for graph in program.graphs for scale in graph[graph.inputs[0]].quant.scales]

    assert scales(observer) != scales("histogram")


def test_training_has_no_observer() -> None:
    with pytest.raises(InvalidOptionError) as caught:
        QuantizationOptions(observer="minmax", train_fn=print)
    assert str(caught.value) == "observer: training has ranges of its own. Leave observer out with train_fn."
