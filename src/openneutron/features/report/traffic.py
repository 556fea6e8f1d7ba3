# SPDX-License-Identifier: BSD-3-Clause
"""Describe the copies of a run: constants from flash, and tiles between external memory and the memory of the NPU."""

from __future__ import annotations

from openneutron.features.report.summary import Summary
from openneutron.features.report.units import duration_text, size_text


def copies_text(summary: Summary) -> str:
    """Return the time that copies of constants take, and that with a port that copies in the background."""
    if not summary.weights_fit:
        taken = duration_text(summary.target.milliseconds(summary.copy_cycles))
        there = size_text(int(summary.target.sram.value * 1024))
        return f"{taken} from flash: the chip's {there} of SRAM do not hold weights and run together"
    if summary.target.copies_in_background and summary.partitions:
        engine = sum(part.report.engine_cycles for part in summary.partitions)
        if not engine:
            return ""
        busy, waits = (duration_text(summary.target.milliseconds(item)) for item in (engine, summary.copy_cycles))
        return f"{busy} in parallel to the kernels, which wait {waits} for them"
    if not summary.copy_cycles:
        return ""
    copies, hidden = (summary.target.milliseconds(item) for item in (summary.copy_cycles, summary.overlapped_cycles))
    said = f"{duration_text(copies)} from flash"
    return f"{said}; a latency of {duration_text(hidden)} with a port that copies in the background"


def traffic_text(summary: Summary) -> str:
    """Return the bytes between external memory and the memory of the NPU; empty for a chip without such a memory."""
    if not summary.target.moves_tiles:
        return ""
    reports = [part.report for part in summary.partitions]
    moved, fetched = sum(report.moved_bytes for report in reports), sum(report.fetched_bytes for report in reports)
    bound = sum(report.traffic_bound_bytes for report in reports)
    kept = max(report.external_bytes for report in reports)
    name = summary.target.external_memory.name.upper()
    said = f"{size_text(moved + fetched)} between {name} and the NPU's memory in each inference, of which {size_text(fetched)} are constants"
    said += f"; at least {size_text(bound)} in any schedule"
    return f"{said}; {size_text(kept)} of {name} for intermediate tensors" if kept else said
