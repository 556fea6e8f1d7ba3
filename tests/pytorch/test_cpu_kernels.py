# SPDX-License-Identifier: BSD-3-Clause
"""The kernels of operators outside of all programs: XNNPACK beside the delegate, and the option that chooses them."""

from __future__ import annotations

import json
import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import openneutron
from openneutron import CompileOptions
from openneutron.api.pytorch import CompiledModel
from openneutron.compiler.cost.host import EXECUTORCH, HostKind
from openneutron.device import pte
from openneutron.errors import InvalidOptionError
from openneutron.pytorch.partition.delegation import KINDS

EXAMPLE = (torch.linspace(-1, 1, 3 * 8 * 8).reshape(1, 3, 8, 8),)


class FloatMiddle(nn.Module):
    """A network with float operators between two convolutions: LayerNorm, which XNNPACK does not have, a linear layer and a softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 8, 1)
        self.norm, self.linear = nn.LayerNorm(16), nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.first(x))
        y = self.linear(self.norm(x.flatten(2).transpose(1, 2)))
        return self.last(torch.softmax(y, -1).transpose(1, 2).reshape(x.shape))


@cache
def compiled(io_dtype: str = "float32", **options: Any) -> CompiledModel:
    torch.manual_seed(0)
    made = openneutron.compile(
        FloatMiddle().eval(),
        EXAMPLE,
        calibration=[EXAMPLE],
        options=CompileOptions(**options),
        quantization={"keep_float": ("norm", "linear", "aten.softmax.int"), "io_dtype": io_dtype},
        name="middle",
    )
    assert isinstance(made, CompiledModel)
    return made


def backends(program: CompiledModel) -> list[str]:
    return [delegate.backend for delegate in pte.delegates(program.buffer)]


def test_xnnpack_computes_the_float_operators_of_a_linux_chip() -> None:
    mixed, plain = compiled(target="imx95"), compiled(target="imx95", cpu="portable")
    assert backends(mixed) == ["NeutronBackend", "XnnpackBackend", "NeutronBackend"]
    assert backends(plain) == ["NeutronBackend", "NeutronBackend"]
    # The programs of the NPU are the same.
    assert [part.payload for part in mixed.partitions] == [part.payload for part in plain.partitions]
    (result,), (expected,) = mixed.run(*EXAMPLE), plain.run(*EXAMPLE)
    # Both are dequantized int8: a float sum in another order may move a value by one step.
    step = float(torch.unique(expected).diff().min())
    assert torch.allclose(result, expected, rtol=0, atol=1.01 * step)
    kernels = {item.overload: item.kernels for item in mixed.delegation.on_cpu}
    assert (kernels["aten.addmm.default"], kernels["aten.native_layer_norm.default"]) == ("xnnpack", "")
    assert {item.kernels for item in plain.delegation.on_cpu} == {""}


def test_the_summary_names_the_other_backend(tmp_path: Path) -> None:
    program = compiled(target="imx95")
    said = "3 operators by XNNPACK in 1 delegate call, which the application links; 1 by ExecuTorch's own kernels"
    assert said in " ".join(program.summary().split())
    assert program.report.to_dict()["cpu_parts"] == 1
    program.save(tmp_path / "net.pte")
    loaded = openneutron.load(tmp_path / "net.pte")
    assert loaded.on_cpu["XnnpackBackend"] == 1
    assert torch.equal(loaded.run(*EXAMPLE)[0], program.run(*EXAMPLE)[0])


def test_xnnpack_works_between_int8_inputs_and_outputs() -> None:
    program = compiled("int8", target="imx95")
    assert backends(program) == ["NeutronBackend", "XnnpackBackend", "NeutronBackend"]
    assert program.report.host_operators_not_modelled == 0
    assert sum(item.kernels == "xnnpack" for item in program.delegation.on_cpu) == 5


def test_a_recompile_keeps_the_kernels() -> None:
    program = compiled(target="imx95")
    smaller = program.recompile(io_place="arena")
    assert Counter(backends(smaller)) == Counter(backends(program))
    assert torch.equal(smaller.run(*EXAMPLE)[0], program.run(*EXAMPLE)[0])
    with pytest.raises(InvalidOptionError) as caught:
        program.recompile(target="imxrt700")
    assert str(caught.value) == (
        "cpu: the operators of 'middle' on the CPU have the kernels 'xnnpack'; these options ask for 'portable'. Compile the model again."
    )


def test_the_default_is_that_of_the_host_core() -> None:
    def found(**options: Any) -> str:
        return CompileOptions(**options).cpu_kernels

    assert (found(target="imx95"), found(target="imxrt700"), found(target="mcxn94x")) == (
        "xnnpack",
        "portable",
        "portable",
    )
    assert (found(target="cortex-a55"), found(target="imx95", converter="driver")) == ("xnnpack", "xnnpack")
    assert (found(target="imx95", converter="eiq"), found(target="imx95", cpu="portable")) == ("portable", "portable")
    for target, cpu, family, core in (("imxrt700", "xnnpack", "Cortex-A", "Cortex-M33"),):
        with pytest.raises(InvalidOptionError) as caught:
            CompileOptions(target=target, cpu=cpu)
        assert str(caught.value) == (
            f"cpu: it is '{cpu}', which runs on a {family}; the host core of {target} is a {core}. Leave it out, or set cpu='portable'."
        )


def test_the_report_has_the_time_of_each_part_and_the_costliest_reason() -> None:
    mixed, plain = compiled(target="imx95").report, compiled(target="imx95", cpu="portable").report
    parts = mixed.latency.parts()
    assert [*parts] == ["NPU", "copies", "host", "ExecuTorch's kernels", "XNNPACK"]
    assert mixed.milliseconds == pytest.approx(sum(part.milliseconds for part in parts.values()))
    assert all(part.least < part.milliseconds < part.most for part in parts.values())
    assert mixed.milliseconds < plain.milliseconds and mixed.host_operators_not_modelled == 0
    first, *others = plain.reasons()
    assert first.text == "keep_float 'linear' keeps it float" and first.operators == 2
    assert [row.time.milliseconds for row in others] == sorted((row.time.milliseconds for row in others), reverse=True)
    data = mixed.to_dict()
    assert [*data["parts"]] == [*parts] and len(data["reasons"]) == 3
    said = " ".join(compiled(target="imx95", cpu="portable").summary().split())
    assert re.search(
        r"Costs most [\d.]+ us \(\d+ to \d+\) in 2 operators on the CPU: keep_float 'linear' keeps it float", said
    )


class Island(nn.Module):
    """A network with a ReLU and a product between two operators that stay float."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 1), nn.LayerNorm(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(torch.relu(self.first(x)).permute(0, 2, 3, 1))
        return self.last(torch.softmax(torch.relu(y) * 0.5, -1).permute(0, 3, 1, 2))


