# SPDX-License-Identifier: BSD-3-Clause
"""Partitions of the ATen program become delegate calls before ExecuTorch takes the operators apart."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial

import pytest
import torch
from executorch.exir import EdgeProgramManager, to_edge_transform_and_lower
from executorch.exir.backend.partitioner import PartitionResult
from executorch.exir.lowered_backend_module import LoweredBackendModule
from torch import nn
from torch.export import ExportedProgram

import openneutron
from openneutron.api import pytorch as api
from openneutron.pytorch import NeutronPartitioner, NeutronQuantizer, calibrate_and_quantize, neutron_partitioner
from openneutron.pytorch.graph.program import Reject
from openneutron.pytorch.neutron_partitioner import is_final
from openneutron.pytorch.partition.gather import UNITS
from openneutron.pytorch.source.exporting import ModelInputs, export, lifted

IMAGE = (torch.linspace(-1, 1, 3 * 16 * 16).reshape(1, 3, 16, 16),)


class Pyramid(nn.Module):
    """Convolutions, a layer norm, a softmax and views."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.LayerNorm(8)
        self.last = nn.Linear(8, 5)

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # fx calls such an input input_1 in a copy
        y = torch.relu(self.first(input)).flatten(2).transpose(1, 2)
        return torch.softmax(self.last(self.norm(y).mean(1)), -1)


class Counts(nn.Module):
    """A model that counts its runs in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 1)
        self.register_buffer("runs", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.runs.add_(1.0)
        return self.conv(x), self.runs + 0.0


def quantized(model: nn.Module) -> torch.fx.GraphModule:
    torch.manual_seed(0)
    return calibrate_and_quantize(torch.export.export(model.eval(), IMAGE), [IMAGE], NeutronQuantizer())


def edge_of(model: nn.Module) -> EdgeProgramManager:
    program = torch.export.export(quantized(model), IMAGE)
    return to_edge_transform_and_lower(program, partitioner=[NeutronPartitioner()])


def delegates(edge: EdgeProgramManager) -> list[LoweredBackendModule]:
    children = edge.exported_program().graph_module.children()
    return [child for child in children if isinstance(child, LoweredBackendModule)]


def model() -> Pyramid:
    torch.manual_seed(0)
    return Pyramid().eval()


def test_executorch_sees_a_delegate_call_in_place_of_the_operators() -> None:
    partitioner = NeutronPartitioner()
    program = torch.export.export(quantized(model()), IMAGE)
    found = partitioner.transform_for_pre_decomposition(program)
    calls = [str(node.target) for node in found.graph.nodes if node.op == "call_function"]
    assert len(calls) == 4, calls  # quantize, delegate, getitem, dequantize
    assert not any("delegate" in str(node.target) for node in program.graph.nodes), "the program is changed"


def test_the_raw_flow_makes_the_same_payload() -> None:
    (raw,) = delegates(edge_of(model()))
    compiled = openneutron.compile(model(), IMAGE, calibration=[IMAGE])
    assert raw.processed_bytes in compiled.buffer


def test_a_delegated_program_runs_in_eager_mode() -> None:
    """A trace needs no run of what is delegated; a call with values does."""
    edge = edge_of(model())
    wanted = quantized(model())(*IMAGE)
    assert torch.equal(edge.exported_program().module()(*IMAGE), wanted)
    assert torch.equal(copy.deepcopy(edge).exported_program().module()(*IMAGE), wanted)


def test_a_program_that_changes_a_buffer_is_taken_apart_first() -> None:
    # The count is int8 as well: its range is that of the runs in calibration.
    compiled = openneutron.compile(Counts().eval(), IMAGE, calibration=[IMAGE] * 2)
    assert len(compiled.partitions) == 1
    assert [float(compiled.run(*IMAGE)[1]) for _ in range(2)] == pytest.approx([1.0, 2.0], abs=0.01)


class Mixed(nn.Module):
    """Operators for the NPU on both sides of a function, and the layer ``other``."""

    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.first, self.other, self.last = nn.Conv2d(3, 8, 1), nn.LayerNorm(16), nn.Conv2d(8, 3, 1)
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.other(self.function(torch.relu(self.first(x))))
        return torch.sigmoid(self.last(y))


def ordered(x: torch.Tensor) -> torch.Tensor:
    return torch.topk(x, 16, 3).values


def same(x: torch.Tensor) -> torch.Tensor:
    return x


@pytest.mark.parametrize(
    ("function", "keep_float", "calls", "early"),
    [(ordered, (), 2, 2), (same, ("other",), 2, 2)],
)
def test_cpu_fallbacks_are_the_same_as_after_the_decomposition(
    function: Callable[[torch.Tensor], torch.Tensor],
    keep_float: tuple[str, ...],
    calls: int,
    early: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """``early`` partitions are delegated before."""
    found: list[int] = []
    original = neutron_partitioner.delegated

    def counted(program: ExportedProgram, tag: Callable[[ExportedProgram], PartitionResult]) -> ExportedProgram:
        made = original(program, tag)
        found.append(sum("delegate" in str(node.target) for node in made.graph.nodes))
        return made

    def compiled() -> openneutron.CompiledModel:
        torch.manual_seed(0)
        options = openneutron.QuantizationOptions(keep_float=keep_float)
        return openneutron.compile(Mixed(function).eval(), IMAGE, calibration=[IMAGE], quantization=options)

    monkeypatch.setattr(neutron_partitioner, "delegated", counted)
    before = compiled()
    monkeypatch.setattr(neutron_partitioner, "has_free_order", lambda _: False)
    after = compiled()
    assert (len(before.partitions), found) == (calls, [early])
    assert str(before.delegation) == str(after.delegation)
    assert [item.fallback for item in before.delegation.on_cpu] == [item.fallback for item in after.delegation.on_cpu]
    assert all(torch.equal(a, b) for a, b in zip(before.run(*IMAGE), after.run(*IMAGE), strict=True))


def test_fallbacks_that_may_have_other_pieces_are_not_final() -> None:
    class Pieces(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return torch.topk(x, 2, 3).values, torch.topk(x.mT, 2, 3).values, nn.functional.layer_norm(x, [16])

    graph = torch.export.export(Pieces(), IMAGE).graph
    plain, strided = graph.find_nodes(op="call_function", target=torch.ops.aten.topk.default)
    (decomposed,) = graph.find_nodes(op="call_function", target=torch.ops.aten.layer_norm.default)
    refused = Reject("there is no kernel")
    assert [is_final(node, refused) for node in (plain, strided, decomposed)] == [True, False, False]
    assert is_final(decomposed, Reject("it exchanges values with another one", rule=UNITS))


class Permuted(nn.Module):
    """A convolution of a permuted tensor: the float one is channels-last, the quantized one contiguous."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.conv = nn.LayerNorm(3), nn.Conv2d(3, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2))


