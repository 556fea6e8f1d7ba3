# SPDX-License-Identifier: BSD-3-Clause
"""The figures that a compiled file holds, without the facts of its compile."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from openneutron import targets
from openneutron.isa import Record
from openneutron.isa.listing import KernelCost
from openneutron.report.fitted import facts
from openneutron.report.units import duration_text, plural, size_text
from openneutron.targets import Target


@dataclass(frozen=True, slots=True)
class CallProfile(KernelCost):
    """An operator of the NPU: its kernel with modelled cycles, and the title of the program it is in."""

    program: str


@dataclass(frozen=True, slots=True)
class ProgramFigures:
    """A program's title, and the header of its microcode (``isa.rows.HEADER``).

    ``tiled_cycles``: the modelled cycles of a run on a chip whose data mover copies beside the kernels; None for other chips.
    """

    title: str
    header: Record = field(repr=False)
    tiled_cycles: int | None = None

    @property
    def cycles(self) -> int:
        """Return the modelled cycles of one run, copies of constants included."""
        if self.tiled_cycles is not None:
            return self.tiled_cycles
        return self.header["cycles_low"] | self.header["cycles_high"] << 32


@dataclass(frozen=True, slots=True)
class LoadedSummary:
    """The figures of a compiled file. Sizes are bytes, times and cycles are modelled, of the NPU's part alone."""

    file: str
    file_bytes: int
    programs: tuple[ProgramFigures, ...] = field(repr=False)
    on_cpu: tuple[tuple[str, int], ...] = field(repr=False)
    calls: tuple[CallProfile, ...] = field(repr=False)
    preprocessing: str = ""

    @property
    def target(self) -> Target | None:
        """Return the target chip; None where this version does not know it."""
        wanted = {program.header["target"] for program in self.programs}
        return targets.with_checksum(wanted.pop()) if len(wanted) == 1 else None

    def is_for(self, target: Target) -> bool:
        """Return whether the file was compiled for a chip of this target's name."""
        return {program.header["target"] for program in self.programs} == {targets.checksum(target.name)}

    @property
    def cycles(self) -> int:
        return sum(program.cycles for program in self.programs)

    @property
    def milliseconds(self) -> float | None:
        """Return the modelled time of one run; None for an unknown target."""
        return None if self.target is None else self.target.milliseconds(self.cycles)

    @property
    def scratch_bytes(self) -> int:
        """Return the largest arena of a program, with its prefetch buffer: programs run one after the other in the same
        memory."""
        return max(program.header["scratch_size"] + program.header["prefetch_size"] for program in self.programs)

    @property
    def state_bytes(self) -> int:
        """Return the bytes that all programs keep between runs."""
        return sum(program.header["state_size"] for program in self.programs)

    @property
    def weights_bytes(self) -> int:
        return sum(program.header["weights_size"] for program in self.programs)

    @property
    def microcode_bytes(self) -> int:
        return sum(program.header["microcode_size"] for program in self.programs)

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as data."""
        return {
            "file": self.file,
            "file_bytes": self.file_bytes,
            "target": None if self.target is None else self.target.name,
            "programs": [program.title for program in self.programs],
            "on_cpu": dict(self.on_cpu),
            "modelled_cycles": self.cycles,
            "modelled_milliseconds": self.milliseconds,
            "scratch_bytes": self.scratch_bytes,
            "state_bytes": self.state_bytes,
            "weights_bytes": self.weights_bytes,
            "microcode_bytes": self.microcode_bytes,
            "preprocessing": self.preprocessing or None,
            "calls": [asdict(call) for call in self.calls],
        }


def loaded_table(summary: LoadedSummary) -> RenderableType:
    """Return the figures of a compiled file as a table."""
    return Group(Text(summary.file, "bold"), facts(loaded_rows(summary)))


def loaded_rows(summary: LoadedSummary) -> list[tuple[str, str]]:
    """Return labels and values of the figures, in words."""
    runs = sum(call.calls for call in summary.calls)
    time = f"{summary.cycles:,} cycles"
    if summary.target is not None and summary.milliseconds is not None:
        time = f"{duration_text(summary.milliseconds)} at {summary.target.clock.value:g} MHz, {time}"
    operators = ", ".join(f"{count} {name}" for name, count in summary.on_cpu)
    return [
        ("Target", summary.target.title if summary.target is not None else "not known to this version"),
        ("NPU", f"{plural(len(summary.programs), 'delegate call')}, {plural(runs, 'kernel call')}"),
        ("CPU", operators or "nothing"),
        ("Latency", f"{time}, modelled{', without what runs on the CPU' if summary.on_cpu else ''}"),
        ("Arena", size_text(summary.scratch_bytes)),
        *([("State", f"{size_text(summary.state_bytes)} kept between runs")] if summary.state_bytes else []),
        ("Weights", size_text(summary.weights_bytes)),
        ("Microcode", size_text(summary.microcode_bytes)),
        *([("Calibrated", f"on data after {summary.preprocessing}")] if summary.preprocessing else []),
        ("File", f"{summary.file}, {size_text(summary.file_bytes)}"),
    ]
