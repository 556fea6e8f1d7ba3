# SPDX-License-Identifier: BSD-3-Clause
"""Collection of a report's data from the summary of a compile and the compiled file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields, replace
from itertools import accumulate
from typing import Any

from openneutron import targets
from openneutron.compiler.cost.cycles import issue_cycles
from openneutron.compiler.cost.estimate import MEMORY
from openneutron.compiler.emit.report import OperatorReport
from openneutron.errors import InvalidProgramError
from openneutron.features.report.advice import Advice, BudgetPoint
from openneutron.features.report.page.data import (
    CONSTANTS,
    ROLLING,
    TENSOR,
    Buffer,
    CpuFallback,
    Figures,
    Layer,
    LayerAccuracy,
    Measured,
    Partition,
    Peak,
    ReportData,
    Row,
    Step,
    TargetData,
)
from openneutron.features.report.page.graph import connected, flow_of
from openneutron.features.report.page.language import NPU, language_facts, summary
from openneutron.features.report.page.page import with_sections
from openneutron.features.report.summary import PartitionSummary, Summary, folded
from openneutron.features.report.text import mapped_buffers, summary_rows
from openneutron.isa.rows import KERNEL_BY_NAME
from openneutron.language.model import found
from openneutron.targets import Target


def report_data(
    summary: Summary,
    file: bytes,
    pareto: Sequence[BudgetPoint] = (),
    accuracy: Sequence[Measured] = (),
    advice: Sequence[Advice] = (),
) -> ReportData:
    """Return the data of a compile.

    Args:
        summary: The figures of the compile.
        file: The compiled file, whose calls are the graph.
        pareto: The compiles with other budgets; empty: not computed.
        accuracy: The signal-to-quantization-noise ratios of layers, named by module path, node or layer; empty: not measured.
        advice: The changes of options that were compiled.
    """
    target = summary.target
    layers: list[Layer] = []
    steps: list[Step] = []
    buffers: list[Buffer] = []
    peaks: list[Peak] = []
    for number, part in enumerate(summary.partitions):
        first = len(layers)
        layers += _layers(number, part, target)
        own = _buffers(number, part, target)
        live = _live_bytes(own, len(part.report.steps))
        steps += _steps(number, part, first, live)
        peaks += _peak(number, own, len(buffers), live)
        buffers += own
    data = ReportData(
        model=summary.model,
        target=_target(target),
        figures=_figures(summary),
        summary=tuple(Row(label, text) for label, text in summary_rows(summary)),
        partitions=tuple(_partition(summary, part) for part in summary.partitions),
        layers=tuple(layers),
        buffers=tuple(buffers),
        steps=tuple(steps),
        peaks=tuple(peaks),
        graph=connected(summary, flow_of(file, summary.model), layers),
        fallbacks=tuple(_fallbacks(summary)),
        pareto=tuple(pareto),
        accuracy=tuple(by_layer(accuracy, layers)),
        advice=tuple(advice),
    )
    return with_sections(data)


def report_of_language_model(file: bytes, name: str) -> ReportData:
    """Return the report data of a language model in a ``.pte``. The file contains no facts about its compile, so that
    the figures are computed from the program. Those of time and work are for one token when a quarter of the cache is
    filled.

    Raises as ``openneutron.language.model.found`` does, and InvalidProgramError for a chip that this version does not
    know.
    """
    interface, program = found(file, name)
    target = targets.with_checksum(program.header["target"])
    if target is None:
        raise InvalidProgramError(f"'{name}': its chip is not known to this version. Export the model again.")
    facts = language_facts(interface, program, len(file))
    token = next((each for each in facts.phases if each.position and each.tokens == 1), None)
    milliseconds = (0.0, 0.0, 0.0) if token is None else (token.seconds, token.low_seconds, token.high_seconds)
    sram = program.scratch_size + program.state_size
    figures = Figures(
        **dict.fromkeys(_NO_FIGURES, 0),
        operators=program.header["operator_count"],
        operators_on_npu=0 if token is None else sum(part.calls for part in facts.phases[0].parts if part.place == NPU),
        whole=True,
        macs=0 if token is None else round(token.products),
        is_on_cpu=False,
        modelled_milliseconds=1e3 * milliseconds[0],
        expected_milliseconds=(1e3 * milliseconds[1], 1e3 * milliseconds[2]),
        hangs_on="",
        utilisation=0.0,
        peak_sram_bytes=sram,
        total_sram_bytes=sram,
        sram_budget_bytes=sram,
        weights_bytes=program.header["weights_size"],
        microcode_bytes=program.header["microcode_size"],
        weights_fit_sram=True,
        file_bytes=len(file),
    )
    return with_sections(
        ReportData(
            model=name,
            target=_target(target),
            figures=figures,
            summary=summary(facts, target.title),
            partitions=(),
            layers=(),
            buffers=(),
            steps=(),
            peaks=(),
            graph=(),
            fallbacks=(),
            sections={"language": (facts,)},
        )
    )


_NO_FIGURES = (
    *("macs_on_cpu", "modelled_cycles", "npu_cycles", "copy_cycles", "host_cycles"),
    *("host_operators_not_modelled", "overlapped_cycles"),
)
"""The figures of a compile that a decoder's program does not have."""


