# SPDX-License-Identifier: BSD-3-Clause
"""Models from a cache: the bytes of a compile without one, without quantization, delegation and ExecuTorch's passes."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import openneutron
from openneutron import CompileOptions, DelegationOptions, QuantizationOptions
from openneutron.api import pytorch as api
from openneutron.api.pytorch import CompiledModel
from openneutron.device import cache as stored
from openneutron.errors import BudgetError, InvalidModelError

IMAGE = (torch.randn(1, 3, 16, 16, generator=torch.Generator().manual_seed(0)),)
OTHER = CompileOptions(io_place="arena")


class TwoParts(nn.Module):
    """A network with an operator for the CPU in its middle, and so with two partitions."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU())
        self.second = nn.Conv2d(8, 4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.cumprod(self.first(x), -1))


class Counting(nn.Module):
    """A network that keeps the sum of its inputs, and takes a keyword."""

    total: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 4, 3)
        self.register_buffer("total", torch.zeros(1, 3, 16, 16))

    def forward(self, x: torch.Tensor, *, other: torch.Tensor) -> dict[str, torch.Tensor]:
        self.total.add_(x)
        return {"sum": self.total + other, "image": self.layer(x)}


class Product(nn.Module):
    """A network without an operator for the NPU."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cumprod(x, -1)


def seeded(kind: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return kind().eval()


@cache
def quantized() -> torch.export.ExportedProgram:
    return torch.export.export(fresh().quantized, IMAGE)


@dataclass(frozen=True)
class Case:
    """A model and the arguments of its compile."""

    model: Callable[[], Any]
    arguments: dict[str, Any]


CASES = {
    "two partitions, a float layer": Case(
        lambda: seeded(TwoParts), {"quantization": QuantizationOptions(keep_float=["second"])}
    ),
    "int8 inputs and outputs, channels last": Case(
        lambda: seeded(TwoParts).first, {"quantization": QuantizationOptions(io_dtype="int8", channels_last=True)}
    ),
    "state and keywords": Case(
        lambda: seeded(Counting), {"example_kwargs": {"other": IMAGE[0]}, "calibration": [(IMAGE, {"other": IMAGE[0]})]}
    ),
    "a quantized program": Case(quantized, {"calibration": None}),
    "nothing for the NPU": Case(
        lambda: seeded(Product), {"delegation": DelegationOptions(must_delegate=False, any_runtime=True)}
    ),
}


def compiled(folder: Path | None, model: Any = None, **arguments: Any) -> CompiledModel:
    given = {"calibration": [IMAGE], "delegation": DelegationOptions(any_runtime=True), "name": "net"} | arguments
    made = openneutron.compile(seeded(TwoParts) if model is None else model, IMAGE, cache=folder, **given)
    assert isinstance(made, CompiledModel)
    return made


@cache
def fresh() -> CompiledModel:
    """Return the network of two parts, compiled without a cache."""
    return compiled(None)


@pytest.fixture(scope="module")
def entry(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a cache with the network of two parts. Tests change a copy of it."""
    folder = tmp_path_factory.mktemp("cache")
    compiled(folder)
    return folder


@pytest.fixture
def filled(entry: Path, tmp_path: Path) -> Path:
    """Return a cache of this test's own with the network of two parts."""
    return Path(shutil.copytree(entry, tmp_path / "filled"))


