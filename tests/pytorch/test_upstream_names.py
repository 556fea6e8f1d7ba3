# SPDX-License-Identifier: BSD-3-Clause
"""Modules and classes that scripts import from ExecuTorch's NXP backend, where this project has what they do."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
import torch
from openneutron.pytorch.aten_passes.convert_div_to_mul import ConvertDivToMulPass
from openneutron.pytorch.aten_passes.convert_scalar_to_attr import ConvertScalarToAttrPass
from openneutron.pytorch.aten_passes.fuse_batch_norm_with_conv_pass import FuseBatchNormWithConvPass
from openneutron.pytorch.aten_passes.fuse_batch_norm_with_linear_pass import FuseBatchNormWithLinearPass
from openneutron.pytorch.aten_passes.neutron_aten_pass_manager import NeutronAtenPassManager
from openneutron.pytorch.aten_passes.remove_nodes_with_known_outputs import RemoveNodesWithKnownOutputs
from openneutron.pytorch.aten_passes.simulated_linear_bn_fusion_passes import (
    AddSimulatedLinearBatchNormFusionQATPass,
    RemoveSimulatedLinearBatchNormFusionQATPass,
)
from torch import nn
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

from openneutron import litert
from openneutron.errors import InvalidTargetError
from openneutron.pytorch.backend import edge_helper
from openneutron.pytorch.backend.custom_delegation_options import CustomDelegationOptions
from openneutron.pytorch.backend.neutron_converter_manager import NeutronConverterManager
from openneutron.pytorch.backend.neutron_target_spec import NeutronTargetSpec
from openneutron.pytorch.neutron_node_extraction import extract_artifacts_from_neutron_node
from openneutron.pytorch.neutron_partitioner import NeutronPartitioner
from openneutron.pytorch.nxp_backend import generate_neutron_compile_spec
from openneutron.pytorch.quantizer.neutron_quantizer import NeutronQuantizer
from tests.support.litert_files import int16_file

IMAGE = (torch.linspace(-1, 1, 2 * 3 * 4).reshape(1, 2, 3, 4),)


class Normalized(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.conv, self.norm = nn.Conv2d(2, 3, 2), nn.BatchNorm2d(3)
        self.fc, self.row = nn.Linear(18, 4), nn.BatchNorm1d(4)
        for norm in (self.norm, self.row):
            nn.init.uniform_(norm.running_var, 0.5, 2.0)
        self.shift = nn.Parameter(torch.ones(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.row(self.fc(self.norm(self.conv(x)).flatten(1))) / 4 + (self.shift * 2).exp()


def exported() -> torch.fx.GraphModule:
    module = torch.export.export(Normalized().eval(), IMAGE, strict=True).module(check_guards=False)
    assert isinstance(module, torch.fx.GraphModule)
    return module


def targets(module: torch.fx.GraphModule) -> list[str]:
    return [str(node.target).removeprefix("aten.") for node in module.graph.nodes if node.op == "call_function"]


def test_passes_keep_the_results() -> None:
    spec = NeutronTargetSpec("imxrt700")
    for passes, gone, left in (
        ([FuseBatchNormWithConvPass()], 1, "div.Tensor"),
        (
            [
                FuseBatchNormWithLinearPass(),
                ConvertDivToMulPass(),
                ConvertScalarToAttrPass(),
                RemoveNodesWithKnownOutputs(),
            ],
            1,
            "mul.Tensor",
        ),
    ):
        module = exported()
        result = NeutronAtenPassManager(spec, passes)(module)
        found = targets(result.graph_module)
        assert found.count("batch_norm.default") == 2 - gone and left in found
        torch.testing.assert_close(result.graph_module(*IMAGE), Normalized().eval()(*IMAGE))
    assert "div.Tensor" not in found and "exp.default" not in found
    assert AddSimulatedLinearBatchNormFusionQATPass().targets and RemoveSimulatedLinearBatchNormFusionQATPass().targets


def test_questions_about_quantized_nodes() -> None:
    module = torch.export.export(nn.Sequential(nn.Conv2d(2, 3, 2), nn.Sigmoid()).eval(), IMAGE).module(
        check_guards=False
    )
    prepared = prepare_pt2e(module, NeutronQuantizer())
    prepared(*IMAGE)
    graph = torch.export.export(convert_pt2e(prepared), IMAGE).module(check_guards=False).graph
    conv, sigmoid = (
        next(node for node in graph.nodes if str(node.target) == f"aten.{name}")
        for name in ("conv2d.default", "sigmoid.default")
    )
    assert edge_helper.previous_non_qdq_node(sigmoid) is conv and edge_helper.get_non_qdq_parent(sigmoid) is conv
    assert edge_helper.get_non_qdq_users(conv) == [sigmoid]
    (quantize,) = sigmoid.users
    assert edge_helper.get_quantization_parameters_for(quantize) == quantize.args[1:3]
    assert edge_helper.get_quantization_parameters_for(sigmoid) is None
    assert (edge_helper.input_rank(conv, 0), edge_helper.output_tensor(conv).shape) == (4, (1, 3, 2, 3))
    assert edge_helper.input_tensor_safe(sigmoid, 1) is None and edge_helper.try_get_arg(sigmoid, 1) is None
    assert edge_helper.node_has_well_defined_shape(conv)
    assert edge_helper.is_channels_last_dim_order([0, 2, 3, 1]) and not edge_helper.is_channels_last_dim_order([0, 1])


def test_a_file_is_converted_and_its_parts_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    manager, stock = NeutronConverterManager(dump_kernel_selection_code=True), int16_file(0.01)
    converted = manager.convert(stock, "imxrt700", "tag0")
    assert [path.name for path in tmp_path.iterdir()] == ["_kernel_selection_tag0.c"]
    (tmp_path / "converted.tflite").write_bytes(converted)
    graph = litert.read(converted).graph
    for given in (converted, "converted.tflite"):
        parts = extract_artifacts_from_neutron_node(given)
        assert (parts.input_names, parts.output_names) == (list(graph.inputs), list(graph.outputs))
        assert (parts.input_indices, parts.output_indices, parts.payload_version) == ([0, 1], [0], 1)
        assert all(blob.dtype.name == "uint8" for blob in (parts.microcode, parts.weights, parts.kernels))
    with pytest.raises(InvalidTargetError):
        manager.verify_target("imx")


def test_patterns_are_not_there() -> None:
    patterns = importlib.import_module("openneutron.pytorch.quantizer.patterns")
    with pytest.raises(ImportError) as caught:
        patterns.AddTensorPattern  # noqa: B018
    assert str(caught.value) == (
        "quantizer.patterns has no 'AddTensorPattern': NeutronQuantizer annotates operators by a table, and no patterns can be "
        "added. Its methods set_module_name, set_module_type, set_operator and keep_float change the quantization of modules and "
        "operators."
    )
    assert not hasattr(patterns, "other")


def test_a_partitioner_as_executorch_1_0_makes_it() -> None:
    options = CustomDelegationOptions(allow_no_op_partitions=True)
    partitioner = NeutronPartitioner(generate_neutron_compile_spec("imx95"), options)
    assert partitioner.custom_delegation_options is options
    assert partitioner.neutron_target_spec.get_name() == "imx95"
