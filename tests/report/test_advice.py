# SPDX-License-Identifier: BSD-3-Clause
"""The advice of a report is what a compile with it gives; its findings are facts."""

from __future__ import annotations

import ast
import dataclasses
from typing import Any

import pytest

import openneutron
from openneutron import CompileOptions, litert
from openneutron.api.litert import CompiledLiteRTModel
from openneutron.api.reporting import points_of
from openneutron.compiler.cost.estimate import Cause, Loss
from openneutron.compiler.cost.host import HostKind, HostOperator
from openneutron.errors import BudgetError
from openneutron.features.report import Summary
from openneutron.features.report.advice import Advice, BudgetPoint, Compiled, Cost, advice, advice_text, quick_advice
from openneutron.features.report.page.data import LayerAccuracy, ReportData
from openneutron.features.report.page.page import findings
from openneutron.ir.graph import OnCpu
from scripts.published_networks import cifarnet


@pytest.fixture(scope="module", params=[("imxrt700", 24), ("mcxn94x", 24), ("imx95", 40)], ids=lambda each: each[0])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> CompiledLiteRTModel:
    target, kib = request.param
    path = tmp_path_factory.mktemp("models") / "cifarnet.tflite"
    path.write_bytes(litert.write(cifarnet()))
    options = CompileOptions(target=target, sram_budget=kib * 1024, io_place="caller")
    made = openneutron.compile(path, options=options)
    assert isinstance(made, CompiledLiteRTModel)
    return made


@pytest.fixture(scope="module")
def points(model: CompiledLiteRTModel) -> tuple[BudgetPoint, ...]:
    return points_of(model)


def changes(item: Advice) -> dict[str, Any]:
    name, _, value = item.keywords.partition("=")
    return {name: ast.literal_eval(value)}


def test_a_compile_with_the_advice_has_its_figures(model: CompiledLiteRTModel, points: tuple[BudgetPoint, ...]) -> None:
    found = advice(model, points)
    assert found
    for item in found:
        assert item.before == Cost.of(model.report) != item.after
        assert item.after == Cost.of(model.recompile(**changes(item)).report)
        assert item.options.split()[0] == f"--{item.keywords.partition('=')[0].replace('_', '-')}"
    saved = [item.saved_milliseconds for item in found if item.saved_milliseconds > 0]
    assert saved == sorted(saved, reverse=True)
    if model.target.name == "imxrt700":
        assert [item.options for item in found] == ["--sram-budget 44", "--sram-budget 16"]
        assert (
            found[0].text
            == "975 us (840 to 1,133) instead of 1.43 ms (1.2 to 1.7), 43.0 KiB of SRAM instead of 23.0 KiB; more rows are computed at once"
        )


def test_a_compile_with_the_budget_of_a_point_has_its_figures(
    model: CompiledLiteRTModel, points: tuple[BudgetPoint, ...]
) -> None:
    assert len(points) > 2
    for point in points:
        made = model.recompile(sram_budget=point.sram_budget_kib * 1024).report
        assert BudgetPoint.of(point.sram_budget_kib, made) == point
        assert point.cycles == point.npu_cycles + point.copy_cycles + point.host_cycles
        assert point.sram_bytes <= point.sram_budget_kib * 1024


class Stub:
    """A compile whose figures with other options are those of ``others``, by the options' names."""

    def __init__(self, summary: Summary, options: CompileOptions, **others: Summary) -> None:
        self.report, self.compile_options, self._others = summary, options, others

    def figures(self, **changed: Any) -> Summary:
        (name,) = changed
        if name not in self._others:
            raise BudgetError("too small", 1)
        return self._others[name]


