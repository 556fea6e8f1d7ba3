# SPDX-License-Identifier: BSD-3-Clause
"""Biases with the mean difference that quantization makes, layer by layer (Nagel et al., arXiv 1906.04721, section 4.2)."""

from __future__ import annotations

from operator import attrgetter

import torch
from torch.fx import Node

from openneutron.pytorch.graph.rewriting import add_constant
from openneutron.pytorch.quantizer.corrections.layer_by_layer import CONV_1D, CONV_2D, LINEAR, LayerPair, computed

CHANNEL_AXES = {CONV_1D: 1, CONV_2D: 1, LINEAR: -1}
INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1


def correct_bias(pair: LayerPair) -> None:
    """Add to the bias of the quantized layer, in place, what makes the mean of each channel that of the float layer.

    The bias is int32, and float where the layer computes on int16 activations.
    """
    node = pair.node
    operand = node.args[2] if len(node.args) > 2 else None
    stored = pair.stored(operand)
    if not isinstance(operand, Node) or (stored is None and operand.op != "get_attr"):
        return
    axis = CHANNEL_AXES[node.target]
    differences = []
    for mine, real in zip(pair.here, pair.there, strict=True):
        difference = (real[pair.twin] - computed(node, mine)).double()
        channel = axis % difference.dim()
        differences.append(difference.mean([other for other in range(difference.dim()) if other != channel]))
    shift = torch.stack(differences).mean(0)
    if stored is None:
        _replace(pair, operand, shift)
        return
    changed = stored.double() + torch.round(shift / pair.scales(operand))
    pair.store(operand, changed.clamp(INT32_MIN, INT32_MAX))


def _replace(pair: LayerPair, bias: Node, shift: torch.Tensor) -> None:
    """Give the layer another float bias. The float module keeps the tensor that both had."""
    changed = (attrgetter(str(bias.target))(pair.quantized).double() + shift).float()
    constant = add_constant(pair.quantized, pair.node, f"{bias.target}_corrected", changed)
    pair.node.update_arg(2, constant)
    for known in pair.here:
        known[constant] = changed
