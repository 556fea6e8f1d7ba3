# SPDX-License-Identifier: BSD-3-Clause
"""Delegation: names, operators kept whole call by call, several methods, reasons and costs."""

from __future__ import annotations

import gc
import operator
import weakref
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
from executorch.exir.lowered_backend_module import LoweredBackendModule
from executorch.runtime import Runtime
from torch import nn
from torch.fx import Graph, Node

from openneutron.api.pytorch import CompiledModel, analyse
from openneutron.compiler.select.select import Refused, Trial, try_compile
from openneutron.errors import InvalidOptionError
from openneutron.ir.graph import Fallback
from openneutron.options import DelegationOptions
from openneutron.pytorch import neutron_partitioner
from openneutron.pytorch.backend.neutron_target_spec import NeutronTargetSpec
from openneutron.pytorch.lower.units import Unit
from openneutron.pytorch.neutron_partitioner import NeutronPartitioner
from openneutron.pytorch.nxp_backend import generate_neutron_compile_spec
from openneutron.pytorch.partition.delegation import check_names, matching
from openneutron.pytorch.partition.gather import MOST_TENSORS, gather
from openneutron.pytorch.quantizer.neutron_quantizer import NeutronQuantizer
from openneutron.pytorch.quantizer.utils import calibrate_and_quantize
from openneutron.pytorch.run import delegate

SPEC = NeutronTargetSpec("imxrt700")
IMAGE = (torch.randn(1, 4, 8, 8, generator=torch.Generator().manual_seed(0)),)


class Net(nn.Module):
    """Two activations of one kind, each between convolutions."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.features = nn.Sequential(
            nn.Conv2d(4, 4, 3, padding=1), nn.SiLU(), nn.Conv2d(4, 4, 1), nn.SiLU(), nn.Conv2d(4, 4, 1)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.features(x)


def net(**options: Any) -> CompiledModel:
    return analyse(Net().eval(), IMAGE, calibration=[IMAGE], **options)


def assert_runs(program: CompiledModel) -> None:
    (output,) = program.run(*IMAGE)
    with torch.no_grad():
        wanted = program.quantized(*IMAGE)
    assert float((output - wanted).abs().max()) <= 0.03 * float(wanted.abs().max())


# Names


def call(name: str, module: str, wrote: str, target: Any = torch.ops.aten.add.Tensor) -> Node:
    graph = Graph()
    x = graph.placeholder("x")
    node = graph.create_node("call_function", target, (x, x), name=name)
    node.meta |= {"nn_module_stack": {"m": (module, "Net")}, "torch_fn": (f"{wrote}_1", f"function.{wrote}")}
    graph.output(node)
    return node


@pytest.mark.parametrize(
    ("pattern", "matches"),
    [
        ("aten.add.Tensor", True),
        ("aten::add.Tensor".replace("::", "_"), True),
        ("aten.add", True),
        ("aten_add", True),
        ("aten_add_tensor_3", True),
        ("aten.sum_of_all", True),
        ("features.3", True),
        ("features", True),
        ("features.*", True),
        ("aten.a*", True),
        ("*_tensor_[0-9]", True),
        ("aten.add.Scalar", False),
        ("add", False),
        ("aten_add_tensor", False),
        ("features.30", False),
        ("aten.ad", False),
    ],
)
def test_names_are_whole_names(pattern: str, matches: bool) -> None:
    node = call("aten_add_tensor_3", "features.3", "sum_of_all")
    assert (matching(node, [pattern]) == pattern) == matches


@pytest.mark.parametrize(
    ("pattern", "hint"),
    [
        ("aten_ad", " Did you mean 'aten.add'?"),
        ("aten.sigmoid", ""),
        ("featurs.3", " Did you mean 'features.3' or 'features'?"),
        ("aten_add_tensor", " Did you mean 'aten_add_tensor_3'?"),
        ("zzz", ""),
    ],
)
def test_an_unknown_name_is_an_error_with_the_nearest(pattern: str, hint: str) -> None:
    graph = call("aten_add_tensor_3", "features.3", "add").graph
    with pytest.raises(InvalidOptionError) as caught:
        check_names([pattern], [graph])
    assert str(caught.value) == (
        f"operators_not_to_delegate: '{pattern}' names no operator, node or module of the model.{hint}"
    )


# Operators kept whole


@pytest.mark.parametrize("name", ["features.3", "aten_silu_default_1"])
def test_an_operator_is_kept_whole_call_by_call(name: str) -> None:
    """ExecuTorch has no kernel for silu: the call that stays on the CPU is taken apart, the other is one table."""
    program = net(delegation=DelegationOptions(operators_not_to_delegate=[name]))
    assert [item.operator for item in program.delegation.on_npu].count("aten.silu") == 1
    assert {(item.operator, item.name, item.reason, item.rule) for item in program.delegation.on_cpu} == {
        (operator, "features.3", f"operators_not_to_delegate names it: '{name}'", "operators_not_to_delegate")
        for operator in ("silu (aten.sigmoid)", "silu (aten.mul)")
    }
    assert_runs(program)


def test_what_the_compiler_refuses_stays_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its other operators don't, and one that was kept whole for it is taken apart after all."""

    def refuse(graph: Any, target: Any, host_calls: bool) -> Refused | Trial:
        found = [node for node in graph.nodes if node.op in ("lookup", "hard_swish")]
        if len(found) > 1:
            return Refused(found[-1].outputs[0], "its table is 3 bytes; it must be 256")
        return try_compile(graph, target, host_calls)

    monkeypatch.setattr(neutron_partitioner, "try_compile", refuse)
    program = net()
    assert len(program.partitions) == 2
    assert {item.name for item in program.delegation.on_cpu} == {"features.3"}
    assert_runs(program)


