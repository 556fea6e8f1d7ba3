# SPDX-License-Identifier: BSD-3-Clause
"""Compare the smallest SRAM budget of each network with its lower bound."""

from __future__ import annotations

from typing import Any

from bench import budgets, child
from bench.lower_bound import memory_bounds
from openneutron import targets

TITLE = "Bounds of the least SRAM in KiB: no schedule by rows takes less, nor one that cuts its runs elsewise (input and output included)"


def measure() -> dict[str, Any]:
    """For each network the least budget and its two bounds, bytes; whether some schedule by rows takes no more than its bound."""
    results = {}
    for name, graph in budgets.networks():
        found = memory_bounds(graph, targets.get("imxrt700"))
        results[name] = {
            "least_bytes": budgets.least_bytes(graph),
            "by_rows_bytes": found.by_rows,
            "by_rows_is_exact": found.is_exact,
            "any_plan_bytes": found.any_plan,
        }
    return results


def rows(results: dict[str, Any]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Heads and lines of the printed table."""
    heads = ("model", "least", "by rows", "any runs", "what that says")
    lines = []
    for model, cell in results.items():
        sizes = [f"{cell[key] / 1024:.2f}" for key in ("least_bytes", "by_rows_bytes", "any_plan_bytes")]
        lines.append((child.short_name(model), *sizes, _verdict(cell)))
    return heads, lines


def _verdict(cell: dict[str, Any]) -> str:
    if cell["least_bytes"] == cell["any_plan_bytes"]:
        return "proved the least"
    if cell["least_bytes"] == cell["by_rows_bytes"]:
        return "proved the least by rows"
    if cell["least_bytes"] < cell["by_rows_bytes"]:
        return "patches beat all rows"
    return f"{cell['least_bytes'] / cell['by_rows_bytes'] - 1:.1%} above what rows may take"
