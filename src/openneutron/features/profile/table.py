# SPDX-License-Identifier: BSD-3-Clause
"""A profile as a table."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from openneutron.features.profile.profile import HOST, KERNEL, LAYER, Profile, Row
from openneutron.features.profile.timeline import Kind, overlap_cycles
from openneutron.features.report.fitted import Column, FittedTable, facts
from openneutron.features.report.latency import latency_text, parts_text
from openneutron.features.report.units import duration_text, plural, size_text

KERNELS_SHOWN = 3


def profile_table(profile: Profile, by: str) -> RenderableType:
    """Return the totals of a profile, and the table of its operators by ``by``."""
    rows = profile.rows(by)
    parts: list[RenderableType] = [
        Text.assemble((profile.file, "bold"), f"  for {profile.target.name} ({profile.target.title})"),
        facts(_totals(profile)),
        "",
        FittedTable(by, [row.name for row in rows], _columns(profile, rows, by)),
    ]
    if profile.on_cpu:
        columns = [
            Column("calls", [f"{item.calls:g}" for item in profile.on_cpu], justify="right"),
            Column("this computer", [duration_text(item.time / 1e6) for item in profile.on_cpu], justify="right"),
        ]
        names = [item.operator for item in profile.on_cpu]
        parts += ["", FittedTable("on the CPU", names, columns)]
    return Group(*parts)


def _totals(profile: Profile) -> list[tuple[str, str]]:
    target = profile.target
    rows = [("Latency", latency_text(profile.latency)), ("Time on", parts_text(profile.latency))]
    if target.copies_in_background:
        copying = sum(item.cycles for item in profile.slices if item.kind is Kind.COPY)
        words = f"{copying:,} cycles in parallel to the kernels, which wait {profile.copy_cycles:,} cycles for them"
        rows.append(("Copies", words))
    elif profile.copy_cycles:
        hidden = overlap_cycles(profile.slices)
        rows.append(
            (
                "Copies",
                f"{profile.copy_cycles:,} cycles; {hidden:,} of them behind kernels with a port that copies in the "
                f"background, which takes {profile.overlapped_cycles:,} cycles",
            )
        )
    times = [item.time for item in profile.operators if item.time is not None]
    if times and profile.unit == HOST:
        rows.append(
            ("Simulator", f"{duration_text(sum(times) / 1e6)} of this computer in kernels of the simulated NPU")
        )
    elif times:
        rows.append(("Device", f"{round(sum(times)):,} counted {profile.unit} in kernels"))
    rows.append(("Calls", plural(sum(item.calls for item in profile.operators), "kernel call")))
    return rows


def _columns(profile: Profile, rows: Sequence[Row], by: str) -> list[Column]:
    total = sum(row.cycles for row in rows) or 1
    shown = []
    if by != KERNEL:
        shown.append(Column("kernel", [_listed(row.kernels) for row in rows], style="cyan"))
    if by == LAYER and any(row.lines for row in rows):
        shown.append(Column("source", [row.lines[0] if row.lines else "" for row in rows], goes=2))
    if any(row.time is not None for row in rows):
        heading = "simulator" if profile.unit == HOST else f"device {profile.unit}"
        shown.append(Column(heading, [_time_text(profile.unit, row.time) for row in rows], justify="right"))
    return [
        *shown,
        Column("NPU cycles", [f"{row.cycles:,}" for row in rows], justify="right"),
        Column("share", [f"{100 * row.cycles / total:.1f} %" for row in rows], goes=1, justify="right"),
        Column("calls", [f"{row.calls:,}" for row in rows], goes=3, justify="right"),
        Column("bytes", [size_text(row.bytes) for row in rows], goes=4, justify="right"),
    ]


def _listed(names: Sequence[str]) -> str:
    more = ", ..." if len(names) > KERNELS_SHOWN else ""
    return ", ".join(names[:KERNELS_SHOWN]) + more


def _time_text(unit: str, time: float | None) -> str:
    if time is None:
        return ""
    return duration_text(time / 1e6) if unit == HOST else f"{round(time):,}"
