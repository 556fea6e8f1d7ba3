# SPDX-License-Identifier: BSD-3-Clause
"""The built-in networks from PyTorch to the simulated NPU, each as one delegate call."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import openneutron
from openneutron.api.pytorch import CompiledModel
from openneutron.options import QuantizationOptions
from openneutron.pytorch.source import models
from tests.support import oracle

NETWORKS = (
    "autoencoder",
    "cifarnet",
    "ds_cnn",
    "mobilenet_v2",
    "mobilenet_v3_small",
    "resnet8",
    "speech_enhancement",
    "tcn",
    "transformer_encoder",
    "unet",
    "vww",
)
INPUTS = 64
ENOUGH_VALUES = 8192
"""A network of large outputs takes fewer inputs: these many values show the share just as well."""

COMPARED = 8
"""Inputs whose outputs must be LiteRT's byte for byte."""

LEAST_WITHIN_ONE_STEP = 0.99
LEAST_OF_ENCODER = 0.96
"""Its two normalizations and the attention between them round some twenty times, one after the other."""


@pytest.fixture(scope="module", params=NETWORKS)
def compiled(request: pytest.FixtureRequest) -> tuple[str, CompiledModel]:
    model, example = models.get(request.param)
    calibration = models.samples(request.param, 8, seed=1)
    return request.param, openneutron.compile(model, example, calibration=calibration, name=request.param)


def test_everything_but_the_borders_is_one_delegate_call(compiled: tuple[str, CompiledModel]) -> None:
    _, program = compiled
    assert program.delegation.on_cpu == ()
    assert len(program.partitions) == 1


def test_outputs_are_those_of_litert_and_near_those_of_pytorch(compiled: tuple[str, CompiledModel]) -> None:
    name, program = compiled
    graph = program.partitions[0].compiled.graph
    source, result = graph[graph.inputs[0]].quant, graph[graph.outputs[0]].quant
    assert source is not None
    assert result is not None
    near = total = 0
    for index, (sample,) in enumerate(models.samples(name, INPUTS, seed=2)):
        if index >= COMPARED and total >= ENOUGH_VALUES:
            break
        (output,) = program.run(sample)
        expected = program.quantized(sample)
        expected = expected[0] if isinstance(expected, (tuple, list)) else expected
        steps = ((output - expected) / result.scale).abs().round()
        near += int((steps <= 1).sum())
        total += steps.numel()
        if index < COMPARED:
            stored = torch.ops.quantized_decomposed.quantize_per_tensor(
                sample, source.scale, source.zero_point, -128, 127, torch.int8
            ).numpy()
            if stored.shape != graph[graph.inputs[0]].shape:
                stored = np.moveaxis(stored, 1, -1)
            (want,) = oracle.reference_outputs(graph, [np.ascontiguousarray(stored)])
            real = (want.astype(np.float32) - result.zero_point) * np.float32(result.scale)
            np.testing.assert_array_equal(output.numpy().reshape(-1), real.reshape(-1))
    print(f"{name}: {100 * near / total:.3f}% of {total} values within one step of the quantized module")
    assert near / total >= (LEAST_OF_ENCODER if name == "transformer_encoder" else LEAST_WITHIN_ONE_STEP)


@pytest.mark.parametrize("channels_last", [True, False])
def test_channels_last_inputs_need_no_transpose(channels_last: bool) -> None:
    model, example = models.get("cifarnet")
    program = openneutron.compile(
        model,
        example,
        calibration=models.samples("cifarnet", 2),
        quantization=QuantizationOptions(channels_last=channels_last),
    )
    operators = [node.op for node in program.partitions[0].compiled.graph.nodes]
    assert operators.count("transpose") == (0 if channels_last else 1)


def test_the_callers_model_stays_as_it_was() -> None:
    model, example = models.get("cifarnet")
    model.train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    openneutron.compile(
        model, example, calibration=models.samples("cifarnet", 2), quantization=QuantizationOptions(channels_last=True)
    )
    assert model.training
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])
        assert value.is_contiguous()
