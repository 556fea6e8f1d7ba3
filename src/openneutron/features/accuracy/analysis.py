# SPDX-License-Identifier: BSD-3-Clause
"""The noise over samples: of each layer, with the report that ranks the layers, and of the results that every compile measures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from openneutron.device.data import Sample
from openneutron.device.timings import advance, step
from openneutron.features.accuracy.lanes import Lanes, State
from openneutron.features.accuracy.npu_tensors import Layer
from openneutron.features.accuracy.report import AccuracyReport, LayerAccuracy, MetricMean, WorstChannel, decibels
from openneutron.features.evaluation.metrics import Metric, usual
from openneutron.features.evaluation.metrics import metric as metric_of
from openneutron.features.report.outputs import CHANNELS, OutputAccuracy, PartAccuracy
from openneutron.pytorch.graph.joins import Join, Moved, Piece, Tree, exchanged, move_of, pieces_of, shape_of, tree_of
from openneutron.pytorch.graph.program import depends_on_data, model_name
from openneutron.pytorch.partition.delegation import macs
from openneutron.pytorch.quantizer.observers import LARGEST_SIGNAL, Seen, is_alike
from openneutron.pytorch.source.exporting import SAMPLES, ModelInputs, Run

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
        """Run one sample, and add its signal and noise to the sums. The sample is run in three ways: in float, with
        each layer quantized alone on its float inputs, and as in the compiled program. For the first
        ``RESULT_SAMPLES`` samples, the noise of each layer alone is also followed to the model's results.

        ``sample`` is passed to the metric. Raises InvalidOptionError if the metric does not accept the sample.
        """
        lanes = self.lanes
        before, state = self.states
        real, after = lanes.float_values(call, before)
        wanted = lanes.float_results(real)
        signal = signal_of(wanted)
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


def signal_of(wanted: Sequence[torch.Tensor]) -> float:
    """Return the sum of squares of a model's results. Indices and booleans are not counted, as in ``noise_of``."""
    return sum(power(usable(item)) for item in wanted if item.is_floating_point())


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
    progress. If ``metric`` is None, the label of the first sample decides which metric is measured. If this sample
    has no label, no metric is measured.

    An interrupt ends the analysis, and the report then covers the samples before it. An interrupt in the first sample
    is raised as KeyboardInterrupt.
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
    """Return a tensor with zeros for infinities, NaN, and values beyond ``LARGEST_SIGNAL``, such as the fillers of
    masks. These carry no signal."""
    tensor = torch.nan_to_num(tensor.detach(), 0.0, 0.0, 0.0)
    return torch.where(tensor.abs() <= LARGEST_SIGNAL, tensor, torch.zeros(()))


def power(tensor: torch.Tensor) -> float:
    """Return the sum of squares of a tensor's values."""
    return float(torch.linalg.vector_norm(tensor.double()).square()) if tensor.numel() else 0.0


