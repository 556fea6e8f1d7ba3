# SPDX-License-Identifier: BSD-3-Clause
"""The quantization of linear layers and products of matrices."""

from __future__ import annotations

from openneutron.pytorch.operators.rules.annotation import AnnotationRule

_PRODUCT = AnnotationRule(data=(0, 1))
_WITH_CONSTANT = AnnotationRule(weight=1, weight_axis=1, fuses=True, otherwise=_PRODUCT)

RULES = {
    "aten.linear.default": AnnotationRule(weight=1, weight_axis=0, bias=2, fuses=True, otherwise=_PRODUCT),
    "aten.addmm.default": AnnotationRule(data=(1,), weight=2, weight_axis=1, bias=0, fuses=True),
    "aten.mm.default": _WITH_CONSTANT,
    "aten.bmm.default": _PRODUCT,
    "aten.matmul.default": _PRODUCT,
}
