# SPDX-License-Identifier: BSD-3-Clause
"""The accuracy of a model's results and of their parts, which every compile measures on a few calibration samples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from openneutron.device.timings import step
from openneutron.features.accuracy.analysis import difference, power, usable
from openneutron.features.accuracy.report import decibels
from openneutron.features.report.outputs import CHANNELS, OutputAccuracy, PartAccuracy
from openneutron.pytorch.graph.joins import Join, Moved, Piece, Tree, exchanged, move_of, pieces_of, shape_of, tree_of
from openneutron.pytorch.graph.program import depends_on_data, model_name
from openneutron.pytorch.partition.delegation import macs
from openneutron.pytorch.quantizer.observers import Seen, is_alike
from openneutron.pytorch.source.exporting import SAMPLES, ModelInputs, Run

MOST_MACS = 400_000_000
"""A limit on the multiply-accumulates of all float runs, which determines the number of samples. Without it, a large
network would spend a larger share of its compile on these runs."""

MOST_PARTS = 16
"""A result with more parts than this is measured only as a whole."""

LEAST_VALUES = 64
"""Channels are compared only if each has at least this many values over the samples."""

MOST_CHANNELS, MOST_GROUPS = 128, 4


def measured(real: GraphModule, quantized: GraphModule, samples: Sequence[ModelInputs]) -> tuple[OutputAccuracy, ...]:
    """Return the accuracy of the float results of a quantized module against its float twin, on the first samples.

    The tuple is empty without samples, and if the quantized module fails on a sample; for example, an index that is
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
    """Return the accuracy of each operand if a concatenation computes the result. Otherwise return that of groups of
    channels with different ranges. The tuple is empty if there are no such parts, or more than ``MOST_PARTS``
    operands."""
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
    kinds of parts, such as the boxes and scores of each level of a detector, these inner parts are the parts.
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
    """Yield the accuracy of groups of neighbouring channels with similar ranges. Yield nothing if no axis has between 2
    and ``MOST_GROUPS`` groups."""
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
    """Return groups of neighbouring channels that can share one scale, each as its first channel and the channel after
    its last. It is one group if all channels can share a scale. The search stops after more than ``MOST_GROUPS``
    groups."""
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