def normalized() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU6())


@pytest.mark.parametrize("made", [Pyramid, Permuted, normalized])
def test_a_lifted_program_is_the_traced_one(made: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    module = quantized(made())
    inputs = ModelInputs(IMAGE, {})
    found, traced = lifted(module, inputs), export(module, inputs, "model")
    assert found is not None
    assert torch.equal(found.module()(*IMAGE), traced.module()(*IMAGE))

    def calls(program: ExportedProgram) -> list[tuple[object, ...]]:
        return [
            (node.name, str(node.target), *(getattr(node.meta["val"], key) for key in ("shape", "dtype")), layout(node))
            for node in program.graph.nodes
            if node.op == "call_function"
        ]

    def layout(node: torch.fx.Node) -> tuple[int, ...]:
        return node.meta["val"].stride()

    assert calls(found) == calls(traced)


def test_what_only_a_trace_tells_is_not_lifted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert lifted(quantized(Counts()), ModelInputs(IMAGE, {})) is None
    without = openneutron.compile(model(), IMAGE, calibration=[IMAGE]).buffer
    monkeypatch.setattr(api, "lifted", lambda *_: None)
    assert openneutron.compile(model(), IMAGE, calibration=[IMAGE]).buffer == without


class Behind(nn.Module):
    """``y + f(y)`` of a transposed input: the sum has the strides of ``y``. ``sorts``: with a second result that stays on the CPU."""

    def __init__(self, layers: nn.Module, sorts: bool = False) -> None:
        super().__init__()
        self.layers, self.sorts = layers, sorts

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x.transpose(1, 2)
        result = y + self.layers(y)
        return (result, torch.topk(y.flatten(1), 3, 1)[0]) if self.sorts else (result,)


@pytest.mark.parametrize("sorts", [False, True])
@pytest.mark.parametrize(
    "layer", [partial(nn.Linear, 8), nn.LayerNorm, nn.RMSNorm], ids=["linear", "layer_norm", "rms_norm"]
)
def test_the_strides_of_an_output_do_not_decide_what_runs_where(layer: Callable[[int], nn.Module], sorts: bool) -> None:
    """A transposed residual is the output. Its layers run on the NPU, also where another operator stays on the CPU."""
    torch.manual_seed(0)
    samples = [(torch.randn(1, 8, 6),) for _ in range(4)]
    made = openneutron.compile(Behind(layer(8), sorts).eval(), samples[0], calibration=samples)
    left = {item.operator for item in made.delegation.on_cpu if item.computes and not item.converts}
    assert left == ({"aten.topk"} if sorts else set())
    assert len(made.partitions) == 1
    expected = made.quantized(*samples[1])[0]
    found = torch.as_tensor(made.run(*samples[1])[0])
    assert torch.allclose(found, expected, atol=0.05), (found - expected).abs().max()


def test_an_output_behind_a_transpose_keeps_its_values_at_rank_4() -> None:
    torch.manual_seed(0)
    samples = [(torch.randn(1, 3, 6, 5),) for _ in range(4)]
    layers = nn.ModuleDict({"conv": nn.Conv2d(3, 8, 3), "linear": nn.Linear(8, 8)})

    class Pixels(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = layers

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.layers["conv"](x).permute(0, 2, 3, 1)
            return y + self.layers["linear"](y)

    made = openneutron.compile(Pixels().eval(), samples[0], calibration=samples)
    assert made.report.whole
    assert torch.allclose(torch.as_tensor(made.run(*samples[1])[0]), made.quantized(*samples[1]), atol=0.05)


class Masked(nn.Module):
    """Heads behind a transpose, in two delegate calls: a comparison of integers between them stays on the CPU."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        heads = self.q(x).view(1, 6, 2, 4).transpose(1, 2)
        scores = heads @ self.k(x).view(1, 6, 2, 4).permute(0, 2, 3, 1)
        return torch.softmax(scores + torch.cumsum(mask, 1)[:, None, None] * -0.5, -1) @ heads


def test_a_delegate_call_passes_a_transposed_tensor_to_another() -> None:
    torch.manual_seed(0)
    samples = [(torch.randn(1, 6, 8), torch.randint(0, 2, (1, 6))) for _ in range(4)]
    made = openneutron.compile(Masked().eval(), samples[0], calibration=samples)
    found = torch.as_tensor(made.run(*samples[1])[0])
    assert torch.allclose(found, made.quantized(*samples[1]), atol=0.05)
