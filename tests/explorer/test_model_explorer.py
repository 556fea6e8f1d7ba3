# SPDX-License-Identifier: BSD-3-Clause
"""Model Explorer opens compiled files through its own API, and Netron through its own parsers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import openneutron
from openneutron import CompileOptions, litert
from openneutron.cli import main
from openneutron.errors import InvalidModelError
from openneutron.features.explorer.nodes import nodes_of
from openneutron.features.report.page.data import LayerAccuracy, with_facts
from scripts.published_networks import cifarnet
from tests.support.litert_files import mixed_file, wide_file

EXTENSION = "openneutron.features.explorer"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compiled files, each without facts and with them."""
    made = tmp_path_factory.mktemp("compiled")
    for name, data, options in (
        ("mixed", mixed_file(), CompileOptions()),
        ("striped", litert.write(cifarnet()), CompileOptions(sram_budget=24 * 1024)),
    ):
        path = made / f"{name}_model.tflite"
        path.write_bytes(data)
        model = openneutron.compile(path, options=options)
        model.save(made / f"{name}.tflite")
        model.save(made / f"{name}_facts.tflite", facts=True)
    return made


@pytest.fixture(scope="module")
def manager() -> Any:
    pytest.importorskip("model_explorer")
    from model_explorer.extension_manager import ExtensionManager

    made = ExtensionManager([EXTENSION])
    made.load_extensions()
    return made


def converted(manager: Any, path: Path) -> Any:
    command = {
        "cmdId": "convert",
        "extensionId": "openneutron",
        "modelPath": str(path),
        "settings": {},
        "deleteAfterConversion": False,
    }
    (graph,) = manager.run_cmd(command)["graphs"]
    return graph


@pytest.mark.parametrize("name", ["mixed", "striped"])
def test_a_file_has_the_same_graph_with_facts_and_without(folder: Path, name: str) -> None:
    plain, known = (nodes_of(folder / f"{name}{suffix}.tflite") for suffix in ("", "_facts"))
    assert [(node.kind, node.inputs, node.shape) for node in plain] == [
        (node.kind, node.inputs, node.shape) for node in known
    ]
    # A file without facts does not tell waits of multipliers from multiplications.
    for node, other in zip(plain, known, strict=True):
        assert (node.microseconds is None) == (other.microseconds is None)
        assert node.microseconds is None or node.microseconds == pytest.approx(other.microseconds, rel=0.3)
    assert sum(node.kind == "npu" for node in plain) == len(openneutron.load(folder / f"{name}.tflite").profile())


def test_the_adapter_groups_kernel_calls_by_partition(manager: Any, folder: Path) -> None:
    graph = converted(manager, folder / "mixed_facts.tflite")
    ids = {node["id"] for node in graph["nodes"]}
    assert all(edge["sourceNodeId"] in ids for node in graph["nodes"] for edge in node["incomingEdges"])
    groups = {node["namespace"].split("/")[0] for node in graph["nodes"]}
    assert groups == {"", "NPU partition 0", "NPU partition 1"}
    conv = next(node for node in graph["nodes"] if node["label"] == "conv_2d_s8")
    assert {"key": "name", "value": "c"} in conv["attrs"]
    assert conv["outputsMetadata"][0]["attrs"] == [{"key": "shape", "value": "int8[1x8x8x8]"}]
    on_cpu = next(node for node in graph["nodes"] if node["label"] == "y")
    reason = "input 'f' is float32; the NPU computes on int8. Quantize the model"
    assert {"key": "why on the CPU", "value": reason} in on_cpu["attrs"]


def overlaid(manager: Any, key: str, path: Path) -> Any:
    command = {
        "cmdId": "run",
        "extensionId": f"openneutron_{key}",
        "modelPath": str(path),
        "graphId": "main",
        "configValues": {},
    }
    return manager.run_cmd(command)


def test_elements_of_two_bytes_are_int16(manager: Any, folder: Path) -> None:
    path = folder / "wide_model.tflite"
    path.write_bytes(wide_file())
    openneutron.compile(path).save(folder / "wide.tflite")
    graph = converted(manager, folder / "wide.tflite")
    shapes = {
        node["label"]: node["outputsMetadata"][0]["attrs"][0]["value"]
        for node in graph["nodes"]
        if node.get("outputsMetadata")
    }
    assert shapes["add_s16"] == "int16[1x5x7x8]"


def test_overlays_have_the_figures_of_the_report(manager: Any, folder: Path) -> None:
    path = folder / "mixed_facts.tflite"
    said = overlaid(manager, "latency", path)
    total = sum(item["value"] for item in said["result"]["results"].values())
    assert said["error"] == ""
    parts = openneutron.load(path).report.latency.parts()
    assert total == pytest.approx(1e3 * parts["NPU"].milliseconds, rel=0.1)
    assert overlaid(manager, "memory", path)["result"]["results"]
    assert overlaid(manager, "sqnr", path)["error"] == (
        "Signal-to-quantization-noise ratio, dB: the file has no such values. Compile the model with --facts."
    )


def test_accuracy_is_an_overlay_where_it_was_measured(manager: Any, folder: Path) -> None:
    model = openneutron.compile(folder / "mixed_model.tflite")
    measured = with_facts(model.buffer, model.report_data(pareto=False, accuracy=[LayerAccuracy("c", 21.5, 40.0)]))
    path = folder / "measured.tflite"
    path.write_bytes(measured)
    said = overlaid(manager, "sqnr", path)["result"]["results"]
    assert [item["value"] for item in said.values()] == [21.5]


def test_node_data_files_name_the_nodes_of_the_graph(
    manager: Any, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from model_explorer.config import ModelExplorerConfig

    path = folder / "mixed_facts.tflite"
    assert main(["report", str(path), "--json", "--node-data", str(tmp_path / "data")]) == 0
    capsys.readouterr()
    assert sorted(item.name for item in (tmp_path / "data").iterdir()) == ["latency.json", "memory.json"]
    ids = {node["id"] for node in converted(manager, path)["nodes"]}
    for item in (tmp_path / "data").iterdir():
        ModelExplorerConfig().add_node_data_from_path(str(item))
        assert json.loads(item.read_text())["main"]["results"].keys() <= ids


def test_a_file_that_is_not_compiled_is_refused(folder: Path) -> None:
    path = folder / "mixed_model.tflite"
    with pytest.raises(InvalidModelError) as error:
        nodes_of(path)
    assert str(error.value) == (
        f"'{path}' has no NeutronGraph in it: it is not compiled. Compile it first: openneutron.compile('{path}')."
    )
