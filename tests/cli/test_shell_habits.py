# SPDX-License-Identifier: BSD-3-Clause
"""Several models, standard input, the amount of output, colours, completion."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from openneutron.cli import app, ending
from openneutron.cli.app import COMMANDS
from scripts.commands_page import text as commands_page
from tests.cli.conftest import Command
from tests.support.litert_files import int16_file, mixed_file


@pytest.fixture
def standard_input(monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], None]:
    """Put bytes on standard input."""

    def put(data: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data)))

    return put


def test_one_failing_model_does_not_stop_the_others(openneutron: Command, folder: Path) -> None:
    (folder / "other").mkdir()
    for name in ("mixed", "again"):
        (folder / "other" / f"{name}.tflite").write_bytes((folder / "mixed.tflite").read_bytes())
    models = ("mixed.tflite", "absent.tflite", "other/mixed.tflite", "other/again.tflite")
    ended = openneutron("compile", *models, "-o", "out", "--quiet", "--intermediates", "kept")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err == (
        "error: absent.tflite: 'absent.tflite' does not exist.\n"
        "error: other/mixed.tflite: its result would replace that of 'mixed.tflite', 'out/mixed_neutron.tflite'. Compile it "
        "alone, with --output.\n"
    )
    assert sorted(path.name for path in (folder / "out").iterdir()) == ["again_neutron.tflite", "mixed_neutron.tflite"]
    assert sorted(path.name for path in (folder / "kept").iterdir()) == ["again_neutron", "mixed_neutron"]


def test_several_models_have_their_summaries_below_one_another(openneutron: Command, folder: Path) -> None:
    (folder / "again.tflite").write_bytes((folder / "mixed.tflite").read_bytes())
    ended = openneutron("compile", "mixed.tflite", "again.tflite")
    assert (ended.code, ended.err) == (0, "")
    heads = [line for line in ended.out.splitlines() if "for imxrt700" in line]
    assert [head.split()[0] for head in heads] == ["mixed.tflite", "again.tflite"]
    assert (folder / "again_neutron.tflite").read_bytes() == (folder / "mixed_neutron.tflite").read_bytes()


def test_one_kernel_selection_is_not_for_several_models(refused: Callable[..., str]) -> None:
    assert refused("compile", "mixed.tflite", "mixed.tflite", "--kernel-selection", "all.c") == (
        "--kernel-selection: it names one file for 2 models. Use --dump-kernel-selection."
    )


def test_a_tflite_from_standard_input(
    openneutron: Command, folder: Path, standard_input: Callable[[bytes], None]
) -> None:
    standard_input((folder / "mixed.tflite").read_bytes())
    assert openneutron("compile", "-", "-o", "piped.tflite", "-q").code == 0
    openneutron("compile", "mixed.tflite", "-q")
    made = (folder / "mixed_neutron.tflite").read_bytes()
    assert (folder / "piped.tflite").read_bytes() == made
    for command in (("disasm",), ("run", "--random", "1"), ("kernels", "list")):
        standard_input(made)
        piped = openneutron(*command, "-")
        assert piped.code == 0, piped.err
        assert (
            piped.out.replace("stdin.tflite", "mixed_neutron.tflite")
            == openneutron(*command, "mixed_neutron.tflite").out
        )


def test_nothing_and_something_else_on_standard_input(
    refused: Callable[..., str], standard_input: Callable[[bytes], None]
) -> None:
    standard_input(b"")
    assert refused("disasm", "-") == "standard input is empty; '-' reads a file from there."
    standard_input(b"1234ET12")
    assert refused("compile", "-") == "standard input is no .tflite; models of other forms have to be files."


def test_verbose_shows_each_step_and_the_configuration(openneutron: Command, folder: Path) -> None:
    (folder / "openneutron.toml").write_text('sram-budget = 400\neffort = "default"\n')
    ended = openneutron("compile", "mixed.tflite", "--verbose")
    first, *steps = ended.err.splitlines()
    assert first == f"options of {folder}/openneutron.toml: sram-budget, effort"
    assert [line.partition(":")[0] for line in steps] == ["Reading", "Partitioning", "Compiling", "Writing", "Saving"]
    assert openneutron("compile", "mixed.tflite", "--quiet").err == ""


def shown_on_a_terminal(folder: Path, **environment: str) -> str:
    """Return the output of ``targets`` on a pseudo terminal."""
    ours, theirs = os.openpty()
    kept = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    process = subprocess.Popen(
        [sys.executable, "-m", "openneutron", "targets"],
        stdout=theirs,
        env={**kept, "TERM": "xterm-256color", "COLUMNS": "200", **environment},
        cwd=folder,
    )
    os.close(theirs)
    found = b""
    try:
        while piece := os.read(ours, 4096):
            found += piece
    except OSError:  # the end, on Linux
        pass
    os.close(ours)
    assert process.wait() == 0
    return found.decode()


def test_a_narrow_terminal_has_one_line_for_each_chip(folder: Path) -> None:
    lines = shown_on_a_terminal(folder, COLUMNS="80", NO_COLOR="1").splitlines()
    assert [line.split()[0] for line in lines[1:7]] == ["imx943", "imx95", "imx952", "imxrt700", "mcxn54x", "mcxn94x"]
    assert lines[3].split() == ["imx952", "NXP", "i.MX", "952", "1,024", "1,000", "MHz", "1,024", "KiB"]


def test_no_color_leaves_the_colours_out(folder: Path) -> None:
    assert "\x1b[36m" in shown_on_a_terminal(folder)
    assert "\x1b[36m" not in shown_on_a_terminal(folder, NO_COLOR="1")


@pytest.mark.parametrize(
    ("shell", "environment"),
    [
        ("bash", {"COMP_WORDS": "openneutron {}", "COMP_CWORD": "{}"}),
        ("zsh", {"_TYPER_COMPLETE_ARGS": "openneutron {}"}),
        ("fish", {"_TYPER_COMPLETE_ARGS": "openneutron {}", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}),
    ],
)
def test_commands_options_and_choices_are_completed(
    openneutron: Command, monkeypatch: pytest.MonkeyPatch, shell: str, environment: dict[str, str]
) -> None:
    for words, completions in (("ex", {"explain", "export"}), ("compile --eff", {"--effort"})):
        monkeypatch.setenv("_OPENNEUTRON_COMPLETE", f"complete_{shell}")
        for name, value in environment.items():
            monkeypatch.setenv(name, value.format(len(words.split()) if name == "COMP_CWORD" else words))
        ended = openneutron()
        assert ended.code == 0, ended.err
        assert all(word in ended.out for word in completions)
        assert "doctor" not in ended.out and "--target" not in ended.out


def test_the_script_of_the_completion(openneutron: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    for shell in ("bash", "zsh", "fish"):
        ended = openneutron("--show-completion", shell)
        assert (ended.code, ended.err) == (0, "")
        assert f"_OPENNEUTRON_COMPLETE=complete_{shell}" in ended.out


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_all_commands_has_the_first_line_of_each(name: str) -> None:
    found = COMMANDS[name].load()
    words = found.info.help if hasattr(found, "info") else found.__doc__
    assert words.strip().split("\n")[0] == COMMANDS[name].help


def test_the_page_of_the_commands_has_every_exit_code() -> None:
    codes = {value for name, value in vars(ending).items() if name.isupper() and isinstance(value, int)}
    assert codes == ending.EXITS.keys()
    for code in codes:
        assert f"| {code} | " in commands_page()
    assert app.NAME == "openneutron"


def test_models_that_share_an_arena(openneutron: Command, folder: Path) -> None:
    (folder / "other.tflite").write_bytes(mixed_file())
    ended = openneutron("compile", "mixed.tflite", "other.tflite", "--share-arena", "-o", "out")
    assert (ended.code, ended.err) == (0, "")
    lines = ended.out.splitlines()
    at = lines.index("2 models, one after the other in one arena")
    assert [line.split("  ")[1] for line in lines[at + 1 : at + 5]] == ["SRAM", "With weights", "Separate", "Flash"]
    assert sorted(path.name for path in (folder / "out").iterdir()) == ["mixed_neutron.tflite", "other_neutron.tflite"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("mixed.tflite",), "--share-arena: there is 1 model. Give two or more."),
        (
            ("mixed.tflite", "mixed.tflite"),
            "--share-arena: two models have the name 'mixed.tflite'. Give each model a name of its own.",
        ),
        (
            ("mixed.tflite", "./mixed.tflite"),
            "--share-arena: the result of two models is 'mixed_neutron.tflite'. Rename one of the files.",
        ),
        (("mixed.tflite", "absent.tflite"), "'absent.tflite' does not exist."),
        (
            ("mixed.tflite", "none.tflite"),
            "'none.tflite': its one operator does not run on the NPU; ADD 'y': input 'x' has no quantization parameters.",
        ),
    ],
)
def test_models_that_cannot_share_an_arena(
    arguments: tuple[str, ...], message: str, refused: Callable[..., str], folder: Path
) -> None:
    """One error, and no file."""
    (folder / "none.tflite").write_bytes(int16_file())
    assert refused("compile", *arguments, "--share-arena").startswith(message)
