# SPDX-License-Identifier: BSD-3-Clause
"""The figures of a compile, for LiteRT files and PyTorch models alike."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Self

from openneutron.compiler import Report
from openneutron.compiler.cost.cycles import fetch_cycles
from openneutron.compiler.cost.estimate import Estimate, Term, Work, estimate, total, work_of_copies, work_of_start
from openneutron.compiler.cost.host import HostKind, HostOperator, cpu_factor, cpu_milliseconds, kind_of
from openneutron.compiler.legalize.legalize import rename_identities
from openneutron.compiler.legalize.partition import extract, operator_title
from openneutron.compiler.select.calls import in_words, node_of
from openneutron.device.mixed import CompiledFile, part_name
from openneutron.features.report.latency import Latency, host_operators_of_graph, weights_fit
from openneutron.features.report.outputs import OutputAccuracy
from openneutron.ir import DType, Graph
from openneutron.ir.graph import OnCpu
from openneutron.isa import Program
from openneutron.ops.conv import macs
from openneutron.ops.shape import VIEWS
from openneutron.options import XNNPACK
from openneutron.targets import Target

CPU_SHARE = 0.1
"""If the CPU has more than this share of the multiply-accumulates, the latency of the model is reported as unknown."""


@dataclass(frozen=True, slots=True)
class Delegated:
    """An operator on the NPU: its name in the user's model, and the index of its partition.

    ``computes`` is False for views and identities, as in ``OnCpu``.
    """

    operator: str
    name: str
    partition: int
    computes: bool = True


def conversions_in(graph: Graph) -> int:
    """Return the number of operators that convert activations between int8 and int16."""
    types = ({graph[node.name].dtype, graph.given(node, 0).dtype} for node in graph.nodes if node.op == "quantize")
    return sum(found == {DType.INT8, DType.INT16} for found in types)


@dataclass(frozen=True, slots=True)
class PartitionSummary:
    """A partition of the model, which is compiled to one program, with the compiler's report.

    ``name`` is the partition's name in files, ``number`` its position. ``names`` maps nodes of the user's graph to
    readable names, and ``modules`` maps nodes to module paths; nodes outside modules are missing. ``conversions`` is
    the result of ``conversions_in``.
    """

    name: str
    report: Report = field(repr=False)
    names: Mapping[str, str] = field(default_factory=dict, repr=False)
    modules: Mapping[str, str] = field(default_factory=dict, repr=False)
    conversions: int = 0
    number: int = 0

    @property
    def heading(self) -> str:
        """Return the heading of the partition, such as ``Partition 0``."""
        return f"Partition {self.number}"

    def module(self, name: str) -> str:
        """Return the module path of a kernel call or buffer by its name; an empty string if the path is unknown."""
        return self.modules.get(node_of(name, self.modules), "")

    def title(self, name: str) -> str:
        """Return a readable name for a kernel call or buffer, with the compiler's suffix; ``name`` itself if its node
        is unknown.

        For example, return ``features.3.conv.1/middle`` for ``aten_convolution_default_1/middle``. A copy into the
        memory of a Neutron-S has the name ``load features.3``.
        """
        for moved in ("load ", "store "):
            if name.startswith(moved):
                return moved + self.title(name.removeprefix(moved))
        node = node_of(name, self.names)
        return in_words(name, node, self.names[node]) if node else name


@dataclass(frozen=True, slots=True)
class ConvertedSummary:
    """The sizes of the program of a partition that NXP's converter compiled, in bytes. The partition's costs are
    unknown."""

    name: str
    microcode_bytes: int
    weights_bytes: int
    kernels_bytes: int

    @classmethod
    def of(cls, name: str, program: Program) -> Self:
        """Return the sizes of a partition's program."""
        return cls(name, len(program.microcode), len(program.weights), len(program.kernels))


CPU_KERNELS = {"": "ExecuTorch's kernels", XNNPACK: "XNNPACK"}
"""The kernels of operators on the CPU in words, by ``OnCpu.kernels``."""

IN_HOST = ("softmax", "join")
"""The kinds of work whose time the operators of ``Summary.host`` have; see ``HostKind``."""


@dataclass(frozen=True, slots=True)
class Reason:
    """A reason why operators are on the CPU: the number of these operators, the sum of their modelled times, and the number of operators without
    a modelled time."""

    text: str
    operators: int
    time: Estimate
    unknown: int

    def to_dict(self) -> dict[str, Any]:
        """Return the reason as values for JSON."""
        return {"reason": self.text, "operators": self.operators, "not_modelled": self.unknown, **_times(self.time)}


