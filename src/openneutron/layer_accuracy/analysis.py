# SPDX-License-Identifier: BSD-3-Clause
"""The accuracy of each layer over samples."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import torch

from openneutron.data.samples import Label
from openneutron.layer_accuracy.lanes import Lanes
from openneutron.layer_accuracy.statistics import Sums, difference, power, rows, usable
from openneutron.layer_accuracy.twins import Layer
from openneutron.pytorch.source.exporting import ModelInputs
from openneutron.report.accuracy import AccuracyReport, TopOne, decibels
from openneutron.timings import advance, step

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
    labelled: int = 0
    right: tuple[int, int] = (0, 0)
    """The labelled samples whose largest result is that of the label, in float and on the NPU."""
    first_signal: float = 0.0
    """The signal of the first samples, whose results are computed with each layer alone quantized."""

    def __post_init__(self) -> None:
        self.sums = {layer: Sums() for layer in self.lanes.layers}

    def add(self, call: ModelInputs, label: Label = None) -> None:
        """Run one sample in all ways."""
        lanes = self.lanes
        real = lanes.float_values(call)
        wanted = lanes.float_results(real)
        signal = sum(power(usable(item)) for item in wanted)
        first = self.samples < RESULT_SAMPLES
        self.first_signal += signal if first else 0.0
        for layer in lanes.layers:
            self.sums[layer].see(layer, real[layer.source.name])
        for layer, value, passed in lanes.alone(real):
            self.sums[layer].local += power(difference(real[layer.source.name], value))
            own = difference(passed, value)
            self.sums[layer].own(layer, own)
            if first and bool(own.any()):
                self.sums[layer].at_results += noise_of(wanted, lanes.with_noise(real, layer, own))
        accumulated, found = lanes.accumulated(call)
        for layer in lanes.layers:
            noise = difference(real[layer.source.name], accumulated[layer.quantize])
            self.sums[layer].accumulated += power(noise)
        self.signal += signal
        self.noise += noise_of(wanted, found)
        self.samples += 1
        if isinstance(label, int):
            self.labelled += 1
            self.right = self.right[0] + _is_right(wanted, label), self.right[1] + _is_right(found, label)

    def report(self, target: str) -> AccuracyReport:
        """Return the figures."""
        layers = rows(self.lanes.layers, self.sums, self.lanes.on_npu, self.first_signal)
        top = None if not self.labelled else TopOne(self.right[0] / self.labelled, self.right[1] / self.labelled)
        result = decibels(self.signal, self.noise)
        return AccuracyReport(self.lanes.twins.name, target, self.samples, result, layers, top)


def _is_right(results: Sequence[torch.Tensor], label: int) -> bool:
    return int(results[0].reshape(-1).argmax()) == label


def noise_of(wanted: Sequence[torch.Tensor], found: Sequence[torch.Tensor]) -> float:
    """Return the noise of a model's results. Indices and booleans have none."""
    pairs = zip(wanted, found, strict=True)
    return sum(power(difference(one, other)) for one, other in pairs if one.is_floating_point())


def analysed(lanes: Lanes, calls: Iterable[tuple[ModelInputs, Label]], target: str, total: int = 0) -> AccuracyReport:
    """Return the accuracy of all layers over the samples; ``total`` is their number, for progress."""
    analysis = Analysis(lanes)
    with step("Comparing layers", max(total, 1)):
        for done, (call, label) in enumerate(calls, 1):
            analysis.add(call, label)
            advance(done, max(done, total))
    return analysis.report(target)
