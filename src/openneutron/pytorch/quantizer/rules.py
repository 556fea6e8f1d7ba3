# SPDX-License-Identifier: BSD-3-Clause
"""How each ATen operator is quantized: one row per operator.

A new operator is a row here. ``ACTIVATIONS`` lists the operators that can run inside the one before them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType

from torch.fx import Node

from openneutron.ops import BY_NAME


class Result(Enum):
    """Whose scale the result has."""

    OWN = "its own, from calibration"
    SHARED = "the first input's"
    FIXED = "fixed by the operator"


@dataclass(frozen=True, slots=True)
class AnnotationRule:
    """Which arguments of an operator are quantized, and how. Arguments are given by place.

    data: activations (a place may hold a list of tensors, as cat's does; all then share one scale with the result).
    weight, bias: constants; ``weight_axis`` is the axis of one scale each, or None for one scale in all.
    own_if: calls whose result has a scale of its own although others share theirs.
    fuses: an activation function that is the only user runs inside this operator.
    """

    data: tuple[int, ...] = (0,)
    weight: int | None = None
    weight_axis: int | None = None
    bias: int | None = None
    result: Result = Result.OWN
    own_if: Callable[[Node], bool] | None = None
    fixed: tuple[float, int] | None = None
    fuses: bool = False


_CONVOLUTION = AnnotationRule(weight=1, weight_axis=0, bias=2, fuses=True)
_LINEAR = AnnotationRule(weight=1, bias=2, fuses=True)
_TWO = AnnotationRule(data=(0, 1), fuses=True)
_FUNCTION = AnnotationRule()
_MOVE = AnnotationRule(result=Result.SHARED)


def _is_global(node: Node) -> bool:
    """Whether a pool leaves one row and column. LiteRT's MEAN, unlike its pools, rescales."""
    return tuple(node.meta["val"].shape[-2:]) == (1, 1)


def _fixed(op: str) -> AnnotationRule:
    return AnnotationRule(result=Result.FIXED, fixed=BY_NAME[op].fixed_output)


ACTIVATIONS: Mapping[str, tuple[float | None, float | None]] = MappingProxyType(
    {
        "aten.relu.default": (0.0, None),
        "aten.relu6.default": (0.0, 6.0),
        "aten.hardtanh.default": (-1.0, 1.0),
        "aten.clamp.default": (None, None),
        "aten.clamp_min.default": (None, None),
    }
)
"""Operators that only clamp, with their bounds where arguments 1 and 2 don't say others."""

RULES: Mapping[str, AnnotationRule] = MappingProxyType(
    {
        "aten.conv1d.default": _CONVOLUTION,
        "aten.conv2d.default": _CONVOLUTION,
        "aten.conv2d.padding": _CONVOLUTION,
        "aten.convolution.default": _CONVOLUTION,
        "aten.linear.default": _LINEAR,
        "aten.addmm.default": AnnotationRule(data=(1,), weight=2, bias=0, fuses=True),
        "aten.mm.default": AnnotationRule(weight=1, fuses=True),
        "aten.add.Tensor": _TWO,
        "aten.sub.Tensor": _TWO,
        "aten.mul.Tensor": _TWO,
        **dict.fromkeys(ACTIVATIONS, _FUNCTION),
        "aten.hardswish.default": _FUNCTION,
        "aten.leaky_relu.default": _FUNCTION,
        "aten.sigmoid.default": _fixed("logistic"),
        "aten.tanh.default": _fixed("tanh"),
        "aten.softmax.int": _fixed("softmax"),
        "aten._softmax.default": _fixed("softmax"),
        "aten.mean.dim": _FUNCTION,
        "aten.adaptive_avg_pool2d.default": AnnotationRule(result=Result.SHARED, own_if=_is_global),
        "aten.max_pool2d.default": _MOVE,
        "aten.avg_pool2d.default": _MOVE,
        "aten.cat.default": _MOVE,
        "aten.alias.default": _MOVE,
        "aten.clone.default": _MOVE,
        "aten.constant_pad_nd.default": _MOVE,
        "aten.contiguous.default": _MOVE,
        "aten.detach.default": _MOVE,
        "aten.dropout.default": _MOVE,
        "aten.feature_dropout.default": _MOVE,
        "aten.flatten.using_ints": _MOVE,
        "aten.pad.default": _MOVE,
        "aten.permute.default": _MOVE,
        "aten.reshape.default": _MOVE,
        "aten.slice.Tensor": _MOVE,
        "aten.squeeze.default": _MOVE,
        "aten.squeeze.dim": _MOVE,
        "aten.squeeze.dims": _MOVE,
        "aten.t.default": _MOVE,
        "aten.transpose.int": _MOVE,
        "aten.unsqueeze.default": _MOVE,
        "aten.upsample_nearest2d.default": _MOVE,
        "aten.upsample_nearest2d.vec": _MOVE,
        "aten.view.default": _MOVE,
    }
)
