# SPDX-License-Identifier: BSD-3-Clause
"""The annotation rules: one row for each ATen operator, which states how the quantizer annotates the operator's operands and result.

Rules that look at the arguments of a call are added in the file of the operator's family.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from importlib import import_module
from types import MappingProxyType

import torch
from torch.fx import Node

from openneutron.ops import BY_NAME
from openneutron.pytorch.graph import program
from openneutron.pytorch.graph.rewriting import results_of
from openneutron.pytorch.operators.rules.context import ACTIVATIONS

ScaleMap = Callable[[torch.Tensor], torch.Tensor]
"""A function from the scales of a layer's weights to the scales of its output channels."""


class Result(Enum):
    """The rule for the scale of a call's result."""

    OWN = "its own, from calibration"
    SHARED = "the first input's"
    FIXED = "fixed by the operator"
    REACHED = "fixed by the operator, or a finer one where calibration sees a small part of its range"
    NONE = "the result has no scale: it holds integers or booleans"


@dataclass(frozen=True, slots=True)
class Kept:
    """The state of a call, such as an LSTM's cell state, which the call takes and returns updated. It is int16. All
    other results of the call share one quantization.

    argument: the index of the argument that is the old state. result: the index of the result that is the new state.
    scale: a function that returns the scale of a call's state.
    """

    argument: int
    result: int
    scale: Callable[[Node], float]

    def beside(self, node: Node) -> Node:
        """Return the first other result that is read, or the new state if no other result is read."""
        found = results_of(node)
        return found[min(found, key=lambda place: (place == self.result, place))][0]


@dataclass(frozen=True, slots=True)
class AnnotationRule:
    """The quantization of an operator's arguments and of its result. Arguments are given by their index.

    data: the arguments that are activations. If one is a list of tensors, as in cat, all of them share one scale with
    the result.

    weight, bias: the arguments that are the constant weight and bias.

    weight_axis: the channel axis of the weight, along which each index has its own scale. None: the weight has one
    scale. It is a function if it depends on the call.

    bias_scales: a function from a call to the function that computes bias scales from weight scales. It is for calls
    whose bias has other scales than usual.

    own_if: a function that returns whether the result of a call has a scale of its own although ``result`` is SHARED.

    fuses: a clamp, such as a ReLU, is fused into this operator if it is the only reader of the result.

    otherwise: the rule of a call whose weight is not a constant.

    state: an argument whose scale the result shares if the call has that argument.

    products: a function that yields the further constant weights of a call, each with the bias that is added to its
    product.

    narrow: an argument of ``data`` that stays int8 if the others are int16, as in LiteRT.

    int8_alone: a function that returns whether a call stays int8 in an int16 model, because no kernel computes it on
    int16.

    kept: the state of a call with several results. It is int16 in any model.
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
    state: int | None = None
    products: Callable[[Node], Iterable[tuple[Node, Node | None]]] | None = None
    narrow: int | None = None
    int8_alone: Callable[[Node], bool] | None = None
    kept: Kept | None = None

    def operands(self, node: Node) -> Iterator[Node]:
        """Yield the activations of a call, including those in lists."""
        for place in self.data:
            given = argument(node, place)
            items = given if isinstance(given, (list, tuple)) else (given,)
            yield from (item for item in items if isinstance(item, Node))

    def is_shared(self, node: Node) -> bool:
        """Return whether the result of a call has the scale of the first input."""
        return self.result is Result.SHARED and not (self.own_if is not None and self.own_if(node))


def argument(node: Node, place: int | None) -> object:
    """Return the argument at an index of the operator's schema, whether the call passes it by position or by name.

    Return None if the call does not pass it.
    """
    if place is None:
        return None
    if place < len(node.args):
        return node.args[place]
    assert isinstance(node.target, torch._ops.OpOverload)
    return node.kwargs.get(node.target._schema.arguments[place].name)


FUNCTION = AnnotationRule()
"""The rule of a function of one tensor. Its result has its own scale."""

MOVE = AnnotationRule(result=Result.SHARED)
"""Operators that only move values of their first argument."""

JOIN = AnnotationRule(data=(0, 1), result=Result.SHARED)
"""Operators that move or choose values of two tensors: both tensors and the result have one scale."""


def fixed_by(op: str) -> AnnotationRule:
    """Return the rule of an operator whose result has the fixed quantization in row ``op`` of the operator table, or a finer one."""
    return AnnotationRule(result=Result.REACHED, fixed=BY_NAME[op].fixed_output)


SOFTMAX = ("aten.softmax.int", "aten._softmax.default")

LOG_SOFTMAX = ("aten.log_softmax.int", "aten._log_softmax.default")

TRUTH_SCALE = (1 / 255, -128)
"""The scale and zero point with which booleans are quantized as numbers: 0 and 1 are the lowest and the highest int8 value."""

BYTES_AND_WORDS: Mapping[torch.dtype, tuple[float, int, torch.dtype]] = MappingProxyType(
    {torch.uint8: (1.0, -128, torch.int8), torch.int8: (1.0, 0, torch.int8), torch.int16: (1.0, 0, torch.int16)}
)
"""The scale, zero point and type with which integers are quantized exactly, by the type of the integers."""

LARGEST_VALUE = 1e4
"""The largest magnitude of a fill value that counts as a value of the tensor.

