# SPDX-License-Identifier: BSD-3-Clause
"""Biases with the mean difference that quantization makes, layer by layer (Nagel et al., arXiv 1906.04721, section 4.2)."""

from __future__ import annotations

import torch
from torch.fx import Node

from openneutron.pytorch.quantizer.corrections.layer_by_layer import CONV_1D, CONV_2D, LINEAR, LayerPair, computed

CHANNEL_AXES = {CONV_1D: 1, CONV_2D: 1, LINEAR: -1}
INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1


def correct_bias(pair: LayerPair) -> None:
    """Add to the int32 bias of the quantized layer, in place, what makes the mean of each channel that of the float layer."""
    node = pair.node
    operand = node.args[2] if len(node.args) > 2 else None
    stored = pair.stored(operand)
    if stored is None or not isinstance(operand, Node):
        return
    axis = CHANNEL_AXES[node.target]
    differences = []
    for mine, real in zip(pair.here, pair.there, strict=True):
        difference = (real[pair.twin] - computed(node, mine)).double()
        channel = axis % difference.dim()
        differences.append(difference.mean([other for other in range(difference.dim()) if other != channel]))
    shift = torch.stack(differences).mean(0)
    changed = stored.double() + torch.round(shift / pair.scales(operand))
    pair.store(operand, changed.clamp(INT32_MIN, INT32_MAX))
