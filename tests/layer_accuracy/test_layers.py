# SPDX-License-Identifier: BSD-3-Clause
"""The figures of ``openneutron.accuracy``: tensors of the NPU, noise of single layers, and layers that are spoiled by hand."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.fx import GraphModule

import openneutron
from openneutron.api.pytorch import CompiledModel, compile_module
from openneutron.errors import OpenNeutronError
from openneutron.features.accuracy import session
from openneutron.features.accuracy.analysis import analysed
from openneutron.features.accuracy.npu_tensors import Layer, Twins, layers_of
from openneutron.features.accuracy.report import AccuracyReport
from openneutron.options import CompileOptions, DelegationOptions, QuantizationOptions, Request
from tests.support.litert_files import mixed_file

CHANNEL = 3
EXAMPLE = (torch.zeros(1, 3, 12, 12),)


class Chain(nn.Module):
    """Seven layers with weights, a residual sum, a pool and values that only move."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 12, 3, padding=1)
        self.wide = nn.Conv2d(12, 24, 1)
        self.depth = nn.Conv2d(24, 24, 3, padding=1, groups=24)
        self.narrow = nn.Conv2d(24, 12, 1)
        self.last = nn.Conv2d(12, 16, 3, stride=2)
        self.hidden = nn.Linear(16, 12)
        self.head = nn.Linear(12, 5)
        self.pool = nn.AdaptiveAvgPool2d(1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x).relu()
        x = x + self.narrow(self.depth(self.wide(x).relu()).relu())
        x = self.pool(self.last(x).relu()).flatten(1)
        return self.head(self.hidden(x).relu())


def settled(seed: int) -> nn.Module:
    """Return the network with random weights that keep the size of the values from layer to layer."""
    torch.manual_seed(seed)
    model = Chain().eval()
    for layer in model.modules():
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            nn.init.kaiming_normal_(layer.weight)
            nn.init.normal_(layer.bias, 0.0, 0.3)
    return model


def samples(seed: int, count: int = 4) -> list[tuple[torch.Tensor, ...]]:
    generator = torch.Generator().manual_seed(seed)
    return [(torch.randn(EXAMPLE[0].shape, generator=generator),) for _ in range(count)]


def asked(model: nn.Module, seed: int = 0, example: tuple[torch.Tensor, ...] = EXAMPLE) -> session.Session:
    return session.Session(
        Request(model=model, example_inputs=example, calibration=samples(seed), name="net"), compile_module
    )


def layer_of(quantized: GraphModule, name: str) -> Layer:
    return next(layer for layer in layers_of(quantized) if layer.name == name)


def coarse(both: Twins, name: str) -> None:
    """Make the scale of a layer's result 16 times as large."""
    change_scale(both, name, 16.0)


def saturating(both: Twins, name: str) -> None:
    """Make one channel saturate: its weights and bias are 8 times as large, and the result's range is added to the bias."""
    layer = layer_of(both.quantized, name)
    bias = layer.lead.args[2]
    for operand in layer.lead.args[1:3]:
        scales = getattr(both.quantized, str(operand.args[1].target))  # type: ignore[union-attr]
        scales[CHANNEL] *= 8
    stored, scales = (getattr(both.quantized, str(part.target)) for part in bias.args[:2])  # type: ignore[union-attr]
    stored[CHANNEL] += round(255 * layer.scale / float(scales[CHANNEL]))


def change_scale(both: Twins, name: str, factor: float) -> None:
    quantize = layer_of(both.quantized, name).quantize
    for node in (quantize, *quantize.users):
        node.args = (node.args[0], float(node.args[1]) * factor, *node.args[2:])  # type: ignore[arg-type]


def without_bias(both: Twins, name: str) -> None:
    """Set a layer's int32 biases to 0."""
    bias = layer_of(both.quantized, name).lead.args[2].args[0]  # type: ignore[union-attr]
    getattr(both.quantized, str(bias.target)).zero_()  # type: ignore[union-attr]


SPOILED: tuple[Callable[[Twins, str], None], ...] = (coarse, saturating, without_bias)
NAMES = ("first", "wide", "depth", "narrow", "last", "hidden")


def spoiled(seed: int) -> tuple[str, AccuracyReport]:
    """Return the name of the layer that is spoiled in a trial, and the report of the network."""
    spoil, name = SPOILED[seed % len(SPOILED)], NAMES[seed % len(NAMES)]
    whole = asked(settled(seed), seed)
    both = whole.twins()
    spoil(both, name)
    ready = session.lanes(both, session.compiled(both, whole))
    return name, analysed(ready, ((call, None) for call in whole.samples), "imxrt700")


