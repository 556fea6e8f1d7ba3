# SPDX-License-Identifier: BSD-3-Clause
"""The figures that can be computed from a compiled file alone, without the facts of its compile."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from openneutron import targets
from openneutron.compiler.cost.cycles import fetch_cycles, host_of
from openneutron.compiler.cost.estimate import work_of_kernels
from openneutron.compiler.cost.host import HostKind, HostOperator
from openneutron.features.report.latency import Latency, latency_text, parts_text, weights_fit
from openneutron.features.report.table import facts, plural, size_text
from openneutron.isa import Microcode, Program, Record
from openneutron.isa.listing import KernelCost
from openneutron.isa.microcode import aligned, base_text
from openneutron.isa.rows import KERNEL_BY_NAME
from openneutron.targets import Target


@dataclass(frozen=True, slots=True)
class CallProfile(KernelCost):
    """The modelled cost of an operator on the NPU, and the title of the program that has the operator."""

    program: str


@dataclass(frozen=True, slots=True)
class ProgramFigures:
    """The title of a program, the header of its microcode (``isa.rows.HEADER``), and figures of its memory and time.

    ``io_bytes`` is the size of the inputs and outputs outside the arena. ``copied_bytes`` is the size of the weights
    that are copied as a whole, which are all except tables. The kernels copy only those entries of a table that they
    need. ``tiled_cycles`` are the modelled cycles of a run on a chip whose data mover copies in parallel to the
    kernels; None for other chips.
    """

    title: str
    header: Record = field(repr=False)
    io_bytes: int
    copied_bytes: int
    tiled_cycles: int | None = None

    @classmethod
    def of(cls, title: str, program: Program, microcode: Microcode, tiled_cycles: int | None) -> ProgramFigures:
        """Return the figures of a program. ``microcode`` is the program's decoded microcode."""
        bindings = (*microcode.inputs, *microcode.outputs)
        outside = sum(item["size"] for item in bindings if base_text(item["base"]) != "SCRATCH")
        tables = {
            buffer["offset"]: aligned(buffer["batches"] * buffer["rows"] * buffer["cols"] * buffer["channels"])
            for item in microcode.operators
            for name in KERNEL_BY_NAME[item.row.name].traits.copied_by_kernel
            if base_text((buffer := microcode.buffers[item[name]])["base"]) == "WEIGHTS"
        }
        return cls(title, program.header, outside, len(program.weights) - sum(tables.values()), tiled_cycles)

    @property
    def cycles(self) -> int:
        """Return the modelled cycles of one run, with the copies of constants."""
        if self.tiled_cycles is not None:
            return self.tiled_cycles
        return self.header["cycles_low"] | self.header["cycles_high"] << 32


def target_of(headers: Iterable[Record]) -> Target | None:
    """Return the chip that all programs were compiled for. Return None if they were compiled for different chips, or
    for a chip that this version does not know."""
    wanted = {header["target"] for header in headers}
    return targets.with_checksum(wanted.pop()) if len(wanted) == 1 else None


