# SPDX-License-Identifier: BSD-3-Clause
"""How operators that treat every element alike are quantized, and softmaxes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from openneutron.pytorch.graph.softmax_rows import SOFTMAX
from openneutron.pytorch.operators.annotation import FUNCTION, JOIN, MOVE, AnnotationRule, fixed_by

ACTIVATIONS: Mapping[str, tuple[float | None, float | None]] = MappingProxyType(
    {
        "aten.relu.default": (0.0, None),
        "aten.relu6.default": (0.0, 6.0),
        "aten.hardtanh.default": (-1.0, 1.0),
        "aten.clamp.default": (None, None),
        "aten.clamp_min.default": (None, None),
    }
)
"""Operators that only clamp, with their bounds where arguments 1 and 2 don't say others. They can run inside the operator
before them."""

_TWO = AnnotationRule(data=(0, 1), fuses=True)

RULES = {
    "aten.add.Tensor": _TWO,
    "aten.sub.Tensor": _TWO,
    "aten.mul.Tensor": _TWO,
    "aten.prelu.default": AnnotationRule(data=(0, 1)),
    "aten.maximum.default": JOIN,
    "aten.minimum.default": JOIN,
    "aten.amax.default": MOVE,
    "aten.amin.default": MOVE,
    **dict.fromkeys(ACTIVATIONS, FUNCTION),
    "aten.abs.default": FUNCTION,
    "aten.exp.default": FUNCTION,
    "aten.gelu.default": FUNCTION,
    "aten.hardswish.default": FUNCTION,
    "aten.leaky_relu.default": FUNCTION,
    "aten.log.default": FUNCTION,
    "aten.sigmoid.default": fixed_by("logistic"),
    "aten.tanh.default": fixed_by("tanh"),
    **dict.fromkeys(SOFTMAX, FUNCTION),
    "aten.log_softmax.int": fixed_by("log_softmax"),
    "aten._log_softmax.default": fixed_by("log_softmax"),
}
