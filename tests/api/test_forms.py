# SPDX-License-Identifier: BSD-3-Clause
"""The table of the forms of files: content decides, a name decides where the content tells nothing."""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import zipfile
from pathlib import Path

import pytest

import openneutron
from openneutron.device.forms import FORMS, LITERT, PT2, PTE, SAVED_MODEL, Form, Kind, form_of, of_content
from openneutron.errors import InvalidModelError, MissingToolError
from tests.support.litert_files import mixed_file


def archive(path: Path, member: str) -> Path:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(member, "{}")
    return path


@pytest.mark.parametrize("form", [form for form in FORMS if form.reader], ids=lambda form: form.suffix)
def test_the_module_of_each_reader_exists(form: Form) -> None:
    module, _, name = form.reader.partition(":")
    assert importlib.util.find_spec(module) is not None and name.isidentifier()


def test_no_suffix_is_that_of_two_forms() -> None:
    suffixes = [suffix for form in FORMS if not form.content for suffix in form.suffixes]
    assert len(suffixes) == len(set(suffixes))


def test_content_decides(tmp_path: Path) -> None:
    (tmp_path / "net.pte").write_bytes(mixed_file())
    (tmp_path / "net.tflite").write_bytes(bytes(4) + b"ET12")
    assert form_of(tmp_path / "net.pte") is LITERT
    assert form_of(tmp_path / "net.tflite") is PTE
    assert form_of(archive(tmp_path / "weights.pt2", "weights/data.pkl")).suffix == ".pt"
    assert form_of(archive(tmp_path / "net.zip", "net/models/model.json")) is PT2


def test_a_name_decides_where_the_content_tells_nothing(tmp_path: Path) -> None:
    (tmp_path / "text.tflite").write_text("no flatbuffer at all")
    (tmp_path / "cut.pt2").write_bytes(b"PK")
    os.mkfifo(tmp_path / "fifo.pte")
    assert form_of(tmp_path / "text.tflite") is LITERT
    assert form_of(tmp_path / "cut.pt2") is PT2
    assert form_of(tmp_path / "fifo.pte") is form_of(tmp_path / "absent.pte") is PTE
    assert of_content(tmp_path / "fifo.pte") is of_content(tmp_path) is None
    assert form_of(tmp_path / "net.xyz") is None


def test_a_model_of_another_name_is_compiled(tmp_path: Path) -> None:
    (tmp_path / "net.bin").write_bytes(mixed_file())
    (tmp_path / "net.tflite").write_bytes(mixed_file())
    assert openneutron.compile(tmp_path / "net.bin").buffer == openneutron.compile(tmp_path / "net.tflite").buffer


def test_a_package_that_a_reader_needs_and_that_is_absent(tmp_path: Path) -> None:
    form = Form(".toy", Kind.LITERT, reader="no_such_package.toys:read", needs=("no_such_package",), extra="toys")
    with pytest.raises(MissingToolError) as caught:
        form.read(tmp_path / "net.toy")
    assert str(caught.value) == (
        "A .toy takes no_such_package; 'no_such_package' is not installed: pip install 'openneutron[toys]'."
    )
    with pytest.raises(ModuleNotFoundError):
        dataclasses.replace(form, needs=()).read(tmp_path / "net.toy")
    # Ultralytics asks for torchvision when a reader imports it.
    asking = dataclasses.replace(form, reader="importlib:import_module")
    with pytest.raises(MissingToolError, match="'no_such_package' is not installed"):
        asking.read("no_such_package")  # type: ignore[arg-type]


def test_a_form_without_a_reader(tmp_path: Path) -> None:
    (tmp_path / "weights.bin").write_bytes(archive(tmp_path / "w.pt", "w/data.pkl").read_bytes())
    with pytest.raises(InvalidModelError, match="has weights without a program"):
        openneutron.compile(tmp_path / "weights.bin")


def test_a_saved_model_is_refused_with_the_line_that_converts_it(tmp_path: Path) -> None:
    folder = tmp_path / "net"
    folder.mkdir()
    (folder / "saved_model.pb").write_bytes(b"")
    assert form_of(folder) is SAVED_MODEL
    with pytest.raises(InvalidModelError) as caught:
        openneutron.compile(folder)
    assert str(caught.value) == (
        f"'{folder}' is a TensorFlow SavedModel, and TensorFlow is not installed here. Make a .tflite of it where TensorFlow is, and "
        "compile that: python -c \"import tensorflow as tf; open('net.tflite', "
        f"'wb').write(tf.lite.TFLiteConverter.from_saved_model('{folder}').convert())\""
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "'net.onnx' is empty: it has 0 bytes. Copy or download the file again."),
        (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n",
            "'net.onnx': it is a pointer of Git LFS, without the file's content; get the content with `git lfs pull`. A model is a "
            "torch.nn.Module, an ExportedProgram, or the path of a .pt2, .onnx, .keras, .pt or .tflite file.",
        ),
        (
            b"\n<!DOCTYPE html><html><body>404</body></html>",
            "'net.onnx': it is a web page, as a failed download leaves it; download the file again. A model is a torch.nn.Module, an "
            "ExportedProgram, or the path of a .pt2, .onnx, .keras, .pt or .tflite file.",
        ),
    ],
)
def test_a_download_without_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.onnx").write_bytes(content)
    with pytest.raises(InvalidModelError) as caught:
        openneutron.compile("net.onnx")
    assert str(caught.value) == message