@pytest.mark.parametrize("seed", range(4))
def test_a_spoiled_layer_comes_first(seed: int) -> None:
    name, found = spoiled(seed)
    assert found.layers[0].name == name
    if SPOILED[seed % len(SPOILED)] is saturating:
        assert found.layers[0].worst_channel is not None
        assert found.layers[0].worst_channel.channel == CHANNEL


@pytest.fixture(scope="module")
def whole() -> session.Session:
    return asked(settled(7))


@pytest.fixture(scope="module")
def compiled(whole: session.Session) -> tuple[Twins, CompiledModel]:
    both = whole.twins()
    return both, session.compiled(both, whole)


def test_the_results_of_the_lanes_are_those_of_the_program(
    whole: session.Session, compiled: tuple[Twins, CompiledModel]
) -> None:
    both, program = compiled
    ready = session.lanes(both, program)
    assert {layer.operator for layer in ready.layers if layer.quantize not in ready.on_npu} == {"input"}
    for call in whole.samples:
        _, (result,), _ = ready.accumulated(call, {})
        assert torch.equal(result, program.run(*call.args)[0])


def test_tensors_in_cascades_are_the_same(whole: session.Session, compiled: tuple[Twins, CompiledModel]) -> None:
    both, program = compiled
    small = program.recompile(sram_budget=4 * 1024)
    assert small.partitions[0].compiled.program.microcode != program.partitions[0].compiled.program.microcode
    call = whole.samples[0]
    ways = [session.lanes(both, made).accumulated(call, {})[0] for made in (program, small)]
    for quantize, value in ways[0].items():
        assert torch.equal(value, ways[1][quantize])


def test_a_layer_that_moves_values_adds_no_noise(whole: session.Session) -> None:
    found = {layer.node: layer for layer in session.report(whole, None).layers}
    assert found["flatten"].result_db is None
    assert found["flatten"].noise_share == 0.0
    assert found["first" if "first" in found else "conv2d"].noise_share > 0.0
    assert sum(layer.noise_share for layer in found.values()) == pytest.approx(1.0)