def cpu_estimate(milliseconds: float, target: Target) -> Estimate:
    """Return the modelled time of operators on the CPU with its range."""
    factor = cpu_factor(target)
    return Estimate(
        milliseconds, milliseconds / factor, milliseconds * factor, Term.OPERATORS, "cpu.instruction_cycles"
    )


@dataclass(frozen=True, slots=True)
class Summary:
    """The figures of a compile. Sizes are in bytes. Times and cycles are modelled, for one inference.

    Cycles are the sum of four parts: the work of the NPU, kernel calls of the programs that the host core makes,
    copies for the NPU, and the operators on the CPU outside of all programs (``host``). An inference is assumed to
    copy the weights from flash, as with ``prefetch_constants``, if three conditions hold: the NPU can't read the
    weights where they are stored, they do not fit into the chip's SRAM beside a run, and the programs do not copy
    them. Tables are not counted in these copies, since kernels copy single entries of them.

    ``budget_bytes`` limits each partition separately, since partitions run one after the other in the same memory.
    ``file`` is the path of the written file; None if nothing was written. ``file_bytes`` is the size of the compiled
    file; None if it is not known. ``kernel_selection`` is the name of the C file that selects the kernels; None if it
    was not requested. ``outputs`` is the accuracy of the model's results; it is empty without a float model to
    compare with. ``cpu_parts`` is the number of delegate calls of another backend that computes on the CPU; the field
    ``kernels`` of their operators has the backend's name.
    """

    model: str
    target: Target = field(repr=False)
    delegated: tuple[Delegated, ...] = field(repr=False)
    on_cpu: tuple[OnCpu, ...] = field(repr=False)
    partitions: tuple[PartitionSummary, ...] = field(repr=False)
    budget_bytes: int
    file: str | None = None
    file_bytes: int | None = None
    kernel_selection: str | None = None
    converted: tuple[ConvertedSummary, ...] = field(default=(), repr=False)
    host: tuple[HostOperator, ...] = field(default=(), repr=False)
    outputs: tuple[OutputAccuracy, ...] = field(default=(), repr=False)
    cpu_parts: int = 0

    @property
    def operators(self) -> int:
        """Return the number of operators that compute, on the NPU and on the CPU. Views, identities and dropouts in
        eval mode are not counted."""
        return self.operators_on_npu + sum(item.computes for item in self.on_cpu)

    @property
    def operators_on_npu(self) -> int:
        """Return the number of operators in the programs, counted as in ``operators``. Operators whose kernel calls
        the host core makes (``cpu_calls``) are included."""
        return sum(item.computes for item in self.delegated)

    @property
    def whole(self) -> bool:
        """Return whether one partition has the whole model, except for conversions of its float inputs and outputs
        and for operators that change no value, such as views."""
        return len(self.partitions) == 1 and all(item.converts or not item.computes for item in self.on_cpu)

    @property
    def macs(self) -> int:
        """Return the multiply-accumulates of the programs."""
        return sum(part.report.macs for part in self.partitions)

    @property
    def cpu_macs(self) -> int:
        """Return the multiply-accumulates of the operators on the CPU outside of the programs."""
        return sum(item.macs for item in self.on_cpu)

    @property
    def cpu_calls(self) -> int:
        """Return the number of kernel calls of the programs that the host core makes, for operators that the NPU can't
        run. Stripes of a call count as one."""
        return sum(len(part.report.cpu_calls) for part in self.partitions)

    @property
    def cpu_call_macs(self) -> int:
        """Return the part of ``macs`` that the host core computes."""
        return sum(part.report.cpu_call_macs for part in self.partitions)

    @property
    def conversions(self) -> int:
        """Return the number of operators on the NPU that convert activations between int8 and int16."""
        return sum(part.conversions for part in self.partitions)

    @property
    def weights_fit(self) -> bool:
        """Return whether an inference needs no copies of weights beyond those that the programs make; see
        ``latency.weights_fit``."""
        fetched = any(part.report.fetched_bytes for part in self.partitions)
        return weights_fit(self.target, self.weights_bytes, self.sram_bytes, fetched)

    @property
    def constants_fit(self) -> bool:
        """Return whether weights and microcode fit the memory that stores constants between runs, such as flash."""
        return self.weights_bytes + self.microcode_bytes <= int(self.target.constants_home.size.value * 1024)

    def implied_copy_cycles(self, part: PartitionSummary) -> int:
        """Return the cycles of copies of the weights of ``part`` from flash, in each inference; 0 if no such copies
        are needed (``weights_fit``). Tables are not counted, since the kernels copy single entries of them."""
        copied = part.report.weights_bytes - part.report.kept_bytes
        return 0 if self.weights_fit else fetch_cycles(copied, self.target)

    def part_cycles(self, part: PartitionSummary) -> int:
        """Return the cycles of ``part`` with those of ``implied_copy_cycles``, which the program does not contain."""
        return part.report.cycles + self.implied_copy_cycles(part)

    @property
    def latency(self) -> Latency:
        """Return the modelled latency of one inference with its parts."""
        copies = sum(part.report.copy_cycles + self.implied_copy_cycles(part) for part in self.partitions)
        beside = sum(part.report.cpu_call_cycles for part in self.partitions)
        npu = sum(map(self.part_cycles, self.partitions)) - copies - beside
        work = total(map(self.part_work, self.partitions))
        kernels, estimated = self._cpu_kernels()
        return Latency(self.target, npu, copies, self.host, beside, work, kernels, estimated)

    def _cpu_kernels(self) -> tuple[Mapping[str, Estimate], int]:
        """Return the estimated times of operators on the CPU, by the name of their kernels. Operators whose time
        ``host_cycles`` contains are left out. The second result is the number of these operators that ExecuTorch's
        own kernels compute: ``host`` has them too, without a time."""
        spent: dict[str, list[float]] = {}
        for item in self.on_cpu:
            time = self.cpu_milliseconds(item)
            if time and (item.kernels or item.kind not in IN_HOST):
                spent.setdefault(CPU_KERNELS[item.kernels], []).append(time)
        estimates = {name: cpu_estimate(math.fsum(times), self.target) for name, times in spent.items()}
        return estimates, len(spent.get(CPU_KERNELS[""], ()))

    def cpu_milliseconds(self, item: OnCpu) -> float | None:
        """Return the modelled time of an operator on the CPU.

        Args:
            item: One of ``on_cpu``.

        Returns:
            The time in milliseconds; None where it is not modelled.
        """
        return cpu_milliseconds(item, self.target)

    def reasons(self) -> list[Reason]:
        """Return the reasons of operators on the CPU with the modelled time of the operators, the longest first. An
        operator whose time is not modelled counts in ``unknown``. Conversions of inputs and results, and operators
        that change no value, are left out."""
        found: dict[str, list[float | None]] = {}
        for item in self.on_cpu:
            if item.computes and not item.converts:
                found.setdefault(item.reason, []).append(self.cpu_milliseconds(item))
        rows = [
            Reason(text, len(times), cpu_estimate(math.fsum(filter(None, times)), self.target), times.count(None))
            for text, times in found.items()
        ]
        return sorted(rows, key=lambda row: -row.time.milliseconds)

    def part_work(self, part: PartitionSummary) -> Work:
        """Return the work of ``part`` with the copies of ``implied_copy_cycles``."""
        return total((part.report.work, work_of_copies(self.implied_copy_cycles(part), 1.0, 0.0)))

    def part_estimate(self, part: PartitionSummary) -> Estimate:
        """Return the estimate of the time of ``part``, with the copies of ``implied_copy_cycles`` and the start of the program."""
        return estimate(total((self.part_work(part), work_of_start(self.target))), self.target)

    @property
    def cycles(self) -> int:
        """Return the cycles of one inference: of the NPU, of CPU calls, of copies and of the host."""
        return self.latency.cycles

    @property
    def delegate_cycles(self) -> int:
        """Return the cycles of all programs: the NPU works, is dispatched or waits for copies, or the host core makes
        a kernel call."""
        return self.latency.npu_cycles + self.latency.cpu_call_cycles + self.latency.copy_cycles

    @property
    def cpu_call_cycles(self) -> int:
        """Return the cycles in which the host core computes kernel calls of the programs itself, instead of the NPU
        (CPU calls)."""
        return self.latency.cpu_call_cycles

    @property
    def copy_cycles(self) -> int:
        """Return the cycles in which the NPU waits for copies."""
        return self.latency.copy_cycles

    @property
    def npu_cycles(self) -> int:
        """Return the cycles in which the NPU works or is dispatched."""
        return self.latency.npu_cycles

    @property
    def host_cycles(self) -> int:
        """Return the modelled time of the operators on the CPU outside of the programs, in cycles of the NPU. An
        operator whose time is not modelled counts as 0."""
        return self.latency.host_cycles

    @property
    def host_operators_not_modelled(self) -> int:
        """Return the number of operators on the CPU that ``cycles`` does not contain."""
        return self.latency.operators_not_modelled

    @property
    def overlapped_cycles(self) -> int:
        """Return the cycles of one inference if the driver's port (its code for one chip) copies constants in the
        background. Only copies that a program makes can run in parallel to kernels."""
        hidden = sum(part.report.cycles - part.report.overlapped_cycles for part in self.partitions)
        return self.cycles - hidden

    @property
    def milliseconds(self) -> float:
        """Return the estimate of the latency of one inference in milliseconds."""
        return self.latency.milliseconds

    def in_milliseconds(self, cycles: float) -> float:
        """Return the estimated time of ``cycles`` in milliseconds: ``cycles`` / ``Summary.cycles``, multiplied by the
        estimated time of all ``Summary.cycles``. That time does not include ``latency.kernels``, the operators on the
        CPU that have times but no cycles. The result is 0 if ``Summary.cycles`` is 0."""
        own = estimate(self.latency.work, self.target).milliseconds
        return own * cycles / self.cycles if self.cycles else 0.0

    @property
    def band(self) -> tuple[float, float]:
        """Return the lowest and the highest latency that is expected on the chip, in milliseconds."""
        return self.latency.band

    @property
    def is_on_cpu(self) -> bool:
        """Return whether so much of the model is on the CPU that its latency is unknown. This is so if the CPU has most
        of the operators, or more than a tenth of the multiply-accumulates."""
        return 2 * self.computed_on_cpu > self.operators or self.cpu_macs > CPU_SHARE * (self.macs + self.cpu_macs)

    @property
    def computed_on_cpu(self) -> int:
        """Return the number of operators on the CPU that compute. Conversions to and from quantized values are not
        counted."""
        converts = (item.converts or kind_of(item.operator) is HostKind.CONVERSION for item in self.on_cpu)
        return sum(item.computes and not other for item, other in zip(self.on_cpu, converts, strict=True))

    @property
    def utilisation(self) -> float:
        """Return the utilisation of the multipliers: the multiply-accumulates on the NPU, divided by those that the NPU
        could compute in ``npu_cycles`` and ``copy_cycles``."""
        cycles = self.npu_cycles + self.copy_cycles
        return (self.macs - self.cpu_call_macs) / (cycles * self.target.macs_per_cycle) if cycles else 0.0

    @property
    def sram_bytes(self) -> int:
        """Return the SRAM of a run in bytes: the largest memory of a partition, plus the states of all partitions.
        The memory of a partition is its arena, its prefetch buffer, and the inputs and outputs outside the arena."""
        others = (part.report.sram_bytes - part.report.state_bytes for part in self.partitions)
        return max(others, default=0) + self.state_bytes

    @property
    def weights_are_in_sram(self) -> bool:
        """Return whether the chip's SRAM holds all weights during a run. This is so if the weights fit beside the
        run, the programs do not copy them, and the NPU can't read them from another memory. The result is False
        without a partition."""
        fetched = any(part.report.fetched_bytes for part in self.partitions)
        return self.weights_fit and not fetched and not self.target.reads_constants_in_place and bool(self.partitions)

    @property
    def total_sram_bytes(self) -> int:
        """Return the SRAM that the model occupies on the chip, in bytes: ``sram_bytes``, and the weights if they are in
        SRAM."""
        return self.sram_bytes + (self.weights_bytes if self.weights_are_in_sram else 0)

    @property
    def state_bytes(self) -> int:
        """Return the bytes of state that all partitions keep between runs."""
        return sum(part.report.state_bytes for part in self.partitions)

    @property
    def weights_bytes(self) -> int:
        """Return the bytes of the packed weights of all partitions."""
        return sum(part.report.weights_bytes for part in self.partitions)

    @property
    def microcode_bytes(self) -> int:
        """Return the bytes of the microcode of all partitions."""
        return sum(part.report.microcode_bytes for part in self.partitions)

    @property
    def faults(self) -> tuple[str, ...]:
        """Return the faults that the audit, a check of compiled programs, found in faster programs than the result.
        These programs were rejected. A fault is a mistake in the compiler, to be reported."""
        return tuple(fault for part in self.partitions for fault in part.report.faults)

    @property
    def folded_quantize(self) -> tuple[str, ...]:
        """Return the results of the QUANTIZE operators that were folded into the operators before them."""
        return tuple(name for part in self.partitions for name in part.report.folded_quantize)

    def _repr_html_(self) -> str:
        # Imported here: the texts are made of this class.
        from openneutron.features.report.notebook import summary_html

        return summary_html(self)

    def to_dict(self, details: bool = False) -> dict[str, Any]:
        """Return the figures as values for JSON. With ``details`` they include every kernel call and buffer of each
        partition."""
        return {
            **{name: getattr(self, name) for name in AS_THEY_ARE},
            "target": self.target.name,
            "clock_mhz": self.target.clock.value,
            "assumed": list(self.target.assumed),
            "delegated": [asdict(item) for item in self.delegated],
            "on_cpu": [asdict(item) | {"modelled_milliseconds": self.cpu_milliseconds(item)} for item in self.on_cpu],
            "reasons": [row.to_dict() for row in self.reasons()],
            "parts": {name: _times(part) for name, part in self.latency.parts().items()},
            "on_cpu_rows": [row.to_dict() for row in folded(self.on_cpu)],
            "partitions": [_partition_dict(self, part, details) for part in self.partitions],
            "converted": [asdict(part) for part in self.converted],
            "macs_on_cpu": self.cpu_macs,
            "macs_in_all": self.macs + self.cpu_macs,
            "weights_fit_sram": self.weights_fit,
            "constants_fit_chip": self.constants_fit,
            "modelled_cycles": self.cycles,
            "modelled_milliseconds": self.milliseconds,
            "expected_milliseconds": list(self.band),
            "hangs_on": self.latency.estimate.fact,
            "peak_sram_bytes": self.sram_bytes,
            "sram_budget_bytes": self.budget_bytes,
            "outputs": [item.to_dict() for item in self.outputs],
            "faults": list(self.faults),
            "folded_quantize": list(self.folded_quantize),
        }


