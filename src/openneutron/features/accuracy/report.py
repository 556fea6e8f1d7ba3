# SPDX-License-Identifier: BSD-3-Clause
"""The accuracy of each layer, and the measures that a repair chose, as data and as tables."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from openneutron.features.report.table import Table, right

if TYPE_CHECKING:
    from openneutron.features.accuracy.boxes import BoxAgreement

WIDTH = 200
"""The width of the report as text, in characters."""

SHOWN = 20
"""The number of layers in the table by default."""


@dataclass(frozen=True, slots=True)
class WorstChannel:
    """The channel with the largest share of a layer's own noise, ``noise_share``. ``saturated`` is the share of the
    channel's values that are outside of the layer's range."""

    channel: int
    noise_share: float
    saturated: float


@dataclass(frozen=True, slots=True)
class LayerAccuracy:
    """The noise that quantization adds to a tensor. All ratios are signal to noise against the float model, in dB; None
    if there is no noise.

    For ``local_db`` only this layer is quantized: its inputs are the float model's values after quantization. For
    ``accumulated_db`` all layers before it are quantized too, and values are those of the NPU where ``on_npu``.
    ``result_db`` is the ratio at the model's results if only this layer's weights and result are quantized, measured on
    the first samples. ``noise_share`` is the layer's share of the sum of this noise over all layers.

    ``saturated`` is the share of float values that are outside of the representable range ``calibrated``. ``seen`` is
    the range of the float values.
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
    """The mean of a metric over the samples, in float and on the NPU. ``is_share`` states that the metric is between 0
    and 1."""

    name: str
    real: float
    npu: float
    is_share: bool

    def to_dict(self) -> dict[str, Any]:
        """Return the means as data for JSON."""
        return {"name": self.name, "float": self.real, "npu": self.npu}


@dataclass(frozen=True, slots=True)
class AccuracyReport:
    """The accuracy of a model by layer, the most costly layer first. ``result_db`` is the ratio of signal to noise at
    the model's results on the NPU.

    ``metric`` is None if there are neither labels nor a metric of the user's. ``complete`` is False if the analysis was
    interrupted. ``has_float_weights`` is False for a model that was quantized already. Both sides then have quantized
    weights, and the noise is only that of activations. ``boxes`` is None if the model is no detector of Ultralytics.
    """

    model: str
    target: str
    samples: int
    result_db: float | None
    layers: tuple[LayerAccuracy, ...] = field(repr=False)
    metric: MetricMean | None = None
    complete: bool = True
    has_float_weights: bool = True
    boxes: BoxAgreement | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the report as data for JSON."""
        return {
            **{item.name: getattr(self, item.name) for item in fields(self)},
            "boxes": None if self.boxes is None else self.boxes.to_dict(),
            "metric": None if self.metric is None else self.metric.to_dict(),
            "layers": [layer.to_dict() for layer in self.layers],
        }

    def summary(self, shown: int | None = SHOWN) -> str:
        """Return the report as text. ``shown`` is the number of layers to show; None shows all."""
        from openneutron.features.report.text import plain

        return plain(accuracy_table(self, shown), WIDTH)


def decibels(signal: float, noise: float) -> float | None:
    """Return the ratio of signal to noise in dB, at least -300; None without noise, or with infinite noise."""
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
    """Return the table of a report with a row for each of ``shown`` layers, the most costly layer first."""
    count = f"{report.samples} sample{'' if report.samples == 1 else 's'}"
    count += "" if report.complete else " until the interrupt"
    real = "float" if report.has_float_weights else "float activations"
    title = Text(
        f"{report.model}: {_db(report.result_db)} dB at its results, int8 on {report.target} against {real}, {count}",
        "bold",
    )
    rows = [
        (
            layer.name if layer.on_npu else f"{layer.name} (CPU)",
            _percent(layer.noise_share),
            _db(layer.result_db),
            _db(layer.local_db),
            _db(layer.accumulated_db),
            _percent(layer.saturated),
            _range(layer.calibrated),
            _range(layer.seen),
            ""
            if (worst := layer.worst_channel) is None
            else f"{worst.channel} ({100 * worst.noise_share:.0f}% of the noise)",
        )
        for layer in report.layers[:shown]
    ]
    numbers = map(right, ("noise", "result dB", "local dB", "all dB", "saturated"))
    table = Table.of_rows(("layer", *numbers, "range", "seen", "worst channel"), rows)
    parts: list[RenderableType] = [title]
    if report.metric is not None:
        real, npu = (
            _percent(value) if report.metric.is_share else f"{value:.6g}"
            for value in (report.metric.real, report.metric.npu)
        )
        parts.append(f"{report.metric.name}: {real} in float, {npu} on the NPU")
    if report.boxes is not None:
        parts.append(f"boxes: {report.boxes}")
    parts.append(table)
    hidden = len(report.layers) - len(report.layers[:shown])
    if hidden:
        parts.append(f"{hidden} more layers cost less; --all shows them, --json has them too.")
    return Group(*parts)


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a compiled model: its estimated latency with its range, the SRAM of a run, the size of the file, and the
    multiply-accumulates on the CPU."""

    cycles: int
    milliseconds: float
    expected_milliseconds: tuple[float, ...]
    sram_bytes: int
    file_bytes: int
    cpu_macs: int


