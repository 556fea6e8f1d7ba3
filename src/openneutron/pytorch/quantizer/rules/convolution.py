# SPDX-License-Identifier: BSD-3-Clause
"""How convolutions are quantized."""

from __future__ import annotations

from openneutron.pytorch.quantizer.rules.table import AnnotationRule

_CONVOLUTION = AnnotationRule(weight=1, weight_axis=0, bias=2, fuses=True)

RULES = {
    "aten.conv1d.default": _CONVOLUTION,
    "aten.conv2d.default": _CONVOLUTION,
    "aten.conv2d.padding": _CONVOLUTION,
    "aten.convolution.default": _CONVOLUTION,
}
