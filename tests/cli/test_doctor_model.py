# SPDX-License-Identifier: BSD-3-Clause
"""``openneutron doctor FILE``: what a file is."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import nn

from openneutron import litert
from openneutron.errors import InvalidModelError
from openneutron.features.doctor.model import Description, described
from scripts.json_schema import schema
from tests.cli.conftest import Command
from tests.onnx_models.made import saved, small_network
from tests.support.json_schema import violations
from tests.support.litert_files import float_file, mixed_file
from tests.support.small_graphs import small_graph


def _exported(path: Path) -> None:
    torch.export.save(torch.export.export(nn.Linear(3, 2), (torch.zeros(1, 3),)), path)


def _keras(path: Path) -> None:
    layers = [
        {"class_name": "InputLayer", "config": {"name": "words", "dtype": "float32", "batch_shape": [None, None, 8]}},
        {"class_name": "GRU", "config": {}},
        {"class_name": "Lambda", "config": {}},
    ]
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("metadata.json", json.dumps({"keras_version": "3.15.1"}))
        archive.writestr(
            "config.json", json.dumps({"class_name": "Functional", "config": {"name": "net", "layers": layers}})
        )
        archive.writestr("model.weights.h5", b"")


def test_a_float_onnx(tmp_path: Path) -> None:
    made = small_network("batch")
    made.producer_name, made.producer_version = "MATLAB", "24.2"
    made.metadata_props.add(key="names", value="{}")
    found = described(saved(tmp_path, made))
    assert found.what.startswith("ONNX, version ") and found.what.endswith(" of the operators, float")
    assert (found.made_by, found.notes) == ("MATLAB 24.2", ("Its metadata: names.",))
    assert found.inputs[0].sizes[0] == "batch" and found.operators["Conv"] == 1
    assert found.command == "openneutron compile {}"


def test_an_onnx_with_open_sizes_and_without_its_weights(tmp_path: Path) -> None:
    made = small_network()
    made.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "height"
    for tensor in made.graph.initializer:
        onnx.external_data_helper.set_external_data(tensor, "weights.bin")
    found = described(saved(tmp_path, made))
    name, sizes = found.inputs[0].name, found.inputs[0].sizes
    assert found.command == f"openneutron compile {{}} --input-shape {name}={sizes[0]}x{sizes[1]}xNx{sizes[3]}"
    assert found.notes == ("Its weights are in weights.bin, which is not in its folder. Put the file there.",)


@pytest.mark.parametrize(
    ("write", "what"),
    [
        (lambda: litert.write(small_graph()), "LiteRT, int8"),
        (float_file, "LiteRT, float32"),
        (mixed_file, "LiteRT, partly quantized (int8), partly float32"),
    ],
)
def test_a_litert_file(write: Any, what: str, tmp_path: Path) -> None:
    (tmp_path / "net.bin").write_bytes(write())
    found = described(tmp_path / "net.bin")
    assert found.what == what and found.inputs and found.outputs and found.command == "openneutron compile {}"


def test_metadata_behind_a_litert_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "net.tflite"
    path.write_bytes(float_file())
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("labels.txt", "cat")
    assert described(path).notes == ("It carries labels.txt, which stays in what a compile writes.",)


def test_an_onnx_input_without_a_shape(tmp_path: Path) -> None:
    made = small_network()
    made.graph.input[0].type.tensor_type.ClearField("shape")
    found = described(saved(tmp_path, made))
    assert (found.inputs[0].shape, found.command) == ("...", "openneutron compile {} --input-shape image=SHAPE")


def test_a_keras_file_without_keras_own_loader(tmp_path: Path) -> None:
    _keras(tmp_path / "net.keras")
    found = described(tmp_path / "net.keras")
    assert (found.what, found.made_by) == ("Keras, Functional 'net'", "Keras 3.15.1")
    assert found.inputs[0].shape == "?x?x8" and dict(found.operators) == {"GRU": 1, "Lambda": 1}
    assert found.notes == ("It has a Lambda layer, which is code: a compile takes --trust.",)
    assert found.command == "openneutron compile {} --input-shape words=1xNx8"


def test_files_of_pytorch(tmp_path: Path) -> None:
    _exported(tmp_path / "net.pt2")
    found = described(tmp_path / "net.pt2")
    assert (found.what, found.made_by) == ("an exported program of PyTorch, float", f"torch {torch.__version__}")
    assert [(item.dtype, item.sizes) for item in (*found.inputs, *found.outputs)] == [
        ("float32", (1, 3)),
        ("float32", (1, 2)),
    ]
    assert dict(found.operators) == {"aten.linear": 1}
    torch.save(nn.Linear(2, 2), tmp_path / "net.pt")
    torch.save(nn.Linear(2, 2).state_dict(), tmp_path / "weights.pt")
    (tmp_path / "w.safetensors").write_bytes((8).to_bytes(8, "little") + b'{"a":{}}')
    assert [described(tmp_path / name).what for name in ("net.pt", "weights.pt", "w.safetensors")] == [
        "a pickled module of the class torch.nn.modules.linear.Linear",
        "weights of PyTorch without a program (a state dict)",
        "weights without a program: 1 tensors",
    ]


def test_a_checkpoint_of_ultralytics_takes_no_trust(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "yolo.pt", "w") as archive:
        archive.writestr("yolo/data.pkl", b"\x80\x02cultralytics.nn.tasks\nDetectionModel\n.")
    found = described(tmp_path / "yolo.pt")
    assert (found.what, found.command) == ("Ultralytics, DetectionModel", "openneutron compile {}")


def test_a_saved_model(tmp_path: Path, openneutron: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openneutron.features.doctor.model.find_spec", lambda _: None)
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "saved_model.pb").write_bytes(b"\x08\x01")
    found = json.loads(openneutron("doctor", str(tmp_path / "net"), "--json").out)["model"]
    assert found["form"] == "TensorFlow's SavedModel" and "from_saved_model" in found["notes"][0]


def test_damage_is_an_error_and_no_raw_exception(tmp_path: Path) -> None:
    _exported(tmp_path / "net.pt2")
    _keras(tmp_path / "net.keras")
    saved(tmp_path, small_network())
    (tmp_path / "net.tflite").write_bytes(mixed_file())
    (tmp_path / "w.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    generator = np.random.default_rng(0)
    for path in sorted(tmp_path.iterdir()):
        whole = path.read_bytes()
        for _ in range(60):
            data = bytearray(whole[: generator.integers(1, len(whole) + 1)])
            data[generator.integers(len(data))] ^= int(generator.integers(1, 256))
            path.write_bytes(data)
            try:
                assert isinstance(described(path), Description)
            except InvalidModelError as error:
                assert path.name in str(error)


@pytest.mark.parametrize("facts", [False, True])
def test_the_next_command_of_a_compiled_file_works(openneutron: Command, tmp_path: Path, facts: bool) -> None:
    path = tmp_path / "mixed.tflite"
    path.write_bytes(mixed_file())
    openneutron(
        "compile", str(path), "-q", "-o", str(made := tmp_path / "made.tflite"), *(["--facts"] if facts else [])
    )
    suggested = json.loads(openneutron("doctor", str(made), "--json").out)["model"]["try"]
    assert suggested == (f"openneutron report {made}" if facts else f"openneutron run {made} --random 0")
    words = suggested.split()[1:] + (["-o", str(tmp_path / "report.html"), "--no-pareto"] if facts else [])
    assert openneutron(*words).code == 0


def test_the_command_prints_it_and_imports_no_torch(openneutron: Command, tmp_path: Path) -> None:
    path = saved(tmp_path, small_network())
    ended = openneutron("doctor", str(path))
    assert ended.code == 0 and ended.out.splitlines()[-1] == f"Try `openneutron compile {path}`."
    data = json.loads(openneutron("doctor", str(path), "--json").out)
    assert list(violations(data, schema())) == [] and data["model"]["operators"]["Conv"] == 1
    code = (
        f"import sys; from openneutron.cli import main; main(['doctor', {str(path)!r}])\n"
        "assert 'onnx' in sys.modules and 'torch' not in sys.modules, 'torch'"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).stderr == b""


def test_the_name_of_a_built_in_model_is_no_file(
    openneutron: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert openneutron("doctor", "cifarnet").err == (
        "error: 'cifarnet' is a built-in model and no file. `openneutron explain cifarnet` says what a compile does with it.\n"
    )
