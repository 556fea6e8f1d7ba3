# SPDX-License-Identifier: BSD-3-Clause
"""Operators that treat every element alike. They work on whatever order of axes their inputs lie in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.fx import Node

from openneutron.ir import DType, QuantParams, per_tensor
from openneutron.ops import BY_NAME
from openneutron.pytorch.graph.program import Reject, Rejected, arguments_of
from openneutron.pytorch.operators.rules.context import Context, broadcasting
from openneutron.pytorch.operators.rules.results import Value, clamp_bounds, clamp_operator
from openneutron.pytorch.operators.rules.tables import always, is_computed, lowers, of_integers


def one_to_one(node: Node, context: Context, op: str, **attrs: Any) -> Value:
    """Return an operator on each element of the first argument; the value keeps its order and may stay an unsettled
    view."""
    data = context.value(node.args[0])
    stored = context.tensors[data.tensor].shape
    name = context.emit(op, (data.tensor,), stored, context.result_quant(node), node.name, **attrs)
    return Value(name, data.shape, data.order, data.base)


def function(op: str) -> Callable[[Node, Context], Value | Reject]:
    """Return the rule of an operator without attributes."""

    def rule(node: Node, context: Context) -> Value | Reject:
        return one_to_one(node, context, op)

    return rule


lowers("aten.sigmoid.default")(function("logistic"))
lowers("aten.tanh.default")(function("tanh"))
lowers("aten.abs.default")(function("abs"))
lowers("aten.exp.default")(function("exp"))
lowers("aten.log.default")(function("log"))
lowers("aten.hardswish.default", preserve=always)(function("hard_swish"))


@lowers("aten.gelu.default", preserve=always)
def gelu(node: Node, context: Context) -> Value | Reject:
    return one_to_one(node, context, "gelu", approximate=arguments_of(node)["approximate"] == "tanh")


@lowers("aten.leaky_relu.default")
def leaky_relu(node: Node, context: Context) -> Value | Reject:
    return one_to_one(node, context, "leaky_relu", alpha=float(arguments_of(node)["negative_slope"]))


@lowers(
    "aten.relu.default", "aten.relu6.default", "aten.hardtanh.default", "aten.clamp.default", "aten.clamp_min.default"
)
def clamp(node: Node, context: Context) -> Value | Reject:
    quant, bounds = context.result_quant(node), clamp_bounds(node)
    op = clamp_operator(bounds, quant, context.results.dtype(node))
    if op is None:
        return Reject(
            f"it clamps to {bounds}, which is none of LiteRT's clamps", "ReLU, ReLU6, Hardtanh(-1, 1) and (0, 1) are."
        )
    if not op:
        return context.requantized(context.value(node.args[0]), quant, node.name)
    return one_to_one(node, context, op)


def _two(op: str, **wide: Any) -> Callable[[Node, Context], Value | Reject]:
    """Return the rule of a sum, difference or product. ``wide``: LiteRT's attributes of the int16 form."""

    def rule(node: Node, context: Context) -> Value | Reject:
        alpha = node.kwargs.get("alpha", 1)
        if alpha != 1:
            return Reject(f"alpha is {alpha}; it must be 1")
        operands, quant = [context.value(item) for item in node.args[:2]], context.result_quant(node)
        attrs = wide if context.dtype(operands[0]) is DType.INT16 else {}
        return broadcasting(node, context, op, operands, quant, activation=context.activation(node, quant), **attrs)

    return rule


lowers("aten.add.Tensor", fuses=True)(_two("add", pot_scale_int16=False))
lowers("aten.sub.Tensor", fuses=True)(_two("sub", pot_scale_int16=False))
lowers("aten.mul.Tensor", fuses=True)(_two("mul"))


ROUNDS = Reject(
    "it rounds a quotient of two computed tensors; where that is near a whole number, half a step of an operand decides which one",
    "Divide without rounding.",
)


