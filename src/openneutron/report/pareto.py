# SPDX-License-Identifier: BSD-3-Clause
"""Memory against modelled time as a table and as a picture."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from openneutron.compiler.search.pareto import Point
from openneutron.report.text import duration_text, size_text
from openneutron.targets import Target

BAR_WIDTH = 24


def pareto_table(name: str, points: Sequence[Point], target: Target) -> RenderableType:
    """Return a row for each point: memory, time, the budget in whole KiB that it fits, and a bar as long as the time
    against the slowest. Memory is rounded up, so that none seems to fit a budget that it does not."""
    title = Text(f"{name}: SRAM against modelled time on {target.name}", "bold")
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    for heading in ("SRAM", "time", "times the fastest", "--sram-budget"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    slowest, fastest = max(point.cycles for point in points), min(point.cycles for point in points)
    for point in points:
        bar = "#" * max(1, round(BAR_WIDTH * point.cycles / slowest))
        time = duration_text(target.milliseconds(point.cycles))
        memory = size_text(-(-point.sram_bytes * 10 // 1024) * 1024 // 10)
        table.add_row(memory, time, f"{point.cycles / fastest:.2f}", str(budget_kib(point)), bar)
    return Group(title, table)


def budget_kib(point: Point) -> int:
    """Return the smallest --sram-budget that the point fits."""
    return -(-point.sram_bytes // 1024)


WIDTH, HEIGHT, MARGIN = 640, 400, 60
MOST_STEPS = 8


Place = Callable[[float, float], tuple[float, float]]


def frame(title: str, most_kib: float, most_ms: float) -> tuple[list[str], Place]:
    """Return the lines of a drawing with axes for SRAM and time, both from 0, and a function that gives the place of a
    size in KiB and a time in milliseconds."""
    sizes, times = ticks(most_kib), ticks(most_ms)

    def place(size_kib: float, time: float) -> tuple[float, float]:
        across = MARGIN + (WIDTH - 2 * MARGIN) * size_kib / sizes[-1]
        return across, HEIGHT - MARGIN - (HEIGHT - 2 * MARGIN) * time / times[-1]

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="11">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{WIDTH / 2}" y="24" text-anchor="middle" font-size="14">{escape(title)}</text>',
        f'<text x="{WIDTH / 2}" y="{HEIGHT - 12}" text-anchor="middle">SRAM, KiB</text>',
        f'<text x="16" y="{HEIGHT / 2}" text-anchor="middle" transform="rotate(-90 16 {HEIGHT / 2})">modelled time, ms</text>',
    ]
    for size in sizes:
        across, _ = place(size, 0)
        lines.append(f'<path d="M{across:.1f} {MARGIN}V{HEIGHT - MARGIN}" stroke="#ddd"/>')
        lines.append(f'<text x="{across:.1f}" y="{HEIGHT - MARGIN + 16}" text-anchor="middle">{size:g}</text>')
    for time in times:
        _, up = place(0, time)
        lines.append(f'<path d="M{MARGIN} {up:.1f}H{WIDTH - MARGIN}" stroke="#ddd"/>')
        lines.append(f'<text x="{MARGIN - 6}" y="{up + 4:.1f}" text-anchor="end">{time:g}</text>')
    return lines, place


def pareto_svg(name: str, points: Sequence[Point], target: Target) -> str:
    """Return the same as a drawing: SRAM to the right, time upwards, both from 0; a budget between two points takes the
    left one."""
    most_ms = max(target.milliseconds(point.cycles) for point in points)
    lines, place = frame(f"{name} on {target.name}", max(point.sram_bytes for point in points) / 1024, most_ms)
    path = ""
    for point in points:
        across, up = place(point.sram_bytes / 1024, target.milliseconds(point.cycles))
        path += f"H{across:.1f}V{up:.1f}" if path else f"M{across:.1f} {up:.1f}"
        lines.append(f'<circle cx="{across:.1f}" cy="{up:.1f}" r="3" fill="#06c"/>')
    lines += [f'<path d="{path}" fill="none" stroke="#06c"/>', "</svg>"]
    return "\n".join(lines) + "\n"


def ticks(most: float) -> tuple[float, ...]:
    """Round numbers at even steps, from 0 to the first that is not below ``most``, which is above 0."""
    power = 10.0 ** (math.floor(math.log10(most)) - 1)
    step = next(step for step in (power * times for times in (1, 2, 5, 10, 20)) if most <= MOST_STEPS * step)
    return tuple(float(f"{index * step:.6g}") for index in range(math.ceil(most / step - 1e-9) + 1))
