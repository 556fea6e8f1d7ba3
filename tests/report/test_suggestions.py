# SPDX-License-Identifier: BSD-3-Clause
"""The suggestions of a report: each from the figures that it names."""

from __future__ import annotations

import dataclasses

import pytest

import openneutron
from openneutron import CompileOptions, litert
from openneutron.report.page.data import LayerAccuracy, ParetoPoint, ReportData
from openneutron.report.page.suggestions import suggestions
from scripts.published_networks import cifarnet


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> ReportData:
    path = tmp_path_factory.mktemp("models") / "cifarnet.tflite"
    path.write_bytes(litert.write(cifarnet()))
    options = CompileOptions(sram_budget=24 * 1024, io_place="caller")
    return openneutron.compile(path, options=options).report_data()


def said(data: ReportData) -> dict[str, str]:
    return {item.title: item.text for item in suggestions(data)}


def test_those_of_cifarnet_in_stripes(data: ReportData) -> None:
    found = said(data)
    best = min(data.pareto, key=lambda point: point.cycles)
    (raised,) = (text for title, text in found.items() if title.startswith("Raise the budget to "))
    assert f"instead of {data.milliseconds(data.figures.overlapped_cycles):.2f} ms." in raised
    assert f"--sram-budget {-(-best.sram_bytes // 1024)} " in raised
    striped = [layer for layer in data.layers if layer.stripes > 1]
    more = sum(layer.dispatch_cycles * (layer.stripes - 1) // layer.stripes for layer in striped)
    share = f"{100 * more / data.figures.modelled_cycles:.0f}% of the time."
    assert share in raised and "Give the model more SRAM" not in found
    without = said(dataclasses.replace(data, pareto=()))["Give the model more SRAM"]
    assert without.endswith(f"{share} `openneutron pareto` shows the budgets.")
    amounts = [item.cycles for item in suggestions(data)]
    assert amounts == sorted(amounts, reverse=True)


@pytest.mark.parametrize(
    ("reason", "remedy"),
    [
        (
            "3 input channels fill 19% of the multipliers",
            "Counts up to the next multiple of 16 cost nothing more: use that, or fewer.",
        ),
        (
            "32 output channels fill 50% of the pipelines",
            "Counts up to the next multiple of 64 cost nothing more: use that, or fewer.",
        ),
        ("multipliers wait for their operands", "use less than half of the multipliers."),
        ("some of it is computed more than once", "A larger SRAM budget lets more rows be computed at once."),
    ],
)
def test_a_remedy_has_the_numbers_of_the_chip(reason: str, remedy: str, data: ReportData) -> None:
    layers = tuple(dataclasses.replace(layer, idle=reason, utilisation=0.1) for layer in data.layers)
    target = dataclasses.replace(data.target, macs=16, pipelines=64)
    found = said(dataclasses.replace(data, layers=layers, target=target))
    assert found[f"{reason[0].upper()}{reason[1:]}"].endswith(remedy)


def test_a_softmax_is_named_with_its_share(data: ReportData) -> None:
    last = data.layers[-1]
    assert last.kernel == "softmax_s8"
    slow = dataclasses.replace(last, cycles=data.figures.modelled_cycles // 4, name="head.softmax")
    changed = dataclasses.replace(data, layers=(*data.layers[:-1], slow))
    assert "takes 25% of the time" in said(changed)["Leave 'head.softmax' to the CPU"]
    moved = dataclasses.replace(data, layers=(slow, *data.layers[:-1]))
    assert "part the delegate call" in said(moved)["Make the softmax_s8 of 'head.softmax' smaller"]


def test_a_smaller_budget_comes_with_its_cost(data: ReportData) -> None:
    now, there = data.figures.overlapped_cycles, data.figures.peak_sram_bytes
    point = ParetoPoint(there // 2, now * 105 // 100, 1.0)
    text = said(dataclasses.replace(data, pareto=(point,)))[f"Lower the budget to {-(-point.sram_bytes // 1024)} KiB"]
    assert text.endswith("KiB less SRAM and costs 5.0% more time.")
    too_slow = dataclasses.replace(point, cycles=2 * now)
    assert not any(title.startswith("Lower") for title in said(dataclasses.replace(data, pareto=(too_slow,))))


def test_a_larger_budget_is_that_of_the_knee(data: ReportData) -> None:
    now, there = data.figures.overlapped_cycles, data.figures.peak_sram_bytes
    curve = [(there + 1024, now * 9 // 10), (there + 2048, now // 2), (there + 64 * 1024, now * 45 // 100)]
    points = tuple(ParetoPoint(size, cycles, data.milliseconds(cycles)) for size, cycles in curve)
    title = f"Raise the budget to {-(-points[1].sram_bytes // 1024)} KiB"
    (text,) = (
        text for name, text in said(dataclasses.replace(data, pareto=points)).items() if name.startswith("Raise")
    )
    assert text == said(dataclasses.replace(data, pareto=points))[title]
    assert " takes 50% less time: " in text and text.startswith("2 layers in 6 stripes ")
    assert text.endswith(
        f" {-(-points[2].sram_bytes // 1024)} KiB give the fastest schedule, {points[2].milliseconds * 1e3:.0f} us."
    )


def test_a_layer_that_loses_accuracy_is_named(data: ReportData) -> None:
    measured = (LayerAccuracy("conv1", 30.0, 12.5), LayerAccuracy("conv2", 10.0, 35.0))
    found = said(dataclasses.replace(data, accuracy=measured))
    assert found["Quantize 'conv1' with care"].startswith(
        "Quantized alone, it has a signal-to-quantization-noise ratio of 12.5 dB."
    )
    assert "Quantize 'conv2' with care" not in found


def test_a_name_of_several_calls_is_there_once(data: ReportData) -> None:
    small = dataclasses.replace(data.layers[0], stripes=1, bottleneck="issue", dispatch_cycles=10**6)
    names = ("self_attn", "norm1", "self_attn", "norm1", "linear1", "add", "norm2")
    layers = tuple(dataclasses.replace(small, name=name, cycles=100 - index) for index, name in enumerate(names))
    text = said(dataclasses.replace(data, layers=layers))["Merge small layers"]
    assert "each ('self_attn' 2 times, 'norm1' 2 times, 'linear1' and 2 more): " in text