def with_accuracy(data: ReportData, accuracy: Iterable[Measured]) -> ReportData:
    """Return the data of a report with the accuracy of its layers. The items of all sections are computed again,
    since some of them depend on the accuracy."""
    return with_sections(replace(data, accuracy=tuple(by_layer(accuracy, data.layers))))


def by_layer(accuracy: Iterable[Measured], layers: Sequence[Layer]) -> Iterable[LayerAccuracy]:
    """Yield each measured accuracy under the name of a layer. If the accuracy was measured for a module or a node of
    the model, this is the last layer that computes the module or node. A name for which there is no layer is kept."""
    names: dict[str, str] = {}
    for layer in layers:
        names |= dict.fromkeys(filter(None, (layer.module, layer.node)), layer.name)
    names |= {layer.name: layer.name for layer in layers}
    for item in accuracy:
        name = names.get(item.name, item.name)
        yield LayerAccuracy(name, item.accumulated_db, item.local_db, item.saturated)


def _shared(kind: type, source: object, without: Sequence[str] = ()) -> dict[str, Any]:
    """Return the values of those fields of ``kind`` that ``source`` has as attributes, by name. The fields in
    ``without`` are left out."""
    names = (item.name for item in fields(kind) if item.name not in without and hasattr(source, item.name))
    return {name: getattr(source, name) for name in names}


def _target(target: Target) -> TargetData:
    return TargetData(
        name=target.name,
        title=target.title,
        clock_mhz=float(target.clock.value),
        macs_per_cycle=target.macs_per_cycle,
        sram_bytes=int(target.sram.value * 1024),
        moved_bytes_per_cycle=float(target.arena_memory.bandwidth.value),
        flash_bytes_per_cycle=float(target.copy_engine.rate.value),
        pipelines=target.all_pipelines,
        macs=target.macs,
        constants_from=target.external_memory.name,
        copies_beside=target.copies_in_background,
        place=target.place,
    )


def _figures(summary: Summary) -> Figures:
    known = summary.to_dict()
    values = {item.name: known[item.name] for item in fields(Figures)}
    return Figures(**{**values, "expected_milliseconds": tuple(known["expected_milliseconds"])})


def _partition(summary: Summary, part: PartitionSummary) -> Partition:
    report, implied = part.report, summary.implied_copy_cycles(part)
    return Partition(
        name=part.name,
        cycles=summary.part_cycles(part),
        copy_cycles=report.copy_cycles + implied,
        implied_copy_cycles=implied,
        **_shared(Partition, report, without=("cycles", "copy_cycles")),
    )


