# SPDX-License-Identifier: BSD-3-Clause
"""Functions that return a summary as tables or as plain text."""

from __future__ import annotations

import io
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from openneutron.compiler import Report
from openneutron.compiler.cost.cycles import issue_cycles
from openneutron.compiler.cost.estimate import estimate, releases, total, work
from openneutron.compiler.cost.host import cpu_milliseconds
from openneutron.compiler.emit.report import OperatorReport
from openneutron.compiler.rewrite.passes import Explained
from openneutron.device.timings import Timings
from openneutron.features.report.advice import Advice, advice_text
from openneutron.features.report.latency import CPU_CALLS, latency_text, parts_text
from openneutron.features.report.outputs import output_lines
from openneutron.features.report.repeats import Block, blocks, listed
from openneutron.features.report.summary import CPU_KERNELS, CpuRow, PartitionSummary, Summary, by_reason, cpu_estimate
from openneutron.features.report.table import (
    NAME_WIDTH,
    Column,
    Table,
    count_text,
    facts,
    plural,
    range_text,
    right,
    short_name,
    size_text,
)
from openneutron.ir.graph import Fallback, OnCpu
from openneutron.isa.rows import KERNEL_BY_NAME
from openneutron.options import DEFAULT_EFFORT
from openneutron.targets import Target
from openneutron.targets.target import CPU, NPU

SHOWN_ON_CPU = 12
"""The number of rows of operators on the CPU that a summary lists; ``explain`` lists all."""

STATES_SHOWN = 4
"""The number of states that a summary names."""

NAMES_SHOWN = 2
"""The number of operators that a row of a summary names; ``explain`` names all."""

COST_WIDTH = 30

PLAIN_WIDTH = 120


def plain(renderable: RenderableType, width: int = PLAIN_WIDTH) -> str:
    """Return a table as text without colours and without blanks at the ends of lines. Brackets and colons in names are
    not interpreted as markup."""
    console = Console(
        file=io.StringIO(), width=width, no_color=True, highlight=False, markup=False, emoji=False, legacy_windows=False
    )
    with console.capture() as capture:
        console.print(renderable)
    return "".join(f"{line.rstrip()}\n" for line in capture.get().splitlines())


def _share(part: float) -> str:
    return f"{100 * part:.1f} %"


def summary_table(summary: Summary, with_cpu: bool = True, advice: Sequence[Advice] = ()) -> RenderableType:
    """Return the figures of a compile, the table of its partitions if there are several, and with ``with_cpu`` the
    operators on the CPU."""
    title = Text.assemble((summary.model, "bold"), f"  for {summary.target.name} ({summary.target.title})")
    parts: list[RenderableType] = [title, facts(summary_rows(summary, advice))]
    if len(summary.partitions) > 1:
        parts += ["", partitions_table(summary)]
    if summary.on_cpu and with_cpu:
        parts += ["", on_cpu_table(summary.on_cpu, SHOWN_ON_CPU, summary.target)]
    return Group(*parts)


def one_line(summary: Summary) -> str:
    """Return the model, its chip and its main figures in one line. Latency and SRAM are omitted if the model has no
    partition, and if too much of it is on the CPU (``Summary.is_on_cpu``)."""
    on_npu = f"{summary.operators_on_npu} of {plural(summary.operators, 'operator')} {_place(summary)}"
    figures = (
        ""
        if not summary.partitions
        else f", {range_text(summary.milliseconds, *summary.band)}, {size_text(summary.sram_bytes)} of SRAM in a run"
    )
    figures = "" if summary.is_on_cpu else figures
    return f"{summary.model} for {summary.target.name}: {on_npu}{figures}"


def timings_table(timings: Timings) -> RenderableType:
    """Return a table of the seconds of each step of a compile and of their sum."""
    rows = [(item.step, item.wall_seconds, item.cpu_seconds) for item in timings.steps]
    rows.append(("All", timings.wall_seconds, timings.cpu_seconds))
    steps, wall, cpu = zip(*rows, strict=True)
    shares = [_share(spent / timings.cpu_seconds) if timings.cpu_seconds else "" for spent in cpu]
    seconds = "{:.2f}".format
    columns = (
        Column("step", steps, style="cyan"),
        right("seconds", wall, text=seconds),
        right("CPU seconds", cpu, text=seconds),
        right("share of CPU", shares),
    )
    return Group(Text("Time of the compile", "bold"), Table(columns, gap=4))


