# SPDX-License-Identifier: BSD-3-Clause
"""The least SRAM each network compiles into, and what more of it gains: modelled time against whole tensors'."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from bench import child
from openneutron import litert, targets
from openneutron.compiler import CompileOptions, compile_graph
from openneutron.errors import BudgetError
from openneutron.ir import Graph
from scripts.published_networks import cifarnet

TITLE = "Budgets: least SRAM in KiB (input and output included), and modelled time there over that of whole tensors"

TIMES = (1.0, 1.25, 1.5, 2.0)
"""Budgets as multiples of the least."""


def measure() -> dict[str, Any]:
    """For each network its whole-tensor arena, the least budget, and at multiples of it arena, time and compile cost."""
    return {name: of_graph(graph) for name, graph in networks()}


def networks() -> Iterator[tuple[str, Graph]]:
    """The networks that budgets are measured on, by name."""
    yield from ((model.stem, litert.read(model).graph) for model in child.shared_models())
    yield "cifarnet", cifarnet()


def of_graph(graph: Graph, budget_bytes: int | None = None) -> dict[str, Any]:
    """Time and cost at multiples of a budget, or of the least one."""
    target = targets.get("imxrt700")
    whole = compile_graph(graph, target).report
    least = least_bytes(graph)
    base = budget_bytes or least
    points = []
    for times in TIMES:
        started = time.process_time()
        report = compile_graph(graph, target, CompileOptions(sram_budget=int(base * times))).report
        points.append(
            {
                "budget_bytes": int(base * times),
                "arena_bytes": report.arena_bytes,
                "slowdown": report.cycles / whole.cycles,
                "microcode_bytes": report.microcode_bytes,
                "cpu_seconds": time.process_time() - started,
            }
        )
    return {"whole_bytes": whole.arena_bytes, "least_bytes": least, "points": points}


def least_bytes(graph: Graph) -> int:
    """The budget that the error for one byte names."""
    try:
        compile_graph(graph, targets.get("imxrt700"), CompileOptions(sram_budget=1))
    except BudgetError as error:
        return error.least_bytes
    return 1


def rows(results: dict[str, Any]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Heads and lines of the printed table."""
    heads = ("model", "whole", "least", *(f"time at x{times:g}" for times in TIMES), "most CPU s", "microcode KiB")
    lines = [
        (
            child.short_name(model),
            f"{cell['whole_bytes'] / 1024:.2f}",
            f"{cell['least_bytes'] / 1024:.2f}",
            *(f"{point['slowdown']:.2f}" for point in cell["points"]),
            f"{max(point['cpu_seconds'] for point in cell['points']):.2f}",
            f"{max(point['microcode_bytes'] for point in cell['points']) / 1024:.1f}",
        )
        for model, cell in results.items()
    ]
    return heads, lines
