# SPDX-License-Identifier: BSD-3-Clause
"""The accuracy of each layer as data and as a table."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

WIDTH = 200
"""The columns of the report as text."""

SHOWN = 20
"""Layers in the table, unless more are asked for."""


@dataclass(frozen=True, slots=True)
class WorstChannel:
    """The channel with the largest share of a layer's own noise. ``saturated`` is the share of its values outside of the range."""

    channel: int
    noise_share: float
    saturated: float


@dataclass(frozen=True, slots=True)
class LayerAccuracy:
    """The noise that quantization adds to a tensor; all ratios are signal to noise, in dB, against the float model.

    ``local_db``: the layer alone is quantized, its inputs have float values that were quantized. ``accumulated_db``: all before
    it is quantized too, on the NPU where ``on_npu``. ``result_db``: the ratio at the model's results where this layer's weights and
    result alone are quantized, of the first samples. ``noise_share``: the layer's share of the sum of such noise over all layers.
    None instead of a ratio: no noise at all.
    ``saturated``: the share of float values outside of the range. ``calibrated`` is the representable range, ``seen`` that of the
    float values.
    """

    name: str
    node: str
    operator: str
    on_npu: bool
    scale: float
    zero_point: int
    local_db: float | None
    accumulated_db: float | None
    result_db: float | None
    noise_share: float
    saturated: float
    calibrated: tuple[float, float]
    seen: tuple[float, float]
    worst_channel: WorstChannel | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as data for JSON."""
        return {**asdict(self), "calibrated": list(self.calibrated), "seen": list(self.seen)}


@dataclass(frozen=True, slots=True)
class MetricMean:
    """The mean of a metric over the samples, in float and on the NPU. ``is_share``: its values are between 0 and 1."""

    name: str
    real: float
    npu: float
    is_share: bool

    def to_dict(self) -> dict[str, Any]:
        """Return the means as data for JSON."""
        return {"name": self.name, "float": self.real, "npu": self.npu}


@dataclass(frozen=True, slots=True)
class AccuracyReport:
    """The accuracy of a model by layer, those that cost most first. ``result_db`` is that of the model's results on the NPU.

    ``metric`` is None without labels and without a metric of the user. ``complete`` is False where the comparison was interrupted.
    ``has_float_weights`` is False for a model that was quantized already: the noise is that of activations alone.
    """

    model: str
    target: str
    samples: int
    result_db: float | None
    layers: tuple[LayerAccuracy, ...] = field(repr=False)
    metric: MetricMean | None = None
    complete: bool = True
    has_float_weights: bool = True

    def to_dict(self) -> dict[str, Any]:
        """Return the report as data for JSON."""
        return {
            "model": self.model,
            "target": self.target,
            "samples": self.samples,
            "complete": self.complete,
            "has_float_weights": self.has_float_weights,
            "result_db": self.result_db,
            "metric": None if self.metric is None else self.metric.to_dict(),
            "layers": [layer.to_dict() for layer in self.layers],
        }

    def summary(self, shown: int | None = SHOWN) -> str:
        """Return the report as text, with this many layers; None: all."""
        from openneutron.features.report.text import plain

        return plain(accuracy_table(self, shown), WIDTH)


def decibels(signal: float, noise: float) -> float | None:
    """Return a ratio of powers in dB, at least -300; None without noise."""
    if noise <= 0.0 or not math.isfinite(noise):
        return None
    return 10.0 * math.log10(max(signal / noise, 1e-30))


def _db(value: float | None) -> str:
    return "exact" if value is None else f"{value:.1f}"


def _percent(value: float) -> str:
    return f"{100 * value:.1f}%"


def _range(bounds: tuple[float, float]) -> str:
    return f"{bounds[0]:.4g} to {bounds[1]:.4g}"


def accuracy_table(report: AccuracyReport, shown: int | None = SHOWN) -> RenderableType:
    """Return a row for each layer, those that cost most first."""
    count = f"{report.samples} sample{'' if report.samples == 1 else 's'}"
    count += "" if report.complete else " until the interrupt"
    real = "float" if report.has_float_weights else "float activations"
    title = Text(
        f"{report.model}: {_db(report.result_db)} dB at its results, int8 on {report.target} against {real}, {count}",
        "bold",
    )
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    headings = ("layer", "noise", "result dB", "local dB", "all dB", "saturated", "range", "seen", "worst channel")
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="left" if number in (0, 6, 7, 8) else "right", no_wrap=True)
    for layer in report.layers[:shown]:
        worst = layer.worst_channel
        table.add_row(
            layer.name if layer.on_npu else f"{layer.name} (CPU)",
            _percent(layer.noise_share),
            _db(layer.result_db),
            _db(layer.local_db),
            _db(layer.accumulated_db),
            _percent(layer.saturated),
            _range(layer.calibrated),
            _range(layer.seen),
            "" if worst is None else f"{worst.channel} ({100 * worst.noise_share:.0f}% of the noise)",
        )
    parts: list[RenderableType] = [title]
    if report.metric is not None:
        real, npu = (
            _percent(value) if report.metric.is_share else f"{value:.6g}"
            for value in (report.metric.real, report.metric.npu)
        )
        parts.append(f"{report.metric.name}: {real} in float, {npu} on the NPU")
    parts.append(table)
    hidden = len(report.layers) - len(report.layers[:shown])
    if hidden:
        parts.append(f"{hidden} more layers cost less; --all shows them, --json has them too.")
    return Group(*parts)