def summary_rows(summary: Summary, advice: Sequence[Advice] = ()) -> list[tuple[str, str]]:
    """Return labels and values of the summary, in words."""
    pieces = len(summary.partitions)
    calls = sum(len(part.report.operators) for part in summary.partitions)
    said = f"{summary.operators_on_npu} of {plural(summary.operators, 'operator')}"
    if pieces:
        count = plural(calls, "kernel call")
        if summary.cpu_calls:
            count = f"{plural(calls - summary.cpu_calls, 'NPU call')} and {plural(summary.cpu_calls, 'CPU call')}"
        said += f", in {plural(pieces, 'partition')} of {count}"
    if summary.whole and summary.on_cpu:
        conversions = " and ".join(dict.fromkeys(item.operator for item in summary.on_cpu))
        said += f": the whole model but for {conversions} at its float inputs and outputs"
    place = _place(summary)
    rows = [("Warning", _warning_text(summary)), (place[0].upper() + place[1:], said)]
    if summary.converted:
        sizes = "; ".join(
            f"{part.name}: microcode {size_text(part.microcode_bytes)}, weights {size_text(part.weights_bytes)}, "
            f"kernels {size_text(part.kernels_bytes)}"
            for part in summary.converted
        )
        count = plural(len(summary.converted), "partition")
        rows.append(("By NXP's SDK", f"{count}, for the chip alone; costs are not known here. {sizes}"))
    if summary.delegated:
        kinds = Counter(item.operator for item in summary.delegated if item.computes)
        rows.append(("", ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())))
    rows += [("On the CPU", _cpu_kernels_text(summary)), ("Folded", _folded_text(summary))]
    if summary.conversions:
        rows.append(("Conversions", f"{summary.conversions} between int8 and int16"))
    if summary.partitions:
        rows += [
            ("MACs", _macs_text(summary)),
            ("On the NPU", _jobs_text(summary)),
            ("Latency", _latency_text(summary)),
            ("Time on", parts_text(summary.latency)),
            ("Costs most", _reason_text(summary)),
            ("Range", _range_text(summary)),
            ("Advice", advice_text(advice)),
            ("Assumed", _assumed_text(summary.target)),
            ("Copies", copies_text(summary)),
            ("Traffic", traffic_text(summary)),
            ("Utilisation", f"{_share(summary.utilisation)} of {summary.target.macs_per_cycle} MACs per cycle"),
            ("Bound by", _bound_text(summary)),
            ("SRAM", _total_sram_text(summary)),
            ("Peak SRAM", _sram_text(summary)),
            ("State", _state_text(summary)),
            ("Stripes", _stripes_text(summary)),
            ("Effort", _effort_text(summary)),
            ("Weights", _weights_text(summary)),
            ("Microcode", size_text(summary.microcode_bytes)),
        ]
    rows += [("" if line else "Accuracy", said) for line, said in enumerate(output_lines(summary.outputs))]
    rows += [
        ("Warning", f"{fault} The program is another schedule's, in which the audit finds no fault.")
        for fault in summary.faults
    ]
    if summary.file is not None and summary.file_bytes is not None:
        rows.append(("File", f"{summary.file}, {size_text(summary.file_bytes)}"))
    if summary.kernel_selection is not None:
        rows.append(("Kernels", f"{summary.kernel_selection}, for the firmware's linker"))
    return [(label, value) for label, value in rows if value]


def _place(summary: Summary) -> str:
    """Return where the operators of the programs run, in words: "in the program" if the host core makes some calls."""
    return "in the program" if summary.cpu_calls else summary.target.place


def _cpu_kernels_text(summary: Summary) -> str:
    """Return which backends compute the operators on the CPU, in words; empty where the runtime's own kernels compute all of them."""
    counted = Counter(item.kernels for item in summary.on_cpu if item.computes)
    own = counted.pop("", 0)
    parts = f" in {plural(summary.cpu_parts, 'delegate call')}" if summary.cpu_parts else ""
    said = [
        f"{plural(count, 'operator')} by {CPU_KERNELS[name]}{parts}, which the application links"
        for name, count in counted.items()
    ]
    if said and own:
        said.append(f"{own} by ExecuTorch's own kernels")
    return "; ".join(said)


def _folded_text(summary: Summary) -> str:
    """Return how many QUANTIZE are folded, in words; empty where none is."""
    count = len(summary.folded_quantize)
    said = "one rounding instead of two, not the file's bytes"
    return f"{count} QUANTIZE into the operators before them: {said}" if count else ""


