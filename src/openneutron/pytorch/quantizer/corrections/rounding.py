# SPDX-License-Identifier: BSD-3-Clause
"""Weights rounded up or down so that a layer's result is nearest to the float layer's, on samples.

The objective is that of AdaRound (Nagel et al., arXiv 2004.10568): each weight is rounded up or down, and the squared error of the layer's
result is the least, with the inputs as the quantized layers before it compute them. AdaRound relaxes the choice and trains it;
here each weight in turn takes the better of its two values while the others stay, until no weight changes. So the error falls
with each change, and no random number takes part.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.fx import Node
from torch.nn import functional

from openneutron.pytorch.graph.program import arguments_of
from openneutron.pytorch.graph.rewriting import constant_of
from openneutron.pytorch.quantizer.corrections.layer_by_layer import CONV_1D, LINEAR, LayerPair

MOST_POSITIONS = 1024
"""The positions of a sample's result that count, evenly spread over all."""

DAMPING = 0.01
"""The weight of the distance to the float weights, in parts of the mean energy of an input. Inputs that are zero in all samples
otherwise leave their weights free, and few samples determine many weights badly (as in GPTQ, arXiv 2210.17323)."""

LEAST_ENERGY = 1e-12
"""The least damping, where all inputs are zero."""

PASSES = 4
"""The most passes over all weights of a layer."""

BLOCK = 64
"""The weights whose changes are applied to the others at once. The result does not depend on the number, but for rounding."""


def round_weights(pair: LayerPair) -> None:
    """Round the weights of the quantized layer, in place. Weights that another layer reads too stay as they are."""
    operand = pair.node.args[1]
    stored = pair.stored(operand)
    weight = constant_of(pair.real, pair.twin.args[1])
    if stored is None or weight is None or weight.shape != stored.shape or not isinstance(operand, Node):
        return
    if len(pair.quantized.graph.find_nodes(op="get_attr", target=operand.args[0].target)) > 1:
        return
    groups = arguments_of(pair.node).get("groups", 1)
    energy, wanted = _sums(pair, groups)
    scales = pair.scales(operand).reshape(-1, *[1] * (weight.dim() - 1)).expand(weight.shape[0], *weight.shape[1:])
    low, high = (int(bound) for bound in operand.args[-3:-1])

    def by_group(tensor: torch.Tensor) -> torch.Tensor:
        """Return [group, weight of an output, output]."""
        return tensor.double().reshape(groups, tensor.shape[0] // groups, -1).mT

    exact = by_group(weight) / by_group(scales)
    ends = exact.floor().clamp(low, high), exact.ceil().clamp(low, high)
    found = nearest(energy, wanted, by_group(stored), by_group(weight), by_group(scales), ends)
    pair.store(operand, found.mT.reshape(stored.shape))


def nearest(
    energy: torch.Tensor,
    wanted: torch.Tensor,
    rounded: torch.Tensor,
    weight: torch.Tensor,
    scales: torch.Tensor,
    ends: tuple[torch.Tensor, torch.Tensor],
) -> torch.Tensor:
    """Return integers between ``ends`` whose products with the inputs are nearest to the wanted results, in squares.

    Args:
        energy: The products of the inputs with each other, [group, weight, weight].
        wanted: The products of the inputs with the wanted results, [group, weight, output].
        rounded: The integers to begin with, [group, weight, output], as are the following.
        weight: The float weights.
        scales: Their scales.
        ends: The two integers that each weight may become.
    """
    count = energy.shape[1]
    damping = (DAMPING * energy.diagonal(dim1=1, dim2=2).mean(1)).clamp_min(LEAST_ENERGY)
    energy = energy + damping.reshape(-1, 1, 1) * torch.eye(count, dtype=energy.dtype)
    slope = energy @ (rounded * scales) - wanted - damping.reshape(-1, 1, 1) * weight
    rounded = rounded.clone()
    for _ in range(PASSES):
        before = rounded.clone()
        for first in range(0, count, BLOCK):
            block = slice(first, min(first + BLOCK, count))
            near, inside = slope[:, block].clone(), energy[:, block, block]
            for place in range(near.shape[1]):
                here = first + place
                step = near[:, place] / (inside[:, place, place, None] * scales[:, here])
                chosen = torch.round(rounded[:, here] - step).clamp(ends[0][:, here], ends[1][:, here])
                change = (chosen - rounded[:, here]) * scales[:, here]
                rounded[:, here] = chosen
                near += inside[:, :, place, None] * change[:, None]
            slope += energy[:, :, block] @ ((rounded[:, block] - before[:, block]) * scales[:, block])
        if torch.equal(before, rounded):
            break
    return rounded


def _sums(pair: LayerPair, groups: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the products of the layer's inputs with each other, and with the float layer's results without their bias."""
    energy = wanted = torch.zeros(())
    for inputs, results in _rows(pair, groups):
        energy = energy + (inputs.mT @ inputs).double()
        wanted = wanted + (inputs.mT @ results).double()
    return energy, wanted


def _rows(pair: LayerPair, groups: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield the inputs of each sample, [group, position, weight], and the float results, [group, position, output]."""
    twin = arguments_of(pair.twin)
    bias = None if twin["bias"] is None else constant_of(pair.real, twin["bias"])
    for mine, real in zip(pair.here, pair.there, strict=True):
        inputs, results = mine[pair.node.args[0]], real[pair.twin]
        if pair.node.target == LINEAR:
            inputs, results = (each.reshape(1, -1, each.shape[-1]) for each in (inputs, results))
        else:
            inputs = _unfolded(pair, inputs, groups)
            results = results.flatten(2).unflatten(1, (groups, -1)).transpose(0, 1).mT.flatten(1, 2)
        if bias is not None:
            results = results - bias.reshape(groups, 1, -1)
        step = -(-inputs.shape[1] // MOST_POSITIONS)
        yield inputs[:, ::step], results[:, ::step]


def _unfolded(pair: LayerPair, inputs: torch.Tensor, groups: int) -> torch.Tensor:
    """Return the inputs of a convolution's outputs, [group, position, weight]."""
    given = arguments_of(pair.node)
    weight = pair.stored(pair.node.args[1])
    assert weight is not None
    size = list(weight.shape[2:])
    settings = {name: list(given[name]) for name in ("stride", "padding", "dilation")}
    if pair.node.target == CONV_1D:
        inputs, size = inputs.unsqueeze(2), [1, *size]
        settings = {name: [0 if name == "padding" else 1, value[-1]] for name, value in settings.items()}
    patches = functional.unfold(inputs, size, **{n: v if len(v) == 2 else v * 2 for n, v in settings.items()})
    return patches.unflatten(1, (groups, -1)).transpose(0, 1).mT.flatten(1, 2)