@dataclass(frozen=True, slots=True)
class LoadedSummary:
    """The figures of a compiled file. Sizes are bytes. Times and cycles are modelled, for one inference.

    The cycles are the sum of those of the NPU, of copies for the NPU, and of ``host``, the operators on the CPU.
    ``on_cpu`` has the name and the count of each kind of operator on the CPU.
    """

    file: str
    file_bytes: int
    programs: tuple[ProgramFigures, ...] = field(repr=False)
    on_cpu: tuple[tuple[str, int], ...] = field(repr=False)
    calls: tuple[CallProfile, ...] = field(repr=False)
    host: tuple[HostOperator, ...] = field(default=(), repr=False)
    preprocessing: str = ""

    @property
    def target(self) -> Target | None:
        """Return the target chip; None where this version does not know it."""
        return target_of(program.header for program in self.programs)

    def is_for(self, target: Target) -> bool:
        """Return whether the file was compiled for a chip of this target's name."""
        return {program.header["target"] for program in self.programs} == {targets.checksum(target.name)}

    @property
    def latency(self) -> Latency | None:
        """Return the modelled latency of one inference with its parts; None for an unknown target."""
        if self.target is None:
            return None
        kernels = sum(call.cycles for call in self.calls if not KERNEL_BY_NAME[call.kernel].is_transfer)
        beside = sum(call.cycles for call in self.cpu_calls)
        copies = self.delegate_cycles - kernels
        costs = ((KERNEL_BY_NAME[call.kernel], call.calls, call.cycles) for call in self.calls)
        spent = work_of_kernels(costs, copies, self.target)
        return Latency(self.target, kernels - beside, copies, self.host, beside, spent)

    @property
    def cpu_calls(self) -> tuple[CallProfile, ...]:
        """Return the operators of the programs that the host core computes, beside the NPU. The tuple is empty for an
        unknown target."""
        target = self.target
        if target is None:
            return ()
        return tuple(call for call in self.calls if host_of(KERNEL_BY_NAME[call.kernel], target) is not None)

    @property
    def delegate_cycles(self) -> int:
        """Return the cycles of all programs, with the operators that the host core computes in them, and of the
        copies of weights for them."""
        return sum(program.cycles for program in self.programs) + self.implied_copy_cycles

    @property
    def implied_copy_cycles(self) -> int:
        """Return the cycles in which an inference copies weights from flash, in addition to the copies that programs
        make. They are 0 where the chip's SRAM holds the weights, where the programs fetch them, and where the NPU
        reads them in place (``weights_fit``). They are also 0 for an unknown target."""
        if self.target is None:
            return 0
        fetched = any(program.header["prefetch_size"] for program in self.programs)
        sram = max(program.io_bytes + program.header["scratch_size"] for program in self.programs) + self.state_bytes
        if weights_fit(self.target, self.weights_bytes, sram, fetched):
            return 0
        return sum(fetch_cycles(program.copied_bytes, self.target) for program in self.programs)

    @property
    def cycles(self) -> int:
        """Return the modelled cycles of one inference. For an unknown target the host's cycles are not included."""
        return self.delegate_cycles if self.latency is None else self.latency.cycles

    @property
    def milliseconds(self) -> float | None:
        """Return the estimated time of one inference in milliseconds; None for an unknown target."""
        return None if self.latency is None else self.latency.milliseconds

    @property
    def scratch_bytes(self) -> int:
        """Return the largest sum of a program's arena, prefetch buffer and far buffer. One such memory is enough,
        since programs run one after the other."""
        sizes = ("scratch_size", "prefetch_size", "debug_size")
        return max(sum(program.header[size] for size in sizes) for program in self.programs)

    @property
    def state_bytes(self) -> int:
        """Return the bytes of state that all programs keep between runs."""
        return sum(program.header["state_size"] for program in self.programs)

    @property
    def weights_bytes(self) -> int:
        return sum(program.header["weights_size"] for program in self.programs)

    @property
    def microcode_bytes(self) -> int:
        return sum(program.header["microcode_size"] for program in self.programs)

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as values for JSON."""
        return {
            "file": self.file,
            "file_bytes": self.file_bytes,
            "target": None if self.target is None else self.target.name,
            "programs": [program.title for program in self.programs],
            "on_cpu": dict(self.on_cpu),
            "modelled_cycles": self.cycles,
            "npu_cycles": None if self.latency is None else self.latency.npu_cycles,
            "cpu_call_cycles": None if self.latency is None else self.latency.cpu_call_cycles,
            "copy_cycles": None if self.latency is None else self.latency.copy_cycles,
            "host_cycles": None if self.latency is None else self.latency.host_cycles,
            "host_operators_not_modelled": sum(item.kind is HostKind.OTHER for item in self.host),
            "modelled_milliseconds": self.milliseconds,
            "expected_milliseconds": None if self.latency is None else list(self.latency.band),
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
    beside = sum(call.calls for call in summary.cpu_calls)
    runs = sum(call.calls for call in summary.calls)
    made = (
        f"{plural(runs - beside, 'NPU call')} and {plural(beside, 'CPU call')}"
        if beside
        else plural(runs, "kernel call")
    )
    latency = summary.latency
    time = [("Latency", f"{summary.cycles:,} cycles of the NPU, modelled")]
    if latency is not None:
        time = [("Latency", latency_text(latency)), ("Time on", parts_text(latency))]
    operators = ", ".join(f"{count} {name}" for name, count in summary.on_cpu)
    return [
        ("Target", summary.target.title if summary.target is not None else "not known to this version"),
        ("NPU", f"{plural(len(summary.programs), 'delegate call')}, {made}"),
        ("CPU", operators or "nothing"),
        *time,
        ("Arena", size_text(summary.scratch_bytes)),
        *([("State", f"{size_text(summary.state_bytes)} kept between runs")] if summary.state_bytes else []),
        ("Weights", size_text(summary.weights_bytes)),
        ("Microcode", size_text(summary.microcode_bytes)),
        *([("Calibrated", f"on data after {summary.preprocessing}")] if summary.preprocessing else []),
        ("File", f"{summary.file}, {size_text(summary.file_bytes)}"),
    ]