def _reason_text(summary: Summary) -> str:
    """Return the reason whose operators take the most modelled time on the CPU, as text; an empty string if no reason has a modelled time."""
    first = next((row for row in summary.reasons() if row.time.milliseconds), None)
    if first is None:
        return ""
    time = range_text(first.time.milliseconds, *first.time.expected)
    return f"{time} in {plural(first.operators, 'operator')} on the CPU: {first.text}"


def _macs_text(summary: Summary) -> str:
    """Return the multiply-accumulates of the model in words, with the share of those on the CPU if there are any."""
    on_cpu = summary.cpu_macs + summary.cpu_call_macs
    if not on_cpu:
        return count_text(summary.macs)
    in_all = summary.macs + summary.cpu_macs
    return f"{count_text(in_all)}, {_share(on_cpu / in_all)} of them on the CPU"


def _jobs_text(summary: Summary) -> str:
    """Return the matrix products that the NPU's driver takes from a program on the CPU, in words; empty for other targets, and for
    the NPU itself, whose programs are not on the CPU."""
    if summary.target.jobs is None or summary.target.cpu is None:
        return ""
    products = [item for part in summary.partitions for item in part.report.jobs]
    if not products:
        return "no matrix product: none takes less time there"
    share = _share(sum(item.macs for item in products) / max(1, summary.macs))
    said = f"{plural(len(products), 'matrix product')} by NXP's driver, {share} of the MACs"
    rescaled = sum(not item.is_exact for item in products)
    return f"{said}; the NPU rescales {rescaled} of them, whose bytes may differ from LiteRT's" if rescaled else said


def _warning_text(summary: Summary) -> str:
    """Return a warning in two cases, otherwise an empty string. In the first case the host core makes all kernel calls of the programs.
    The warning then has the reason of the first call. In the second case too much of the model is on the CPU (``Summary.is_on_cpu``), and
    NXP's converter compiled no partition. The warning then has the most frequent reason of the operators on the CPU."""
    calls = [call for part in summary.partitions for call in part.report.operators]
    if calls and summary.cpu_calls == len(calls):
        return f"all of the program is on the CPU: {calls[0].on_cpu}"
    if not summary.is_on_cpu or summary.converted:
        return ""
    reasons = Counter(item.reason for item in summary.on_cpu if item.computes and not item.converts)
    ((reason, count),) = reasons.most_common(1)
    on_cpu = summary.computed_on_cpu
    why = f"for {count} of them, {reason}" if count < on_cpu else reason
    operators = plural(summary.operators, "operator")
    if 2 * on_cpu <= summary.operators:
        share = _share(summary.cpu_macs / (summary.macs + summary.cpu_macs))
        return f"{share} of the MACs are on the CPU, in {on_cpu} of {operators}: {why}"
    share = "all" if on_cpu == summary.operators else "most"
    return f"{share} of the model is on the CPU, {on_cpu} of {operators}: {why}"


def _latency_text(summary: Summary) -> str:
    """Return the latency of an inference in words. The text states that the latency is not known if too much of the
    model is on the CPU (``Summary.is_on_cpu``), unless the times of all operators on the CPU are modelled."""
    if not summary.is_on_cpu or (summary.latency.kernels and not summary.host_operators_not_modelled):
        return latency_text(summary.latency)
    on_cpu = summary.computed_on_cpu
    share = (
        f", with {_share(summary.cpu_macs / (summary.macs + summary.cpu_macs))} of the MACs,"
        if summary.cpu_macs
        else ""
    )
    are = "is" if on_cpu == 1 else "are"
    return f"not known: {on_cpu} of {plural(summary.operators, 'operator')}{share} {are} on the CPU, whose time is not modelled"


def _range_text(summary: Summary) -> str:
    """Return in words for which releases of NXP's software the range of the latency holds, and which term of the cost model widens it
    most. Return an empty string if the latency is not known."""
    found = summary.latency.estimate
    if summary.is_on_cpu or not found.milliseconds:
        return ""
    known = releases(summary.target)
    return f"{f'for {known}; ' if known else ''}hangs most on {found.term} ({found.fact})"


def _assumed_text(target: Target) -> str:
    """Return the number of facts about the chip that are assumed, in words; an empty string if there are none."""
    return f"{target.assumption}; `openneutron targets` lists them" if target.assumed else ""