def test_the_conversions_of_the_host_come_first(model: CompiledLiteRTModel) -> None:
    now = model.report
    host = (HostOperator(HostKind.CONVERSION, 10**5, "int8"), HostOperator(HostKind.CONVERSION, 100))
    slow = dataclasses.replace(now, host=host)
    stub: Compiled = Stub(slow, model.compile_options)
    (item,) = quick_advice(stub)
    assert item == advice(stub)[0]
    assert (item.options, item.keywords) == ("--io-dtype int8", "io_dtype='int8'")
    assert item.after.milliseconds == dataclasses.replace(slow, host=host[1:]).milliseconds
    assert advice_text([item]).endswith(", the same SRAM; the host converts no inputs and outputs")
    little = dataclasses.replace(now, host=(HostOperator(HostKind.CONVERSION, 100, "int8"),))
    assert quick_advice(Stub(little, model.compile_options)) == ()
    on_cpu = dataclasses.replace(slow, on_cpu=tuple(OnCpu("ADD", "a", "it is float") for _ in range(99)))
    assert advice(Stub(on_cpu, model.compile_options)) == ()


def test_constant_prefetch_is_advised_where_it_is_faster(model: CompiledLiteRTModel) -> None:
    (part,) = model.report.partitions
    if model.target.name != "imxrt700":
        return
    large = dataclasses.replace(part.report, weights_bytes=8 << 20)
    now = dataclasses.replace(model.report, partitions=(dataclasses.replace(part, report=large),))
    assert not now.weights_fit
    fetched = dataclasses.replace(large, fetched_bytes=8 << 20)
    faster = dataclasses.replace(now, partitions=(dataclasses.replace(part, report=fetched),))
    (item,) = quick_advice(Stub(now, model.compile_options, prefetch_constants=faster))
    assert item.options == "--prefetch-constants" and item.after.milliseconds == faster.milliseconds
    assert quick_advice(Stub(now, model.compile_options, prefetch_constants=now)) == ()
    assert quick_advice(Stub(now, model.compile_options)) == ()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> ReportData:
    path = tmp_path_factory.mktemp("models") / "cifarnet.tflite"
    path.write_bytes(litert.write(cifarnet()))
    options = CompileOptions(sram_budget=24 * 1024, io_place="caller")
    return openneutron.compile(path, options=options).report_data(pareto=False)


def said(data: ReportData) -> dict[str, str]:
    return {item.label: item.text for item in findings(data)}


def test_findings_of_cifarnet_in_stripes(data: ReportData) -> None:
    striped = [layer for layer in data.layers if layer.stripes > 1]
    more = sum(layer.dispatch_cycles * (layer.stripes - 1) // layer.stripes for layer in striped)
    share = f"{100 * more / data.figures.modelled_cycles:.0f}% of the latency for more dispatch."
    assert said(data)["Stripes"].startswith("2 layers in 6 stripes ") and said(data)["Stripes"].endswith(share)
    losses = (Loss(Cause.STALLS, 0.1, "a reason"), Loss(Cause.DISPATCH, 0.2, "another"))
    layers = tuple(dataclasses.replace(layer, losses=losses, utilisation=0.1) for layer in data.layers)
    text = said(dataclasses.replace(data, layers=layers))["A reason"]
    assert text.endswith(" of the latency and use less than half of the multipliers.")


def test_a_layer_that_loses_accuracy_is_named(data: ReportData) -> None:
    measured = (LayerAccuracy("conv1", 30.0, 12.5), LayerAccuracy("conv2", 10.0, 35.0))
    found = said(dataclasses.replace(data, accuracy=measured))
    assert found["Accuracy of 'conv1'"] == "Quantized alone, it has a signal-to-quantization-noise ratio of 12.5 dB."
    assert "Accuracy of 'conv2'" not in found


def test_a_name_of_several_calls_is_there_once(data: ReportData) -> None:
    small = dataclasses.replace(data.layers[0], stripes=1, bottleneck="dispatch", dispatch_cycles=10**6)
    names = ("self_attn", "norm1", "self_attn", "norm1", "linear1", "add", "norm2")
    layers = tuple(dataclasses.replace(small, name=name, cycles=100 - index) for index, name in enumerate(names))
    text = said(dataclasses.replace(data, layers=layers))["Small layers"]
    assert "each ('self_attn' 2 times, 'norm1' 2 times, 'linear1' and 2 more): " in text