def difference(real: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Return the noise in ``other``: its difference from the float values, and zero where the float value is
    infinite, NaN or a filler."""
    real = real.detach()
    known = real.isfinite() & (real.abs() <= LARGEST_SIGNAL)
    return torch.where(known, torch.nan_to_num(other) - torch.nan_to_num(real), torch.zeros(()))


def rows(
    layers: Sequence[Layer], sums: Mapping[Any, Sums], on_npu: set[Any], signal: float
) -> tuple[LayerAccuracy, ...]:
    """Return the accuracy of the layers, the layer with the most noise at the model's results first. ``signal`` is
    the sum of squares of the model's float results over the first ``RESULT_SAMPLES`` samples."""
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


MOST_MACS = 400_000_000
"""A limit on the multiply-accumulates of all float runs, which determines the number of samples. Without it, a large
network would spend a larger share of its compile on these runs."""

MOST_PARTS = 16
"""A result with more parts than this is measured only as a whole."""

LEAST_VALUES = 64
"""Channels are compared only if each has at least this many values over the samples."""

MOST_CHANNELS, MOST_GROUPS = 128, 4


def measured(real: GraphModule, quantized: GraphModule, samples: Sequence[ModelInputs]) -> tuple[OutputAccuracy, ...]:
    """Return the accuracy of each floating-point result of a quantized module against its float twin, on the first
    samples.

    The tuple is empty without samples, and if the quantized module fails on a sample. For example, an index that is
    computed from quantized values may be outside of its table. Each sample begins with the present state of the
    modules, which is not changed.
    """
    count = min(SAMPLES, len(samples))
    if count > 1:
        count = max(1, min(count, MOST_MACS // max(1, sum(macs(node) for node in real.graph.nodes))))
    runs = [(Run(real), Run(quantized)) for _ in samples[:count]]
    with step("Measuring the results"), torch.no_grad():
        try:
            both = [
                tuple(pytree.tree_leaves(run.of(call)) for run in pair)
                for pair, call in zip(runs, samples, strict=False)
            ]
        except (IndexError, RuntimeError):
            return ()
        nodes = pytree.tree_leaves(real.graph.output_node().args[0])
        return tuple(_measured(nodes, both))


def _measured(nodes: Sequence[Any], both: Sequence[tuple[list[Any], ...]]) -> Iterator[OutputAccuracy]:
    for index, node in enumerate(nodes):
        pairs = [(real[index], other[index]) for real, other in both]
        if not pairs or not all(isinstance(item, torch.Tensor) and item.is_floating_point() for item in pairs[0]):
            continue
        if depends_on_data(node) or any(wanted.shape != got.shape for wanted, got in pairs):
            continue  # values decide on the number of results
        whole = _Sums()
        for wanted, got in pairs:
            whole.add(wanted, got)
        parts = _parts_of(node, pairs) if isinstance(node, Node) else ()
        yield OutputAccuracy(index, len(pairs), whole.db, whole.is_constant, parts)


@dataclass(slots=True, eq=False)
class _Sums:
    """The signal, the noise and the ranges of values of a result or part, over the samples."""

    signal: float = 0.0
    noise: float = 0.0
    wanted: tuple[float, float] = (torch.inf, -torch.inf)
    got: tuple[float, float] = (torch.inf, -torch.inf)

    def add(self, wanted: torch.Tensor, got: torch.Tensor) -> None:
        """Add the values of a sample: ``wanted`` are float, ``got`` quantized."""
        if not wanted.numel():
            return
        self.signal += power(usable(wanted))
        self.noise += power(difference(wanted, got))
        self.wanted = _wider(self.wanted, usable(wanted))
        self.got = _wider(self.got, usable(got))

    @property
    def db(self) -> float | None:
        return decibels(self.signal, self.noise) if self.signal else None

    @property
    def is_constant(self) -> bool:
        """Return whether the quantized values are all equal although the float values vary."""
        return self.got[0] == self.got[1] and self.wanted[0] < self.wanted[1]


def _wider(bounds: tuple[float, float], tensor: torch.Tensor) -> tuple[float, float]:
    return min(bounds[0], float(tensor.min())), max(bounds[1], float(tensor.max()))


Pairs = Sequence[tuple[torch.Tensor, torch.Tensor]]


def _parts_of(node: Node, pairs: Pairs) -> tuple[PartAccuracy, ...]:
    """Return the accuracy of each part of a result. If a concatenation computes the result, the parts are its
    operands. Otherwise they are groups of channels with different ranges. The tuple is empty if there are no such
    parts, or more than ``MOST_PARTS`` operands."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or list(pairs[0][0].shape) != list(value.shape):
        return ()
    is_joined = bool(node.graph.find_nodes(op="call_function", target=torch.ops.aten.cat.default))
    tree = tree_of(node) if is_joined and shape_of(node) is not None else None
    if tree is None or isinstance(tree, Piece):
        return tuple(_of_channels(pairs))
    names, labels = _labelled(tree)
    if len(names) > MOST_PARTS:
        return ()
    found = []
    for number, name in enumerate(names):
        where = labels == number
        sums = _Sums()
        for wanted, got in pairs:
            sums.add(wanted[where], got[where])
        if bool(where.any()):
            found.append(PartAccuracy(name, _place(where), sums.db, sums.is_constant))
    return tuple(found) if len(found) > 1 else ()


def _labelled(tree: Tree) -> tuple[list[str], torch.Tensor]:
    """Return the names of the parts of a result, and a tensor with the number of the part of each element.

    The parts are the operands of the outermost concatenation. If each operand is itself a concatenation of the same
    kinds of values, such as the boxes and scores of each level of a detector, the parts are these kinds: all boxes
    and all scores.
    """
    if isinstance(tree, Moved):
        names, labels = _labelled(tree.inner)
        return names, tree.move.target(labels, *tree.move.args)
    assert isinstance(tree, Join)
    turned = exchanged(tree)
    join = turned if isinstance(turned, Join) else tree
    labels = [torch.full(piece.shape, number) for number, piece in enumerate(join.pieces)]
    return [_name(piece) for piece in join.pieces], torch.cat(labels, join.dim)


def _name(tree: Tree) -> str:
    """Return the name of the operator that computes a part."""
    node = next(pieces_of(tree)).node
    while move_of(node) is not None and isinstance(node.args[0], Node):
        node = node.args[0]
    return model_name(node)


def _place(where: torch.Tensor) -> str:
    """Return the index expression of a part in the result, such as ``[:, 4:9]``; an empty string if the part is no
    rectangular slice."""
    index = []
    taken = 1
    for dim, extent in enumerate(where.shape):
        others = [other for other in range(where.dim()) if other != dim]
        places = (where.any(others[0]) if len(others) == 1 else where.amax(others)) if others else where
        found = places.nonzero().flatten().tolist()
        first, last = found[0], found[-1] + 1
        taken *= last - first
        index.append(":" if (first, last) == (0, extent) else f"{first}:{last}")
    while index and index[-1] == ":":
        index.pop()
    return f"[{', '.join(index)}]" if taken == int(where.sum()) and index else ""


def _of_channels(pairs: Pairs) -> Iterator[PartAccuracy]:
    """Yield the accuracy of groups of neighbouring channels with similar ranges. The channels are those of axis 1 or
    of the last axis: the first of the two that has between 2 and ``MOST_GROUPS`` groups. Yield nothing if neither
    has, if the result has less than three axes, or if there are too many channels or too few values for a comparison."""
    shape = pairs[0][0].shape
    for axis in dict.fromkeys((1, len(shape) - 1)) if len(shape) > 2 else ():
        extent = shape[axis]
        if not 1 < extent <= MOST_CHANNELS or pairs[0][0].numel() * len(pairs) // extent < LEAST_VALUES:
            continue
        groups = _groups([Seen.of(wanted.select(axis, channel) for wanted, _ in pairs) for channel in range(extent)])
        if not 1 < len(groups) <= MOST_GROUPS:
            continue
        for first, last in groups:
            sums = _Sums()
            for wanted, got in pairs:
                sums.add(wanted.narrow(axis, first, last - first), got.narrow(axis, first, last - first))
            place = f"[{', '.join([':'] * axis + [f'{first}:{last}'])}]"
            yield PartAccuracy(CHANNELS, place, sums.db, sums.is_constant)
        return


def _groups(channels: Sequence[Seen]) -> list[tuple[int, int]]:
    """Return groups of neighbouring channels that can share one scale. Each group is its first channel and the
    channel after its last. There is one group if all channels can share a scale. The search ends with the first group
    above ``MOST_GROUPS``, so that the last channels may be missing."""
    if is_alike(channels):
        return [(0, len(channels))]
    groups = [(0, 1)]
    for place in range(1, len(channels)):
        first = groups[-1][0]
        if is_alike(channels[first : place + 1]):
            groups[-1] = (first, place + 1)
        else:
            groups.append((place, place + 1))
        if len(groups) > MOST_GROUPS:
            break
    return groups