def _bound_text(summary: Summary) -> str:
    """Return the shares of the programs' time by bottleneck, in words. Calls of the host core are one bottleneck, and copies that kernels
    wait for are another. Transfers that the copy engine makes in parallel to the kernels are left out."""
    spent = Counter[str]()
    for part in summary.partitions:
        for call in part.report.operators:
            # The copy engine makes transfers beside the kernels.
            if not KERNEL_BY_NAME[call.kernel].is_transfer:
                spent[CPU_CALLS if call.on_cpu else call.bottleneck] += call.cycles
    spent["copies"] = summary.copy_cycles
    shares = (f"{name} {_share(cycles / summary.delegate_cycles)}" for name, cycles in spent.most_common() if cycles)
    return f"{', '.join(shares)} of the time"


def _stripes_text(summary: Summary) -> str:
    """Return the number of calls in stripes and the cost of their dispatch, in words; an empty string if there are
    none."""
    striped = [item for part in summary.partitions for item in part.report.operators if item.stripes > 1]
    if not striped:
        return ""
    runs = sum(item.stripes for item in striped)
    dispatches = ((item.stripes - 1) * issue_cycles(KERNEL_BY_NAME[item.kernel], summary.target) for item in striped)
    found = estimate(work(dispatch=float(sum(dispatches))), summary.target)
    more = range_text(found.milliseconds, *found.expected)
    return f"{plural(len(striped), 'kernel call')} in {runs} stripes, which saves memory and takes {more} more"


def _effort_text(summary: Summary) -> str:
    """Return the cycles that a higher effort saved against the default effort, in words; an empty string at the default
    effort."""
    reports = [part.report for part in summary.partitions if part.report.effort != DEFAULT_EFFORT]
    if not reports:
        return ""
    cycles = sum(report.overlapped_cycles for report in reports)
    gained = sum(report.gained_cycles or 0 for report in reports)
    said = "as fast as at the default one"
    if gained:
        said = f"{_share(gained / (cycles + gained))} fewer cycles than at the default one"
    if any(report.gained_cycles is None for report in reports):
        said = "the default one finds nothing that fits"
    return f"{reports[0].effort}: {said}"


def _total_sram_text(summary: Summary) -> str:
    """Return the sum of a run's SRAM and the weights, in words; an empty string where the weights are in another
    memory."""
    if not summary.weights_are_in_sram:
        return ""
    chip = int(summary.target.sram.value * 1024)
    return (
        f"{size_text(summary.total_sram_bytes)} of the chip's {size_text(chip)}: a run {size_text(summary.sram_bytes)}, weights "
        f"{size_text(summary.weights_bytes)}"
    )


def _sram_text(summary: Summary) -> str:
    """Return the SRAM of a run in words, with the parts that add up to it."""
    largest = max((part.report for part in summary.partitions), key=lambda each: each.sram_bytes - each.state_bytes)
    regions = summary.target.regions
    parts = [f"{'arena' if len(regions) == 1 else regions[0].name} {size_text(largest.arena_bytes)}"]
    names = [region.name for region in regions[1:]] or ["prefetch"]
    others = largest.prefetch_bytes, largest.far_bytes
    parts += [f"{name} {size_text(size)}" for name, size in zip(names, others, strict=False) if size]
    outside = largest.sram_bytes - largest.arena_bytes - sum(others) - largest.state_bytes
    if summary.state_bytes:
        parts.append(f"state {size_text(summary.state_bytes)}")
    if summary.target.moves_tiles:
        parts.append(f"input and output in {summary.target.external_memory.name}")
    else:
        parts.append(f"input and output {size_text(outside)}" if outside else "input and output inside")
    used = _share(summary.sram_bytes / summary.budget_bytes)
    return f"{size_text(summary.sram_bytes)} of {size_text(summary.budget_bytes)} ({used}): {', '.join(parts)}"


def _state_text(summary: Summary) -> str:
    """Return the size and the names of states kept between runs, in words; an empty string for a model without
    state."""
    names = [name for part in summary.partitions for name in part.report.states]
    shown = ", ".join(names[:STATES_SHOWN]) + (
        f" and {len(names) - STATES_SHOWN} more" if len(names) > STATES_SHOWN else ""
    )
    return f"{size_text(summary.state_bytes)} kept between runs: {shown}" if names else ""