@pytest.fixture
def flows(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the models that went all the way, and were not taken from a cache."""
    names: list[str] = []
    inner = api._made

    def counted(asked: Any, *others: Any) -> Any:
        names.append(asked.request.name)
        return inner(asked, *others)

    monkeypatch.setattr(api, "_made", counted)
    return names


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_the_bytes_are_those_of_a_compile_without_a_cache(tmp_path: Path, flows: list[str], case: Case) -> None:
    case.model()
    flows.clear()
    compiled(tmp_path, case.model(), **case.arguments)
    again = compiled(tmp_path, case.model(), options=OTHER, **case.arguments)
    assert flows == ["net"]
    fresh = compiled(None, case.model(), options=OTHER, **case.arguments)
    assert again.buffer == fresh.buffer
    assert (again.report, again.delegation, again.keywords) == (fresh.report, fresh.delegation, fresh.keywords)
    assert again.intermediates(Path()) == fresh.intermediates(Path())
    assert again.recompile(io_place="caller").buffer == fresh.recompile(io_place="caller").buffer


def test_a_name_and_a_profile_are_those_of_the_compile(tmp_path: Path, flows: list[str]) -> None:
    wanted = fresh().buffer
    flows.clear()
    compiled(tmp_path, name="one")
    assert compiled(tmp_path).buffer == wanted
    compiled(tmp_path, options=CompileOptions(profile=True))
    assert flows == ["one", "net"]  # with a profile, which changes the delegation


def test_what_a_model_depends_on_is_in_the_key(filled: Path, flows: list[str]) -> None:
    compiled(filled)
    assert flows == []
    wider = seeded(TwoParts)
    with torch.no_grad():
        wider.second.weight[0, 0, 0, 0] += 1
    compiled(filled, wider)
    compiled(filled, calibration=[IMAGE, IMAGE])
    compiled(filled, delegation=DelegationOptions(any_runtime=True, operators_not_to_delegate=["aten.relu"]))
    compiled(filled, quantization=QuantizationOptions(keep_float=[nn.ReLU]))
    assert len(flows) == len([*filled.glob("*.model")]) - 1 == 4


def test_a_change_of_one_layer_compiles_its_partition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[str] = []
    inner = stored.compile_prepared

    def counted(graph: Any, *others: Any) -> Any:
        names.append(graph.graph.name)
        return inner(graph, *others)

    monkeypatch.setattr(stored, "compile_prepared", counted)
    compiled(tmp_path)
    assert names == ["net tag0", "net tag1"]
    changed = seeded(TwoParts)
    with torch.no_grad():
        changed.second.weight *= 2
    again = compiled(tmp_path, changed)
    assert names == ["net tag0", "net tag1", "net tag1"]
    assert again.buffer == compiled(None, changed).buffer


class Noisy(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x + torch.rand_like(x))


def test_what_no_hash_knows_goes_all_the_way(tmp_path: Path) -> None:
    compiled(tmp_path, Noisy(), delegation=DelegationOptions(any_runtime=True, must_delegate=False))
    compiled(tmp_path, quantization=QuantizationOptions(train_fn=lambda module: module(*IMAGE)))
    assert [*tmp_path.glob("*.model")] == []


def test_a_damaged_entry_is_made_again(filled: Path, flows: list[str]) -> None:
    first = compiled(filled)
    (entry,) = filled.glob("*.model")
    whole = entry.read_bytes()
    entry.write_bytes(whole[:-1])
    assert compiled(filled).buffer == first.buffer
    assert (flows, entry.read_bytes()) == (["net"], whole)


def test_the_quantized_module_is_made_when_it_is_read(tmp_path: Path) -> None:
    first, again, changed = compiled(tmp_path), compiled(tmp_path), seeded(TwoParts)
    assert again.quantized is again.recompile(io_place="arena").quantized
    assert torch.equal(again.quantized(*IMAGE), first.quantized(*IMAGE))
    made = compiled(tmp_path, changed)
    with torch.no_grad():
        changed.second.weight += 1
    with pytest.raises(InvalidModelError) as caught:
        made.quantized  # noqa: B018
    assert str(caught.value) == (
        "'net': its weights or calibration samples have changed since it was compiled. With a cache the quantized module is "
        "made when it is first read; read it before, or compile without a cache."
    )


def test_errors_are_those_of_a_compile_without_a_cache(filled: Path, flows: list[str]) -> None:
    compiled(filled, Product(), delegation=DelegationOptions(must_delegate=False, any_runtime=True))
    for kind, arguments in (
        (BudgetError, {"options": CompileOptions(sram_budget=1000)}),
        (InvalidModelError, {"delegation": DelegationOptions(any_runtime=False)}),
        (InvalidModelError, {"delegation": DelegationOptions(any_runtime=True), "model": Product()}),
    ):
        with pytest.raises(kind) as without:
            compiled(None, **arguments)
        flows.clear()
        with pytest.raises(kind) as again:
            compiled(filled, **arguments)
        assert (str(again.value), flows) == (str(without.value), [])