@dataclass(frozen=True, slots=True)
class Chosen:
    """A change of the quantization options that the search has chosen. ``before_db`` and ``after_db`` are the
    signal-to-noise ratios at the model's results before and after it. PyTorch computes them, whereas those of
    RepairReport are measured on the simulated NPU. ``cost`` is the cost of the model with this and all earlier
    changes; None for a change that costs nothing at run time."""

    measure: str
    before_db: float
    after_db: float
    cost: Cost | None = None


@dataclass(frozen=True, slots=True)
class RepairReport:
    """The result of a search for measures, which are changes of the quantization options. ``chosen`` has the measures
    that reach the ratio ``target_db``, or come as near as possible. ``quantization`` has the entries of the
    quantization file with all of them.

    ``before_db`` and ``after_db`` are the ratios of signal to noise on the NPU without and with the measures.
    ``tried`` is the number of sets of measures that were tried. ``complete`` is False if the search was interrupted.
    """

    model: str
    target: str
    target_db: float
    before_db: float
    after_db: float
    chosen: tuple[Chosen, ...]
    before: Cost
    after: Cost
    quantization: Mapping[str, Any]
    tried: int
    complete: bool = field(default=True)

    @property
    def is_reached(self) -> bool:
        return self.after_db >= self.target_db

    @property
    def shortfall(self) -> str | None:
        """Return a message about a target that was not reached, with the ratio that was reached; None if the target is
        reached."""
        if self.is_reached:
            return None
        if not self.chosen:
            return (
                f"'{self.model}': its results have {self.before_db:.1f} dB, and no measure gains anything; the target is {self.target_db:g} "
                "dB. Train the model with quantization simulated (train_fn), or leave more of it to the CPU."
            )
        return (
            f"'{self.model}': its results have {self.after_db:.1f} dB with all measures that gain; the target is {self.target_db:g} dB. "
            "Train the model with quantization simulated (train_fn), or accept what is reached."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the report as data for JSON."""
        return {**asdict(self), "is_reached": self.is_reached}

    def summary(self) -> str:
        """Return the report as text."""
        from openneutron.features.report.text import plain

        return plain(repair_table(self))


def repair_table(report: RepairReport) -> RenderableType:
    """Return the table of a repair with a row for each measure, in the order in which the measures were chosen."""
    from openneutron.features.report.table import range_text, size_text

    reached = "reached" if report.is_reached else "not reached"
    measures = f"with these measures {report.after_db:.1f} dB" if report.chosen else "without a measure"
    title = f"{report.model}: {report.before_db:.1f} dB, {measures}; target {report.target_db:g} dB {reached}"
    rows = []
    for item in report.chosen:
        cost = item.cost
        costs = ("0", "0", "0")
        if cost is not None:
            costs = (
                f"{100 * (cost.milliseconds / report.before.milliseconds - 1):+.1f} %"
                if report.before.milliseconds
                else "",
                f"{'-' if cost.sram_bytes < report.before.sram_bytes else '+'}"
                f"{size_text(abs(cost.sram_bytes - report.before.sram_bytes))}",
                f"{cost.cpu_macs - report.before.cpu_macs:+,}",
            )
        rows.append((item.measure, f"{item.after_db - item.before_db:+.1f} dB", f"{item.after_db:.1f}", *costs))
    table = Table.of_rows(("measure", *map(right, ("gain", "dB", "time", "SRAM", "CPU MACs"))), rows)
    before, after = report.before, report.after
    whole = (
        f"Costs of the whole: {range_text(before.milliseconds, *before.expected_milliseconds)} before, "
        f"{range_text(after.milliseconds, *after.expected_milliseconds)} after, {size_text(before.sram_bytes)} to "
        f"{size_text(after.sram_bytes)} of SRAM, file {size_text(before.file_bytes)} to {size_text(after.file_bytes)}, "
        f"{after.cpu_macs:,} MACs on the CPU."
    )
    parts: list[RenderableType] = [Text(title, "bold")]
    if report.chosen:
        parts += [table, whole]
    tried = "1 set of measures was tried" if report.tried == 1 else f"{report.tried} sets of measures were tried"
    parts.append(f"{tried}{'' if report.complete else ' until the interrupt'}.")
    return Group(*parts)
