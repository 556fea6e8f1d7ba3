# SPDX-License-Identifier: BSD-3-Clause
"""``openneutron targets``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.text import Text

from openneutron import targets
from openneutron.cli import output
from openneutron.compiler.cost import estimate
from openneutron.features.report.table import Column, Table, plural, right
from openneutron.targets import Number, Target
from openneutron.targets.target import Words


def show_targets(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...", help="A chip, or the path of its .toml file; or several of these. Default: all chips."
        ),
    ] = None,
    what_would_help: Annotated[
        bool,
        typer.Option(
            "--what-would-help", help="Name the three measurements that would narrow the ranges of estimates most."
        ),
    ] = False,
    as_json: output.AsJson = False,
) -> None:
    """List the chips, or the facts about one chip with their sources.

    Of several chips the table has the facts in which they differ, side by side.
    """
    shown = [targets.described(each) for each in (names or targets.KNOWN)]
    table = _all(shown) if not names else _one(shown[0]) if len(shown) == 1 else _side_by_side(shown)
    found: dict[str, Any] = {"targets": [_as_dict(target) for target in shown]}
    if what_would_help:
        helpful = {target.name: estimate.what_would_help(target) for target in shown}
        table = Group(*(_helpful(name, items) for name, items in helpful.items()))
        found["what_would_help"] = {name: [asdict(item) for item in items] for name, items in helpful.items()}
    output.show(table, "targets", found, as_json)


def _helpful(name: str, items: Sequence[estimate.Measurement]) -> Group:
    """Return a table with the measurements that would narrow the ranges of a chip's estimates."""
    columns = (
        Column("measure", [item.network for item in items]),
        Column("it tells", [item.term for item in items], goes=1),
        right("range, +-", [f"{100 * item.before:.1f} %" for item in items]),
        right("then", [f"{100 * item.after:.1f} %" for item in items]),
    )
    return Group(Text(f"{name}: measurements that would narrow the ranges of estimates", "bold"), Table(columns))


def _all(shown: list[Target]) -> Group:
    columns = (
        Column("target", [target.name for target in shown], names=True),
        Column("chip", [target.title for target in shown], goes=1, style="cyan"),
        Column("class", [target.family for target in shown], goes=2),
        Column("activations", [str(target.npu.data_types) for target in shown], goes=3),
        right("MAC/cycle", [target.macs_per_cycle for target in shown]),
        right("clock", [str(target.clock) for target in shown]),
        right("memory", [str(target.sram) for target in shown]),
        Column("assumed facts", [target.assumption.partition(" facts")[0] for target in shown], goes=4),
    )
    lines = [f"Not compiled for: {target.name} {target.obstacle}" for target in shown if target.obstacle is not None]
    lines.append(
        "`openneutron targets NAME` shows the facts about a chip with their sources, of several chips their differences."
    )
    return Group(Table(columns), "", *lines)


def _side_by_side(shown: list[Target]) -> Group:
    """Return the facts in which chips differ; a chip without a fact, such as those of another memory, has an empty cell."""
    facts = [{place: str(fact) for place, _, fact in target.facts()} for target in shown]
    places = list(dict.fromkeys(place for each in facts for place in each))
    different = [place for place in places if len({each.get(place) for each in facts}) > 1]
    columns = [
        Column(target.name, [target.family, *(each.get(place, "") for place in different)], wraps=True)
        for target, each in zip(shown, facts, strict=True)
    ]
    table = Table((Column("fact", ["class", *different], style="cyan", wraps=True), *columns))
    return Group(
        table,
        "",
        f"{plural(len(places) - len(different), 'other fact')} are the same; --json has all, with their sources.",
    )


def _one(target: Target) -> Group:
    rows = [(place, str(fact), entry.doc, fact.source) for place, entry, fact in target.facts()]
    rows += [(f"limits.{name}", str(limit), "limit of NXP's converter", limit.source) for name, limit in target.limits]
    wide = (Column(heading, wraps=True) for heading in ("value", "meaning", "source"))
    table = Table.of_rows((Column("fact", style="cyan"), *wide), rows, gap=4)
    lines = [
        Text.assemble((target.name, "bold"), f"  {target.title}, {target.kind}"),
        Text(f"Host core {target.host.core}; {_port(target)}"),
        Text(
            f"Copies: {'; '.join(f'{item.name}, {item.source} to {item.destination}' for item in target.copy_engines)}"
        ),
        Text(f"{target.assumption}; the others are published, secondary, or fitted to published figures."),
    ]
    if target.obstacle is not None:
        lines.append(Text(f"Not compiled for: it {target.obstacle}"))
    return Group(*lines, "", table)


def _port(target: Target) -> str:
    """Return the C port for firmware, with its boards."""
    if not target.port.name:
        return "no C port"
    boards = f", boards {', '.join(target.port.boards)}" if target.port.boards else ""
    return f"C port {target.port.name} (`openneutron export --for {target.port.name}`){boards}"


def _as_dict(target: Target) -> dict[str, Any]:
    return {
        "name": target.name,
        "title": target.title,
        "family": target.family,
        "compiled_for": target.obstacle is None,
        "obstacle": target.obstacle,
        "subsystem": target.subsystem,
        "units": target.units,
        "pipelines": target.pipelines,
        "macs": target.macs,
        "hw_version": target.hw_version,
        "host_core": target.host.core,
        "port": target.port.name,
        "boards": list(target.port.boards),
        "numbers": {
            place: {"value": fact.value, "unit": fact.unit, "source": fact.source}
            for place, _, fact in target.facts()
            if isinstance(fact, Number)
        },
        "words": {
            place: {"value": list(fact.value), "source": fact.source}
            for place, _, fact in target.facts()
            if isinstance(fact, Words)
        },
        "limits": {name: limit.value for name, limit in target.limits},
        "assumed": list(target.assumed),
    }
