# SPDX-License-Identifier: BSD-3-Clause
"""All commands under one name. The module of a command is imported when that command runs."""

from __future__ import annotations

import gc
import importlib
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

import openneutron
from openneutron.cli.ending import DONE, warnings_in_lines
from openneutron.cli.values import without_conversions

HELP = """From PyTorch and LiteRT models to NXP eIQ Neutron class NPUs, with open parts alone.

MODEL is a built-in name (cifarnet, mobilenet_v2 ...), file.py:function (a function that returns a module and a tuple of
example inputs), or a file: .pt2, .onnx, .keras, .pt or .tflite.
"""


@dataclass(frozen=True, slots=True)
class Command:
    """A command: its function, as ``module:attribute`` of the package, and the first line of its help.

    A command with commands of its own has a typer application in place of the function. ``is_configurable``: the
    command takes the options of a compile, which a configuration file may set.
    """

    place: str
    help: str
    is_configurable: bool = False

    def load(self) -> Any:
        """Return the function, or the typer application of the command's own commands."""
        module, _, attribute = self.place.partition(":")
        return getattr(importlib.import_module(f"openneutron.{module}"), attribute)


COMMANDS = {
    "compile": Command("cli.compile:compile_model", "Compile models to .pte or .tflite files.", True),
    "run": Command("features.run.command:run_file", "Run a compiled file on the simulated NPU."),
    "generate": Command(
        "features.generate.command:generate",
        "Continue a prompt with a compiled language model, or write down what is said in a sound.",
    ),
    "profile": Command("features.profile.command:profile_file", "Run a compiled file and show where its time goes."),
    "explain": Command(
        "features.report.command:explain",
        "Show the operators on the NPU and on the CPU, with costs and reasons.",
        True,
    ),
    "accuracy": Command(
        "features.accuracy.command:show_accuracy",
        "Show the accuracy that each layer of a PyTorch model loses to int8.",
    ),
    "quantize": Command(
        "features.quantize.command:quantize", "Quantize a model as compile does, and write it for other runtimes."
    ),
    "export": Command(
        "features.export.command:export_model", "Write compiled models as a folder that firmware is built from."
    ),
    "report": Command("features.report.command:report_model", "Write a page with charts of a compile.", True),
    "evaluate": Command(
        "features.evaluation.command:evaluate_model",
        "Measure the accuracy on labelled data: in float, in int8 on the CPU, and on the simulated NPU.",
        True,
    ),
    "sweep": Command(
        "features.sweep.command:sweep",
        "Compile with every combination of options, and measure the accuracy of each where --data is given.",
    ),
    "pareto": Command(
        "features.report.command:show_pareto", "Show the modelled latency for each amount of SRAM.", True
    ),
    "disasm": Command("features.listing.command:disasm", "List the programs in a compiled file."),
    "kernels": Command("features.listing.command:app", "Kernels that compiled models call."),
    "targets": Command("cli.targets:show_targets", "List the chips, or the facts about one chip with their sources."),
    "board": Command(
        "features.board.command:app", "Check how a board's NPU computes matrix products, which no document tells."
    ),
    "doctor": Command(
        "features.doctor.command:doctor",
        "Check the installation, and print instructions for missing parts; or say what a model's file is.",
    ),
    "demo": Command(
        "features.demo.command:demo",
        "Train a small network on handwritten digits, compile it, and run every test image on the simulated NPU.",
    ),
}
"""The commands, in the order of the help. A row has the first line of a command's help, so that the help of all
commands imports no command."""

NAME = "openneutron"
COMPLETING = "_OPENNEUTRON_COMPLETE"
"""Environment variable that the script of a shell's completion sets."""
COMPLETED_WORDS = ("COMP_WORDS", "_TYPER_COMPLETE_ARGS")
"""Environment variables with the words of the line that is completed: bash sets the first, zsh and fish the second."""
COMPLETION_OPTIONS = ("--install-completion", "--show-completion")
"""typer's own options; their callbacks end the process."""


def application(names: Iterable[str] = COMMANDS) -> typer.Typer:
    """Return the application with all commands.

    Only the commands in ``names`` are imported and have their parameters. Of the others, the application has the name
    and the first line of the help.
    """
    app = typer.Typer(
        help=HELP,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": list(HELPS)},
    )
    app.callback()(_every_command)
    for name, command in COMMANDS.items():
        found = command.load() if name in names else None
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=name)
        elif found is not None:
            app.command(name)(found)
        else:
            app.command(name, help=command.help)(_not_loaded)
    return app


def _not_loaded() -> None:
    raise AssertionError("a command of another name is called")


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"openneutron {openneutron.__version__}")
        raise typer.Exit


def _every_command(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


_ClickException: Any = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")
"""The base class of all usage errors. typer does not export it: typer bundles click, or depends on click in older
releases."""


def run(arguments: Sequence[str] | None) -> int:
    """Run a command and return its exit code; print click's own message where the usage is wrong.

    Raises whatever the command raises: typer's own main would turn some exceptions into exit codes without a message.
    """
    given = sys.argv[1:] if arguments is None else list(arguments)
    if COMPLETING in os.environ:
        return _complete()
    command: Any = typer.main.get_command(application(_named(given)))
    without_conversions(command)
    gc.freeze()
    gc.enable()
    try:
        with (
            warnings_in_lines(shown=not set(QUIET).intersection(given)),
            command.make_context(NAME, list(given), **_from_file(given)) as context,
        ):
            command.invoke(context)
    except typer.Exit as leaving:
        return leaving.exit_code
    except SystemExit as leaving:
        if given[:1] and given[0] in COMPLETION_OPTIONS and isinstance(leaving.code, int):
            return leaving.code
        raise
    except _ClickException as error:
        error.show()
        return int(error.exit_code)
    return DONE


def _named(words: Sequence[str]) -> list[str]:
    """Return the first word if it names a command; otherwise an empty list."""
    return [word for word in words[:1] if word in COMMANDS]


HELPS = ("-h", "--help")
QUIET = ("-q", "--quiet")


def _from_file(words: Sequence[str]) -> dict[str, Any]:
    """Return the arguments of click's context that make the options of a configuration file the defaults of the
    command.

    Raises InvalidOptionError for an unusable file.
    """
    is_configurable = any(COMMANDS[name].is_configurable for name in _named(words))
    if not is_configurable or set(HELPS) & set(words):
        return {}
    from openneutron.cli import configuration
    from openneutron.cli.options import configurable

    file = configuration.found(Path.cwd())
    if file is None:
        return {}
    return {"obj": file, "default_map": {words[0]: configuration.defaults(file, configurable())}}


def _complete() -> int:
    """Print the completions of the line in COMP_WORDS for the shell that asks, and return the exit code."""
    words = next((os.environ[name] for name in COMPLETED_WORDS if name in os.environ), "").split()
    command: Any = typer.main.get_command(application(_named(words[1:])))
    try:
        command.main(args=[], prog_name=NAME, complete_var=COMPLETING)
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else DONE
    return DONE
