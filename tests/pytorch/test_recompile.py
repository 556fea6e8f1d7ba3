# SPDX-License-Identifier: BSD-3-Clause
"""Compiles of one quantized program with other options: the bytes are those of a compile from the start."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import openneutron
from openneutron import CompileOptions, DelegationOptions, QuantizationOptions
from openneutron.api.pytorch import CompiledModel
from openneutron.errors import BudgetError, InvalidOptionError
from openneutron.ir import DType

EXAMPLE = (torch.randn(1, 3, 24, 24, generator=torch.Generator().manual_seed(0)),)


class TwoParts(nn.Module):
    """A network with an operator for the CPU in its middle, and so with two partitions."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 8, 3, padding=1))
        self.second = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 4, 3, stride=2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.sort(self.first(x), dim=-1).values)


@cache
def model(whole: bool = False) -> nn.Module:
    torch.manual_seed(0)
    made = TwoParts().eval()
    return made.first if whole else made


def compiled(whole: bool = False, **options: Any) -> CompiledModel:
    made = openneutron.compile(
        model(whole),
        EXAMPLE,
        calibration=[EXAMPLE],
        options=CompileOptions(**options),
        quantization=QuantizationOptions(io_dtype="int8" if whole else "float32"),
        delegation=DelegationOptions(any_runtime=True),
    )
    assert isinstance(made, CompiledModel)
    return made


CHANGES: list[dict[str, Any]] = [
    {"sram_budget": 16 * 1024},
    {"sram_budget": 14 * 1024},
    {"io_place": "arena"},
    {"prefetch_constants": True},
    {"effort": "high", "sram_budget": 14 * 1024},
    {"check": True},
]


@pytest.mark.parametrize(("whole", "partitions"), [(True, ["tag0"]), (False, ["tag0", "tag1"])])
def test_the_bytes_are_those_of_a_compile_from_the_start(whole: bool, partitions: list[str]) -> None:
    first = compiled(whole)
    before = first.buffer
    for changes in CHANGES[:: 3 if whole else 1]:
        made, fresh = first.recompile(**changes), compiled(whole, **changes)
        assert made.buffer == fresh.buffer, changes
        assert made.report == fresh.report, changes
    assert first.buffer == before
    assert [part.name for part in first.partitions] == partitions


def test_changes_add_up() -> None:
    made = compiled().recompile(io_place="arena").recompile(sram_budget=20 * 1024)
    assert made.options == CompileOptions(io_place="arena", sram_budget=20 * 1024)
    assert made.buffer == compiled(io_place="arena", sram_budget=20 * 1024).buffer
    assert [item.step for item in made.timings.steps] == ["Compiling", "Writing", "Other"]


def test_int16_and_the_kernels_of_the_cpu_concern_only_models_that_have_such_operators() -> None:
    first = compiled(whole=True)
    for changes in ({"target": "mcxn94x", "host_calls": False}, {"target": "imx95"}):
        assert first.can_recompile(CompileOptions(**changes))
        assert first.recompile(**changes).buffer == compiled(whole=True, **changes).buffer, changes


class Power(nn.Module):
    """A channel's share of the power of all, whose sums have 16 bits where the NPU computes on them."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(torch.mean(x * x, 1, keepdim=True) + 1e-5)


def power(folder: Path | None, target: str) -> CompiledModel:
    options = CompileOptions(target=target, cut_by_cost=False)
    made = openneutron.compile(Power(), EXAMPLE, calibration=[EXAMPLE], options=options, name="power", cache=folder)
    assert isinstance(made, CompiledModel)
    return made


def test_a_quantization_for_another_npu_is_a_new_compile(tmp_path: Path) -> None:
    """Both chips take int16 in programs, on the NPU or on the host core."""
    wide, again, narrow = (power(tmp_path, target) for target in ("imxrt700", "imxrt700", "mcxn94x"))
    kinds = [{tensor.dtype for graph in made.graphs for tensor in graph.tensors.values()} for made in (wide, narrow)]
    assert [DType.INT16 in each for each in kinds] == [True, False]
    assert again.buffer == wide.buffer and power(None, "mcxn94x").buffer == narrow.buffer
    for made, words in (
        (wide, "int8, int16; that of mcxn94x computes on int8"),
        (again, "int8, int16; that of mcxn94x computes on int8"),
        (narrow, "int8; that of imxrt700 computes on int8, int16"),
    ):
        with pytest.raises(InvalidOptionError) as caught:
            made.recompile(target="imxrt700" if made is narrow else "mcxn94x")
        assert str(caught.value) == (
            f"target: 'power' is quantized for an NPU that computes on {words}. Compile the model again."
        )
    assert wide.can_recompile(CompileOptions(target="imx95", cut_by_cost=False))


def test_a_recompile_for_the_other_converter_is_a_new_compile() -> None:
    with pytest.raises(InvalidOptionError) as caught:
        compiled(whole=True).recompile(converter="eiq")
    assert str(caught.value) == (
        "converter: 'model' is partitioned for 'open', and 'eiq' takes other operators. Compile the model again."
    )


def test_a_budget_that_is_too_small_is_the_same_error() -> None:
    first = compiled()
    with pytest.raises(BudgetError) as again:
        first.recompile(sram_budget=3000)
    with pytest.raises(BudgetError) as fresh:
        compiled(sram_budget=3000)
    assert str(again.value) == str(fresh.value)
    assert first.recompile().buffer == first.buffer


def test_unusable_changes() -> None:
    first = compiled(whole=True)
    with pytest.raises(TypeError) as unknown:
        first.recompile(sram_buget=3000)
    assert (
        str(unknown.value) == "recompile() got an unexpected keyword argument 'sram_buget'. Did you mean 'sram_budget'?"
    )
    with pytest.raises(InvalidOptionError) as wrong:
        first.recompile(sram_budget=0)
    assert str(wrong.value) == "sram_budget: it is 0 bytes; a budget is above 0."
