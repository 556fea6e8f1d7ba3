# SPDX-License-Identifier: BSD-3-Clause
"""Reasons against delegating a call that follow from the call itself, whatever its operands' quantization is."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.fx import Node

from openneutron.pytorch.graph.overload import overload_of
from openneutron.pytorch.graph.pointwise import is_pointwise
from openneutron.pytorch.graph.program import (
    DTYPE_OF_TORCH,
    GETITEM,
    is_dequantize,
    is_quantize,
    op_name,
    short_name,
)
from openneutron.pytorch.operators.lowering.rules import LOWER_RULES, WITH_INTEGERS, Reject
from openneutron.pytorch.operators.pooling.maxima import MOST_COMPARED

COUNTED_AT_RUN_TIME = Reject(
    "how many values its result has is known only when it runs; the NPU's tensors have fixed shapes",
    "torch.where and masked_fill keep the shape.",
)
CHECKS = Reject("it checks values when the model runs, and computes none")
DROPS = Reject("it drops values at random", "Export the model in eval mode, with training=False in calls of F.dropout.")
DRAWS = Reject("it draws random numbers, for which there is no kernel", "Pass them to the model as an input.")
INDICES = Reject(
    f"its indices are used; for them at most {MOST_COMPARED} pairs of an element and a window are compared"
)
ROUNDS = Reject(
    "it rounds a quotient of two computed tensors; where that is near a whole number, half a step of an operand decides which one",
    "Divide without rounding.",
)
COMPUTED_WEIGHTS = Reject("its weights are computed at run time; they must be constant")

_CHECKS = ("aten._assert_async.msg", "aten._assert_scalar.default", "aten._assert_tensor_metadata.default")
_DROPS = ("aten.native_dropout.default", "aten.dropout.default", "aten.alpha_dropout.default")


def objection(node: Node) -> Reject | None:
    """Return the first reason against the call, or None."""
    name = op_name(node)
    if name.startswith(_CHECKS):
        return CHECKS
    if _depends_on_data(node):
        return COUNTED_AT_RUN_TIME
    overload = overload_of(node)
    if overload is not None and torch.Tag.nondeterministic_seeded in overload.tags and name not in LOWER_RULES:
        return DROPS if name in _DROPS else DRAWS
    if (dtype := _dtype(node)) is not None and dtype.is_complex:
        return Reject(f"its result is {str(dtype).removeprefix('torch.')}; there are kernels for real numbers alone")
    if name in OBJECTIONS:
        return OBJECTIONS[name](node)
    return None if name in LOWER_RULES else _without_rule(node)


def _without_rule(node: Node) -> Reject | None:
    """Return a reason against a call without a rule."""
    dtype = _dtype(node)
    if dtype in (torch.int32, torch.int64):
        return Reject(f"its result is {DTYPE_OF_TORCH[dtype]}; the NPU computes on int8", WITH_INTEGERS)
    computed = [source for source in node.all_input_nodes if _is_computed(source)]
    if is_pointwise(node) and len(computed) > 1:
        return Reject(
            f"it is a function of {len(computed)} computed tensors, for which there is no kernel; of one it would be a table",
            "Sums, products, quotients, maxima and comparisons of two tensors are there.",
        )
    others = sorted(other for other in LOWER_RULES if other.startswith(f"{short_name(node)}."))
    if others:
        return Reject(f"there is no kernel for {op_name(node)}; there is one for {' and '.join(others)}")
    return None


def _is_computed(source: Node) -> bool:
    """Return whether a call's operand is an input of the model or computed; parameters and buffers are neither."""
    return source.op == "call_function" or (
        source.op == "placeholder" and not source.name.startswith(("p_", "b_", "c_"))
    )


def _depends_on_data(node: Node) -> bool:
    """Return whether an extent of the result is a number that torch.export can only name (``u0``)."""
    value = node.meta.get("val")
    values = value if isinstance(value, (list, tuple)) else (value,)
    tensors = [item for item in values if isinstance(item, torch.Tensor)]
    extents = [extent for tensor in tensors for extent in tensor.shape if isinstance(extent, torch.SymInt)]
    return any(str(symbol).startswith("u") for extent in extents for symbol in extent.node.expr.free_symbols)


def _dtype(node: Node) -> torch.dtype | None:
    value = node.meta.get("val")
    return value.dtype if isinstance(value, torch.Tensor) else None


def indices_used(node: Node) -> Reject | None:
    """Object to a maximum pool of which another result than the first is read."""
    return INDICES if any(op_name(user) == GETITEM and user.args[1] != 0 for user in node.users) else None


def computed_weights(node: Node) -> Reject | None:
    """Object to a convolution whose weights are computed, or an input of the model."""
    weight = node.args[1]
    while isinstance(weight, Node) and (is_dequantize(weight) or is_quantize(weight)):
        weight = weight.args[0]
    return COMPUTED_WEIGHTS if isinstance(weight, Node) and _is_computed(weight) else None


def rounded_quotient(node: Node) -> Reject | None:
    """Object to a rounded quotient of two computed tensors; with one computed tensor the quotient is a table."""
    return ROUNDS if len([source for source in node.all_input_nodes if _is_computed(source)]) > 1 else None


OBJECTIONS: dict[str, Callable[[Node], Reject | None]] = {
    "aten.max_pool2d_with_indices.default": indices_used,
    **dict.fromkeys((f"aten.adaptive_max_pool{n}d.default" for n in (1, 2, 3)), indices_used),
    **dict.fromkeys(("aten.div.Tensor_mode", "aten.fmod.Tensor", "aten.remainder.Tensor"), rounded_quotient),
}
"""Reasons against calls of operators that have a rule."""
