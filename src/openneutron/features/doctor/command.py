# SPDX-License-Identifier: BSD-3-Clause
"""The command ``doctor``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from openneutron.cli import output
from openneutron.cli.ending import PART_MISSING
from openneutron.cli.model_source import BUILT_IN
from openneutron.device.files import existing
from openneutron.device.forms import SAVED_MODEL, of_content
from openneutron.errors import InvalidModelError
from openneutron.features.doctor import installation, model
from openneutron.features.doctor.installation import WORDS, State
from openneutron.features.report.table import Column, Table, facts


def doctor(
    file: Annotated[
        str | None,
        typer.Argument(
            metavar="[FILE]", help="A model's file, of which this says what it is; nothing in it is executed."
        ),
    ] = None,
    as_json: output.AsJson = False,
    quiet: output.Quiet = False,
    verbose: output.Verbose = False,
) -> None:
    """Check the installation, and print instructions for missing parts; or say what a model's file is.

    Exit code 0: PyTorch models can be compiled and run. 1: a part is missing. With FILE, the installation is not checked: the exit code
    is 0 where the file can be described.
    """
    if file is not None:
        _describe(file, as_json)
        return
    with output.Steps(quiet or as_json, verbose) as steps:
        checks = installation.all_checks(steps)
    broken = [check for check in checks if check.state is State.BROKEN]
    rows = [
        {"what": c.what, "state": WORDS[c.state][0], "found": c.found, "wanted": c.wanted, "to_do": c.to_do}
        for c in checks
    ]
    output.show(installation.findings(checks), "doctor", {"works": not broken, "checks": rows, "model": None}, as_json)
    if broken:
        raise typer.Exit(PART_MISSING)


def _describe(file: str, as_json: bool) -> None:
    """Print what a model's file is."""
    path = Path(file)
    if file in BUILT_IN and not path.exists():
        raise InvalidModelError(
            f"'{file}' is a built-in model and no file. `openneutron explain {file}` says what a compile does with it."
        )
    found = model.described(path if of_content(path) is SAVED_MODEL else existing(file))
    rows = [("file", file), ("form", found.what), ("made by", found.made_by)]
    operators = ", ".join(f"{name} {count}" for name, count in found.operators.most_common(MOST_OPERATORS))
    if more := len(found.operators) - MOST_OPERATORS:
        operators += f" and {more} other kinds" if more > 0 else ""
    rows += [("operators", operators), *(("note", note) for note in found.notes), ("next", found.plan)]
    tensors = [("input", item) for item in found.inputs] + [("output", item) for item in found.outputs]
    table = Table(
        (
            Column("", [kind for kind, _ in tensors]),
            Column("name", [item.name for _, item in tensors], style="cyan"),
            Column("type", [item.dtype for _, item in tensors]),
            Column("shape", [item.shape for _, item in tensors]),
        ),
        gap=2,
    )
    parts: list[RenderableType] = [facts([(name, value) for name, value in rows if value])]
    if tensors:
        parts += ["", table, ""]
    text = Group(
        *parts, *([Text.assemble("Try ", (f"`{found.command.format(file)}`", "bold"), ".")] if found.command else [])
    )
    data = {
        "file": file,
        "form": found.what,
        "made_by": found.made_by,
        "inputs": [item.data() for item in found.inputs],
        "outputs": [item.data() for item in found.outputs],
        "operators": dict(found.operators.most_common()),
        "notes": list(found.notes),
        "plan": found.plan,
        "try": found.command.format(file),
    }
    output.show(text, "doctor", {"works": None, "checks": [], "model": data}, as_json)


MOST_OPERATORS = 12
"""The most kinds of operators that are shown."""