def of_two(node: Node) -> Reject | None:
    """Object to a quotient of integers, and to a rounded one of two computed tensors; with one computed tensor the quotient is a
    table."""
    if (integers := of_integers(node)) is not None:
        return integers
    return ROUNDS if len([source for source in node.all_input_nodes if is_computed(source)]) > 1 else None


@lowers("aten.div.Tensor_mode", "aten.fmod.Tensor", "aten.remainder.Tensor", against=of_two)
def rounded_quotient(node: Node, context: Context) -> Value | Reject:
    """Of one computed tensor and a number it is a function of one value; of two it can't be had from rounded operands."""
    del node, context
    return ROUNDS


@lowers("aten.prelu.default", preserve=always)
def prelu(node: Node, context: Context) -> Value | Reject:
    given = arguments_of(node)
    data, slopes = context.value(given["self"]), context.value(given["weight"])
    if len(data.shape) > 1 and slopes.shape:
        slopes = context.viewed(slopes, (*slopes.shape, *(1 for _ in data.shape[2:])))
    return broadcasting(node, context, "prelu", (data, slopes), context.result_quant(node))


Rescaled = Callable[[Node, Context, str, QuantParams], str]
"""Add the operators of one along the last axis of a tensor, for a result with these parameters; return its name."""


def _along(op: str, rescaled: Rescaled) -> Callable[[Node, Context], Value | Reject]:
    """Return the rule of an operator along one dimension, which LiteRT supports along the last axis.

    ``rescaled``: for a result whose quantization differs from the one that LiteRT fixes.
    """
    fixed = BY_NAME[op].fixed_output
    assert fixed is not None
    usual = per_tensor(*fixed)

    def rule(node: Node, context: Context) -> Value | Reject:
        given = arguments_of(node)
        if given.get("half_to_float"):
            return Reject("half_to_float is set; there is only int8")
        data = context.value(given["self"])
        if not data.shape:
            raise Rejected("its input is a single number")
        axis = given["dim"] % len(data.shape)
        data = context.settled(data)
        order = data.order
        if order[-1] != axis:
            order = (*(other for other in order if other != axis), axis)
        stored = tuple(data.shape[other] for other in order)
        quant, source = context.result_quant(node), context.arranged(data, order)
        if quant == usual or context.dtype(data) is DType.INT16:
            name = context.emit(op, (source,), stored, quant, node.name)
        else:
            name = rescaled(node, context, source, quant)
        return Value(name, data.shape, order, data.shape)

    return rule


def _fine(node: Node, context: Context, source: str, quant: QuantParams) -> str:
    return context.emit("softmax_rescaled", (source,), context.tensors[source].shape, quant, node.name)


def _wide(node: Node, context: Context, source: str, quant: QuantParams) -> str:
    """Return log_softmax as x - max(x) + max(log_softmax(x)): LiteRT's result ends at -255/16, and only a row's largest
    logarithm is always above. The difference of two stored values is exact."""
    fixed = BY_NAME["log_softmax"].fixed_output
    here, shape = context.tensors[source].quant, context.tensors[source].shape
    assert fixed is not None and here is not None
    usual, row = per_tensor(*fixed), (*shape[:-1], 1)
    axes = context.add_integers(f"{node.name}_axes", [len(shape) - 1])
    logs = context.emit("log_softmax", (source,), shape, usual, f"{node.name}_saturated")
    top = context.emit("reduce_max", (logs, axes), row, usual, f"{node.name}_top", keep_dims=True)
    largest = context.emit("reduce_max", (source, axes), row, here, f"{node.name}_largest", keep_dims=True)
    below = per_tensor(here.scale, 127)
    apart = context.emit("sub", (source, largest), shape, below, f"{node.name}_below", activation="NONE")
    return context.emit("add", (apart, top), shape, quant, node.name, activation="NONE")


lowers("aten._softmax.default", "aten.softmax.int")(_along("softmax", _fine))
lowers("aten._log_softmax.default", "aten.log_softmax.int")(_along("log_softmax", _wide))