AS_THEY_ARE = (
    "model", "operators", "whole", "operators_on_npu", "conversions", "macs", "npu_cycles", "copy_cycles", "host_cycles",
    "cpu_calls", "cpu_parts", "cpu_call_cycles", "cpu_call_macs", "host_operators_not_modelled", "is_on_cpu", "overlapped_cycles", "utilisation", "total_sram_bytes", "state_bytes",
    "weights_bytes", "microcode_bytes", "file", "file_bytes", "kernel_selection",
)  # fmt: skip
"""The attributes of ``Summary`` that ``to_dict`` returns under their own names."""


NOT_SHOWN = ("target", "cycles", "macs", "inputs", "outputs")
"""The fields of the compiler's report that ``to_dict`` omits in a partition, or has under another name."""


def _partition_dict(summary: Summary, part: PartitionSummary, details: bool) -> dict[str, Any]:
    figures = asdict(part.report)
    operators, memory, steps = figures.pop("operators"), figures.pop("memory"), figures.pop("steps")
    result = {
        "name": part.name,
        "kernel_calls": len(operators),
        "macs": figures["macs"],
        "modelled_cycles": summary.part_cycles(part),
        **_times(summary.part_estimate(part)),
        **{key: value for key, value in figures.items() if key not in NOT_SHOWN},
        "states": list(part.report.states),
        "faults": list(part.report.faults),
        "folded_quantize": list(part.report.folded_quantize),
    }
    if details:
        texts = [call.idle for call in part.report.operators]
        modules = [part.module(call["name"]) for call in operators]
        calls = [
            {**_without_work(call), **_times(item.estimate(summary.target)), "idle": idle, "module": module}
            for call, item, idle, module in zip(operators, part.report.operators, texts, modules, strict=True)
        ]
        result |= {"calls": calls, "memory": memory, "steps": steps}
    return result


