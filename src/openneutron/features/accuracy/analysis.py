# SPDX-License-Identifier: BSD-3-Clause
"""The noise of each layer over samples, and the report that ranks the layers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from openneutron.device.data import Sample
from openneutron.device.timings import advance, step
from openneutron.features.accuracy.lanes import Lanes, State
from openneutron.features.accuracy.npu_tensors import Layer
from openneutron.features.accuracy.report import AccuracyReport, LayerAccuracy, MetricMean, WorstChannel, decibels
from openneutron.features.evaluation.metrics import Metric, usual
from openneutron.features.evaluation.metrics import metric as metric_of
from openneutron.pytorch.quantizer.observers import LARGEST_SIGNAL
from openneutron.pytorch.source.exporting import ModelInputs

RESULT_SAMPLES = 4
"""The number of samples for which the model's results are computed with only one layer quantized, for each layer. This takes about
half a float run for each layer and sample. Other figures use all samples."""


@dataclass(slots=True, eq=False)
class Analysis:
    """The sums of signal and noise of all layers and of the model's results, to which samples are added one by one."""

    lanes: Lanes
    sums: dict[Layer, Sums] = field(init=False, repr=False)
    samples: int = 0
    signal: float = 0.0
    noise: float = 0.0
    metric: Metric | None = None
    scores: tuple[float, float] = (0.0, 0.0)
    """The sums of the metric over the samples, in float and on the NPU."""
    first_signal: float = 0.0
    """The signal of the first ``RESULT_SAMPLES`` samples."""
    states: tuple[State, State] = field(init=False, repr=False)
    """The states of the float model and of the quantized model before the next sample."""

    def __post_init__(self) -> None:
        self.sums = {layer: Sums() for layer in self.lanes.layers}
        self.states = self.lanes.twins.state, self.lanes.twins.state

    def copy(self) -> Analysis:
        """Return a copy of the sums. Samples that are added to the copy do not change this object."""
        made = copy(self)
        made.sums = {layer: copy(found) for layer, found in self.sums.items()}
        return made

    def add(self, call: ModelInputs, sample: Sample | None = None) -> None:
        """Run one sample in float, with only one layer quantized, for each layer, and as in the compiled program, and add its signal
        and noise. ``sample`` is passed to the metric.

        Raises InvalidOptionError where the metric does not take the sample.
        """
        lanes = self.lanes
        before, state = self.states
        real, after = lanes.float_values(call, before)
        wanted = lanes.float_results(real)
        signal = sum(power(usable(item)) for item in wanted)
        first = self.samples < RESULT_SAMPLES
        self.first_signal += signal if first else 0.0
        for layer in lanes.layers:
            self.sums[layer].see(layer, real[layer.source.name])
        for layer, value, passed in lanes.alone(real, before):
            self.sums[layer].local += power(difference(real[layer.source.name], value))
            own = difference(passed, value)
            self.sums[layer].own(layer, own)
            if first and bool(own.any()):
                self.sums[layer].at_results += noise_of(wanted, lanes.with_noise(real, layer, own))
        accumulated, found, state = lanes.accumulated(call, state)
        self.states = after, state
        for layer in lanes.layers:
            noise = difference(real[layer.source.name], accumulated[layer.quantize])
            self.sums[layer].accumulated += power(noise)
        self.signal += signal
        self.noise += noise_of(wanted, found)
        self.samples += 1
        if self.metric is not None and sample is not None:
            real_score, npu_score = (self.metric.score(_arrays(side), sample) for side in (wanted, found))
            self.scores = self.scores[0] + real_score, self.scores[1] + npu_score

    def report(self, target: str, complete: bool = True) -> AccuracyReport:
        """Return the report of the samples that were added."""
        layers = rows(self.lanes.layers, self.sums, self.lanes.on_npu, self.first_signal)
        metric = self.metric
        mean = None
        if metric is not None and self.samples:
            real, npu = (score / self.samples for score in self.scores)
            mean = MetricMean(metric.name, real, npu, metric.is_share)
        result = decibels(self.signal, self.noise)
        return AccuracyReport(self.lanes.twins.name, target, self.samples, result, layers, mean, complete)


def _arrays(results: Sequence[torch.Tensor]) -> list[np.ndarray]:
    return [item.detach().numpy() for item in results]


def noise_of(wanted: Sequence[torch.Tensor], found: Sequence[torch.Tensor]) -> float:
    """Return the sum of squares of the differences between a model's results. Indices and booleans are not counted."""
    pairs = zip(wanted, found, strict=True)
    return sum(power(difference(one, other)) for one, other in pairs if one.is_floating_point())


