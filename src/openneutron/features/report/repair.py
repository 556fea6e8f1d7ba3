# SPDX-License-Identifier: BSD-3-Clause
"""The measures that a repair chose, with gains and costs, as data and as a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a compiled model: modelled cycles and SRAM of the NPU's part, the size of the file, and multiply-accumulates on
    the CPU."""

    cycles: int
    milliseconds: float
    sram_bytes: int
    file_bytes: int
    cpu_macs: int


@dataclass(frozen=True, slots=True)
class Chosen:
    """A measure that was chosen, and the ratios at the results before and after it. ``cost`` is that of the model with all measures
    until this one; None where it costs nothing when the model runs."""

    measure: str
    before_db: float
    after_db: float
    cost: Cost | None = None


@dataclass(frozen=True, slots=True)
class RepairReport:
    """The measures that reach a target, or as near as possible. ``quantization`` has the entries of the quantization file.

    ``before_db`` and ``after_db`` are those of the NPU. ``complete`` is False where the search was interrupted.
    """

    model: str
    target: str
    target_db: float
    before_db: float
    after_db: float
    chosen: tuple[Chosen, ...]
    before: Cost
    after: Cost
    quantization: Mapping[str, Any]
    tried: int
    complete: bool = field(default=True)

    @property
    def is_reached(self) -> bool:
        return self.after_db >= self.target_db

    @property
    def shortfall(self) -> str | None:
        """Return what the search did not reach, and what it did; None where the target is reached."""
        if self.is_reached:
            return None
        if not self.chosen:
            return (
                f"'{self.model}': its results have {self.before_db:.1f} dB, and no measure gains anything; the target is {self.target_db:g} "
                "dB. Train the model with quantization simulated (train_fn), or leave more of it to the CPU."
            )
        return (
            f"'{self.model}': its results have {self.after_db:.1f} dB with all measures that gain; the target is {self.target_db:g} dB. "
            "Train the model with quantization simulated (train_fn), or accept what is reached."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the report as data for JSON."""
        return {**asdict(self), "is_reached": self.is_reached}

    def summary(self) -> str:
        """Return the report as text."""
        from openneutron.features.report.text import plain

        return plain(repair_table(self))


def repair_table(report: RepairReport) -> RenderableType:
    """Return a row for each measure, in the order in which they were chosen."""
    from openneutron.features.report.units import size_text

    reached = "reached" if report.is_reached else "not reached"
    measures = f"with these measures {report.after_db:.1f} dB" if report.chosen else "without a measure"
    title = f"{report.model}: {report.before_db:.1f} dB, {measures}; target {report.target_db:g} dB {reached}"
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    for number, heading in enumerate(("measure", "gain", "dB", "time", "SRAM", "CPU MACs")):
        table.add_column(heading, justify="right" if number else "left", no_wrap=True)
    for item in report.chosen:
        cost = item.cost
        costs = ("0", "0", "0")
        if cost is not None:
            costs = (
                f"{cost.milliseconds - report.before.milliseconds:+.3f} ms",
                f"{'-' if cost.sram_bytes < report.before.sram_bytes else '+'}"
                f"{size_text(abs(cost.sram_bytes - report.before.sram_bytes))}",
                f"{cost.cpu_macs - report.before.cpu_macs:+,}",
            )
        table.add_row(item.measure, f"{item.after_db - item.before_db:+.1f} dB", f"{item.after_db:.1f}", *costs)
    before, after = report.before, report.after
    whole = (
        f"Costs of the whole: {before.milliseconds:.3f} ms to {after.milliseconds:.3f} ms, {size_text(before.sram_bytes)} to "
        f"{size_text(after.sram_bytes)} of SRAM, file {size_text(before.file_bytes)} to {size_text(after.file_bytes)}, "
        f"{after.cpu_macs:,} MACs on the CPU."
    )
    parts: list[RenderableType] = [Text(title, "bold")]
    if report.chosen:
        parts += [table, whole]
    parts.append(f"{report.tried} sets of measures were tried{'' if report.complete else ' until the interrupt'}.")
    return Group(*parts)