def _weights_text(summary: Summary) -> str:
    """Return the size of the constants and the memory that has them, in words. The SRAM budget includes constants only if the program
    copies them to SRAM ahead of use."""
    size = summary.weights_bytes
    if any(part.report.fetched_bytes for part in summary.partitions):
        return (
            f"{size_text(size)} in {summary.target.external_memory.name}, fetched ahead of use{_too_much_text(summary)}"
        )
    if not summary.weights_fit:
        return f"{size_text(size)} in flash, since they do not fit the chip's SRAM{_too_much_text(summary)}"
    return f"{size_text(size)} beside the budget, in memory that the {summary.target.processor.upper()} reads{_too_much_text(summary)}"


def _too_much_text(summary: Summary) -> str:
    """Return a remark that the chip's memory for constants is too small for weights and microcode; an empty string if
    it is large enough."""
    home = summary.target.constants_home
    there = int(home.size.value * 1024)
    return "" if summary.constants_fit else f"; the chip's {home.name} of {size_text(there)} does not hold them"


def partitions_table(summary: Summary) -> RenderableType:
    """Return a table with the figures of each partition. The SRAM budget limits each partition separately."""
    rows = [
        (
            str(part.number),
            sum(item.partition == index and item.computes for item in summary.delegated),
            len(part.report.operators),
            part.report.macs,
            range_text(summary.part_estimate(part).milliseconds, *summary.part_estimate(part).expected),
            part.report.sram_bytes,
            part.report.weights_bytes,
        )
        for index, part in enumerate(summary.partitions)
    ]
    columns = (
        Column("partition", names=True),
        right("operators"),
        right("kernel calls", goes=1),
        right("MACs", text=count_text),
        right("latency"),
        right("SRAM", text=size_text),
        right("weights", text=size_text),
    )
    return Group(Text("Partitions, one after the other in the same SRAM", "bold"), Table.of_rows(columns, rows, gap=4))


def fallback_text(cost: Fallback) -> str:
    """Return the cost of operators on the CPU in words."""
    parts = cost.calls > cost.calls_without > 0
    calls = f"parts {plural(cost.calls_without, 'delegate call')} into {cost.calls}" if parts else ""
    return "; ".join(filter(None, (calls, f"{size_text(cost.border_bytes)} between NPU and CPU")))


def on_cpu_table(operators: Iterable[OnCpu], limit: int | None = None, target: Target | None = None) -> RenderableType:
    """Return a table of operators on the CPU, with a row for each reason (``by_reason``), and with their modelled times on ``target``.

    With ``limit``, the table has that many rows with the first names of each, and a line with the number of the
    remaining operators.
    """
    rows = by_reason(operators)
    shown = rows[:limit]
    costs = [row.items[0].fallback for row in shown]
    columns = [
        Column("operator", [row.title for row in shown], style="cyan", wraps=True, most=NAME_WIDTH),
        Column(
            "name",
            [_names_text(row, None if limit is None else NAMES_SHOWN) for row in shown],
            wraps=True,
            most=NAME_WIDTH,
        ),
        Column("why", [row.why for row in shown], wraps=True),
    ]
    if any(cost is not None for cost in costs):
        texts = ["" if cost is None else fallback_text(cost) for cost in costs]
        columns.append(Column("what it costs", texts, wraps=True, most=COST_WIDTH))
    times = [_time_text(row, target) for row in shown]
    if any(times):
        columns.append(right("time", times))
    table = Table(tuple(columns), gap=4)
    rest = sum(len(row.items) for row in rows[len(shown) :])
    parts: list[RenderableType] = [Text("On the CPU", "bold"), table]
    if rest:
        parts.append(Text(f"... and {rest} more; `openneutron explain` lists all."))
    return Group(*parts)


def _time_text(row: CpuRow, target: Target | None) -> str:
    """Return the modelled time of a row's operators in words; empty where the time of one is not modelled, and
    without ``target``."""
    times = [] if target is None else [cpu_milliseconds(item, target) for item in row.items]
    known = [time for time in times if time is not None]
    if target is None or not any(known) or len(known) < len(times):
        return ""
    found = cpu_estimate(math.fsum(known), target)
    return range_text(found.milliseconds, *found.expected)


def _names_text(row: CpuRow, limit: int | None) -> str:
    """Return the names of a row's operators, with their lines in the model's source. With ``limit``, return that many
    names and the number of the remaining ones."""
    names = list(
        dict.fromkeys(
            f"{short_name(item.name)} ({item.line})" if item.line not in item.name else short_name(item.name)
            for item in row.items
        )
    )
    if limit is None:
        return ", ".join(listed(names))
    shown = names[:limit]
    more = [f"{len(names) - len(shown)} more"] if len(names) > len(shown) else []
    return ", ".join((*shown, *more))


