# SPDX-License-Identifier: BSD-3-Clause
"""The built-in networks with recurrent layers or states, each as one delegate call, and near the quantized module."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch

import openneutron
from openneutron.api.pytorch import CompiledModel
from openneutron.options import QuantizationOptions
from openneutron.pytorch.source import models
from openneutron.pytorch.source.models.small import TCN
from tests.pytorch.small_models import outputs_of
from tests.support import oracle


@dataclass(frozen=True, slots=True)
class Expected:
    """The calls of a network of kernels of recurrent layers, its calls in all at most, and its states."""

    recurrent: int
    most_calls: int
    states: tuple[str, ...] = ()


RINGS = tuple(f"blocks.{block}.layers.{layer}.ring" for block in range(4) for layer in (0, 4))
NETWORKS = {
    "crnn": Expected(2, 13),
    "gru_kws": Expected(1, 2),
    "lstm_kws": Expected(1, 2),
    "noise_suppression": Expected(3, 19, ("voice_state", "noise_state", "gain_state")),
    "streaming_lstm_kws": Expected(1, 2, ("hidden", "cell")),
    "streaming_tcn": Expected(0, 34, RINGS),
}
FRAMES = 32
LEAST_WITHIN_ONE_STEP = 0.99


@pytest.fixture(scope="module", params=NETWORKS)
def compiled(request: pytest.FixtureRequest) -> tuple[str, CompiledModel]:
    model, example = models.get(request.param)
    calibration = models.samples(request.param, FRAMES, seed=1)
    return request.param, openneutron.compile(model, example, calibration=calibration, name=request.param)


def test_everything_is_one_delegate_call_of_few_kernels(compiled: tuple[str, CompiledModel]) -> None:
    name, program = compiled
    expected = NETWORKS[name]
    assert program.delegation.on_cpu == ()
    (partition,) = program.partitions
    report = partition.compiled.report
    kernels = [operator.kernel for operator in report.operators]
    assert kernels.count("recurrent_s8") + kernels.count("unidirectional_sequence_lstm_s8") == expected.recurrent
    assert len(kernels) <= expected.most_calls
    assert report.states == expected.states


def test_outputs_are_near_those_of_the_quantized_module(compiled: tuple[str, CompiledModel]) -> None:
    name, program = compiled
    graph = program.partitions[0].compiled.graph
    samples = models.samples(name, FRAMES, seed=2)
    near, runs = [], []
    for sample in samples:
        wanted, found = outputs_of(program.quantized(*sample)), program.run(*sample)
        runs.append(found[0].clone())
        for got, want, result in zip(found, wanted, graph.outputs, strict=True):
            quant = graph[result].quant
            assert quant is not None
            assert got.shape == want.shape
            near.append(((got - want).abs() < 1.5 * quant.scale).flatten())
    program.reset()
    for sample, before in zip(samples, runs, strict=True):
        assert torch.equal(program.run(*sample)[0], before)
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


def test_frame_by_frame_a_tcn_computes_what_it_computes_at_once() -> None:
    streaming, whole = models.get("streaming_tcn")[0], TCN().eval()
    whole.load_state_dict(streaming.state_dict(), strict=False)
    frames = [frame for (frame,) in models.samples("streaming_tcn", 40)]
    with torch.no_grad():
        found = torch.cat([streaming(frame) for frame in frames], 2)
        torch.testing.assert_close(found, whole(torch.cat(frames, 2)))


@pytest.mark.parametrize(("name", "conversions"), [("crnn", 2), ("noise_suppression", 5)])
def test_with_int16_activations_recurrent_layers_stay_int8(name: str, conversions: int) -> None:
    model, example = models.get(name)
    calibration = models.samples(name, 4, seed=1)
    options = QuantizationOptions(activations="int16")
    program = openneutron.compile(model, example, calibration=calibration, quantization=options)
    assert program.delegation.on_cpu == ()
    assert (len(program.partitions), program.report.conversions) == (1, conversions)
