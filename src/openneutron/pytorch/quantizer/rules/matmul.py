# SPDX-License-Identifier: BSD-3-Clause
"""How linear layers and products of matrices are quantized."""

from __future__ import annotations

from openneutron.pytorch.quantizer.rules.table import AnnotationRule

RULES = {
    "aten.linear.default": AnnotationRule(weight=1, bias=2, fuses=True),
    "aten.addmm.default": AnnotationRule(data=(1,), weight=2, bias=0, fuses=True),
    "aten.mm.default": AnnotationRule(weight=1, fuses=True),
}