def calls_table(part: PartitionSummary, target: Target) -> RenderableType:
    """Return a table of a partition's kernel calls with their modelled costs. For calls that use less than half of the
    multipliers, the reasons follow below the table."""
    title = f"{part.heading}: {plural(len(part.report.operators), 'kernel call')}, modelled"
    return Group(Text(title, "bold"), calls_of(part, target), *_idle_lines(part))


def calls_of(part: PartitionSummary, target: Target) -> Table:
    """Return a table of a partition's kernel calls with their modelled costs.

    Calls that repeat are shown once, below a row with the sums of all repeats (``repeats.blocks``). ``used`` is the share of the multipliers at
    work. ``parallel`` is the dimension that is divided among the pipelines. ``bound by`` is the bottleneck: dispatch, memory or compute.
    ``stripes`` is the number of stripes in which the operator is computed.
    """
    calls = part.report.operators
    names = [part.title(item.name) for item in calls]
    facts = [(item.kernel, item.on_cpu, item.output, item.macs, item.cycles, item.stripes) for item in calls]
    rows: list[_CallRow] = []
    for block in blocks(names, facts):
        if block.times > 1:
            rows.append(_CallRow.of_all(block, [calls[place] for place in block.all_items], target))
        indent = "  " if block.times > 1 else ""
        rows += [_CallRow.of(f"{indent}{names[place]}", calls[place], target) for place in block.shown_items]
    share = part.report.cycles
    columns = [
        Column("operator", [row.name for row in rows], names=True),
        right("times", [row.times for row in rows]) if any(row.times for row in rows) else None,
        Column("kernel", [row.kernel for row in rows], style="cyan"),
        Column("on", [row.place for row in rows]) if CPU.upper() in {row.place for row in rows} else None,
        Column("output", [row.output for row in rows], goes=4),
        right("MACs", [row.macs or None for row in rows], goes=5, text=count_text),
        right("cycles", [row.cycles for row in rows]),
        right("time", [row.time for row in rows]),
        Column("hangs on", [row.hangs_on for row in rows], goes=7),
        right("share", [row.cycles / share for row in rows], goes=3, text=_share),
        right("used", [row.used for row in rows], goes=1, text=_share),
        Column("parallel", [row.parallel for row in rows], goes=6),
        Column("bound by", [row.bottleneck for row in rows], goes=2),
        right("stripes", [row.stripes for row in rows]) if any(item.stripes > 1 for item in calls) else None,
    ]
    return Table(tuple(column for column in columns if column is not None))


@dataclass(frozen=True, slots=True)
class _CallRow:
    """A row in the table of kernel calls: one call, or the sum over all calls of a block that is repeated ``times``
    times."""

    name: str
    times: int | None
    kernel: str
    place: str
    output: str
    macs: int
    cycles: int
    time: str
    hangs_on: str
    used: float | None
    parallel: str
    bottleneck: str
    stripes: str

    @classmethod
    def of(cls, name: str, call: OperatorReport, target: Target) -> _CallRow:
        """Return the row of a call."""
        found = call.estimate(target)
        return cls(
            name=name,
            times=None,
            kernel=call.kernel,
            place=(CPU if call.on_cpu else NPU).upper(),
            output="x".join(map(str, call.output)),
            macs=call.macs,
            cycles=call.cycles,
            time=range_text(found.milliseconds, *found.expected),
            hangs_on=found.fact,
            used=call.utilisation if call.macs else None,
            parallel=call.parallel.removeprefix("output "),
            bottleneck=call.bottleneck,
            stripes=str(call.stripes),
        )

    @classmethod
    def of_all(cls, block: Block, calls: Sequence[OperatorReport], target: Target) -> _CallRow:
        """Return the row of repeated calls, with the sums of their figures."""
        found = estimate(total(call.work for call in calls), target)
        return cls(
            name=f"{block.title}, each:",
            times=block.times,
            kernel="",
            place="",
            output="",
            macs=sum(call.macs for call in calls),
            cycles=sum(call.cycles for call in calls),
            time=range_text(found.milliseconds, *found.expected),
            hangs_on=found.fact,
            used=None,
            parallel="",
            bottleneck="",
            stripes="",
        )


