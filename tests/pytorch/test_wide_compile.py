# SPDX-License-Identifier: BSD-3-Clause
"""Networks with activations of 16 bits from PyTorch to ExecuTorch's runtime: types of inputs and outputs, conversions, reasons."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import openneutron
from openneutron.api.pytorch import CompiledModel, analyse
from openneutron.errors import InvalidOptionError
from openneutron.features.report.text import summary_rows
from openneutron.ir import DType
from openneutron.options import QuantizationOptions
from openneutron.pytorch.graph.program import is_quantize
from openneutron.pytorch.source import models
from tests.pytorch.small_models import without_lines
from tests.support import oracle


class Sums(nn.Module):
    """Sums behind two convolutions and in front of a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.stem_of_points = nn.Conv2d(3, 8, 1)
        self.head = nn.Linear(8 * 36, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, second = self.stem(x), self.stem_of_points(x)
        return self.head((torch.relu(first + second) - first).flatten(1))


EXAMPLE = (torch.zeros(1, 3, 6, 6),)
MIXED: dict[str, Any] = {"activations": "int16", "layer_activations": [("stem*", "int8"), ("head", "int8")]}


def samples(count: int = 4) -> list[tuple[torch.Tensor, ...]]:
    generator = torch.Generator().manual_seed(5)
    return [(torch.randn(EXAMPLE[0].shape, generator=generator),) for _ in range(count)]


def compiled(model: nn.Module, **quantization: Any) -> CompiledModel:
    calls = samples() if isinstance(model, Sums) else pairs()
    options = QuantizationOptions(**quantization)
    return openneutron.compile(model.eval(), calls[0], calibration=calls, quantization=options, name="net")


def network() -> nn.Module:
    torch.manual_seed(7)
    return Sums()


def pairs() -> list[tuple[torch.Tensor, ...]]:
    """Return two inputs for each call."""
    calls = samples(8)
    return [(*a, *b) for a, b in zip(calls[::2], calls[1::2], strict=True)]


class Pair(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y


def test_a_mixed_network_converts_where_types_meet_and_counts_it() -> None:
    program = compiled(network(), **MIXED)
    assert program.delegation.on_cpu == ()
    assert program.report.conversions == program.report.to_dict()["conversions"] == 3
    assert ("Conversions", "3 between int8 and int16") in summary_rows(program.report)
    (part,) = program.partitions
    graph = part.compiled.graph
    types = {node.op: graph[node.name].dtype for node in graph.nodes}
    assert (types["conv_2d"], types["add"], types["sub"], types["fully_connected"]) == (
        DType.INT8,
        DType.INT16,
        DType.INT16,
        DType.INT8,
    )


def test_a_mixed_network_computes_what_litert_computes() -> None:
    program = compiled(network(), **MIXED)
    graph = program.partitions[0].compiled.graph
    source, result = graph[graph.inputs[0]].quant, graph[graph.outputs[0]].quant
    assert source is not None
    assert result is not None
    for (sample,) in samples(8):
        (found,) = program.run(sample)
        stored = np.clip(np.rint(sample.numpy() / np.float32(source.scale)) + source.zero_point, -128, 127)
        (want,) = oracle.reference_outputs(graph, [stored.astype(np.int8).reshape(graph[graph.inputs[0]].shape)])
        real = (want.astype(np.float32) - result.zero_point) * np.float32(result.scale)
        np.testing.assert_array_equal(np.asarray(found).reshape(-1), real.reshape(-1))
        steps = (torch.as_tensor(found) - program.quantized(sample)) / result.scale
        assert float(steps.abs().max()) < 1.5


def test_inputs_and_outputs_may_be_int16() -> None:
    program = compiled(Pair(), activations="int16", io_dtype="int16")
    scales = [node.args[1] for node in program.quantized.graph.nodes if is_quantize(node)]
    stored = torch.tensor(range(-54, 54), dtype=torch.int16).reshape(EXAMPLE[0].shape) * 300
    (result,) = program.run(stored, -stored)
    assert result.dtype == torch.int16
    expected = torch.round(stored * ((scales[0] - scales[1]) / scales[2]))
    assert float((result - expected).abs().max()) <= 1


def test_a_type_that_no_input_or_output_has_is_an_error() -> None:
    with pytest.raises(InvalidOptionError) as raised:
        compiled(Pair(), activations="int16", io_dtype="int8")
    assert str(raised.value) == "io_dtype: it is 'int8'; inputs and outputs become int16. Pass io_dtype='int16'."


def test_an_operator_without_16_bits_stays_on_the_cpu_with_a_reason() -> None:
    class Logs(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return torch.log_softmax(x + y, 3)

    program = analyse(
        Logs(), pairs()[0], calibration=pairs(), quantization=QuantizationOptions(activations="int16"), name="net"
    )
    (item,) = program.delegation.on_cpu
    assert (item.operator, without_lines(item.reason), item.suggestion) == (
        "aten._log_softmax",
        "input 'add (test_wide_compile.py)' is int16; this operator computes on int8",
        "Give its module int8 activations with layer_activations.",
    )
    (found,) = program.run(*pairs()[0])
    assert torch.allclose(torch.as_tensor(found), Logs()(*pairs()[0]), atol=1e-3)


def test_an_int16_zero_point_is_refused() -> None:
    class Shifted(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q = torch.ops.quantized_decomposed
            parameters = (2.0**-12, 5, -32768, 32767, torch.int16)
            stored = q.quantize_per_tensor(x, *parameters)
            real = q.dequantize_per_tensor(stored, *parameters)
            return q.dequantize_per_tensor(q.quantize_per_tensor(real + real, *parameters), *parameters)

    program = analyse(Shifted(), EXAMPLE, name="net")
    assert {(item.reason, item.suggestion) for item in program.delegation.on_cpu if item.operator == "aten.add"} == {
        ("its values are int16 with zero point 5; it must be 0", "Quantize int16 symmetrically.")
    }


def test_one_operator_of_two_types_is_refused() -> None:
    class Widened(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q = torch.ops.quantized_decomposed
            narrow, wide = (2.0**-5, 0, -128, 127, torch.int8), (2.0**-12, 0, -32768, 32767, torch.int16)
            real = q.dequantize_per_tensor(q.quantize_per_tensor(x, *narrow), *narrow)
            return q.dequantize_per_tensor(q.quantize_per_tensor(real + real, *wide), *wide)

    program = analyse(Widened(), EXAMPLE, name="net")
    reasons = {item.reason for item in program.delegation.on_cpu if item.operator == "aten.add"}
    assert reasons == {"its inputs are int8 and its result is quantized to int16; they must have one type"}


def test_a_quantization_file_has_types(tmp_path: Path) -> None:
    options = QuantizationOptions(activations="int16", layer_activations=(("head", "int8"),))
    path = tmp_path / "types.json"
    path.write_text(json.dumps(options.to_file()))
    assert QuantizationOptions.from_file(path) == options
    path.write_text('{"version": 1, "layer_activations": [["head"]]}')
    with pytest.raises(InvalidOptionError) as raised:
        QuantizationOptions.from_file(path)
    assert str(raised.value) == (
        f"quantization file '{path}': 'layer_activations' is [['head']]; it must be a list of pairs of a name and a type."
    )


def decibels(wanted: torch.Tensor, found: torch.Tensor) -> float:
    return float(10 * torch.log10(wanted.square().sum() / (wanted - found).square().sum()))


def on_npu(program: CompiledModel, calls: list[tuple[torch.Tensor, ...]]) -> torch.Tensor:
    return torch.stack([torch.as_tensor(program.run(*call)[0]) for call in calls])


def test_the_speech_enhancement_network_has_60_decibels() -> None:
    name = "speech_enhancement"
    model, example = models.get(name)
    calls = models.samples(name, 8, seed=2)
    with torch.no_grad():
        wanted = torch.stack([model(*call) for call in calls])
    found = {}
    for activations in ("int8", "int16"):
        program = openneutron.compile(
            model,
            example,
            calibration=models.samples(name, 8, seed=1),
            quantization=QuantizationOptions(activations=activations),
            name=name,
        )
        assert (program.delegation.on_cpu, len(program.partitions), program.report.conversions) == ((), 1, 0)
        found[activations] = decibels(wanted, on_npu(program, calls))
    print(f"{name}: int8 {found['int8']:.1f} dB, int16 {found['int16']:.1f} dB")
    assert found["int8"] < 45
    assert found["int16"] > 75
    graph = program.partitions[0].compiled.graph
    source, result = graph[graph.inputs[0]].quant, graph[graph.outputs[0]].quant
    assert source is not None
    assert result is not None
    for (call,), npu in zip(calls, on_npu(program, calls), strict=True):
        stored = torch.ops.quantized_decomposed.quantize_per_tensor(
            call, source.scale, 0, -32767, 32767, torch.int16
        ).numpy()
        (want,) = oracle.reference_outputs(graph, [stored.reshape(graph[graph.inputs[0]].shape)])
        np.testing.assert_array_equal(
            npu.numpy().reshape(-1), (want.astype(np.float32) * np.float32(result.scale)).reshape(-1)
        )
