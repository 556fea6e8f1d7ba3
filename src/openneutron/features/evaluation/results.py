# SPDX-License-Identifier: BSD-3-Clause
"""The results of an evaluation: those of each side and of each pair of sides, and their tables."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from openneutron.features.evaluation.job import TITLES
from openneutron.features.evaluation.metrics import MAP, Metric, Scored
from openneutron.features.evaluation.samples import Record
from openneutron.features.report.table import Column, Table, duration_text, plural, right

WORST = 5
"""The number of classes that a table shows."""

TAKEN_FOR = 3
"""The number of wrong predictions that a table shows for each class."""


@dataclass(frozen=True, slots=True)
class SideResult:
    """The result of a side (the model in float, in int8, or on the NPU) over all samples. ``metric`` is the mean of
    the metric; None without a metric.

    ``right`` is the number of samples whose metric is 1, for metrics between 0 and 1; None for other metrics.
    ``seconds`` is the time of all samples, which differs from run to run. For the metric ``map``, ``metric`` is the
    mean average precision, averaged over the thresholds 0.50 to 0.95 of the intersection over union (IoU).
    ``metric_at_50`` is that at the threshold 0.50; it is None for other metrics.
    """

    side: str
    metric: float | None
    right: int | None
    seconds: float = field(compare=False)
    metric_at_50: float | None = None


@dataclass(frozen=True, slots=True)
class PairResult:
    """The comparison of two sides (forms of the model: float, int8 or NPU) over all samples.

    ``agreeing`` is the number of samples for which the first outputs of both sides have the largest value at the same
    index. It is None if the first output of some sample is not one row of values. ``identical`` is the number of
    samples with equal outputs. ``sqnr_db`` is the ratio of the first side's energy to that of the differences, in dB;
    None if there is no difference, or no signal.
    """

    sides: tuple[str, str]
    agreeing: int | None
    identical: int
    sqnr_db: float | None


@dataclass(frozen=True, slots=True)
class ClassResult:
    """The result of a class. ``samples`` is the number of its samples. ``right`` has for each side (form of the
    model) the number of these samples that it classifies correctly.

    ``taken_for`` has the wrong classes that the last side finds most often for samples of this class, at most
    ``TAKEN_FOR``. Each has the number of its samples, and the most frequent class is first.
    """

    name: str
    samples: int
    right: tuple[int, ...]
    taken_for: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The result of ``openneutron.evaluate``.

    ``worst`` has the classes with the lowest share of samples that the last side classifies correctly; it is empty if
    labels are not classes, or if all samples are classified correctly. ``notes`` has sentences about data that was left out. ``complete`` is False after an
    interrupt; ``samples`` is then the number of samples that were finished before it. Times are ignored when two
    evaluations are compared.

    >>> Evaluation("net", "imxrt700", "digits.npz", 2, None, (), ()).metric is None
    True
    """

    model: str
    target: str
    data: str
    samples: int
    metric: str | None
    sides: tuple[SideResult, ...]
    pairs: tuple[PairResult, ...]
    worst: tuple[ClassResult, ...] = ()
    notes: tuple[str, ...] = ()
    wall_seconds: float = field(default=0.0, compare=False)
    complete: bool = True

    def side(self, name: str) -> SideResult | None:
        """Return the result of a side: ``float``, ``int8`` or ``npu``; None where it was left out."""
        return next((item for item in self.sides if item.side == name), None)

    def summary(self) -> str:
        """Return the results as text."""
        from openneutron.features.report.text import plain

        return plain(evaluation_table(self))

    def to_dict(self) -> dict[str, Any]:
        """Return the results as values for JSON. Only ``timings`` differ from run to run."""
        return {
            "model": self.model,
            "target": self.target,
            "data": self.data,
            "samples": self.samples,
            "complete": self.complete,
            "metric": self.metric,
            "sides": [
                {
                    "side": item.side,
                    "title": TITLES[item.side],
                    "metric": item.metric,
                    "right": item.right,
                    "metric_at_50": item.metric_at_50,
                }
                for item in self.sides
            ],
            "pairs": [{**asdict(item), "sides": list(item.sides)} for item in self.pairs],
            "worst_classes": [
                {
                    "class": item.name,
                    "samples": item.samples,
                    "right": {side.side: count for side, count in zip(self.sides, item.right, strict=True)},
                    "taken_for": [{"class": name, "samples": count} for name, count in item.taken_for],
                }
                for item in self.worst
            ],
            "notes": list(self.notes),
            "timings": {
                "wall_seconds": self.wall_seconds,
                "sides": {item.side: item.seconds for item in self.sides},
            },
        }


def side_results(sides: Sequence[str], records: Sequence[Record], metric: Metric | None) -> tuple[SideResult, ...]:
    """Return the result of each side. Sums are exact (``math.fsum``)."""
    found = []
    for place, name in enumerate(sides):
        items = [record.sides[place] for record in records]
        seconds = math.fsum(item.seconds for item in items)
        if metric is not None and metric.precision is not None:
            scored = [item.score for item in items if isinstance(item.score, Scored)]
            mean_precision, at_50 = metric.precision.mean(scored)
            found.append(SideResult(name, mean_precision, None, seconds, at_50))
            continue
        scores = [item.score for item in items if isinstance(item.score, float)]
        mean = math.fsum(scores) / len(scores) if scores else None
        right = sum(score == 1 for score in scores) if scores and metric is not None and metric.is_share else None
        found.append(SideResult(name, mean, right, seconds))
    return tuple(found)