def _idle_lines(part: PartitionSummary) -> list[RenderableType]:
    """Return the reasons for idle multipliers, each followed by the names of its operators; an empty list if there are
    none."""
    reasons: dict[str, Counter[str]] = {}
    for item in part.report.operators:
        for loss in item.losses:
            reasons.setdefault(loss.text, Counter())[short_name(part.title(item.name))] += 1
    if not reasons:
        return []
    lines: list[RenderableType] = [Text("Less than half of the multipliers at work", "bold")]
    for reason, names in reasons.items():
        counted = [f"{name} {count} times" if count > 1 else name for name, count in names.items()]
        lines += [Padding(f"{reason}:", (0, 0, 0, 2)), Padding(", ".join(listed(counted)), (0, 0, 0, 4))]
    return lines


def explanation(summary: Summary, memory: bool, advice: Sequence[Advice] = ()) -> RenderableType:
    """Return the text of ``openneutron explain``: the summary, the kernel calls of each partition, the kernel calls
    that the host core makes, and all operators on the CPU. With ``memory`` it has each partition's memory map too."""
    parts: list[RenderableType] = [summary_table(summary, with_cpu=False, advice=advice)]
    for part in summary.partitions:
        parts += ["", calls_table(part, summary.target)]
        if memory:
            parts += ["", memory_table(part)]
    if summary.cpu_calls:
        parts += ["", cpu_calls_table(summary)]
    if summary.on_cpu:
        parts += ["", on_cpu_table(summary.on_cpu, target=summary.target)]
    return Group(*parts)


def cpu_calls_table(summary: Summary) -> RenderableType:
    """Return a table of the kernel calls of the programs that the host core makes, with a row for each reason."""
    reasons: dict[str, list[str]] = {}
    for part in summary.partitions:
        for item in part.report.cpu_calls:
            reasons.setdefault(item.on_cpu, []).append(short_name(part.title(item.name)))
    columns = (
        right("calls", [len(names) for names in reasons.values()]),
        Column(
            "name", [", ".join(listed(dict.fromkeys(names))) for names in reasons.values()], wraps=True, most=NAME_WIDTH
        ),
        Column("why", [f"{reason}." for reason in reasons], wraps=True),
    )
    return Group(Text("On the CPU, in the program", "bold"), Table(columns, gap=4))


def passes_table(passes: Sequence[Explained]) -> RenderableType:
    """Return a table of the compiler's passes over a partition. For each pass it has the calls that the pass made, or
    the causes for which it made none."""
    columns = [
        Column("pass", [each.row.name for each in passes], style="cyan"),
        Column("family", [each.row.family.value for each in passes]),
        Column("lists", [each.row.group.value for each in passes]),
        Column("result", [str(each) for each in passes], wraps=True),
    ]
    return Group(Text("Passes over kernel calls", "bold"), Table(tuple(columns)))


def copies_text(summary: Summary) -> str:
    """Return the time of copies of constants in words; an empty string without copies.

    If the SRAM does not hold the weights, it is the time to copy them from flash. If the chip copies in the background, the text has the
    time of the copy engine and the part of it that kernels wait for. Otherwise kernels wait for each copy. The text then has the time of
    the copies, and the latency if the driver's port (its code for one chip) copied in the background.
    """
    if not summary.weights_fit:
        copies = summary.latency.parts()["copies"]
        taken = range_text(copies.milliseconds, *copies.expected)
        there = size_text(int(summary.target.sram.value * 1024))
        return f"{taken} from flash: the chip's {there} of SRAM do not hold weights and run together"
    if summary.target.copies_in_background and summary.partitions:
        engine = sum(part.report.engine_cycles for part in summary.partitions)
        if not engine:
            return ""
        busy, waits = (_scaled_text(summary, item) for item in (engine, summary.copy_cycles))
        return f"{busy} in parallel to the kernels, which wait {waits} for them"
    if not summary.copy_cycles:
        return ""
    taken, hidden = (_scaled_text(summary, item) for item in (summary.copy_cycles, summary.overlapped_cycles))
    return f"{taken} from flash; a latency of {hidden} with a port that copies in the background"


def _scaled_text(summary: Summary, cycles: float) -> str:
    """Return the time of ``cycles`` of the cost model in words, with the range of the latency in the same ratio."""
    time = summary.in_milliseconds(cycles)
    return range_text(time, *(time * bound / summary.milliseconds for bound in summary.band))


