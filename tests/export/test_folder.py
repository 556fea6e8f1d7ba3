# SPDX-License-Identifier: BSD-3-Clause
"""The folder of a bundle: the same bytes for the same model, and nothing of the user's overwritten."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

import openneutron
from openneutron import litert, targets
from openneutron.cli import main
from openneutron.compiler import compile_graph
from openneutron.errors import InvalidOptionError
from openneutron.features.export.bundle import export_bundle
from openneutron.features.export.readme import WORDS
from scripts.published_networks import cifarnet
from tests.support.litert_files import graph_file


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "cifarnet.tflite"
    graph = cifarnet()
    path.write_bytes(graph_file(graph, compile_graph(graph, targets.get("imxrt700")).program))
    return path


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_same_model_same_bytes(model: Path, tmp_path: Path) -> None:
    first, second = (export_bundle(model, tmp_path / name) for name in ("a", "b"))
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    assert first.files == second.files == tuple(sorted(contents(tmp_path / "a")))


def test_no_line_is_left_open(model: Path, tmp_path: Path) -> None:
    """No placeholder, no path of this computer."""
    export_bundle(model, tmp_path / "a")
    for name, data in contents(tmp_path / "a").items():
        assert str(tmp_path).encode() not in data, name
        if name == "README.md":
            assert "@" not in data.decode()


def test_a_folder_with_other_files(model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(InvalidOptionError) as caught:
        export_bundle(model, folder)
    assert str(caught.value) == (
        f"--to '{folder}': it has files in it that no export made. Choose an empty folder, or add --force to write among them."
    )
    assert contents(folder) == {"notes.txt": b"mine"}
    export_bundle(model, folder, force=True)
    assert (folder / "notes.txt").read_text() == "mine"
    assert (folder / "CMakeLists.txt").is_file()


def test_a_new_export_over_an_earlier_one(model: Path, tmp_path: Path) -> None:
    """Files that the user added stay, files that the bundle no longer has are removed, and changed files are not overwritten."""
    folder = tmp_path / "bundle"
    export_bundle(model, folder)
    wanted = contents(folder)
    (folder / "build").mkdir()
    (folder / "build" / "example.elf").write_text("built")
    manifest = (folder / "bundle.json").read_text()
    (folder / "old").mkdir()
    (folder / "old" / "gone.c").write_text("")
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    (folder / "bundle.json").write_text(
        manifest.replace('"files": {', f'"files": {{"old/gone.c": "{empty}", "../out": "x",')
    )
    export_bundle(model, folder)
    assert contents(folder) == {**wanted, "build/example.elf": b"built"}

    (folder / "example" / "main.c").write_text("/* mine */\n")
    with pytest.raises(InvalidOptionError) as caught:
        export_bundle(model, folder)
    assert str(caught.value) == (
        f"--to '{folder}': 'example/main.c' was changed since it was exported. Choose another folder, or add --force to "
        "overwrite it."
    )
    export_bundle(model, folder, force=True)
    assert contents(folder) == {**wanted, "build/example.elf": b"built"}


def test_a_folder_that_cannot_be(model: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        export_bundle(model, tmp_path / "no" / "bundle")
    assert str(caught.value) == f"--to '{tmp_path}/no/bundle': there is no folder '{tmp_path}/no'. Make it first."
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidOptionError) as caught:
        export_bundle(model, tmp_path / "file")
    assert str(caught.value) == f"--to '{tmp_path}/file': it is a file; a bundle is a folder. Choose another name."
    for name, shown in ((";", "';'"), ('"', "'\"'"), ("\\", "'\\\\'"), ("\n", "'\\n'")):
        with pytest.raises(InvalidOptionError) as caught:
            export_bundle(model, tmp_path / f"a{name}b")
        assert f"CMake does not build in a folder whose path has {shown}." in str(caught.value)
        assert sorted(each.name for each in tmp_path.iterdir()) == ["file"]


def test_nothing_is_left_of_an_export_that_fails(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(InvalidOptionError, match="No space left on device"):
        export_bundle(model, tmp_path / "bundle")
    assert not (tmp_path / "bundle").exists()


def test_a_file_name_that_is_no_text(model: Path, tmp_path: Path) -> None:
    other = tmp_path / os.fsdecode(b"m\xff.tflite")
    other.write_bytes(model.read_bytes())
    export_bundle(other, tmp_path / "bundle")
    header = (tmp_path / "bundle" / "model" / "m_model.h").read_text()
    assert '#define M_NAME "m\\377"' in header


def test_what_the_command_says(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["export", str(model), "--to", "a bundle"]) == 0
    bundle = export_bundle(model, tmp_path / "other")
    sizes = "".join(
        f"{WORDS[name]:<{max(map(len, WORDS.values()))}}    {f'{size:,} bytes':>13}\n"
        for name, size in bundle.memory.items()
    )
    assert capsys.readouterr().out == (
        f"a bundle: {len(bundle.files)} files for a Cortex-M33 with a GNU toolchain and CMake\n{sizes}"
        f"kernels: {', '.join(bundle.kernels)}\n"
        "next: cmake -S 'a bundle' -B 'a bundle'/build && cmake --build 'a bundle'/build --target run\n"
    )
    assert main(["export", str(model), "--to", "b", "--port", "zephyr", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["folder"] == "b" and said["port"] == "zephyr" and said["memory"] == bundle.memory
    assert set(said["files"]) == {
        path.relative_to(tmp_path / "b").as_posix() for path in (tmp_path / "b").rglob("*") if path.is_file()
    }


def test_notes_about_the_chip_of_the_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.tflite").write_bytes(litert.write(cifarnet()))
    openneutron.compile("net.tflite", options=openneutron.CompileOptions(target="mcxn94x")).save("compiled.tflite")
    capsys.readouterr()
    assert main(["export", "compiled.tflite", "--to", "plain"]) == 0
    assert capsys.readouterr().err == "note: the model was compiled for mcxn94x, whose form is mcxn947: --for mcxn947\n"
    assert main(["export", "compiled.tflite", "--to", "own", "--for", "mcxn947"]) == 0
    assert capsys.readouterr().err == ""
    chip = targets.get("mcxn94x")
    little = replace(chip, memories=tuple(replace(each, size=replace(each.size, value=16)) for each in chip.memories))
    monkeypatch.setattr(targets, "with_checksum", lambda _number: little)
    assert main(["export", "compiled.tflite", "--to", "little", "--port", "mcxn947"]) == 0
    assert re.fullmatch(
        r"note: microcode and weights take [\d.]+ KiB; mcxn94x has 16.0 KiB of flash\n", capsys.readouterr().err
    )
