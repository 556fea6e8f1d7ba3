# SPDX-License-Identifier: BSD-3-Clause
"""Reports: their data adds up, the page has exactly this data, loads nothing and can be read without its charts."""

from __future__ import annotations

import dataclasses
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

import openneutron
from openneutron import CompileOptions, litert
from openneutron.api.litert import CompiledLiteRTModel
from openneutron.errors import InvalidModelError
from openneutron.features.report.page.charts import latency, parts_of
from openneutron.features.report.page.collect import by_layer
from openneutron.features.report.page.data import (
    ON_CPU,
    ON_NPU,
    GraphNode,
    LayerAccuracy,
    ReportData,
    facts_of,
    from_dict,
    with_facts,
)
from openneutron.features.report.page.graph import slots
from openneutron.features.report.page.page import charts_of, data_of, page, pictures
from openneutron.isa.microcode import facts_of as profile_facts
from scripts.published_networks import cifarnet
from tests.support.litert_files import mixed_file


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> CompiledLiteRTModel:
    """A compiled model with two partitions, and operators on the CPU."""
    path = tmp_path_factory.mktemp("models") / "mixed.tflite"
    path.write_bytes(mixed_file())
    return openneutron.compile(path)


@pytest.fixture(scope="module")
def striped(tmp_path_factory: pytest.TempPathFactory) -> ReportData:
    """The report of CifarNet with a budget that takes stripes, and copies of constants."""
    path = tmp_path_factory.mktemp("models") / "cifarnet.tflite"
    path.write_bytes(litert.write(cifarnet()))
    options = CompileOptions(sram_budget=56 * 1024, prefetch_constants=True)
    return openneutron.compile(path, options=options).report_data()


def test_layers_and_steps_add_up_to_the_figures(mixed: CompiledLiteRTModel, striped: ReportData) -> None:
    for data in (mixed.report_data(pareto=False), striped):
        for layer in data.layers:
            assert layer.compute_cycles + layer.memory_cycles + layer.dispatch_cycles == layer.cycles
        layers = sum(layer.cycles + layer.copy_cycles for layer in data.layers)
        delegates = data.figures.npu_cycles + data.figures.copy_cycles
        assert delegates + data.figures.host_cycles == data.figures.modelled_cycles
        assert layers == sum(step.cycles for step in data.steps) == delegates
        assert sum(layer.copy_cycles for layer in data.layers) == data.figures.copy_cycles
        assert sum(part.cycles for part in data.partitions) == delegates
        assert sum(layer.macs for layer in data.layers) == data.figures.macs


def test_a_data_mover_takes_no_dispatch(tmp_path: Path) -> None:
    path = tmp_path / "cifarnet.tflite"
    path.write_bytes(litert.write(cifarnet()))
    data = openneutron.compile(path, options=CompileOptions(target="imx95")).report_data(pareto=False)
    moves = [layer for layer in data.layers if layer.kernel == "move_s8"]
    assert [layer.name.split()[0] for layer in moves] == ["load", "store"]
    assert all(layer.memory_cycles == layer.cycles > 0 for layer in moves)
    assert min(min(parts_of(layer).values()) for layer in data.layers) >= 0
    assert "copies of its constants from ddr, which run beside the kernels" in latency(data).description


def test_the_peak_is_what_is_live_in_its_step(striped: ReportData) -> None:
    (peak,) = striped.peaks
    there = [item for item in striped.buffers if item.first <= peak.step <= item.last]
    addresses = {at for item in there for at in range(item.offset, item.offset + item.size_bytes)}
    assert len(addresses) == peak.live_bytes == max(step.live_bytes for step in striped.steps)
    assert {striped.buffers[index].name for index in peak.buffers} == {item.name for item in there}
    assert {item.kind for item in striped.buffers} == {"tensor", "copied constants"}


def test_rolling_buffers_have_their_rows(tmp_path: Path) -> None:
    path = tmp_path / "cifarnet.tflite"
    path.write_bytes(litert.write(cifarnet()))
    data = openneutron.compile(path, options=CompileOptions(sram_budget=24 * 1024)).report_data(pareto=False)
    rolling = [item for item in data.buffers if item.kind == "rolling buffer"]
    assert rolling
    assert all(0 < item.rows_held < item.rows for item in rolling)
    assert any(step.kind == "loop" and step.times > 1 for step in data.steps)


