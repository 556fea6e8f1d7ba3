# SPDX-License-Identifier: BSD-3-Clause
"""The annotation rules of elementwise operators and softmaxes."""

from __future__ import annotations

from openneutron.pytorch.operators.rules.annotation import FUNCTION, JOIN, MOVE, AnnotationRule, fixed_by
from openneutron.pytorch.operators.rules.results import ACTIVATIONS

_TWO = AnnotationRule(data=(0, 1), fuses=True)

SOFTMAX = ("aten.softmax.int", "aten._softmax.default")

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
