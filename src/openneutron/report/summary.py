# SPDX-License-Identifier: BSD-3-Clause
"""The figures of a compile, from a LiteRT file or a PyTorch model alike."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from openneutron.compiler import Report
from openneutron.compiler.partition import operator_title
from openneutron.diagnostics import OnCpu
from openneutron.mixed import CompiledFile
from openneutron.targets import Target


@dataclass(frozen=True, slots=True)
class Delegated:
    """An operator that runs on the NPU, in the words of where it came from, and the partition it went into."""

    operator: str
    name: str
    partition: int


@dataclass(frozen=True, slots=True)
class PartitionSummary:
    """A piece of the model that is one program, and the compiler's report of it."""

    name: str
    report: Report = field(repr=False)


@dataclass(frozen=True, slots=True)
class ConvertedSummary:
    """A piece of the model that NXP's converter compiled: the sizes of what it made; what it costs is not known here."""

    name: str
    microcode_bytes: int
    weights_bytes: int
    kernels_bytes: int


@dataclass(frozen=True, slots=True)
class Summary:
    """What a compile came to. Sizes are bytes; times and cycles are modelled, of the NPU's part alone.

    ``budget_bytes`` holds for each partition: they run one after the other in the same memory. ``file_bytes`` is the size
    of ``file``, the result; None where nothing was written. ``kernel_selection`` is the C file of its kernels, if asked for.
    """

    model: str
    target: Target
    delegated: tuple[Delegated, ...] = field(repr=False)
    on_cpu: tuple[OnCpu, ...] = field(repr=False)
    partitions: tuple[PartitionSummary, ...] = field(repr=False)
    budget_bytes: int
    file: str | None = None
    file_bytes: int | None = None
    kernel_selection: str | None = None
    converted: tuple[ConvertedSummary, ...] = field(default=(), repr=False)

    @property
    def operators(self) -> int:
        return len(self.delegated) + len(self.on_cpu)

    @property
    def whole(self) -> bool:
        """The model runs on the NPU but for the conversions of its float inputs and outputs."""
        return len(self.partitions) == 1 and all(item.converts for item in self.on_cpu)

    @property
    def macs(self) -> int:
        return sum(part.report.macs for part in self.partitions)

    @property
    def cycles(self) -> int:
        return sum(part.report.cycles for part in self.partitions)

    @property
    def copy_cycles(self) -> int:
        """Of ``cycles``, those in which constants are copied to SRAM."""
        return sum(part.report.copy_cycles for part in self.partitions)

    @property
    def overlapped_cycles(self) -> int:
        """``cycles`` with a port that copies in the background."""
        return sum(part.report.overlapped_cycles for part in self.partitions)

    @property
    def milliseconds(self) -> float:
        return self.target.milliseconds(self.cycles)

    @property
    def band(self) -> tuple[float, float]:
        """The milliseconds between which the latency is expected to be on the chip."""
        return self.target.band(self.cycles) if self.cycles else (0.0, 0.0)

    @property
    def utilisation(self) -> float:
        """Multiply-accumulates done, of those the NPU could do in this time."""
        return self.macs / (self.cycles * self.target.macs_per_cycle) if self.cycles else 0.0

    @property
    def sram_bytes(self) -> int:
        """The most SRAM that a partition takes: arena, prefetch buffer, and inputs and outputs outside the arena."""
        return max((part.report.sram_bytes for part in self.partitions), default=0)

    @property
    def weights_bytes(self) -> int:
        return sum(part.report.weights_bytes for part in self.partitions)

    @property
    def microcode_bytes(self) -> int:
        return sum(part.report.microcode_bytes for part in self.partitions)

    def to_dict(self, details: bool = False) -> dict[str, Any]:
        """The same as data. With ``details``, every kernel call and buffer of each partition too."""
        return {
            "model": self.model,
            "target": self.target.name,
            "clock_mhz": self.target.clock.value,
            "operators": self.operators,
            "whole": self.whole,
            "delegated": [asdict(item) for item in self.delegated],
            "on_cpu": [asdict(item) for item in self.on_cpu],
            "partitions": [_partition_dict(part, details) for part in self.partitions],
            "converted": [asdict(part) for part in self.converted],
            "macs": self.macs,
            "modelled_cycles": self.cycles,
            "copy_cycles": self.copy_cycles,
            "overlapped_cycles": self.overlapped_cycles,
            "modelled_milliseconds": self.milliseconds,
            "expected_milliseconds": list(self.band),
            "utilisation": self.utilisation,
            "peak_sram_bytes": self.sram_bytes,
            "sram_budget_bytes": self.budget_bytes,
            "weights_bytes": self.weights_bytes,
            "microcode_bytes": self.microcode_bytes,
            "file": self.file,
            "file_bytes": self.file_bytes,
            "kernel_selection": self.kernel_selection,
        }


def _partition_dict(part: PartitionSummary, details: bool) -> dict[str, Any]:
    figures = asdict(part.report)
    operators, memory = figures.pop("operators"), figures.pop("memory")
    result = {
        "name": part.name,
        "kernel_calls": len(operators),
        "macs": figures["macs"],
        "modelled_cycles": figures["cycles"],
        "modelled_milliseconds": figures["milliseconds"],
        **{key: value for key, value in figures.items() if key not in ("target", "cycles", "macs", "milliseconds")},
    }
    if details:
        result |= {"calls": operators, "memory": memory}
    return result


def of_compiled_file(compiled: CompiledFile, file: str | None = None, file_bytes: int | None = None) -> Summary:
    """The summary of a compiled ``.tflite``."""
    delegated = [
        (index, Delegated(operator_title(compiled.graph.nodes[index]), compiled.graph.nodes[index].name, number))
        for number, part in enumerate(compiled.partitioning.partitions)
        for index in part.nodes
    ]
    return Summary(
        model=compiled.name,
        target=compiled.target,
        delegated=tuple(item for _, item in sorted(delegated, key=lambda pair: pair[0])),
        on_cpu=compiled.partitioning.on_cpu,
        partitions=tuple(
            PartitionSummary(compiled.part_name(number), part.report) for number, part in enumerate(compiled.parts)
        ),
        budget_bytes=compiled.budget_bytes,
        file=file,
        file_bytes=file_bytes,
    )