def _times(found: Estimate) -> dict[str, Any]:
    """Return an estimate as values for JSON."""
    return {
        "modelled_milliseconds": found.milliseconds,
        "expected_milliseconds": list(found.expected),
        "hangs_on": found.fact,
    }


def _without_work(call: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in call.items() if name != "work"}


def of_compiled_file(compiled: CompiledFile, file: str | None = None, file_bytes: int | None = None) -> Summary:
    """Return the summary of a compiled ``.tflite``. ``file`` is the path of the written file, None if nothing was
    written. ``file_bytes`` is the size of the compiled file, None if it is not known."""
    graph = compiled.graph
    delegated = [
        (index, Delegated(operator_title(graph.nodes[index]), graph.nodes[index].name, number, node.op not in VIEWS))
        for number, part in enumerate(compiled.partitioning.partitions)
        for index, node in zip(part.nodes, rename_identities(extract(graph, part.nodes)).nodes, strict=True)
    ]
    inside = {index for index, _ in delegated}
    outside = [node for index, node in enumerate(graph.nodes) if index not in inside]
    return Summary(
        model=compiled.name,
        target=compiled.target,
        delegated=tuple(item for _, item in sorted(delegated, key=lambda pair: pair[0])),
        on_cpu=tuple(
            replace(item, macs=macs(graph, node), computes=node.op not in VIEWS)
            for item, node in zip(compiled.partitioning.on_cpu, outside, strict=True)
        ),
        partitions=tuple(
            PartitionSummary(part_name(number), part.report, conversions=conversions_in(partition.graph), number=number)
            for number, (part, partition) in enumerate(
                zip(compiled.parts, compiled.partitioning.partitions if compiled.parts else (), strict=True)
            )
        ),
        converted=tuple(
            ConvertedSummary.of(part_name(number), part.program) for number, part in enumerate(compiled.converted)
        ),
        budget_bytes=compiled.budget_bytes,
        host=host_operators_of_graph(graph, outside),
        file=file,
        file_bytes=file_bytes,
    )


