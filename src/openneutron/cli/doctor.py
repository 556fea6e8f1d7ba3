# SPDX-License-Identifier: BSD-3-Clause
"""``openneutron doctor``."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from openneutron.cli import output
from openneutron.cli.checks import Check, State, all_checks
from openneutron.cli.progress import Steps

WORDS = {State.FINE: ("ok", "green"), State.LACKING: ("lacking", "yellow"), State.BROKEN: ("missing", "red")}


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print the same as JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")] = False,
) -> None:
    """Say what is missing, and what to do.

    Exit code 0: PyTorch models can be compiled and run. 1: they can't yet.
    """
    with Steps(quiet or as_json) as steps:
        checks = all_checks(steps)
    broken = [check for check in checks if check.state is State.BROKEN]
    if as_json:
        output.show_json(
            {
                "works": not broken,
                "checks": [
                    {"what": c.what, "state": WORDS[c.state][0], "found": c.found, "wanted": c.wanted, "to_do": c.to_do}
                    for c in checks
                ],
            }
        )
    else:
        output.show(_findings(checks))
    if broken:
        raise typer.Exit(1)


def _findings(checks: list[Check]) -> RenderableType:
    table = Table(box=None, pad_edge=False, padding=(0, 2))
    table.add_column("", no_wrap=True)
    table.add_column("what", style="cyan", no_wrap=True)
    table.add_column("found", overflow="fold")
    table.add_column("wanted", overflow="fold")
    for check in checks:
        word, style = WORDS[check.state]
        table.add_row(Text(word, style=style), check.what, check.found, check.wanted)
    parts: list[RenderableType] = [table, ""]
    to_do = [check for check in checks if check.to_do]
    for check in to_do:
        parts.append(Text.assemble((check.what, "cyan"), f": {check.to_do}"))
    if to_do:
        parts.append("")
    works = all(check.state is not State.BROKEN for check in checks)
    parts.append(
        "All there: try `openneutron compile cifarnet`." if works else "Not everything works yet: see what to do above."
    )
    return Group(*parts)
