# SPDX-License-Identifier: BSD-3-Clause
"""The annotation rules of operators with integers or booleans among their operands or results."""

from __future__ import annotations

from openneutron.pytorch.operators.rules.annotation import FUNCTION, MOVE, AnnotationRule, Result

_ONE = AnnotationRule(result=Result.NONE)
_TWO = AnnotationRule(data=(0, 1), result=Result.NONE)

TRUTH_SCALE = (1 / 255, -128)
"""Scale and zero point of booleans as numbers: 0 and 1 are the ends of int8."""

LARGEST_VALUE = 1e4
"""A filler beyond this stands for no value: a range that held it would have no steps left for the others."""

FILL = "aten.masked_fill.Scalar"
"""The operators that decomposition leaves move values out of the range."""

RULES = {
    "aten.argmax.default": _ONE,
    "aten.argmin.default": _ONE,
    **{f"aten.{name}.Tensor": _TWO for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    **{f"aten.{name}.Scalar": _ONE for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    "aten.where.self": AnnotationRule(data=(1, 2), result=Result.SHARED),
    FILL: FUNCTION,
    "aten._to_copy.default": AnnotationRule(data=(), result=Result.FIXED, fixed=TRUTH_SCALE),
    "aten.embedding.default": MOVE,
    "aten.index_select.default": MOVE,
    "aten.index.Tensor": MOVE,
    "aten.gather.default": MOVE,
}
