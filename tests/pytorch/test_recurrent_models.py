# SPDX-License-Identifier: BSD-3-Clause
"""The built-in networks with recurrent layers or states, each as one delegate call, and near the quantized module."""

from __future__ import annotations

import copy
from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import nn

import openneutron
from openneutron import litert
from openneutron.api.pytorch import CompiledModel
from openneutron.options import QuantizationOptions
from openneutron.pytorch.source import models
from openneutron.pytorch.source.models.small import TCN
from tests.pytorch.small_models import outputs_of, sqnr
from tests.support import micro, oracle


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
    "wake_word": Expected(0, 13, tuple(f"layers.{layer}.1.ring" for layer in range(3))),
}
FRAMES = 32
LEAST_WITHIN_ONE_STEP = 0.975
"""The mask of noise_suppression is a sigmoid with a step finer than LiteRT's 1/256, so that differences are more steps."""
WITH_INT16 = QuantizationOptions(activations="int16")


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


WIDE = {"crnn": (0, {"unidirectional_sequence_lstm_s16": 2}), "noise_suppression": (5, {"recurrent_s8": 3})}
"""The conversions between types, and the kernels of recurrent layers with their calls, of networks with int16 activations."""


@pytest.mark.parametrize("name", WIDE)
def test_with_int16_activations_lstms_are_int16_and_grus_stay_int8(name: str) -> None:
    model, example = models.get(name)
    calibration = models.samples(name, 4, seed=1)
    program = openneutron.compile(model, example, calibration=calibration, quantization=WITH_INT16)
    assert program.delegation.on_cpu == ()
    (partition,) = program.partitions
    kernels = Counter(operator.kernel for operator in partition.compiled.report.operators)
    conversions, expected = WIDE[name]
    assert program.report.conversions == conversions
    assert {kernel: count for kernel, count in kernels.items() if "recurrent" in kernel or "lstm" in kernel} == expected


class Outputs(nn.Module):
    """The outputs of an LSTM, without its last states."""

    def __init__(self, **form: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.LSTM(7, 11, 2, batch_first=True, **form)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)[0]


def _with_int16(model: nn.Module, *shape: int) -> CompiledModel:
    torch.manual_seed(1)
    samples = [(torch.randn(shape),) for _ in range(4)]
    program = openneutron.compile(model.eval(), samples[0], calibration=samples, quantization=WITH_INT16)
    assert program.delegation.on_cpu == ()
    return program


def test_lstms_of_int16_have_the_bytes_of_litert_for_microcontrollers() -> None:
    (partition,) = _with_int16(Outputs(), 2, 9, 7).partitions
    graph = partition.compiled.graph
    assert [node.op for node in graph.nodes] == ["unidirectional_sequence_lstm"] * 2
    for seed in range(3):
        (x,) = oracle.random_inputs(graph, seed)
        (got,) = oracle.simulated_outputs(partition.compiled, [x])
        np.testing.assert_array_equal(got, micro.MicroInterpreter(litert.write(graph)).run(x))


def test_a_projected_lstm_stays_int8() -> None:
    (partition,) = _with_int16(Outputs(proj_size=4), 1, 3, 7).partitions
    kernels = [operator.kernel for operator in partition.compiled.report.operators]
    assert kernels.count("unidirectional_sequence_lstm_s8") == 2


def test_an_lstm_of_int16_is_near_float() -> None:
    model, example = models.get("lstm_kws")
    calibration = models.samples("lstm_kws", 8, seed=1)
    program = openneutron.compile(copy.deepcopy(model), example, calibration=calibration, quantization=WITH_INT16)
    samples = [sample for (sample,) in models.samples("lstm_kws", 16, seed=2)]
    with torch.no_grad():
        wanted = torch.cat([model(sample) for sample in samples])
    found = torch.cat([program.run(sample)[0] for sample in samples])
    decibels = 10 * float(torch.log10((wanted**2).sum() / ((found - wanted) ** 2).sum()))
    print(f"{decibels:.1f} dB")
    assert decibels >= 40  # of int8 activations: 34


class Translation(nn.Module):
    """An encoder whose states are those of a decoder before its first step; each step of the decoder reads the one before."""

    def __init__(self, is_loop: bool) -> None:
        super().__init__()
        self.is_loop = is_loop
        self.encoder, self.decoder = nn.LSTM(8, 16, batch_first=True), nn.LSTM(8, 16, batch_first=True)
        self.last = nn.Linear(16, 8)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        states = self.encoder(x)[1]
        if not self.is_loop:
            return self.last(self.decoder(y, states)[0])
        steps = [y[:, :1]]
        for _ in range(3):
            found, states = self.decoder(steps[-1], states)
            steps.append(self.last(found))
        return torch.cat(steps[1:], 1)


@pytest.mark.parametrize("is_loop", [False, True])
def test_states_of_an_encoder_go_to_a_decoder(is_loop: bool) -> None:
    torch.manual_seed(0)
    model = Translation(is_loop).eval()
    samples = [(torch.randn(1, 12, 8), torch.randn(1, 6, 8)) for _ in range(4)]
    program = openneutron.compile(model, samples[0], calibration=samples)
    assert program.delegation.on_cpu == ()
    assert sqnr(model(*samples[1]), program.run(*samples[1])[0]) > 38
