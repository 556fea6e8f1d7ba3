# SPDX-License-Identifier: BSD-3-Clause
"""All commands under one name, and how they end."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import typer

import openneutron
from openneutron.cli.ending import DONE

HELP = """From PyTorch and LiteRT models to NXP eIQ Neutron class NPUs, with open parts alone.

MODEL is a built-in name (cifarnet, mobilenet_v2 ...), file.py:function (a function that returns a module and a tuple of
example inputs), a .pt2 file, or an int8 .tflite file.
"""

COMMANDS = {
    "compile": "compile.compile_model",
    "run": "run_file.run_file",
    "explain": "explain.explain",
    "export": "export.export_model",
    "report": "report.report_model",
    "pareto": "pareto.show_pareto",
    "disasm": "disasm.disasm",
    "kernels": "kernels.app",
    "targets": "targets.show_targets",
    "doctor": "doctor.doctor",
}
"""The function of each command, or its own commands, in openneutron.cli, in the order of the help."""


def application(names: Iterable[str] = COMMANDS) -> typer.Typer:
    """Return the application with these commands; the modules of other commands are not imported."""
    app = typer.Typer(
        help=HELP,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_every_command)
    for name in names:
        module, _, attribute = COMMANDS[name].partition(".")
        found = getattr(importlib.import_module(f"openneutron.cli.{module}"), attribute)
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=name)
        else:
            app.command(name)(found)
    return app


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
"""Base of all usage errors. typer bundles click, or depends on it in older releases, and does not export this class."""


def run(arguments: Sequence[str] | None) -> int:
    """Run a command and return its exit code; print click's own message where the usage is wrong.

    Raises whatever the command raises: typer's own main would turn some exceptions into exit codes without a message.
    """
    given = sys.argv[1:] if arguments is None else list(arguments)
    command: Any = typer.main.get_command(application(given[:1] if given[:1] and given[0] in COMMANDS else COMMANDS))
    try:
        with command.make_context("openneutron", given) as context:
            command.invoke(context)
    except typer.Exit as leaving:
        return leaving.exit_code
    except _ClickException as error:
        error.show()
        return int(error.exit_code)
    return DONE