def pair_results(
    sides: Sequence[str], pairs: Sequence[tuple[int, int]], records: Sequence[Record]
) -> tuple[PairResult, ...]:
    """Return the comparison of each pair of sides."""
    found = []
    for place, (one, other) in enumerate(pairs):
        items = [record.pairs[place] for record in records]
        rows = [(record.sides[one].found, record.sides[other].found) for record in records]
        whole = all(first is not None and second is not None for first, second in rows)
        noise = math.fsum(item.noise for item in items)
        signal = math.fsum(item.signal for item in items)
        sqnr = 10 * math.log10(signal / noise) if noise > 0 and signal > 0 else None
        found.append(
            PairResult(
                (sides[one], sides[other]),
                sum(first == second for first, second in rows) if whole else None,
                sum(item.identical for item in items),
                sqnr,
            )
        )
    return tuple(found)


def worst_classes(records: Sequence[Record], classes: Sequence[str]) -> tuple[ClassResult, ...]:
    """Return up to ``WORST`` classes with the lowest share of samples that the last side classifies correctly, the
    lowest first. Classes without an error are omitted. ``classes`` are the names of the classes by number."""
    labels = Counter(record.label for record in records if record.label is not None)
    taken: dict[int, Counter[int]] = {label: Counter() for label in labels}
    right = {label: [0] * len(records[0].sides) for label in labels}
    for record in records:
        if record.label is None or any(side.found is None for side in record.sides):
            continue
        for place, side in enumerate(record.sides):
            right[record.label][place] += side.found == record.label
        last = record.sides[-1].found
        if last is not None and last != record.label:
            taken[record.label][last] += 1

    def name(label: int) -> str:
        return classes[label] if 0 <= label < len(classes) else str(label)

    found = []
    for label in sorted(taken, key=lambda label: (right[label][-1] / labels[label], label)):
        others = sorted(taken[label].items(), key=lambda item: (-item[1], item[0]))
        if others:
            listed = tuple((name(other), count) for other, count in others[:TAKEN_FOR])
            found.append(ClassResult(name(label), labels[label], tuple(right[label]), listed))
    return tuple(found[:WORST])


def evaluation_table(evaluation: Evaluation) -> RenderableType:
    """Return the tables of an evaluation: the sides, the pairs of sides, the worst classes, and the notes."""
    title = Text.assemble(
        (evaluation.model, "bold"),
        f" for {evaluation.target} on {evaluation.data}: {plural(evaluation.samples, 'sample')}",
        "" if evaluation.complete else " until the interrupt",
    )
    parts: list[RenderableType] = [title, "", _sides(evaluation)]
    if evaluation.pairs:
        parts += ["", _pairs(evaluation)]
    if evaluation.worst:
        parts += ["", _worst(evaluation)]
    if evaluation.notes:
        parts += ["", *(Text(f"note: {note}") for note in evaluation.notes)]
    return Group(*parts)


def metric_text(side: SideResult) -> str:
    """Return a side's metric as text. Mean average precision has four decimals. A metric for which samples count as
    right or wrong is in per cent. Other metrics have six significant digits. Without a metric, return an empty
    string."""
    if side.metric is None:
        return ""
    if side.metric_at_50 is not None:
        return _share(side.metric)
    return f"{side.metric:.6g}" if side.right is None else f"{100 * side.metric:.2f} %"


def sqnr_text(pair: PairResult, samples: int) -> str:
    """Return the ratio of signal to noise as text: in dB, or why there is none: equal results, or a signal of zeros."""
    if pair.sqnr_db is not None:
        return f"{pair.sqnr_db:.1f} dB"
    return "no difference" if pair.identical == samples else "no signal"


def _sides(evaluation: Evaluation) -> Table:
    count, sides = evaluation.samples, evaluation.sides
    title = "mAP50-95" if evaluation.metric == MAP else str(evaluation.metric)
    with_metric, with_right = evaluation.metric is not None, any(item.right is not None for item in sides)
    columns = (
        Column("side", [TITLES[item.side] for item in sides], style="cyan", wraps=True),
        right(title, [metric_text(item) for item in sides], style="bold", is_shown=with_metric),
        right("mAP50", [_share(item.metric_at_50) for item in sides], is_shown=evaluation.metric == MAP),
        right("right", [f"{item.right} of {count}" for item in sides], is_shown=with_right),
        right("a sample, this computer", [duration_text(1e3 * item.seconds / count) for item in sides]),
    )
    return Table(columns)


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _pairs(evaluation: Evaluation) -> Table:
    count, pairs = evaluation.samples, evaluation.pairs
    agreeing = ["" if pair.agreeing is None else f"{pair.agreeing} of {count}" for pair in pairs]
    names = [", ".join(TITLES[side] for side in pair.sides) for pair in pairs]
    columns = (
        Column("compared", names, style="cyan", wraps=True),
        right("same class", agreeing, is_shown=any(agreeing)),
        right("same bytes", [f"{pair.identical} of {count}" for pair in pairs]),
        right("SQNR", [sqnr_text(pair, count) for pair in pairs]),
    )
    return Table(columns)


def _worst(evaluation: Evaluation) -> Table:
    sides = [f"right, {side.side}" for side in evaluation.sides]
    last = f"taken for, {evaluation.sides[-1].side}"
    columns = (
        Column("worst classes", style="cyan", wraps=True),
        *map(right, ("samples", *sides)),
        Column(last, wraps=True),
    )
    return Table.of_rows(
        columns, [(item.name, str(item.samples), *map(str, item.right), _taken(item)) for item in evaluation.worst]
    )


def _taken(item: ClassResult) -> str:
    return ", ".join(f"{name} ({count})" for name, count in item.taken_for)
