# SPDX-License-Identifier: BSD-3-Clause
"""Memory against modelled time as a table and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from openneutron.compiler.pareto import Point
from openneutron.report.text import duration_text, size_text
from openneutron.targets import Target

BAR_WIDTH = 40


def pareto_table(name: str, points: Sequence[Point], target: Target) -> RenderableType:
    """A row for each point: memory, time, and a bar as long as the time against the slowest."""
    title = Text(f"{name}: SRAM against modelled time on {target.name}", "bold")
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    for heading in ("SRAM", "time", "times the fastest"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    slowest, fastest = max(point.cycles for point in points), min(point.cycles for point in points)
    for point in points:
        bar = "#" * max(1, round(BAR_WIDTH * point.cycles / slowest))
        time = duration_text(target.milliseconds(point.cycles))
        table.add_row(size_text(point.sram_bytes), time, f"{point.cycles / fastest:.2f}", bar)
    return Group(title, table)


WIDTH, HEIGHT, MARGIN = 640, 400, 60
TICKS = 5


def pareto_svg(name: str, points: Sequence[Point], target: Target) -> str:
    """The same as a drawing: SRAM to the right, time upwards, both from 0; a budget between two points takes the left one."""
    most_bytes = max(point.sram_bytes for point in points)
    most_time = max(target.milliseconds(point.cycles) for point in points)

    def place(size: float, time: float) -> tuple[float, float]:
        across = MARGIN + (WIDTH - 2 * MARGIN) * size / most_bytes
        return across, HEIGHT - MARGIN - (HEIGHT - 2 * MARGIN) * time / most_time

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="11">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{WIDTH / 2}" y="24" text-anchor="middle" font-size="14">{escape(name)} on {escape(target.name)}</text>',
        f'<text x="{WIDTH / 2}" y="{HEIGHT - 12}" text-anchor="middle">SRAM, KiB</text>',
        f'<text x="16" y="{HEIGHT / 2}" text-anchor="middle" transform="rotate(-90 16 {HEIGHT / 2})">modelled time, ms</text>',
    ]
    for tick in range(TICKS + 1):
        size, time = most_bytes * tick / TICKS, most_time * tick / TICKS
        (across, _), (_, up) = place(size, 0), place(0, time)
        lines.append(
            f'<path d="M{across:.1f} {MARGIN}V{HEIGHT - MARGIN}M{MARGIN} {up:.1f}H{WIDTH - MARGIN}" stroke="#ddd"/>'
        )
        lines.append(f'<text x="{across:.1f}" y="{HEIGHT - MARGIN + 16}" text-anchor="middle">{size / 1024:.4g}</text>')
        lines.append(f'<text x="{MARGIN - 6}" y="{up + 4:.1f}" text-anchor="end">{time:.3g}</text>')
    path = ""
    for point in points:
        across, up = place(point.sram_bytes, target.milliseconds(point.cycles))
        path += f"H{across:.1f}V{up:.1f}" if path else f"M{across:.1f} {up:.1f}"
        lines.append(f'<circle cx="{across:.1f}" cy="{up:.1f}" r="3" fill="#06c"/>')
    lines += [f'<path d="{path}" fill="none" stroke="#06c"/>', "</svg>"]
    return "\n".join(lines) + "\n"
