# SPDX-License-Identifier: BSD-3-Clause
"""``openneutron targets``."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from openneutron import targets
from openneutron.cli import output
from openneutron.targets import Number, Target


def show_targets(
    as_json: output.AsJson = False,
) -> None:
    """List the chips with their numbers."""
    table = Table(box=None, pad_edge=False, padding=(0, 2))
    table.add_column("target", style="cyan", no_wrap=True)
    table.add_column("chip")
    table.add_column("MACs per cycle", justify="right")
    table.add_column("clock", justify="right", no_wrap=True)
    table.add_column("SRAM", justify="right", no_wrap=True)
    table.add_column("compiled for", overflow="fold")
    for target in targets.KNOWN.values():
        table.add_row(
            target.name,
            target.title,
            str(target.macs_per_cycle or "unknown"),
            _number(target.clock),
            _number(target.sram),
            "yes" if target.obstacle is None else f"no: it {target.obstacle}",
        )
    output.show(table, "targets", {"targets": [_as_dict(target) for target in targets.KNOWN.values()]}, as_json)


def _number(number: Number) -> str:
    return f"{number.value:,g} {number.unit}" if number.value else "unknown"


def _as_dict(target: Target) -> dict[str, Any]:
    numbers = {"clock": target.clock, "sram": target.sram}
    if target.costs is not None:
        numbers |= {name: getattr(target.costs, name) for name in target.costs.__dataclass_fields__}
    return {
        "name": target.name,
        "title": target.title,
        "compiled_for": target.obstacle is None,
        "obstacle": target.obstacle,
        "subsystem": target.subsystem,
        "units": target.units,
        "pipelines": target.pipelines,
        "macs": target.macs,
        "hw_version": target.hw_version,
        "numbers": {
            name: {"value": number.value, "unit": number.unit, "source": number.source}
            for name, number in numbers.items()
        },
    }
