# SPDX-License-Identifier: BSD-3-Clause
"""The graphs of two compiles beside each other: the operators that differ have a note on both sides."""

from __future__ import annotations

import dataclasses

import pytest

import openneutron
from openneutron import CompileOptions, DelegationOptions, litert
from openneutron.features.report.page.compare import compared, comparison_page, notes
from openneutron.features.report.page.data import ReportData
from scripts.published_networks import cifarnet


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> tuple[ReportData, ReportData]:
    """CifarNet in stripes on the NPU, and without stripes and with its softmax on the CPU."""
    path = tmp_path_factory.mktemp("models") / "cifarnet.tflite"
    path.write_bytes(litert.write(cifarnet()))
    striped = openneutron.compile(path, options=CompileOptions(sram_budget=24 * 1024))
    left = openneutron.compile(path, delegation=DelegationOptions(operators_not_to_delegate=("SOFTMAX",)))
    return striped.report_data(pareto=False), left.report_data(pareto=False)


def said(data: ReportData, other: ReportData) -> dict[str, str]:
    return {data.graph[index].name: note for index, note in notes(data, other).items()}


def test_layers_have_the_change_of_their_time_and_their_place(sides: tuple[ReportData, ReportData]) -> None:
    striped, left = sides
    assert said(striped, left)["softmax_8"] == "on the CPU in the other"
    assert said(left, striped)["softmax_8"] == "on the NPU in the other"
    (slower,) = (note for name, note in said(striped, left).items() if name.startswith("max_pool_2d_1"))
    assert slower.startswith("+") and slower.endswith(" %")


def test_equal_compiles_have_no_notes_and_a_renamed_layer_is_only_there(sides: tuple[ReportData, ReportData]) -> None:
    _, left = sides
    assert notes(left, left) == {}
    index = next(index for index, node in enumerate(left.graph) if node.name == "conv_2d_4")
    layers = tuple(
        dataclasses.replace(layer, name="other") if layer.name == "conv_2d_4" else layer for layer in left.layers
    )
    assert notes(left, dataclasses.replace(left, layers=layers)) == {index: "only here"}


def test_the_page_has_both_graphs_with_marked_rows(sides: tuple[ReportData, ReportData]) -> None:
    html = comparison_page(compared(*sides))
    assert html.count('<table class="graph">') == 2
    names = compared(*sides).names
    assert names[0] != names[1] and all(f'aria-label="Graph of {name}"' in html for name in names)
    assert html.count(" changed") == sum(len(notes(*pair)) for pair in (sides, sides[::-1]))


def test_a_latency_without_some_operators_is_a_lower_bound_on_its_side(sides: tuple[ReportData, ReportData]) -> None:
    striped, left = sides
    known = {"modelled_milliseconds": 2.0, "expected_milliseconds": (1.5, 2.5), "host_operators_not_modelled": 1}
    figures = dataclasses.replace(left.figures, **known)  # type: ignore[arg-type]
    html = comparison_page(compared(striped, dataclasses.replace(left, figures=figures)))
    assert "<dt>Latency</dt><dd>at least 2.00 ms (1.5 to 2.5)<small>" in html
    assert "<td>latency</td>" in html and "<td>at least 2.00 ms (1.5 to 2.5)</td>" in html
    assert "<dd>at least" not in comparison_page(compared(striped, striped))