# Partitions


def test_partitions_of_several_methods_have_names_of_their_own() -> None:
    methods = {}
    for name, model in (("forward", Net()), ("encode", nn.Sequential(nn.Conv2d(4, 4, 1), nn.ReLU()))):
        exported = torch.export.export(model.eval(), IMAGE)
        quantized = calibrate_and_quantize(exported, [IMAGE], NeutronQuantizer(SPEC))
        methods[name] = torch.export.export(quantized, IMAGE)
    partitioner = NeutronPartitioner(
        generate_neutron_compile_spec("imxrt700", operators_not_to_delegate=["features.1"]), SPEC
    )
    edge = to_edge_transform_and_lower(methods, partitioner=[partitioner])
    names = [
        child.meta["_delegate_info_meta"].name
        for method in ("forward", "encode")
        for child in edge.exported_program(method).graph_module.children()
        if isinstance(child, LoweredBackendModule)
    ]
    assert names == ["tag0", "tag1", "tag2"]
    assert [item.partitions for item in partitioner.delegations] == [2, 1]
    delegate.load()
    buffer = edge.to_executorch(ExecutorchBackendConfig(extract_delegate_segments=False)).buffer
    program = Runtime.get().load_program(buffer)
    for name, method in methods.items():
        (output,) = program.load_method(name).execute(list(IMAGE))
        wanted = method.module()(*IMAGE)
        assert float((output - wanted).abs().max()) <= 0.03 * float(wanted.abs().max())


def test_a_partition_has_no_more_borders_than_a_payload_counts() -> None:
    graph = Graph()
    calls = [graph.call_function(operator.neg, (graph.placeholder(f"x{i}"),)) for i in range(2 * MOST_TENSORS + 2)]
    graph.output(tuple(calls))
    parts = gather(graph, [Unit((node,)) for node in calls])
    assert [node for part in parts for node in part.nodes] == calls
    assert len(parts) == 4 and max(len(part.inputs) for part in parts) <= MOST_TENSORS
    # Constants are none.
    placeholders = {node for node in graph.nodes if node.op == "placeholder"}
    assert not any(part.inputs for part in gather(graph, [Unit((node,)) for node in calls], placeholders))


# Reasons and costs


class Parted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.first, self.last = nn.Conv2d(4, 4, 1), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor, n: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        y = torch.topk(self.first(x), 8)[0]
        return self.last(y), F.relu(self.first(x)), torch.topk(n, 1)[0]


def test_every_reason_says_what_it_costs() -> None:
    inputs = (*IMAGE, torch.zeros(1, 4, dtype=torch.int64))
    program = analyse(Parted().eval(), inputs, calibration=[inputs])
    outside, inside = program.delegation.on_cpu  # in the order of execution
    # 256 int8 values come from the first convolution and as many go to the linear layer.
    assert inside.fallback == Fallback(calls=2, calls_without=1, border_bytes=512)
    assert outside.fallback == Fallback(calls=2, calls_without=2, border_bytes=0)
    assert (inside.operator, inside.overload, inside.rule) == ("aten.topk", "aten.topk.default", "none")
    assert inside.line.startswith("test_delegation.py:")
    said = program.report.to_dict()["on_cpu"][1]
    assert said["fallback"] == {"calls": 2, "calls_without": 1, "border_bytes": 512}
    assert said["reason"] == "it puts values in order, for which there is no kernel"
    assert "parts 1 delegate" in program.summary()


def test_nobody_is_told_to_quantize_what_compile_quantized() -> None:
    class Integers(nn.Module):
        def forward(self, x: torch.Tensor, n: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return F.relu(x), n * 2

    inputs = (*IMAGE, torch.ones(1, 4, dtype=torch.int32))
    program = analyse(Integers(), inputs, calibration=[inputs])
    for item in program.delegation.on_cpu:
        assert "NeutronQuantizer" not in str(item)

    class Halves(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return F.relu(x.half())

    item = analyse(Halves(), IMAGE, calibration=[IMAGE]).delegation.on_cpu[-1]
    assert str(item) == (
        f"aten.relu 'relu ({item.line})' stays on the CPU: its result is torch.float16; what can be quantized is "
        "torch.float32. Convert model and inputs with .float()."
    )


def test_a_lowering_releases_the_programs_of_earlier_ones() -> None:
    """The caches of torch, torchao and ExecuTorch keep them otherwise, and a process that compiles many models slows down."""

    def alive() -> list[neutron_partitioner.LoweredBackendModule]:
        return [made for made in gc.get_objects() if type(made) is neutron_partitioner.LoweredBackendModule]

    before = set(map(id, alive()))
    net()
    first = weakref.WeakSet(made for made in alive() if id(made) not in before)
    assert len(first)
    net()
    gc.collect()
    assert len(first) == 0