def test_a_model_with_cpu_fallbacks_has_all_layers_too() -> None:
    class Ranked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.before, self.after = nn.Linear(8, 8), nn.Linear(8, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.after(torch.topk(self.before(x).relu(), 8).values)

    torch.manual_seed(1)
    model, inputs = Ranked().eval(), [(torch.randn(1, 8),) for _ in range(3)]
    whole = session.Session(
        Request(model=model, example_inputs=inputs[0], calibration=inputs, name="net"), compile_module
    )
    both = whole.twins()
    program = session.compiled(both, whole)
    assert len(program.partitions) == 2
    ready = session.lanes(both, program)
    on_npu = {layer.name for layer in ready.layers if layer.quantize in ready.on_npu}
    assert {"before", "after"} <= on_npu
    for call in whole.samples:
        assert torch.equal(ready.accumulated(call, {})[1][0], program.run(*call.args)[0])


def test_the_layers_of_a_program_with_other_names_are_found(whole: session.Session) -> None:
    """ExecuTorch takes the program apart first where operators are not to be delegated; its nodes then have other names."""
    delegation = DelegationOptions(operators_not_to_delegate=("hidden",))
    other = dataclasses.replace(whole, request=dataclasses.replace(whole.request, delegation=delegation))
    both = other.twins()
    program = session.compiled(both, other)
    ready = session.lanes(both, program)
    on_npu = {layer.name for layer in ready.layers if layer.quantize in ready.on_npu}
    assert on_npu >= {"first", "wide", "depth", "narrow", "last", "head"}
    assert "hidden" not in on_npu
    for call in other.samples:
        assert torch.equal(ready.accumulated(call, {})[1][0], program.run(*call.args)[0])


def test_labels_give_top_1(whole: session.Session) -> None:
    data = torch.utils.data.TensorDataset(torch.stack([item[0][0] for item in samples(0)]), torch.arange(4))
    found = openneutron.accuracy(whole.request.model, EXAMPLE, data=data)
    assert found.metric is not None
    assert (found.metric.name, found.metric.is_share) == ("top1", True)
    assert 0.0 <= found.metric.npu <= 1.0
    assert found.samples == 4
    with pytest.raises(OpenNeutronError) as caught:
        openneutron.accuracy(whole.request.model, EXAMPLE, calibration=samples(0), metric="top1")
    assert str(caught.value) == (
        "metric: top1 takes the number of a class for each sample; sample 'sample 0' has no label. Leave the metric out to "
        "compare the sides alone."
    )


def test_an_interrupt_leaves_the_figures_of_the_samples_before_it(whole: session.Session) -> None:
    def interrupt(step: str, done: int, _total: int) -> None:
        if step == "Comparing layers" and done == 2:
            raise KeyboardInterrupt

    found = openneutron.accuracy(whole.request.model, EXAMPLE, calibration=samples(0), progress=interrupt)
    assert (found.samples, found.complete) == (2, False)
    assert "against float, 2 samples until the interrupt" in found.summary().splitlines()[0]
    some = openneutron.accuracy(whole.request.model, EXAMPLE, calibration=samples(0), data=samples(0)[:2])
    assert dataclasses.replace(found, complete=True) == some


MESSAGES = {
    "quantized": "'model.tflite' is a .tflite, and the layers of PyTorch models are compared here. Pass the PyTorch model; `openneutron evaluate` compares a float .tflite.",
    "nothing": "calibration: there are no samples; int8 scales come from typical inputs. "
    "Pass calibration=[...], each item a tuple of the model's arguments.",
    "empty": "calibration: there are no samples; int8 scales come from at least one. "
    "Pass some typical inputs, each a tuple of the model's arguments.",
    "shape": "calibration: sample 0 has torch.float32 [1, 3, 9, 9] for input 0; the example input is "
    "torch.float32 [1, 3, 12, 12].",
    "converter": "converter: the tensors inside NXP's programs can't be read. Leave it out: the layers lose the same to int8.",
}


@pytest.mark.parametrize("case", MESSAGES)
def test_messages(case: str, tmp_path: Path) -> None:
    quantized = tmp_path / "model.tflite"
    quantized.write_bytes(mixed_file())
    model: object = quantized if case == "quantized" else settled(0)
    calibration = {"nothing": None, "empty": [], "shape": [(torch.zeros(1, 3, 9, 9),)]}.get(case, samples(0))
    options = CompileOptions(converter="eiq" if case == "converter" else "open")
    with pytest.raises(OpenNeutronError) as caught:
        openneutron.accuracy(model, EXAMPLE, calibration=calibration, options=options)  # type: ignore[arg-type]
    assert str(caught.value) == MESSAGES[case]


def test_a_quantized_model_is_compared_with_itself_in_float_activations(whole: session.Session) -> None:
    both = whole.twins()
    assert openneutron.compile(both.quantized, EXAMPLE).report.cycles > 0
    found = openneutron.accuracy(both.quantized, EXAMPLE, data=samples(0))
    usual = openneutron.accuracy(whole.request.model, EXAMPLE, calibration=samples(0))
    assert "int8 on imxrt700 against float activations, 4 samples" in found.summary().splitlines()[0]
    assert found.result_db is not None and usual.result_db is not None
    assert found.result_db > usual.result_db  # without the noise of the weights
    layers = {layer.name: layer for layer in usual.layers}
    assert layers.keys() == {layer.name for layer in found.layers}
    for layer in found.layers:
        assert (layer.scale, layer.zero_point) == (layers[layer.name].scale, layers[layer.name].zero_point)
        assert layer.on_npu == layers[layer.name].on_npu
    with pytest.raises(OpenNeutronError) as caught:
        openneutron.repair(both.quantized, EXAMPLE, target_db=30.0, data=samples(0), name="net")
    assert str(caught.value) == "'net' is quantized already, so that no measure changes it. Pass the float model."
    with pytest.raises(OpenNeutronError) as caught:
        openneutron.accuracy(
            both.quantized, EXAMPLE, data=samples(0), quantization=QuantizationOptions(equalize=True), name="net"
        )
    assert str(caught.value) == "equalize: 'net' is quantized already. Pass the float model."


class Sorted(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.topk(2).values


def test_a_model_without_an_operator_for_the_npu_is_refused_with_its_reason() -> None:
    with pytest.raises(OpenNeutronError) as caught:
        openneutron.accuracy(Sorted(), (torch.zeros(1, 8),), calibration=[(torch.ones(1, 8),)])
    assert re.sub(r":\d+", "", str(caught.value)) == (
        "'model': its one operator can't run on the NPU. For one, aten.topk 'topk (test_layers.py)' stays on the CPU: it puts values in "
        "order, for which there is no kernel. argmax and max with a dimension, which have one, find the first of them."
    )


class Indexed(nn.Module):
    """Values, and the place of the largest one."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        values = torch.tanh(x)
        return values, values.flatten(1).argmax(1), values > 0


def test_indices_and_booleans_are_no_signal() -> None:
    """An index has more energy than all values, and no noise."""
    example = (torch.linspace(-2, 2, 900).reshape(1, 9, 10, 10),)
    alone, beside = (openneutron.accuracy(model, example, calibration=[example]) for model in (nn.Tanh(), Indexed()))
    assert alone.result_db is not None and 20 < alone.result_db < 70
    assert beside.result_db == pytest.approx(alone.result_db)