@cache
def with_island(**options: Any) -> CompiledModel:
    torch.manual_seed(0)
    made = openneutron.compile(
        Island().eval(),
        EXAMPLE,
        calibration=[EXAMPLE],
        options=CompileOptions(**options),
        quantization={"keep_float": ("norm", "aten.softmax.int")},
        name="island",
    )
    assert isinstance(made, CompiledModel)
    return made


def test_an_island_that_takes_longer_on_the_npu_stays_on_the_cpu() -> None:
    cut, whole = with_island(target="imxrt700"), with_island(target="imxrt700", cut_by_cost=False)
    assert (len(cut.partitions), len(whole.partitions)) == (2, 3)
    left = [item for item in cut.delegation.on_cpu if item.rule == "cost"]
    assert [item.overload for item in left] == ["aten.relu.default", "aten.mul.Tensor"]
    assert left[0].reason == (
        "it is between operators on the CPU: 102.9 us on the NPU with the conversions around it, 31.6 us on the CPU"
    )
    assert left[0].suggestion == "Set cut_by_cost=False (--no-cut-by-cost) to have it on the NPU."
    assert cut.report.milliseconds < whole.report.milliseconds
    # It computes in float, without conversions around it.
    conversions = [operator for operator in cut.report.host if operator.kind is HostKind.CONVERSION]
    assert len(conversions) == 4
    (result,), (expected,) = cut.run(*EXAMPLE), whole.run(*EXAMPLE)
    step = float(torch.unique(expected).diff().min())
    assert torch.allclose(result, expected, rtol=0, atol=3 * step)
    with pytest.raises(InvalidOptionError) as caught:
        cut.recompile(target="mcxn94x")
    assert str(caught.value) == (
        "cut_by_cost: partitions of 'island' are left to the CPU because of their time on imxrt700. Compile the model again for other "
        "options."
    )
    with pytest.raises(InvalidOptionError) as caught:
        whole.recompile(cut_by_cost=True)
    assert str(caught.value) == (
        "cut_by_cost: partitions of 'island' are between operators on the CPU, and may take more time on imxrt700 than on its CPU. Compile "
        "the model again for these options."
    )
    assert whole.recompile(io_place="arena").options.io_place == "arena"


def test_each_kind_of_work_has_counted_instructions() -> None:
    counted = json.loads(EXECUTORCH.read_text())["instructions"]
    assert set(counted) == {*KINDS, "depthwise convolution", "function"}
    assert all(found["portable"] > 0 for found in counted.values())
    assert {kind for kind, found in counted.items() if "xnnpack" not in found} == {
        "normalization",
        "join",
        "index",
        "sort",
    }