# -- rows for operators on the CPU --------------------------------------------------------------------------------------

SHOWN_KINDS = 3
"""The number of kinds of operators that the title of a row names."""


@dataclass(frozen=True, slots=True)
class CpuRow:
    """One or more operators that stay on the CPU for the same reason and with the same suggestion. ``folded`` and
    ``by_reason`` make these rows."""

    items: tuple[OnCpu, ...]

    @property
    def title(self) -> str:
        """Return the kind of the operator. For several operators, return the user's call if they are all parts of it,
        otherwise their most frequent kinds. Their number follows: ``aten.sort (2 operators)``."""
        first, count = self.items[0], len(self.items)
        if count == 1:
            return first.operator
        kinds = Counter(item.operator for item in self.items)
        if first.call and len({item.call for item in self.items}) == 1:
            words = first.written
        else:
            words = ", ".join(kind for kind, _ in kinds.most_common(SHOWN_KINDS))
            words += ", ..." if len(kinds) > SHOWN_KINDS else ""
        return f"{words} ({count} operators)"

    @property
    def why(self) -> str:
        """Return the reason and the suggestion as sentences."""
        return f"{self.items[0].reason}. {self.items[0].suggestion}".strip()

    def to_dict(self) -> dict[str, Any]:
        """Return the row as data for ``--json``."""
        first = self.items[0]
        return {
            "operator": self.title,
            "name": first.name,
            "reason": first.reason,
            "suggestion": first.suggestion,
            "count": len(self.items),
        }


def folded(operators: Iterable[OnCpu]) -> list[CpuRow]:
    """Return the operators grouped in rows. A row has the position of its first operator.

    Operators share a row if they have equal reasons and suggestions, and an equal name (the module's path) or an equal
    call in the user's code.
    """
    rows: dict[tuple[str, ...], list[OnCpu]] = {}
    row_of: dict[tuple[str, ...], tuple[str, ...]] = {}
    for item in operators:
        words = (item.reason, item.suggestion)
        keys = [("name", item.name, *words), *([("call", item.call, *words)] if item.call else [])]
        key = next((row_of[each] for each in keys if each in row_of), keys[0])
        row_of |= dict.fromkeys(keys, key)
        rows.setdefault(key, []).append(item)
    return [CpuRow(tuple(items)) for items in rows.values()]


def by_reason(operators: Iterable[OnCpu]) -> list[CpuRow]:
    """Return the operators grouped in rows by reason, suggestion and fallback cost. A row has the position of its first
    operator."""
    rows: dict[object, list[OnCpu]] = {}
    for item in operators:
        rows.setdefault((item.reason, item.suggestion, item.fallback), []).append(item)
    return [CpuRow(tuple(items)) for items in rows.values()]
