# SPDX-License-Identifier: BSD-3-Clause
"""Netron, through the scripts of its own package, reads the ``.tflite`` files that are written, with names and shapes."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import openneutron
from openneutron import litert
from openneutron.litert.neutron_graph import OPERATOR_NAME
from scripts.published_networks import cifarnet
from tests.support.litert_files import mixed_file
from tests.support.tools import required

SCRIPTS = ("base", "flatbuffers", "flexbuffers", "tflite", "tflite-schema", "zip")


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Netron's scripts as modules of node."""
    found = importlib.util.find_spec("netron")
    assert found is not None and found.origin is not None
    folder = tmp_path_factory.mktemp("netron")
    for name in SCRIPTS:
        shutil.copy(Path(found.origin).with_name(f"{name}.js"), folder)
    (folder / "package.json").write_text('{"type": "module"}')
    return folder


def seen(scripts: Path, file: Path) -> Any:
    command = [required("node"), str(Path(__file__).with_name("netron.mjs")), str(scripts), str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("content", [mixed_file(), litert.write(cifarnet())], ids=["mixed", "cifarnet"])
@pytest.mark.parametrize("facts", [False, True], ids=["", "with facts"])
def test_netron_shows_operators_names_and_shapes(scripts: Path, tmp_path: Path, content: bytes, facts: bool) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(content)
    program = openneutron.compile(path)
    program.save(tmp_path / "compiled.tflite", facts=facts)
    written = {path: content, tmp_path / "compiled.tflite": (tmp_path / "compiled.tflite").read_bytes()}
    for name, data in program.intermediates(tmp_path).items():
        if name.suffix == ".tflite":
            name.write_bytes(data)
            written[name] = data
    for file, data in written.items():
        shown, graph = seen(scripts, file), litert.read(data).graph
        assert shown["format"] == "TensorFlow Lite v3"
        assert len(shown["operators"]) == len(graph.nodes)
        for operator, node in zip(shown["operators"], graph.nodes, strict=True):
            assert (operator["operator"] == "NeutronGraph") == (node.op == OPERATOR_NAME)
            results = [item["name"] for item in operator["results"]]
            assert results[: len(node.outputs)] == list(node.outputs)
            for item in operator["results"]:
                tensor = graph.tensors.get(item["name"])
                assert tensor is None or tuple(item["shape"]) == tensor.shape
