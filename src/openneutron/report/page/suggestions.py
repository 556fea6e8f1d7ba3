# SPDX-License-Identifier: BSD-3-Clause
"""Changes to try next, each computed from the data of a report."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence

from openneutron.compiler.cost.cycles import VALUES
from openneutron.report.fitted import short_name
from openneutron.report.page.data import Layer, ParetoPoint, ReportData, Suggestion
from openneutron.report.units import duration_text, plural, size_text

MOST = 10
"""The number of suggestions in a report."""

WORTH_CYCLES = 0.02
"""The share of all cycles from which a suggestion is made."""

WORTH_BYTES = 0.1
"""The share of the SRAM from which a smaller budget is suggested."""

LOW_DB = 20.0
"""The signal-to-quantization-noise ratio below which a layer is suggested to stay float."""

AT_THE_END = 0.1
"""The share of the layers behind one that is at the end of the model."""

NAMED = 3
"""The layers that a suggestion names."""


def suggestions(data: ReportData) -> tuple[Suggestion, ...]:
    """Return the suggestions, those about most cycles first, then those about memory alone."""
    found = [item for rule in RULES for item in rule(data)]
    found.sort(key=lambda item: (-item.cycles, -item.bytes))
    return tuple(found[:MOST])


def _share(data: ReportData, cycles: float) -> str:
    return f"{100 * cycles / data.figures.modelled_cycles:.0f}%"


def _is_worth(data: ReportData, cycles: float) -> bool:
    return cycles >= WORTH_CYCLES * max(data.figures.modelled_cycles, 1)


def _names(layers: list[Layer]) -> str:
    """Return the names of the slowest layers. Several kernel calls of one module have one name, which is there once."""
    calls = Counter(layer.name for layer in sorted(layers, key=lambda layer: -layer.cycles))
    first = list(calls.items())[:NAMED]
    names = ", ".join(f"'{short_name(name)}'" + (f" {count} times" if count > 1 else "") for name, count in first)
    more = len(layers) - sum(count for _, count in first)
    return names + (f" and {more} more" if more else "")


def _of_functions(data: ReportData) -> Iterator[Suggestion]:
    for index, layer in enumerate(data.layers):
        if layer.parallel not in ("nothing", VALUES) or not _is_worth(data, layer.cycles):
            continue
        taken = (
            f"{layer.kernel} over {max(layer.output[-1], 1):,} values takes {_share(data, layer.cycles)} of the time, "
            f"{duration_text(data.milliseconds(layer.cycles))}."
        )
        if len(data.layers) - 1 - index <= AT_THE_END * len(data.layers):
            title = f"Leave '{short_name(layer.name)}' to the CPU"
            advice = "At the end of the model, the host may compute it: --operators-not-to-delegate."
        else:
            title = f"Make the {layer.kernel} of '{short_name(layer.name)}' smaller"
            advice = "On the CPU it would part the delegate call; fewer values, or another function, take less time."
        yield Suggestion(title, f"{taken} {advice}", cycles=layer.cycles)


def _idle(data: ReportData) -> Iterator[Suggestion]:
    groups: dict[str, list[Layer]] = defaultdict(list)
    for layer in data.layers:
        for reason in filter(None, layer.idle.split("; ")[:1]):
            groups[reason].append(layer)
    for reason, layers in groups.items():
        lost = int(sum(layer.compute_cycles * (1 - layer.utilisation) for layer in layers))
        taken = sum(layer.cycles for layer in layers)
        if reason.startswith("issuing") or not _is_worth(data, lost):
            continue
        yield Suggestion(
            f"{reason[0].upper()}{reason[1:]}",
            f"{plural(len(layers), 'layer')} ({_names(layers)}) {'takes' if len(layers) == 1 else 'take'} "
            f"{_share(data, taken)} of the time and {'uses' if len(layers) == 1 else 'use'} less than half of the multipliers. "
            f"{_remedy(data, reason)}".rstrip(),
            cycles=lost,
        )


def _remedy(data: ReportData, reason: str) -> str:
    """Return what helps against idle multipliers; empty where nothing in the model does."""
    if reason.startswith("a depthwise"):
        return "A dense convolution with few channels may be as fast; try one where the channels are few."
    if "fill" in reason:
        lanes = data.target.macs if reason.endswith("multipliers") else data.target.pipelines
        return f"Counts up to the next multiple of {lanes} cost nothing more: use that, or fewer." if lanes else ""
    if "stripes" in reason or "more than once" in reason:
        return "A larger SRAM budget lets more rows be computed at once."
    return ""


def _dispatch(data: ReportData) -> Iterator[Suggestion]:
    more, text = _stripes(data)
    if text and not data.pareto:
        yield Suggestion("Give the model more SRAM", f"{text} `openneutron pareto` shows the budgets.", cycles=more)
    small = [layer for layer in data.layers if layer.stripes == 1 and layer.bottleneck == "issue"]
    taken = sum(layer.dispatch_cycles for layer in small)
    if _is_worth(data, taken):
        yield Suggestion(
            "Merge small layers",
            f"The dispatch of {plural(len(small), 'layer')} takes longer than the work of {'it' if len(small) == 1 else 'each'} "
            f"({_names(small)}): {duration_text(data.milliseconds(taken))}, {_share(data, taken)} of the time. Fewer, larger "
            "layers are faster.",
            cycles=taken,
        )


def _stripes(data: ReportData) -> tuple[int, str]:
    """Return the cycles that stripes add, and a sentence about them; no sentence where they are few."""
    striped = [layer for layer in data.layers if layer.stripes > 1]
    more = sum(layer.dispatch_cycles - layer.dispatch_cycles // layer.stripes for layer in striped)
    if not striped or not _is_worth(data, more):
        return more, ""
    runs = sum(layer.stripes for layer in striped)
    text = (
        f"{plural(len(striped), 'layer')} in {runs:,} stripes save memory and take {duration_text(data.milliseconds(more))} "
        f"more for dispatch, {_share(data, more)} of the time."
    )
    return more, text


def _copies(data: ReportData) -> Iterator[Suggestion]:
    figures = data.figures
    if not figures.weights_fit_sram:
        yield Suggestion(
            "Copy weights while the NPU computes",
            f"The chip's {size_text(data.target.sram_bytes)} of SRAM do not hold the weights and the run together, so copies from "
            f"flash take {_share(data, figures.copy_cycles)} of the time. Compile with --prefetch-constants.",
            cycles=figures.copy_cycles,
        )
    hidden = figures.modelled_cycles - figures.overlapped_cycles
    if figures.weights_fit_sram and _is_worth(data, hidden):
        yield Suggestion(
            "Use a port that copies in the background",
            f"Copies of constants take {duration_text(data.milliseconds(figures.copy_cycles))}; a port that copies while the NPU "
            f"computes hides {duration_text(data.milliseconds(hidden))} of it, {_share(data, hidden)} of the time.",
            cycles=hidden,
        )


def _budgets(data: ReportData) -> Iterator[Suggestion]:
    now = data.figures.overlapped_cycles
    there = data.figures.peak_sram_bytes
    points = sorted(data.pareto, key=lambda point: point.sram_bytes)
    faster = [point for point in points if point.cycles < 0.98 * now and point.sram_bytes <= data.target.sram_bytes]
    if faster:
        best = min(faster, key=lambda point: (point.cycles, point.sram_bytes))
        point = _knee(faster, best, now, there)
        texts = [
            _stripes(data)[1],
            f"With --sram-budget {_kib(point)} a run takes {_percent(now, point)} less time: "
            f"{duration_text(point.milliseconds)} instead of {duration_text(data.milliseconds(now))}.",
        ]
        if point.sram_bytes < best.sram_bytes:
            texts.append(f"{_kib(best)} KiB give the fastest schedule, {duration_text(best.milliseconds)}.")
        title, text = f"Raise the budget to {_kib(point)} KiB", " ".join(filter(None, texts))
        yield Suggestion(title, text, cycles=now - point.cycles, bytes=point.sram_bytes - there)
    smaller = [point for point in points if point.sram_bytes < (1 - WORTH_BYTES) * there]
    cheap = [point for point in smaller if point.cycles <= 1.1 * now]
    if cheap:
        point = cheap[0]
        yield Suggestion(
            f"Lower the budget to {_kib(point)} KiB",
            f"{_setter(data)}--sram-budget {_kib(point)} takes {size_text(there - point.sram_bytes)} less SRAM and costs "
            f"{_cost(now, point)}.",
            bytes=there - point.sram_bytes,
        )


def _knee(points: Sequence[ParetoPoint], best: ParetoPoint, cycles: int, size: int) -> ParetoPoint:
    """Return the knee of the curve from a schedule of ``cycles`` and ``size`` bytes to the fastest one: the point with the most
    time saved for its memory, both in parts of what the fastest one takes (Satopaa et al., Finding a "Kneedle" in a Haystack, 2011)."""

    def gain(point: ParetoPoint) -> float:
        return (cycles - point.cycles) / (cycles - best.cycles) - (point.sram_bytes - size) / (best.sram_bytes - size)

    return max(points, key=gain) if best.sram_bytes > size else best


def _setter(data: ReportData) -> str:
    """Return a sentence that names the layers of the step with the most live bytes."""
    peak = max(data.peaks, key=lambda item: item.live_bytes, default=None)
    steps = [step for step in data.steps if peak is not None and step.partition == peak.partition]
    if peak is None or peak.step >= len(steps) or not steps[peak.step].layers:
        return ""
    layers = [data.layers[index] for index in steps[peak.step].layers]
    return f"{_names(layers)} {'sets' if len(layers) == 1 else 'set'} the peak of memory. "


def _cost(now: int, point: ParetoPoint) -> str:
    return "no time" if point.cycles <= now else f"{100 * (point.cycles / now - 1):.1f}% more time"


def _percent(now: int, point: ParetoPoint) -> str:
    return f"{100 * (1 - point.cycles / now):.0f}%"


def _kib(point: ParetoPoint) -> int:
    return -(-point.sram_bytes // 1024)


def _io_place(data: ReportData) -> Iterator[Suggestion]:
    largest = max(data.partitions, key=lambda part: part.sram_bytes, default=None)
    if largest is not None and largest.other_io_sram_bytes < largest.sram_bytes:
        saved = largest.sram_bytes - largest.other_io_sram_bytes
        inside = largest.sram_bytes == largest.arena_bytes + largest.prefetch_bytes
        place = "caller" if inside else "arena"
        yield Suggestion(
            f"Place inputs and outputs with --io-place {place}",
            f"The same schedule takes {size_text(saved)} less SRAM with inputs and outputs "
            f"{'in buffers of the caller' if inside else 'inside the arena'}.",
            bytes=saved,
        )


def _fallbacks(data: ReportData) -> Iterator[Suggestion]:
    for item in data.fallbacks:
        parts = item.calls is not None and item.calls_without is not None and item.calls > item.calls_without > 0
        if not parts and not item.macs:
            continue
        costs = []
        if parts:
            costs.append(f"parts {plural(item.calls_without or 0, 'delegate call')} into {item.calls}")
        if item.border_bytes:
            costs.append(f"moves {size_text(item.border_bytes)} between NPU and CPU in each run")
        if item.macs:
            costs.append(f"leaves {item.macs:,} multiply-accumulates to the CPU")
        advice = f" {item.suggestion}" if item.suggestion else ""
        yield Suggestion(
            f"Bring {item.operator} to the NPU",
            f"'{short_name(item.name)}' {' and '.join(costs)}: {item.reason}.{advice}",
            cycles=item.macs,
            bytes=item.border_bytes or 0,
        )


def _accuracy(data: ReportData) -> Iterator[Suggestion]:
    known = [item for item in data.accuracy if item.local_db is not None and item.local_db < LOW_DB]
    for item in sorted(known, key=lambda item: item.local_db or 0.0)[:NAMED]:
        yield Suggestion(
            f"Quantize '{short_name(item.name)}' with care",
            f"Quantized alone, it has a signal-to-quantization-noise ratio of {item.local_db:.1f} dB. Calibrate on typical "
            "inputs, or keep it float with --keep-float.",
        )


RULES: tuple[Callable[[ReportData], Iterator[Suggestion]], ...] = (
    _of_functions,
    _idle,
    _dispatch,
    _copies,
    _budgets,
    _io_place,
    _fallbacks,
    _accuracy,
)
"""One function for each kind of suggestion."""
