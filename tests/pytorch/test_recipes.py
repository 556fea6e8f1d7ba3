# SPDX-License-Identifier: BSD-3-Clause
"""Our recipes in ExecuTorch's export pipeline, and what comes out, run."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import executorch.export
import pytest
import torch
from executorch.export import ExportRecipe, recipe_registry
from torch import nn
from torch.fx import GraphModule

import openneutron
from openneutron.api.pytorch import CompiledModel
from openneutron.device import pte
from openneutron.errors import BudgetError, InvalidOptionError
from openneutron.isa import payload
from openneutron.options import CompileOptions, DelegationOptions, QuantizationOptions
from openneutron.pytorch.quantizer.neutron_quantizer import NeutronQuantizer
from openneutron.pytorch.recipes import NeutronRecipeConfig, NXPRecipeProvider, NXPRecipeType
from openneutron.pytorch.recipes import OpenNeutronRecipeType as Recipe
from openneutron.pytorch.run.runner import Runner

NUMBERS = torch.Generator().manual_seed(11)
SAMPLES = [(torch.randn(1, 4, 12, 12, generator=NUMBERS),) for _ in range(6)]


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.fc = nn.Linear(8 * 6 * 6, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.max_pool2d(torch.relu(self.norm(self.conv(x))), 2)
        return torch.softmax(self.fc(x.flatten(1)), 1)


def small() -> nn.Module:
    torch.manual_seed(5)
    module = Small()
    nn.init.normal_(module.norm.running_mean)
    nn.init.uniform_(module.norm.running_var, 0.5, 2.0)
    return module.eval()


def exported(recipe: Recipe, **options: Any) -> bytes:
    made = ExportRecipe.get_recipe(recipe, **options)
    session = executorch.export.export(small(), SAMPLES, made)
    return bytes(session.get_pte_buffer())


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Threads that wait for each other cost more than these small layers."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def ours() -> CompiledModel:
    return openneutron.compile(small(), SAMPLES[0], calibration=SAMPLES)


def calls(buffer: bytes) -> list[payload.Payload]:
    return [payload.parse(item.payload) for item in pte.delegates(buffer)]


def test_the_backend_is_registered() -> None:
    assert "openneutron" in recipe_registry.list_backends()
    assert list(recipe_registry.get_supported_recipes("openneutron")) == list(Recipe)
    assert [item.value for item in Recipe] == [
        "openneutron_int8_ptq",
        "openneutron_int8_qat",
        "openneutron_int8_ptq_no_delegate",
    ]


def test_ptq_is_what_compile_does(ours: CompiledModel) -> None:
    buffer = exported(Recipe.INT8_PTQ, calibration_inputs_fn=lambda: iter(SAMPLES))
    (call,) = calls(buffer)
    assert call == calls(ours.buffer)[0]
    runner = Runner("recipe", buffer)
    for sample in SAMPLES:
        assert torch.equal(runner.run(sample)[0], ours.run(*sample)[0])


def test_recipes_by_the_names_of_executorchs_nxp_backend(ours: CompiledModel) -> None:
    asked = []

    def samples(input_spec: object) -> Iterator[tuple[torch.Tensor, ...]]:
        asked.append(input_spec)
        return iter(SAMPLES)

    config = NeutronRecipeConfig(
        (1, 4, 12, 12), operators_not_to_delegate=[], get_quantizer_fn=NeutronQuantizer, calibration_inputs_fn=samples
    )
    made = ExportRecipe.get_recipe(NXPRecipeType.INT8_PTQ_NEUTRON, neutron_recipe_config=config)
    assert made.name == "nxp_int8_ptq_neutron"
    buffer = bytes(executorch.export.export(small(), SAMPLES, made).get_pte_buffer())
    assert asked == [(1, 4, 12, 12)]
    assert calls(buffer) == calls(ours.buffer)
    for kind, is_delegated in (
        ("INT8_PTQ_NO_DELEGATE", False),
        ("INT8_QAT_NO_DELEGATE", False),
        ("INT8_QAT_NEUTRON", True),
    ):
        config = NeutronRecipeConfig(remove_quant_io_ops=True, train_fn=print, fetch_constants_to_sram=True)
        made = ExportRecipe.get_recipe(NXPRecipeType[kind], neutron_recipe_config=config)
        assert (made.lowering_recipe.partitioners is not None) == is_delegated
        assert len(made.lowering_recipe.edge_manager_transform_passes) == 1
    assert NXPRecipeProvider().create_recipe(Recipe.INT8_PTQ) is None


@pytest.mark.parametrize(
    ("kind", "config", "said"),
    [
        (
            "INT8_PTQ_NEUTRON",
            None,
            "recipe nxp_int8_ptq_neutron: neutron_recipe_config is NoneType; it is a NeutronRecipeConfig. Pass "
            "neutron_recipe_config=NeutronRecipeConfig(...).",
        ),
        (
            "INT8_QAT_NEUTRON",
            NeutronRecipeConfig((1, 4, 12, 12)),
            "recipe nxp_int8_qat_neutron: there is no train_fn; quantization-aware training is what it does. Pass a function that "
            "trains the model it is given, or take openneutron_int8_ptq.",
        ),
        (
            "INT8_PTQ_NEUTRON",
            NeutronRecipeConfig((1, 4, 12, 12), get_quantizer_fn=dict),  # type: ignore[arg-type]
            "recipe nxp_int8_ptq_neutron: get_quantizer_fn returned a builtins.dict; a recipe takes a "
            "openneutron.pytorch.quantizer.neutron_quantizer.NeutronQuantizer.",
        ),
    ],
)
def test_configurations_of_no_recipe(kind: str, config: NeutronRecipeConfig | None, said: str) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        ExportRecipe.get_recipe(NXPRecipeType[kind], neutron_recipe_config=config)
    assert str(caught.value) == said


def test_qat_trains() -> None:
    seen = []

    def train(model: GraphModule) -> None:
        optimizer = torch.optim.SGD(model.parameters(), 0.05)
        for step in range(12):
            loss = nn.functional.nll_loss(torch.log(model(*SAMPLES[step % 6])), torch.tensor([3]))
            seen.append(loss.item())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    buffer = exported(Recipe.INT8_QAT, quantization=QuantizationOptions(train_fn=train))
    assert len(seen) == 12 and seen[-1] < seen[0]
    assert len(calls(buffer)) == 1
    runner = Runner("recipe", buffer)
    assert all(runner.run(sample)[0].argmax() == 3 for sample in SAMPLES)


def test_no_delegate_stays_on_the_cpu(ours: CompiledModel) -> None:
    buffer = exported(Recipe.INT8_PTQ_NO_DELEGATE)
    assert calls(buffer) == []
    for sample in SAMPLES:
        got, want = Runner("recipe", buffer).run(sample)[0], ours.quantized(*sample)
        assert (got - want).abs().max() <= 1 / 256


def test_int8_borders() -> None:
    buffer = exported(Recipe.INT8_PTQ, quantization=QuantizationOptions(io_dtype="int8"))
    assert Runner("recipe", buffer).inputs == [((1, 4, 12, 12), torch.int8)]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"options": CompileOptions(sram_budget=512)}, BudgetError, r"; the budget is 0\.5 KiB"),
        (
            {"quantization": QuantizationOptions(channels_last=True)},
            InvalidOptionError,
            r"^channels_last: a recipe has no such option\. Leave it out\.$",
        ),
        (
            {"delegation": DelegationOptions(any_runtime=True)},
            InvalidOptionError,
            r"^any_runtime: a recipe has no such",
        ),
    ],
)
def test_options_reach_where_they_belong(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        exported(Recipe.INT8_PTQ, **options)


def test_operators_left_to_the_cpu(ours: CompiledModel) -> None:
    """And without samples of their own, all example inputs calibrate."""
    buffer = exported(Recipe.INT8_PTQ, delegation=DelegationOptions(operators_not_to_delegate=["aten::max_pool2d"]))
    assert len(calls(buffer)) == 2
    for sample in SAMPLES:
        assert torch.equal(Runner("recipe", buffer).run(sample)[0], ours.run(*sample)[0])


def test_training_takes_a_function() -> None:
    with pytest.raises(InvalidOptionError) as caught:
        ExportRecipe.get_recipe(Recipe.INT8_QAT)
    assert str(caught.value) == (
        "recipe openneutron_int8_qat: there is no train_fn; quantization-aware training is what it does. Pass a function "
        "that trains the model it is given, or take openneutron_int8_ptq."
    )


def test_arguments_of_other_backends_are_ignored_aloud(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        ExportRecipe.get_recipe(Recipe.INT8_PTQ, sram_buget=5)
    (record,) = [item for item in caplog.records if item.name.startswith("openneutron")]
    assert record.getMessage().startswith("recipe openneutron_int8_ptq: 'sram_buget' is ignored; it takes options, ")
    assert record.getMessage().endswith(" Did you mean options=CompileOptions(sram_budget=...)?")
