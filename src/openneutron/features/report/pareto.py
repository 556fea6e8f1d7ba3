# SPDX-License-Identifier: BSD-3-Clause
"""Memory against the modelled latency: the compiles of a model with other budgets, and their table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from openneutron.compiler.search.pareto import front, thinned
from openneutron.features.report.latency import modelled_text
from openneutron.features.report.summary import Summary
from openneutron.features.report.units import duration_text, size_text

BAR_WIDTH = 24


@dataclass(frozen=True, slots=True)
class BudgetPoint:
    """The figures of a compile with a budget of ``sram_budget_kib``. ``cycles`` are the modelled latency of an inference, the sum of
    ``npu_cycles``, ``copy_cycles`` and ``host_cycles``; a lower bound where operators on the CPU are not modelled."""

    sram_budget_kib: int
    sram_bytes: int
    total_sram_bytes: int
    cycles: int
    npu_cycles: int
    copy_cycles: int
    host_cycles: int
    milliseconds: float
    host_operators_not_modelled: int = 0

    @classmethod
    def of(cls, kib: int, made: Summary) -> BudgetPoint:
        """Return the figures of a compile with this budget."""
        parts = made.cycles, made.npu_cycles, made.copy_cycles, made.host_cycles
        memory = made.sram_bytes, made.total_sram_bytes
        return cls(kib, *memory, *parts, made.milliseconds, made.host_operators_not_modelled)


def worthwhile(points: Sequence[BudgetPoint]) -> tuple[BudgetPoint, ...]:
    """Return the points that no other point is better than, by growing memory, without those that are hardly faster than the one before."""
    return tuple(thinned(front(points)))


def pareto_table(title: str, points: Sequence[BudgetPoint]) -> RenderableType:
    """Return a row for each point: the budget, the SRAM of a run, the latency with its parts, and a bar as long as the latency
    against the slowest. Memory is rounded up, so that none seems to fit a budget that it does not."""
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    with_weights = any(point.total_sram_bytes != point.sram_bytes for point in points)
    parts = {"NPU": "npu_cycles", "copies": "copy_cycles", "host": "host_cycles"}
    parts = {name: key for name, key in parts.items() if any(getattr(point, key) for point in points)}
    parts = parts if len(parts) > 1 else {}
    weights = ["with weights"] if with_weights else []
    for heading in ("--sram-budget", "SRAM", *weights, "latency", *parts, "times the fastest"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    slowest, fastest = max(point.cycles for point in points), min(point.cycles for point in points)
    for point in points:
        shares = [point.milliseconds * getattr(point, key) / point.cycles for key in parts.values()]
        table.add_row(
            str(point.sram_budget_kib),
            _rounded_up(point.sram_bytes),
            *([_rounded_up(point.total_sram_bytes)] if with_weights else []),
            modelled_text(point.milliseconds, point.host_operators_not_modelled),
            *map(duration_text, shares),
            f"{point.cycles / fastest:.2f}",
            "#" * max(1, round(BAR_WIDTH * point.cycles / slowest)),
        )
    return Group(Text(title, "bold"), table)


def _rounded_up(size: int) -> str:
    return size_text(-(-size * 10 // 1024) * 1024 // 10)
