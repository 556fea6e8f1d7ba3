# SPDX-License-Identifier: BSD-3-Clause
"""``openneutron report``, and ``--plot`` and ``--facts`` of other commands."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from openneutron.features.report.page.document import converter
from openneutron.features.report.page.page import data_of
from tests.cli.conftest import Command


def test_the_page_has_the_numbers_of_json_and_of_explain(openneutron: Command, folder: Path) -> None:
    ended = openneutron("report", "mixed.tflite", "-o", "r.html", "--json")
    assert (ended.code, ended.err) == (0, "")
    said = json.loads(ended.out)
    data = data_of((folder / "r.html").read_text(), "r.html").to_dict()
    assert said == {"schema_version": 2, "command": "report", **data}
    explained = json.loads(openneutron("explain", "mixed.tflite", "--json").out)
    for name, value in said["figures"].items():
        if name != "file_bytes":  # explain writes no file
            assert explained[name] == value
    points = json.loads(openneutron("pareto", "mixed.tflite", "--json").out)["points"]
    assert [(p["sram_bytes"], p["cycles"]) for p in said["pareto"]] == [
        (p["sram_bytes"], p["modelled_cycles"]) for p in points
    ]


def test_a_report_is_made_of_a_file_with_facts_and_of_a_report(openneutron: Command, folder: Path) -> None:
    assert openneutron("compile", "mixed.tflite", "-o", "m.tflite", "--facts", "-q").code == 0
    ended = openneutron("report", "m.tflite")
    assert (ended.code, ended.out) == (0, f"report.html, {(folder / 'report.html').stat().st_size / 1024:,.1f} KiB\n")
    again = json.loads(openneutron("report", "report.html", "--json").out)
    assert again == json.loads(openneutron("report", "m.tflite", "--json").out)
    assert again["pareto"] == []
    made = json.loads(openneutron("report", "mixed.tflite", "--json", "--no-pareto").out)
    assert {**again, "figures": made["figures"], "summary": made["summary"]} == made


def test_two_are_shown_side_by_side(openneutron: Command, folder: Path) -> None:
    assert openneutron("report", "mixed.tflite", "-o", "a.html", "-q", "--no-pareto").code == 0
    assert openneutron("report", "mixed.tflite", "-o", "b.html", "-q", "--io-place", "caller", "--no-pareto").code == 0
    said = json.loads(openneutron("report", "a.html", "b.html", "--json", "-o", "both.html").out)
    change = next(item for item in said["figures"] if item["name"] == "peak_sram_bytes")
    assert (change["a"], change["b"]) == (
        said["a"]["figures"]["peak_sram_bytes"],
        said["b"]["figures"]["peak_sram_bytes"],
    )
    assert change["b"] > change["a"]
    assert {item["cycles"] for item in said["layers"]} == {0}
    assert "<title>mixed.tflite: first and second - OpenNeutron report</title>" in (folder / "both.html").read_text()


def test_accuracy_comes_from_the_json_of_its_command(
    openneutron: Command, folder: Path, refused: Callable[..., str]
) -> None:
    layers = [
        {"name": name, "accumulated_db": 20.0, "local_db": local, "saturated": 0.0}
        for name, local in (("conv_2d_0", 12.0), ("nowhere", None))
    ]
    (folder / "a.json").write_text(json.dumps({"command": "accuracy", "layers": layers}))
    openneutron("compile", "mixed.tflite", "-o", "m.tflite", "--facts", "-q")
    for model in ("mixed.tflite", "m.tflite"):
        said = json.loads(openneutron("report", model, "--accuracy", "a.json", "--json", "--no-pareto").out)
        assert said["accuracy"] == layers
        assert "Accuracy of 'conv_2d_0'" in [item["label"] for item in said["findings"]]
    (folder / "b.json").write_text("[]")
    assert refused("report", "mixed.tflite", "--accuracy", "b.json") == (
        "'b.json': it has no accuracy of layers. `openneutron accuracy --json` prints such a file."
    )
    assert refused("report", "mixed.tflite", "m.tflite", "--accuracy", "a.json") == (
        "--accuracy: it is for the report of one model. Write a report of each model with its accuracy, and compare the reports."
    )


def test_plots_are_pictures(openneutron: Command, folder: Path) -> None:
    for command in ("compile", "explain", "pareto"):
        assert openneutron(command, "mixed.tflite", "-q", "--plot", f"{command}.png").code == 0
        assert (folder / f"{command}.png").read_bytes()[:4] == b"\x89PNG"


def test_unusable_inputs_and_outputs_are_refused(
    openneutron: Command, folder: Path, refused: Callable[..., str]
) -> None:
    openneutron("compile", "mixed.tflite", "-q")
    (folder / "made").mkdir()
    (folder / "other.html").write_text("<p>hello</p>")
    for arguments, message in (
        (
            ("mixed.tflite", "-o", "made"),
            "'made' is a folder; a report is one file. Name it, such as made/report.html.",
        ),
        (("mixed.tflite", "-o", "r.txt"), "'r.txt': a report is a .html file; this name ends otherwise. Rename it."),
        (("mixed.tflite", "-o", "none/r.html"), "'none/r.html' can't be written: No such file or directory."),
        (("other.html",), "'other.html': it is no report of one model. `openneutron report` writes these files."),
        (("none.pte",), "'none.pte' does not exist."),
        (
            ("mixed_neutron.tflite",),
            "'mixed_neutron.tflite': it was saved without the facts of its compile, which a report shows. Compile the model with --facts "
            "(program.save(path, facts=True)), or make the report of the model itself.",
        ),
    ):
        assert refused("report", *arguments) == message
    assert refused("explain", "mixed.tflite", "--plot", "x.pdf") == (
        "--plot: 'x.pdf' is no .png or .svg; nothing else is drawn."
    )


def test_without_the_extra_the_message_names_it(refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    converter.cache_clear()
    message = (
        "Reports and pictures take the package vl-convert-python; it is not installed: pip install vl-convert-python. "
        "`openneutron explain` prints the same figures without."
    )
    assert refused("report", "mixed.tflite") == message
    assert refused("compile", "mixed.tflite", "--plot", "x.svg") == message


COMPILES = """
import sys
from openneutron.cli import main
code = main(["compile", "mixed.tflite", "-q"])
print(sorted(name for name in sys.modules if name.startswith(("openneutron.features.report.page", "vl_convert", "openneutron.api.reporting"))))
sys.exit(code)
"""


def test_a_compile_imports_nothing_of_reports(folder: Path) -> None:
    command = [sys.executable, "-c", COMPILES]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[]\n", "")