def analysed(
    lanes: Lanes,
    calls: Iterable[tuple[ModelInputs, Sample | None]],
    target: str,
    total: int = 0,
    metric: Metric | None = None,
) -> AccuracyReport:
    """Return the accuracy of all layers over the samples. ``total`` is the number of samples, for the display of
    progress. Without ``metric``, the default metric for the first sample's label is measured.

    An interrupt ends the analysis; the report then covers the samples before it.
    """
    analysis = Analysis(lanes)
    complete = True
    with step("Comparing layers", max(total, 1)):
        try:
            for done, (call, sample) in enumerate(calls, 1):
                more = analysis.copy()
                if done == 1:
                    name = None if sample is None else usual(sample.label)
                    more.metric = metric or (None if name is None else metric_of(name))
                more.add(call, sample)
                analysis = more
                advance(done, max(done, total))
        except KeyboardInterrupt:
            if not analysis.samples:
                raise
            complete = False
    return analysis.report(target, complete)


@dataclass(slots=True, eq=False)
class Sums:
    """The sums of one layer over samples, and the ranges of its float values."""

    signal: float = 0.0
    local: float = 0.0
    accumulated: float = 0.0
    at_results: float = 0.0
    """The noise at the model's results with only this layer quantized, over the first ``RESULT_SAMPLES`` samples."""
    values: int = 0
    saturated: int = 0
    low: float = math.inf
    high: float = -math.inf
    noise_by_channel: torch.Tensor | None = field(default=None, repr=False)
    saturated_by_channel: torch.Tensor | None = field(default=None, repr=False)

    def see(self, layer: Layer, real: torch.Tensor) -> None:
        """Add the float values of a sample: their signal, their range, and the values outside of the layer's range."""
        low, high = layer.bounds
        half = layer.scale / 2
        kept = usable(real)
        outside = (kept < low - half) | (kept > high + half)
        self.signal += power(kept)
        self.values += kept.numel()
        self.saturated += int(outside.sum())
        if kept.numel():
            self.low, self.high = min(self.low, float(kept.min())), max(self.high, float(kept.max()))
        axis = layer.channel_axis
        if axis is not None:
            counted = outside.to(torch.float64).sum(_others(kept, axis))
            before = self.saturated_by_channel
            self.saturated_by_channel = counted if before is None else before + counted

    def own(self, layer: Layer, noise: torch.Tensor) -> None:
        """Add the noise of only this layer, by channel."""
        axis = layer.channel_axis
        if axis is not None:
            counted = noise.double().square().sum(_others(noise, axis))
            before = self.noise_by_channel
            self.noise_by_channel = counted if before is None else before + counted

    def worst(self) -> WorstChannel | None:
        """Return the channel with the most noise; None where there is no noise or only one channel."""
        noise, saturated = self.noise_by_channel, self.saturated_by_channel
        if noise is None or saturated is None or noise.numel() < 2 or not float(noise.sum()):
            return None
        channel = int(noise.argmax())
        each = self.values / noise.numel()
        return WorstChannel(channel, float(noise[channel] / noise.sum()), float(saturated[channel]) / max(1.0, each))


def _others(tensor: torch.Tensor, axis: int) -> tuple[int, ...]:
    return tuple(other for other in range(tensor.dim()) if other != axis)


def usable(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor with zeros for infinities and for values beyond ``LARGEST_SIGNAL``, such as the fillers of masks.
    These carry no signal."""
    tensor = torch.nan_to_num(tensor.detach(), 0.0, 0.0, 0.0)
    return torch.where(tensor.abs() <= LARGEST_SIGNAL, tensor, torch.zeros(()))


def power(tensor: torch.Tensor) -> float:
    """Return the sum of squares of a tensor's values."""
    return float(torch.linalg.vector_norm(tensor.double()).square()) if tensor.numel() else 0.0


def difference(real: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Return the noise in ``other``: its difference from the float values, and zero where the float value is infinite
    or a filler."""
    real = real.detach()
    known = real.isfinite() & (real.abs() <= LARGEST_SIGNAL)
    return torch.where(known, torch.nan_to_num(other) - torch.nan_to_num(real), torch.zeros(()))


def rows(
    layers: Sequence[Layer], sums: Mapping[Any, Sums], on_npu: set[Any], signal: float
) -> tuple[LayerAccuracy, ...]:
    """Return the accuracy of the layers, the layer with the most noise at the model's results first. ``signal`` is the
    signal of the results over the samples of ``Sums.at_results``."""
    whole = sum(found.at_results for found in sums.values())
    made = []
    for layer in layers:
        found = sums[layer]
        made.append(
            LayerAccuracy(
                name=layer.name,
                node=layer.lead.name,
                operator=layer.operator,
                on_npu=layer.quantize in on_npu,
                scale=layer.scale,
                zero_point=layer.zero_point,
                local_db=decibels(found.signal, found.local),
                accumulated_db=decibels(found.signal, found.accumulated),
                result_db=decibels(signal, found.at_results),
                noise_share=found.at_results / whole if whole else 0.0,
                saturated=found.saturated / found.values if found.values else 0.0,
                calibrated=layer.bounds,
                seen=(found.low, found.high) if found.values else (0.0, 0.0),
                worst_channel=found.worst(),
            )
        )
    made.sort(key=lambda item: (-item.noise_share, math.inf if item.local_db is None else item.local_db))
    return tuple(made)
