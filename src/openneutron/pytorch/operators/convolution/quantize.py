# SPDX-License-Identifier: BSD-3-Clause
"""The quantization of convolutions."""

from __future__ import annotations

import torch
from torch.fx import Node

from openneutron.pytorch.operators.annotations import AnnotationRule, ScaleMap

_aten = torch.ops.aten
_SPATIAL = {_aten.conv_transpose1d.default: 1, _aten.conv_transpose2d.input: 2}
"""Dimensions behind the channels; there may be no batch before them."""


def _groups(node: Node) -> int:
    place = 8 if node.target is _aten.convolution.default else 6
    groups = node.args[place] if place < len(node.args) else node.kwargs.get("groups", 1)
    assert isinstance(groups, int)
    return groups


def _channels(node: Node, value: object) -> int:
    assert isinstance(value, Node)
    shape = value.meta["val"].shape
    return int(shape[-1 - _SPATIAL.get(node.target, len(shape) - 2)])


def _transposed_axis(node: Node) -> int:
    """Weights [input, output of the group, ...]: a scale for each output channel of a group, which the groups share; where
    a group has one input, for each of those."""
    return 0 if _groups(node) == _channels(node, node.args[0]) > 1 else 1


def _output_scales(node: Node) -> ScaleMap:
    """Make of a transposed convolution's weight scales one for each output channel."""
    groups, outputs = _groups(node), _channels(node, node)
    if _transposed_axis(node) == 0:
        return lambda scales: scales.repeat_interleave(outputs // groups)
    return lambda scales: scales.repeat(groups)


def _is_transposed(node: Node) -> bool:
    return node.target in _SPATIAL or bool(node.args[6])


_CONVOLUTION = AnnotationRule(weight=1, weight_axis=0, bias=2, fuses=True)
_EITHER = AnnotationRule(
    weight=1,
    weight_axis=lambda node: _transposed_axis(node) if _is_transposed(node) else 0,
    bias=2,
    bias_scales=lambda node: _output_scales(node) if _is_transposed(node) else None,
    fuses=True,
)

RULES = {
    **{f"aten.conv{n}d.{form}": _CONVOLUTION for n in (1, 2) for form in ("default", "padding")},
    "aten.conv_transpose1d.default": _EITHER,
    "aten.conv_transpose2d.input": _EITHER,
    "aten.convolution.default": _EITHER,
}