def traffic_text(summary: Summary) -> str:
    """Return the bytes that an inference copies between external memory and the memory of the NPU, in words; an empty
    string for a chip without such memories."""
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


CHART_WIDTH = 32
"""The width of the chart of live ranges, in characters."""

_TILE = re.compile(r"(.+)([<>])[\d ]*")
"""The pattern of names of tiles' buffers (compiler/search/tiles/streams.py): the name of the tensor, and ``<`` for a
load or ``>`` for a store."""


@dataclass(frozen=True, slots=True)
class MappedBuffer:
    """A buffer at addresses ``offset`` to ``offset + size_bytes`` of a region of a partition's memory. ``region`` is
    the region's name; empty: the first region. The buffer is live in steps ``first`` to ``last``; an output is live
    after the last step too.

    ``is_constant`` marks copied constants of the kernel call ``title``. A rolling buffer holds ``rows_held`` of the
    ``rows`` of its tensor; both are 0 for other buffers.
    """

    title: str
    offset: int
    size_bytes: int
    first: int
    last: int
    rows_held: int = 0
    rows: int = 0
    is_constant: bool = False
    region: str = ""


def mapped_buffers(part: PartitionSummary) -> Iterator[MappedBuffer]:
    """Yield the buffers of a partition. Tensors and tiles come first, then copied constants, which are live from their
    copy to their last use."""
    steps = part.report.steps
    for item in part.report.memory:
        live = max(item.first, 0), item.last
        held = item.rows_held, item.rows
        title = _title(part, item.name)
        yield MappedBuffer(title, item.offset, item.size_bytes, *live, *held, region=item.region)
    for place, step in enumerate(steps):
        if step.size_bytes:
            (call,) = step.calls
            readers = (
                later
                for later, other in enumerate(steps)
                if later > place and call in other.calls and not other.size_bytes
            )
            title = part.title(part.report.operators[call].name)
            yield MappedBuffer(
                title, step.offset, step.size_bytes, place, max(readers, default=place), is_constant=True
            )


def _title(part: PartitionSummary, name: str) -> str:
    found = _TILE.fullmatch(name) if part.report.moved_bytes else None
    return part.title(name) if found is None else f"{part.title(found[1])} ({'load' if found[2] == '<' else 'store'})"


def memory_table(part: PartitionSummary) -> RenderableType:
    """Return a table of a partition's buffers by address. A bar shows the steps in which a buffer is live: ``#`` for
    live, ``.`` for others."""
    report = part.report
    order = list(dict.fromkeys(item.region for item in report.memory))
    buffers = sorted(
        mapped_buffers(part), key=lambda item: (order.index(item.region or order[0]), item.offset, item.first)
    )
    steps = max((item.last for item in report.memory), default=0) + 1
    sizes = report.arena_bytes, report.prefetch_bytes, report.far_bytes
    arena = " + ".join(size_text(size) for size in (sizes if len(order) > 1 else sizes[:1]) if size)
    title = Text(f"{part.heading}: arena of {arena}, {_placement(report)}", "bold")
    lives = [(item.first, item.last) for item in buffers]
    columns = (
        *([Column("region", [item.region for item in buffers])] if len(order) > 1 else ()),
        Column("address", [f"0x{item.offset:06x}" for item in buffers], style="cyan"),
        right("bytes", [item.size_bytes for item in buffers]),
        Column(
            "buffer", [f"{item.title} (constants)" if item.is_constant else item.title for item in buffers], names=True
        ),
        right("steps", [f"{first}-{last}" for first, last in lives], goes=1),
        Column(f"0 to {steps - 1}", [_bar(first, last, steps) for first, last in lives]),
    )
    return Group(title, Table(columns))


def _placement(report: Report) -> str:
    """Return the difference between the arena's size and its lower bound, in words."""
    if report.arena_bytes == report.bound_bytes:
        return "the lower bound of these buffers"
    above = f"{size_text(report.arena_bytes - report.bound_bytes)} above"
    if report.fetched_bytes:
        return f"{above} the lower bound of {size_text(report.bound_bytes)} without constants"
    return f"{above} the bound of {size_text(report.bound_bytes)}"


def _bar(first: int, last: int, steps: int) -> str:
    width = min(steps, CHART_WIDTH)
    start, stop = first * width // steps, last * width // steps
    return "." * start + "#" * (stop - start + 1) + "." * (width - stop - 1)