A larger fill value marks missing values. A range that includes it would leave no steps for the other values.
"""

MASKED = -64.0
"""The number that is added to a masked score instead of -infinity, which int8 can't represent. A mask has only the values 0 and
-64, which int8 represents exactly. In int8, and in float32 sums of probabilities, e**-64 counts as 0."""

FILL = "aten.masked_fill.Scalar"
"""The operator that fills masked positions. After decomposition, its fillers are far outside the range of the values."""

DECOMPOSED_MOVES = (torch.ops.aten.select.int, torch.ops.aten.unflatten.int)
"""Moves that become other moves before annotation."""

MOVES = frozenset(
    (
        *(str(target) for target in program.MOVES if target not in DECOMPOSED_MOVES),
        *(f"aten.{name}.default" for name in ("amax", "amin", "cat", "constant_pad_nd", "dropout", "embedding")),
        *(f"aten.{name}.default" for name in ("feature_dropout", "max_pool2d", "pad")),
        *(f"aten.{mode}_pad{n}d.default" for mode in ("reflection", "replication") for n in (1, 2, 3)),
        *(
            f"aten.{name}2d.{form}"
            for name in ("upsample_nearest", "_upsample_nearest_exact", "upsample_bilinear")
            for form in ("default", "vec")
        ),
    )
)
"""Operators that only move values, select some of them, or interpolate between neighbours: their results stay in the input's range."""

FUNCTIONS = (
    *(f"{name}.default" for name in ("abs", "exp", "gelu", "hardswish", "leaky_relu", "log")),
    *("masked_fill.Scalar", "mean.default", "mean.dim", "sum.default", "sum.dim_IntList"),
    # Resizes that overshoot or average: 5 dB on noise.
    *(f"{name}.{form}" for name in ("_upsample_bilinear2d_aa", "upsample_bicubic2d") for form in ("default", "vec")),
    *(f"_upsample_bicubic2d_aa.{form}" for form in ("default", "vec")),
)

_FUSING_PAIR = AnnotationRule(data=(0, 1), fuses=True)
_PAIR = AnnotationRule(data=(0, 1))
_TRUTH = AnnotationRule(result=Result.NONE)
_TRUTH_OF_PAIR = AnnotationRule(data=(0, 1), result=Result.NONE)

_RULES: dict[str, AnnotationRule] = {
    **dict.fromkeys(sorted(MOVES), MOVE),
    **{f"aten.{name}": FUNCTION for name in FUNCTIONS},
    **dict.fromkeys((*ACTIVATIONS, *SOFTMAX, *LOG_SOFTMAX), FUNCTION),
    **{f"aten.{name}.Tensor": _FUSING_PAIR for name in ("add", "sub", "mul")},
    **{f"aten.{name}.Tensor": _TRUTH_OF_PAIR for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    **{f"aten.{name}.Scalar": _TRUTH for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    "aten._to_copy.default": AnnotationRule(data=(), result=Result.FIXED, fixed=TRUTH_SCALE),
    "aten.addmm.default": AnnotationRule(data=(1,), weight=2, weight_axis=1, bias=0, fuses=True),
    "aten.argmax.default": _TRUTH,
    "aten.argmin.default": _TRUTH,
    "aten.bmm.default": _PAIR,
    "aten.linear.default": AnnotationRule(weight=1, weight_axis=0, bias=2, fuses=True, otherwise=_PAIR),
    "aten.matmul.default": _PAIR,
    "aten.maximum.default": JOIN,
    "aten.minimum.default": JOIN,
    "aten.mm.default": AnnotationRule(weight=1, weight_axis=1, fuses=True, otherwise=_PAIR),
    "aten.prelu.default": AnnotationRule(data=(0, 1), narrow=1),
    "aten.sigmoid.default": fixed_by("logistic"),
    "aten.tanh.default": fixed_by("tanh"),
    "aten.where.self": AnnotationRule(data=(1, 2), result=Result.SHARED),
}


def annotates(rules: Mapping[str, AnnotationRule]) -> None:
    """Add the rules of a family by operator (``aten.relu.default``)."""
    twice = _RULES.keys() & rules.keys()
    assert not twice, f"two annotation rules for {sorted(twice)}"
    _RULES.update(rules)


@cache
def annotation_rules() -> Mapping[str, AnnotationRule]:
    """Return the rules of all families by operator (``aten.relu.default``). The first call imports the families."""
    import_module(f"{__package__}.families")
    return MappingProxyType(_RULES)


def is_int8_alone(node: Node) -> bool:
    """Return whether a call stays int8 in a model of int16 activations."""
    rule = annotation_rules().get(str(node.target))
    return rule is not None and rule.int8_alone is not None and rule.int8_alone(node)
