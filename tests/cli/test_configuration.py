# SPDX-License-Identifier: BSD-3-Clause
"""Options in openneutron.toml and in pyproject.toml."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Command
from tests.support.chip_files import changed_chip

KEYS = (
    "target, npu, sram-budget, io-place, prefetch-constants, host-calls, cpu, cut-by-cost, fold-quantize, threads, effort, check, without-passes, profile, converter, converter-flags, "
    "converter-release, rescale, converter-timeout, "
    "calibration, preprocess, sample-rate, calibration-samples, weights, input-shape, head, input-format, input-size, normalize, operators-not-to-delegate, keep-float, quantization, channels-last, "
    "any-runtime, cache, io-dtype, activations, observer"
)


def budget(openneutron: Command, *options: str) -> int:
    """Return the SRAM budget of a compile with these options, in KiB."""
    ended = openneutron("compile", "mixed.tflite", "--json", *options)
    assert ended.code == 0, ended.err
    return int(json.loads(ended.out)["sram_budget_bytes"]) // 1024


def test_the_command_line_precedes_the_file_and_the_file_the_default(openneutron: Command, folder: Path) -> None:
    assert budget(openneutron) == 7680
    (folder / "openneutron.toml").write_text('sram-budget = "1.5MiB"\n')
    assert budget(openneutron) == 1536
    assert budget(openneutron, "--sram-budget", "200") == 200
    (folder / "openneutron.toml").write_text("sram_budget = 300\n")
    assert budget(openneutron) == 300


def test_a_switch_of_the_file_can_be_turned_off(openneutron: Command, folder: Path) -> None:
    def used(*switches: str) -> set[object]:
        """Return the bytes that the audit found in use; None without the audit."""
        data = json.loads(openneutron("compile", "mixed.tflite", "--json", *switches).out)
        return {part["used_bytes"] for part in data["partitions"]}

    (folder / "openneutron.toml").write_text("check = true\n")
    assert None not in used()
    assert used("--no-check") == {None}


def test_the_nearest_file_upwards_counts(openneutron: Command, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "pyproject.toml").write_text('[project]\nname = "net"\n\n[tool.openneutron]\nsram-budget = 400\n')
    inner = folder / "models" / "vision"
    inner.mkdir(parents=True)
    (inner / "mixed.tflite").write_bytes((folder / "mixed.tflite").read_bytes())
    monkeypatch.chdir(inner)
    assert budget(openneutron) == 400
    (inner.parent / "pyproject.toml").write_text('[project]\nname = "openneutron-models"\n')
    assert budget(openneutron) == 400
    (inner.parent / "openneutron.toml").write_text("sram-budget = 500\n")
    assert budget(openneutron) == 500


def test_the_path_of_a_chip_starts_at_the_file(
    openneutron: Command, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed_chip(folder, {"size": 300})
    (folder / "openneutron.toml").write_text('target = "changed.toml"\n')
    inner = folder / "models"
    inner.mkdir()
    (inner / "mixed.tflite").write_bytes((folder / "mixed.tflite").read_bytes())
    monkeypatch.chdir(inner)
    assert budget(openneutron) == 300
    assert budget(openneutron, "--target", "imxrt700") == 7680


def test_the_page_has_every_key(root: Path) -> None:
    page = (root / "docs/command-line.md").read_text()
    assert [key for key in KEYS.split(", ") if f"`{key}`" not in page.partition("## Options in a file")[2]] == []


def test_options_for_pytorch_models_do_not_concern_a_tflite(openneutron: Command, folder: Path) -> None:
    (folder / "openneutron.toml").write_text('calibration = "images"\nio-dtype = "int8"\nkeep-float = ["a", "b"]\n')
    assert openneutron("compile", "mixed.tflite", "--quiet").code == 0
    assert openneutron("compile", "mixed.tflite", "--io-dtype", "int8").err == (
        "error: --io-dtype: it is for float models; 'mixed.tflite' is quantized and has its own types. Leave it out.\n"
    )


def test_a_path_is_relative_to_the_file(
    refused: Callable[..., str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "openneutron.toml").write_text('calibration = "images"\n')
    (folder / "inner").mkdir()
    monkeypatch.chdir(folder / "inner")
    assert refused("compile", "cifarnet") == f"--calibration: '{folder}/images' does not exist."


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            'target = "imxrt700"\nsram-bugdet = 3\n',
            f"2: 'sram-bugdet' is unknown; the keys are {KEYS}. Did you mean 'sram-budget'?",
        ),
        ("trust = true\n", f"1: 'trust' is unknown; the keys are {KEYS}."),
        (
            "sram-budget = 0.5\n",
            "1: sram-budget: '0.5' is no size above 0 and up to 4194303 in whole KiB. Write 287, 287KiB or 1.5MiB.",
        ),
        ('\neffort = "hgih"\n', "2: effort: 'hgih' is unknown; there are default, high. Did you mean 'high'?"),
        (
            'calibration = "loader.py:batches"\n',
            "1: calibration: a function in a Python file is named on the command line alone, since it runs code.",
        ),
        ("check = 1\n", "1: check: it is 1; it is true or false."),
        ("target = [1]\n", "1: target: it is [1]; it is a text."),
        ("keep-float = [true]\n", "1: keep-float: it is [True]; it is a text or a list of texts."),
    ],
)
def test_a_wrong_key_or_value_names_its_line(
    refused: Callable[..., str], folder: Path, text: str, message: str
) -> None:
    (folder / "openneutron.toml").write_text(text)
    assert refused("compile", "mixed.tflite") == f"{folder}/openneutron.toml, line {message}"
    project = folder / "pyproject.toml"
    (folder / "openneutron.toml").unlink()
    project.write_text(f"[tool.openneutron]\n{text}")
    number, _, rest = message.partition(":")
    assert refused("compile", "mixed.tflite") == f"{project}, line {int(number) + 1}:{rest}"


def test_a_value_in_place_of_the_table(refused: Callable[..., str], folder: Path) -> None:
    (folder / "pyproject.toml").write_text("# tool.openneutron\n[tool]\nopenneutron = 3\n")
    message = f"{folder}/pyproject.toml: 'openneutron' is 3; it must be a table of options."
    assert refused("explain", "mixed.tflite") == message


def test_a_file_that_is_no_toml(refused: Callable[..., str], folder: Path) -> None:
    (folder / "openneutron.toml").write_text("target = \n")
    assert refused("explain", "mixed.tflite") == (
        f"{folder}/openneutron.toml: it is no TOML: Invalid value (at line 1, column 10)."
    )