def test_the_graph_has_every_layer_and_operator_with_its_sources(mixed: CompiledLiteRTModel) -> None:
    data = mixed.report_data(pareto=False)
    layers = [node.layer for node in data.graph if node.kind == ON_NPU]
    assert layers == list(range(len(data.layers)))
    on_cpu = {node.name: node.reason for node in data.graph if node.kind == ON_CPU}
    assert on_cpu["y"] == "input 'f' is float32; the NPU computes on int8. Quantize the model"
    assert set(on_cpu) == {item.name for item in mixed.report.on_cpu}
    for index, node in enumerate(data.graph):
        assert node.kind == "input" or node.inputs
        assert all(source < index for source in node.inputs)


def test_data_survives_json(mixed: CompiledLiteRTModel) -> None:
    data = mixed.report_data(accuracy=[LayerAccuracy("c", 21.5, 40.0), LayerAccuracy("p", None, None, 0.25)])
    assert data.pareto and data.advice and data.section("findings") and data.accuracy
    assert from_dict(json.loads(json.dumps(data.to_dict())), "x") == data


def test_the_page_has_the_data_that_json_prints(mixed: CompiledLiteRTModel, tmp_path: Path) -> None:
    mixed.write_report(tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    data = mixed.report_data()
    assert data_of(text, "report.html") == data
    summary = mixed.report.to_dict(details=True)
    figures = data.to_dict()["figures"]
    assert {name: summary[name] for name in figures} == figures
    calls = [call for part in summary["partitions"] for call in part["calls"]]
    for layer, call in zip(data.to_dict()["layers"], calls, strict=True):
        shared = layer.keys() & call.keys() - {"name"}
        assert len(shared) > 10
        assert {name: layer[name] for name in shared} == {name: json.loads(json.dumps(call[name])) for name in shared}


def test_accuracy_is_matched_by_layer_node_and_module_path(mixed: CompiledLiteRTModel) -> None:
    layer = dataclasses.replace(mixed.report_data(pareto=False).layers[0], node="aten_add", module="block.add")
    split = [dataclasses.replace(layer, name=f"block.add/{part}") for part in ("left", "right")]
    measured = [LayerAccuracy(name, 21.5, 40.0) for name in ("block.add", "aten_add", "block.add/left", "softmax")]
    names = [item.name for item in by_layer(measured, split)]
    assert names == ["block.add/right", "block.add/right", "block.add/left", "softmax"]


class _Page(HTMLParser):
    """The elements of a page, each with its attributes, and the ids."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))


def test_the_page_loads_nothing(mixed: CompiledLiteRTModel) -> None:
    reader = _Page()
    reader.feed(page(mixed.report_data()))
    for tag, attributes in reader.elements:
        assert tag not in ("link", "iframe", "object", "embed", "base")
        assert "src" not in attributes
        assert attributes.get("href", "#").startswith("#")
    (policy,) = (item for tag, item in reader.elements if tag == "meta" and "http-equiv" in item)
    assert policy["content"].startswith("default-src 'none'; ")


def test_each_chart_has_a_title_a_description_and_a_table(mixed: CompiledLiteRTModel) -> None:
    data = mixed.report_data(accuracy=[LayerAccuracy("c", 21.5, 40.0)])
    text, reader = page(data), _Page()
    reader.feed(text)
    ids = {attributes.get("id") for _, attributes in reader.elements}
    for chart in charts_of(data):
        assert {f"{chart.key}-chart", f"{chart.key}-title", chart.key} <= ids
        assert chart.table.rows
        assert all(len(row) == len(chart.table.headings) for row in chart.table.rows)
        assert all(spec["description"] for _, spec in chart.views)
        assert f"<caption>{chart.title}</caption>" in text


def test_every_table_scrolls_on_a_narrow_screen(mixed: CompiledLiteRTModel) -> None:
    text = re.sub(r"<script.*?</script>", "", page(mixed.report_data()), flags=re.DOTALL)
    tables = [found.start() for found in re.finditer("<table", text)]
    assert len(tables) > 3
    for at in tables:
        assert re.search(r'<div class="scroll" [^>]*>$', text[:at])
    assert re.search(r"\.scroll \{ overflow: auto;", text)
    assert '<meta name="viewport" content="width=device-width' in text


def test_names_end_no_element(mixed: CompiledLiteRTModel) -> None:
    data = dataclasses.replace(mixed.report_data(pareto=False), model="</script><b>net")
    text = page(data)
    assert "<b>net" not in text
    assert data_of(text, "x").model == "</script><b>net"


def test_values_take_lanes_until_their_last_reader() -> None:
    def node(*inputs: int) -> GraphNode:
        return GraphNode(ON_NPU, "", "", inputs)

    # 0 is read by 1 and, past it, by 2.
    found = slots([node(), node(0), node(0, 1), node(2)])
    assert [slot.lane for slot in found] == [0, 1, 0, 0]
    assert found[1].passing == found[1].joining == (0,)
    assert found[2].joining == (1,)
    assert [slot.below for slot in found] == [True, True, True, False]


def test_pictures_are_drawn_of_the_same_charts(mixed: CompiledLiteRTModel) -> None:
    data = mixed.report_data(pareto=False)
    drawn = pictures(data, ".svg").decode()
    assert "mixed.tflite: Latency by layer" in drawn
    assert re.search(r">0 c<", drawn)
    assert pictures(data, ".png")[:8] == b"\x89PNG\r\n\x1a\n"


def test_facts_travel_behind_the_compiled_file(mixed: CompiledLiteRTModel, tmp_path: Path) -> None:
    path = tmp_path / "mixed_neutron.tflite"
    mixed.save(path, facts=True)
    assert path.read_bytes().startswith(mixed.buffer)
    assert facts_of(path.read_bytes(), path.name) == mixed.report_data(pareto=False)
    loaded = openneutron.load(path)
    assert loaded.profile() == openneutron.load(_saved(mixed, tmp_path)).profile()
    loaded.write_report(tmp_path / "report.html")
    assert data_of((tmp_path / "report.html").read_text(), "x") == facts_of(loaded.buffer, loaded.name)


def _saved(model: CompiledLiteRTModel, folder: Path) -> Path:
    model.save(folder / "plain.tflite")
    return folder / "plain.tflite"


def test_a_file_without_facts_and_a_damaged_one_are_refused(mixed: CompiledLiteRTModel, tmp_path: Path) -> None:
    loaded = openneutron.load(_saved(mixed, tmp_path))
    with pytest.raises(InvalidModelError) as error:
        loaded.write_report(tmp_path / "report.html")
    assert str(error.value) == (
        "'plain.tflite': it was saved without the facts of its compile, which a report shows. Compile the model with --facts "
        "(program.save(path, facts=True)), or make the report of the model itself."
    )
    data = mixed.report_data(pareto=False)
    whole = bytearray(with_facts(b"file", data))
    whole[10] ^= 1
    with pytest.raises(InvalidModelError) as error:
        facts_of(bytes(whole), "x.pte")
    assert str(error.value) == "'x.pte': the facts of its compile are damaged. Compile the model again."
    with pytest.raises(InvalidModelError) as error:
        from_dict({**data.to_dict(), "version": 0}, "x.pte")
    assert str(error.value) == (
        "'x.pte': its report data has version 0; this version reads 3. Compile the model again."
    )
    with pytest.raises(InvalidModelError) as error:
        from_dict({**data.to_dict(), "layers": [{"name": 1}]}, "x.pte")
    assert str(error.value) == "'x.pte': its report data is damaged. Compile the model again."


def test_the_facts_of_a_profile_and_those_of_a_report_are_both_in_a_file(tmp_path: Path) -> None:
    path, both = tmp_path / "mixed.tflite", tmp_path / "both.tflite"
    path.write_bytes(mixed_file())
    made = openneutron.compile(path, options=CompileOptions(profile=True))
    made.save(both, facts=True)
    assert facts_of(both.read_bytes(), "both") == made.report_data(pareto=False)
    for _, program in openneutron.load(both).programs:
        assert profile_facts(program)
