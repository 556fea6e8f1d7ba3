# SPDX-License-Identifier: BSD-3-Clause
"""The accuracy of each layer over samples."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass, field

import numpy as np
import torch

from openneutron.device.data import Sample
from openneutron.device.timings import advance, step
from openneutron.features.accuracy.lanes import Lanes, State
from openneutron.features.accuracy.report import AccuracyReport, MetricMean, decibels
from openneutron.features.accuracy.statistics import Sums, difference, power, rows, usable
from openneutron.features.accuracy.twins import Layer
from openneutron.features.evaluation.metrics import Metric, usual
from openneutron.features.evaluation.metrics import metric as metric_of
from openneutron.pytorch.source.exporting import ModelInputs

RESULT_SAMPLES = 4
"""Samples whose results are computed with each layer alone quantized. It takes half a float run for each layer and sample; other
figures take all samples."""


@dataclass(slots=True, eq=False)
class Analysis:
    """The sums of all layers, sample by sample."""

    lanes: Lanes
    sums: dict[Layer, Sums] = field(init=False, repr=False)
    samples: int = 0
    signal: float = 0.0
    noise: float = 0.0
    metric: Metric | None = None
    scores: tuple[float, float] = (0.0, 0.0)
    """The sums of the metric, in float and on the NPU."""
    first_signal: float = 0.0
    """The signal of the first samples, whose results are computed with each layer alone quantized."""
    states: tuple[State, State] = field(init=False, repr=False)
    """The states before the next sample, in float and in int8."""

    def __post_init__(self) -> None:
        self.sums = {layer: Sums() for layer in self.lanes.layers}
        self.states = self.lanes.twins.state, self.lanes.twins.state

    def copy(self) -> Analysis:
        """Return the same sums, to which a sample can be added."""
        made = copy(self)
        made.sums = {layer: copy(found) for layer, found in self.sums.items()}
        return made

    def add(self, call: ModelInputs, sample: Sample | None = None) -> None:
        """Run one sample in all ways. ``sample`` is that of the metric.

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
        """Return the figures."""
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
    """Return the noise of a model's results. Indices and booleans have none."""
    pairs = zip(wanted, found, strict=True)
    return sum(power(difference(one, other)) for one, other in pairs if one.is_floating_point())


def analysed(
    lanes: Lanes,
    calls: Iterable[tuple[ModelInputs, Sample | None]],
    target: str,
    total: int = 0,
    metric: Metric | None = None,
) -> AccuracyReport:
    """Return the accuracy of all layers over the samples; ``total`` is their number, for progress. Without a metric, that of the
    first sample's label is taken.

    An interrupt ends the comparison; the figures are then those of the samples before it.
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
