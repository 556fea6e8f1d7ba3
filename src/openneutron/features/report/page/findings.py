# SPDX-License-Identifier: BSD-3-Clause
"""Findings of a report: where latency or accuracy is lost, and how much."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from html import escape

from openneutron.compiler.cost.losses import DISPATCH, Cause
from openneutron.features.report.page.data import Layer, ReportData, Row
from openneutron.features.report.table import short_name
from openneutron.features.report.units import plural

MOST = 10
"""The largest number of findings about time in a report."""

WORTH_CYCLES = 0.02
"""Lost time is a finding from this share of the latency."""

LOW_DB = 20.0
"""The accuracy of a layer is a finding if its signal-to-quantization-noise ratio is lower than this, in dB."""

NAMED = 3
"""The number of layers that a finding names."""


def findings(data: ReportData) -> tuple[Row, ...]:
    """Return the findings about time, the largest loss first, and after them the findings about accuracy."""
    found = [*_idle(data), *_dispatch(data), *_stripes(data), *_cpu_calls(data)]
    found.sort(key=lambda item: -item[0])
    return tuple(Row(title, text) for _, title, text in found[:MOST]) + tuple(_accuracy(data))


def view(data: ReportData) -> str:
    """Return the findings as HTML."""
    rows = data.section("findings")
    items = "".join(f"<li><strong>{escape(item.label)}</strong>{escape(item.text)}</li>" for item in rows)
    return f'<ul class="advice">{items}</ul>'


Finding = tuple[int, str, str]
"""A finding about time: the lost cycles, a title and a text."""


def _share(data: ReportData, cycles: float) -> str:
    return f"{100 * cycles / data.figures.modelled_cycles:.0f}%"


def _is_worth(data: ReportData, cycles: float) -> bool:
    return cycles >= WORTH_CYCLES * max(data.figures.modelled_cycles, 1)


def _names(layers: list[Layer]) -> str:
    """Return the names of the slowest layers and the number of the remaining ones. Kernel calls of one module have one
    name, which is listed once with their number."""
    calls = Counter(layer.name for layer in sorted(layers, key=lambda layer: -layer.cycles))
    first = list(calls.items())[:NAMED]
    names = ", ".join(f"'{short_name(name)}'" + (f" {count} times" if count > 1 else "") for name, count in first)
    more = len(layers) - sum(count for _, count in first)
    return names + (f" and {more} more" if more else "")


def _idle(data: ReportData) -> Iterator[Finding]:
    groups: dict[tuple[Cause, str], list[Layer]] = defaultdict(list)
    for layer in data.layers:
        for loss in layer.losses[:1]:
            groups[loss.cause, loss.text].append(layer)
    for (cause, reason), layers in groups.items():
        lost = int(sum(layer.compute_cycles * (1 - layer.utilisation) for layer in layers))
        taken = sum(layer.cycles for layer in layers)
        if cause is Cause.DISPATCH or not _is_worth(data, lost):
            continue
        yield (
            lost,
            f"{reason[0].upper()}{reason[1:]}",
            f"{plural(len(layers), 'layer')} ({_names(layers)}) {'takes' if len(layers) == 1 else 'take'} "
            f"{_share(data, taken)} of the latency and {'uses' if len(layers) == 1 else 'use'} less than half of the multipliers.",
        )


def _dispatch(data: ReportData) -> Iterator[Finding]:
    small = [layer for layer in data.layers if layer.stripes == 1 and layer.bottleneck == DISPATCH and not layer.on_cpu]
    taken = sum(layer.dispatch_cycles for layer in small)
    if _is_worth(data, taken):
        yield (
            taken,
            "Small layers",
            f"The dispatch of {plural(len(small), 'layer')} takes longer than the work of {'it' if len(small) == 1 else 'each'} "
            f"({_names(small)}): {_share(data, taken)} of the latency.",
        )


def _stripes(data: ReportData) -> Iterator[Finding]:
    striped = [layer for layer in data.layers if layer.stripes > 1]
    more = sum(layer.dispatch_cycles - layer.dispatch_cycles // layer.stripes for layer in striped)
    if striped and _is_worth(data, more):
        runs = sum(layer.stripes for layer in striped)
        yield (
            more,
            "Stripes",
            f"{plural(len(striped), 'layer')} in {runs:,} stripes save memory and take {_share(data, more)} of the latency for more dispatch.",
        )


def _cpu_calls(data: ReportData) -> Iterator[Finding]:
    beside: dict[str, list[Layer]] = defaultdict(list)
    for layer in data.layers:
        if layer.on_cpu:
            beside[layer.on_cpu].append(layer)
    for reason, layers in beside.items():
        taken = sum(layer.cycles for layer in layers)
        if _is_worth(data, taken):
            yield (
                taken,
                "Kernel calls on the host core",
                f"{plural(len(layers), 'layer')} ({_names(layers)}) {'takes' if len(layers) == 1 else 'take'} "
                f"{_share(data, taken)} of the latency on the CPU, in the program: {reason}.",
            )


def _accuracy(data: ReportData) -> Iterator[Row]:
    known = [item for item in data.accuracy if item.local_db is not None and item.local_db < LOW_DB]
    for item in sorted(known, key=lambda item: item.local_db or 0.0)[:NAMED]:
        yield Row(
            f"Accuracy of '{short_name(item.name)}'",
            f"Quantized alone, it has a signal-to-quantization-noise ratio of {item.local_db:.1f} dB.",
        )
