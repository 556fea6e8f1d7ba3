# SPDX-License-Identifier: BSD-3-Clause
"""The built-in networks with recurrent layers, each as one delegate call, and near the quantized module."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import openneutron
from openneutron.api.pytorch import CompiledModel
from openneutron.pytorch.source import models
from tests.pytorch.small_models import outputs_of
from tests.support import oracle

KERNELS = {
    "gru_kws": ("recurrent_s8", "conv_2d_1x1_s8"),
    "lstm_kws": ("unidirectional_sequence_lstm_s8", "conv_2d_1x1_s8"),
}
"""The kernel calls of a network."""

INPUTS = 16
LEAST_WITHIN_ONE_STEP = 0.99


@pytest.fixture(scope="module", params=KERNELS)
def compiled(request: pytest.FixtureRequest) -> tuple[str, CompiledModel]:
    model, example = models.get(request.param)
    calibration = models.samples(request.param, INPUTS, seed=1)
    return request.param, openneutron.compile(model, example, calibration=calibration, name=request.param)


def test_everything_is_one_delegate_call_of_few_kernels(compiled: tuple[str, CompiledModel]) -> None:
    name, program = compiled
    assert program.delegation.on_cpu == ()
    (partition,) = program.partitions
    assert tuple(operator.kernel for operator in partition.compiled.report.operators) == KERNELS[name]


def test_outputs_are_near_those_of_the_quantized_module(compiled: tuple[str, CompiledModel]) -> None:
    name, program = compiled
    graph = program.partitions[0].compiled.graph
    near = []
    for sample in models.samples(name, INPUTS, seed=2):
        wanted = outputs_of(program.quantized(*sample))
        for got, want, result in zip(program.run(*sample), wanted, graph.outputs, strict=True):
            quant = graph[result].quant
            assert quant is not None
            near.append(((got - want).abs() < 1.5 * quant.scale).flatten())
    assert float(torch.cat(near).float().mean()) >= LEAST_WITHIN_ONE_STEP


def test_the_lstm_s_outputs_are_those_of_litert() -> None:
    model, example = models.get("lstm_kws")
    samples = models.samples("lstm_kws", 4, seed=2)
    program = openneutron.compile(model, example, calibration=samples)
    graph = program.partitions[0].compiled.graph
    source, result = graph[graph.inputs[0]].quant, graph[graph.outputs[0]].quant
    assert source is not None
    assert result is not None
    for (sample,) in samples:
        stored = torch.ops.quantized_decomposed.quantize_per_tensor(
            sample, source.scale, source.zero_point, -128, 127, torch.int8
        ).numpy()
        (want,) = oracle.reference_outputs(graph, [stored])
        real = (want.astype(np.float32) - result.zero_point) * np.float32(result.scale)
        np.testing.assert_array_equal(program.run(sample)[0].numpy().reshape(-1), real.reshape(-1))
