# SPDX-License-Identifier: BSD-3-Clause
"""The columns of an annotation rule: how one ATen operator is quantized."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import torch
from torch.fx import Node

from openneutron.ops import BY_NAME

ScaleMap = Callable[[torch.Tensor], torch.Tensor]
"""From the scales of a layer's weights to those of its output channels."""


class Result(Enum):
    """Whose scale the result has."""

    OWN = "its own, from calibration"
    SHARED = "the first input's"
    FIXED = "fixed by the operator"
    NONE = "none: integers or truth values"


@dataclass(frozen=True, slots=True)
class AnnotationRule:
    """The quantized arguments of an operator, by their positions, and their quantization.

    data: activations (a place may hold a list of tensors, as cat's does; all then share one scale with the result).
    weight, bias: constants; ``weight_axis`` is the axis of one scale each, or None for one scale in all; a function of the
    call where calls differ. bias_scales: gives for a call what makes the scales of the bias of those of the weights, where
    they are others.
    own_if: calls whose result has a scale of its own although others share theirs.
    fuses: an activation function that is the only user runs inside this operator.
    otherwise: the rule of a call whose weight is not a constant.
    """

    data: tuple[int, ...] = (0,)
    weight: int | None = None
    weight_axis: int | Callable[[Node], int] | None = None
    bias: int | None = None
    bias_scales: Callable[[Node], ScaleMap | None] | None = None
    result: Result = Result.OWN
    own_if: Callable[[Node], bool] | None = None
    fixed: tuple[float, int] | None = None
    fuses: bool = False
    otherwise: AnnotationRule | None = None


FUNCTION = AnnotationRule()
"""A function of one tensor, with a scale of its own."""

MOVE = AnnotationRule(result=Result.SHARED)
"""An operator that only moves values of its first argument."""

JOIN = AnnotationRule(data=(0, 1), result=Result.SHARED)
"""An operator that moves or selects values of two tensors: both and the result have one scale."""


def fixed_by(op: str) -> AnnotationRule:
    """Return the rule of an operator whose result has the fixed quantization of the operator table's row ``op``."""
    return AnnotationRule(result=Result.FIXED, fixed=BY_NAME[op].fixed_output)
