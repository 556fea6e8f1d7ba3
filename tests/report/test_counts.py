# SPDX-License-Identifier: BSD-3-Clause
"""The summary's counts: operators that compute, multiply-accumulates on either side, rows of operators on the CPU."""

from __future__ import annotations

import torch
from torch import nn

from openneutron import litert
from openneutron.api.pytorch import analyse
from openneutron.compiler import CompileOptions
from openneutron.device.mixed import compile_file
from openneutron.features.report import PartitionSummary, of_compiled_file
from openneutron.features.report.summary import folded
from openneutron.features.report.text import calls_table, plain, summary_rows
from openneutron.ir.graph import OnCpu
from openneutron.options import QuantizationOptions
from tests.support.litert_files import mixed_file

SIDE = 12


class Layers(nn.Module):
    """A convolution followed by a dropout and a view, and a layer that stays in float."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.Dropout())
        self.head = nn.Linear(8 * SIDE * SIDE, 4)
        self.kept = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.kept(self.head(self.features(x).flatten(1)))


def test_views_and_dropouts_are_no_work_and_macs_count_on_both_sides() -> None:
    example = (torch.zeros(1, 8, SIDE, SIDE),)
    program = analyse(
        Layers(),
        example,
        calibration=[(torch.randn(1, 8, SIDE, SIDE),)],
        quantization=QuantizationOptions(keep_float=["kept"]),
    )
    made = program.report
    idle = {item.operator for item in made.delegated if not item.computes}
    assert idle == {"aten.dropout", "aten.flatten"}
    assert (made.operators_on_npu, made.operators, len(made.delegated)) == (3, 5, 5)
    assert str(program.delegation).startswith("3 of 5 operators on the NPU, in 1 delegate call")
    # On the CPU the float layer is two operators: its weights are transposed, then multiplied.
    assert len(made.on_cpu) == 2
    assert made.macs == 8 * 8 * 9 * SIDE * SIDE + 8 * SIDE * SIDE * 4
    assert made.cpu_macs == 4 * 3
    assert dict(summary_rows(made))["MACs"] == f"{(made.macs + 12) / 1e3:.1f} k, 0.0 % of them on the CPU"
    data = made.to_dict(details=True)
    assert (data["macs_on_cpu"], data["macs_in_all"], data["operators_on_npu"]) == (12, made.macs + 12, 3)

    (part,) = made.partitions
    modules = [call["module"] for call in data["partitions"][0]["calls"] if call["macs"]]
    assert modules == ["features.0", "head"]
    shown = [line.split()[0] for line in plain(calls_table(part, made.target)).splitlines() if "conv_2d" in line]
    assert shown == ["features.0", "head"]


def test_a_number_behind_a_name_is_another_node() -> None:
    part = of_compiled_file(compile_file(litert.read(mixed_file()), "m", must_delegate=False)).partitions[0]
    names = {"aten_relu": "block.1", "aten_relu_1": "block.2", "aten_add": "add (net.py:7)"}
    modules = {node: name for node, name in names.items() if node != "aten_add"}
    named = PartitionSummary("p", part.report, names, modules)
    given = (
        "aten_relu",
        "aten_relu_1",
        "aten_relu_2",
        "aten_relu_1/middle",
        "aten_relu_nhwc",
        "aten_add_transposed",
        "other",
    )
    assert [named.title(name) for name in given] == [
        "block.1",
        "block.2",
        "aten_relu_2",
        "block.2/middle",
        "block.1_nhwc",
        "add (net.py:7) transposed",
        "other",
    ]
    assert named.title("store aten_relu_nhwc") == "store block.1_nhwc"
    assert [named.module(name) for name in given] == ["block.1", "block.2", "", "block.2", "block.1", "", ""]


def test_macs_of_a_file_are_those_of_both_sides() -> None:
    model = litert.read(mixed_file())
    whole, part = (
        of_compiled_file(compile_file(model, "m", CompileOptions(), kept, must_delegate=False))
        for kept in ((), ("CONV_2D",))
    )
    assert (whole.macs, whole.cpu_macs) == (32256, 0)
    assert (part.macs, part.cpu_macs) == (0, 32256)
    assert dict(summary_rows(part))["MACs"] == "32.3 k, 100.0 % of them on the CPU"


def test_operators_of_one_module_and_reason_are_one_row() -> None:
    sort = OnCpu("aten.sort", "head", "there is no kernel for it", "Do without.")
    items = [
        sort,
        OnCpu("aten.topk", "head", "there is no kernel for it", "Do without."),
        OnCpu("aten.sort", "tail", "there is no kernel for it", "Do without."),
        OnCpu("aten.sort", "head", "it converts int8 to int16"),
        sort,
        OnCpu("aten.exp", "exp", "it is not quantized", written="gelu", call="gelu_1"),
        OnCpu("aten.mul", "mul", "it is not quantized", written="gelu", call="gelu_1"),
    ]
    assert [(row.title, row.items[0].name) for row in folded(items)] == [
        ("aten.sort, aten.topk (3 operators)", "head"),
        ("aten.sort", "tail"),
        ("aten.sort", "head"),
        ("gelu (2 operators)", "exp"),
    ]
    assert folded(items)[0].to_dict() == {
        "operator": "aten.sort, aten.topk (3 operators)",
        "name": "head",
        "reason": "there is no kernel for it",
        "suggestion": "Do without.",
        "count": 3,
    }