def _layers(number: int, part: PartitionSummary, target: Target) -> Iterable[Layer]:
    copies = dict.fromkeys(range(len(part.report.operators)), 0)
    for step in part.report.steps:
        if step.size_bytes:
            copies[step.calls[0]] += step.cycles
    for index, call in enumerate(part.report.operators):
        dispatch, compute, memory = _split(call, target)
        expected = call.estimate(target)
        yield Layer(
            partition=number,
            name=part.title(call.name),
            node=call.name,
            module=part.module(call.name),
            compute_cycles=compute,
            memory_cycles=memory,
            dispatch_cycles=dispatch,
            copy_cycles=copies[index],
            modelled_milliseconds=expected.milliseconds,
            expected_milliseconds=expected.expected,
            hangs_on=expected.fact,
            **_shared(Layer, call, without=("name",)),
        )


MOVES = "bytes"
"""The value of ``OperatorReport.parallel`` for a kernel that moves values and does not multiply."""


def _split(call: OperatorReport, target: Target) -> tuple[int, int, int]:
    """Return three numbers of cycles of a call: for its dispatch, for computing, and for moving values. All cycles
    without the dispatch count as computing or as moving values, whichever bounds the call. The other number is 0."""
    is_transfer = KERNEL_BY_NAME[call.kernel].is_transfer  # the data mover makes it
    dispatch = 0 if is_transfer else call.stripes * issue_cycles(KERNEL_BY_NAME[call.kernel], target)
    rest = call.cycles - dispatch
    moves = call.bottleneck == MEMORY or call.parallel == MOVES
    return (dispatch, 0, rest) if moves else (dispatch, rest, 0)


def _buffers(number: int, part: PartitionSummary, target: Target) -> list[Buffer]:
    found = []
    last = max(len(part.report.steps) - 1, 0)
    sizes = accumulate((part.report.arena_bytes, part.report.prefetch_bytes), initial=0)
    starts = {"": 0} | dict(zip((region.name for region in target.regions), sizes, strict=False))
    for item in mapped_buffers(part):
        title = f"{item.title} ({item.region})" if item.region else item.title
        # The addresses of a region are drawn behind those of the regions before it.
        behind = starts[item.region]
        kind = CONSTANTS if item.is_constant else ROLLING if item.rows_held else TENSOR
        live = item.first, min(item.last, last), item.rows_held, item.rows
        found.append(Buffer(number, title, kind, item.offset + behind, item.size_bytes, *live))
    return found


def _live_bytes(buffers: Iterable[Buffer], steps: int) -> list[int]:
    """Return for each step the number of bytes of the partition's memory, in all regions, that hold values. If a
    result is written over its operand, their common bytes count once."""
    live: list[list[tuple[int, int]]] = [[] for _ in range(steps)]
    for buffer in buffers:
        for step in range(buffer.first, min(buffer.last + 1, steps)):
            live[step].append((buffer.offset, buffer.offset + buffer.size_bytes))
    return [_covered(spans) for spans in live]


def _covered(spans: Iterable[tuple[int, int]]) -> int:
    """Return the number of addresses in the union of spans."""
    covered = end = 0
    for start, stop in sorted(spans):
        covered += max(stop - max(start, end), 0)
        end = max(end, stop)
    return covered


def _steps(number: int, part: PartitionSummary, first: int, live: Sequence[int]) -> Iterable[Step]:
    start = 0
    for step, size in zip(part.report.steps, live, strict=True):
        yield Step(number, step.kind, tuple(first + call for call in step.calls), step.times, start, step.cycles, size)
        start += step.cycles


def _peak(number: int, own: Sequence[Buffer], first: int, live: Sequence[int]) -> Iterable[Peak]:
    if own and live:
        most = max(live)
        step = live.index(most)
        there = [index for index, buffer in enumerate(own, first) if buffer.first <= step <= buffer.last]
        there.sort(key=lambda index: -own[index - first].size_bytes)
        yield Peak(number, step, most, tuple(there))


def _fallbacks(summary: Summary) -> Iterable[CpuFallback]:
    for row in folded(summary.on_cpu):
        first = row.items[0]
        cost = first.fallback
        yield CpuFallback(
            operator=row.title,
            name=first.name,
            count=len(row.items),
            reason=first.reason,
            suggestion=first.suggestion,
            line=first.line,
            macs=sum(item.macs for item in row.items),
            **({} if cost is None else asdict(cost)),
        )
