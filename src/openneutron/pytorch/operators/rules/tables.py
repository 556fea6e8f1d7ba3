# SPDX-License-Identifier: BSD-3-Clause
"""The tables of lowering rules and of decompositions, and reasons against a call that are known before its rule runs.

A lowering rule is the support check too: the partitioner runs a node's rule and reads the reason, and the backend runs the same rule and
keeps the nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node

from openneutron.pytorch.graph.program import (
    DTYPE_OF_TORCH,
    WITH_INTEGERS,
    Reject,
    depends_on_data,
    dtype_of,
    is_pointwise,
    model_name,
    op_name,
    overload_of,
    short_name,
)

if TYPE_CHECKING:
    from openneutron.pytorch.operators.rules.context import Context, Value

Rule = Callable[[Node, "Context"], "Value | Reject"]
"""A function that adds the LiteRT operators of a node to the context and returns the value of the result."""


class Layout(Enum):
    """The effect of a lowering rule on the axis order of its first operand."""

    KEEPS = "it works on any order and keeps it"
    NHWC = "it works on channels innermost"
    OWN = "its result has an order of its own"


@dataclass(frozen=True, slots=True)
class LowerRule:
    """A lowering rule, and the properties of its operator.

    moves: the operator commutes with quantization, so that its result may have the quantization of the input. A
    maximum commutes, a mean does not.

    exact: the result may be integers or booleans.

    renames: the result has the elements of the first operand in the same order.

    fuses: a clamp of the result can be fused into the operator.

    preserve: a function that returns whether ExecuTorch must not decompose a call.

    emits: the names of the LiteRT operators that the rule may add, apart from those that rearrange operands. They are
    rows of the operator table.

    against: a function that returns the reason why a call can't be lowered, whatever the quantization of its
    operands.
    """

    rule: Rule
    moves: bool = False
    fuses: bool = False
    preserve: Callable[[Node], bool] | None = None
    layout: Layout = Layout.KEEPS
    exact: bool = False
    renames: bool = False
    against: Callable[[Node], Reject | None] | None = None
    emits: tuple[str, ...] = ()


LOWER_RULES: dict[str, LowerRule] = {}


def lowers(*targets: str, **traits: Any) -> Callable[[Rule], Rule]:
    """Register a rule for these operators (``aten.convolution.default``). traits: the fields of ``LowerRule``."""

    def register(rule: Rule) -> Rule:
        for target in targets:
            assert target not in LOWER_RULES, f"two lowering rules for {target}"
            LOWER_RULES[target] = LowerRule(rule, **traits)
        return rule

    return register


def always(node: Node) -> bool:
    """Return True: no call of the operator is decomposed."""
    del node
    return True


COUNTED_AT_RUN_TIME = Reject(
    "how many values its result has is known only when it runs; the NPU's tensors have fixed shapes",
    "torch.where and masked_fill keep the shape.",
)
CHECKS = Reject("it checks values when the model runs, and computes none")
DROPS = Reject("it drops values at random", "Export the model in eval mode, with training=False in calls of F.dropout.")
DRAWS = Reject("it draws random numbers, for which there is no kernel", "Pass them to the model as an input.")
_CHECKS = ("aten._assert_async.msg", "aten._assert_scalar.default", "aten._assert_tensor_metadata.default")
_DROPS = ("aten.native_dropout.default", "aten.dropout.default", "aten.alpha_dropout.default")


def objection(node: Node) -> Reject | None:
    """Return the first reason against a call that holds for any quantization of its operands, or None."""
    name = op_name(node)
    if name.startswith(_CHECKS):
        return CHECKS
    if depends_on_data(node):
        return COUNTED_AT_RUN_TIME
    if (empty := _without_elements(node)) is not None:
        return empty
    overload = overload_of(node)
    if overload is not None and torch.Tag.nondeterministic_seeded in overload.tags and name not in LOWER_RULES:
        return DROPS if name in _DROPS else DRAWS
    if (dtype := dtype_of(node)) is not None and dtype.is_complex:
        return Reject(f"its result is {str(dtype).removeprefix('torch.')}; there are kernels for real numbers alone")
    rule = LOWER_RULES.get(name)
    if rule is None:
        return _without_rule(node)
    return None if rule.against is None else rule.against(node)


def _without_elements(node: Node) -> Reject | None:
    for item in (node, *node.all_input_nodes):
        value = item.meta.get("val")
        if isinstance(value, torch.Tensor) and any(isinstance(extent, int) and extent == 0 for extent in value.shape):
            which = "its result" if item is node else f"its input '{model_name(item)}'"
            return Reject(f"{which} has shape {list(value.shape)}; every extent must be above 0")
    return None


def of_integers(node: Node) -> Reject | None:
    """Return a reason against a call whose result is int32 or int64; None for other types."""
    dtype = dtype_of(node)
    if dtype not in (torch.int32, torch.int64):
        return None
    return Reject(f"its result is {DTYPE_OF_TORCH[dtype]}; the NPU computes on int8 and int16", WITH_INTEGERS)


def _without_rule(node: Node) -> Reject | None:
    if (integers := of_integers(node)) is not None:
        return integers
    computed = [source for source in node.all_input_nodes if is_computed(source)]
    if is_pointwise(node) and len(computed) > 1:
        return Reject(
            f"it is a function of {len(computed)} computed tensors, for which there is no kernel; of one it would be a table",
            "Sums, products, quotients, maxima and comparisons of two tensors are there.",
        )
    others = sorted(other for other in LOWER_RULES if other.startswith(f"{short_name(node)}."))
    if others:
        return Reject(f"there is no kernel for {op_name(node)}; there is one for {' and '.join(others)}")
    return None


def is_computed(source: Node) -> bool:
    """Return whether an operand is computed or an input of the model. False: it is a parameter, buffer or constant."""
    return source.op == "call_function" or (
        source.op == "placeholder" and not source.name.startswith(("p_", "b_", "c_"))
    )


@dataclass(frozen=True, slots=True)
class Keep:
    """The result of a decomposition that does not decompose its call, with the reason and a suggestion for the user."""

    reason: str = ""
    hint: str = ""


KEPT = Keep()

Decomposition = Callable[..., Any]
"""A function with the parameters of an operator's schema that computes the operator's result from simpler operators.

Shapes are fixed numbers. The tensors have no values while the function is traced: Python may branch on shapes and numbers only, and
constants come from torch.full, ones, arange, tril and the like, not from torch.tensor. The function may return None for one of several
results. A call is not decomposed if the model uses a result that is None.
"""

DECOMPOSITIONS: dict[str, Decomposition] = {}

OWN_OPERATORS: dict[str, Callable[..., bool]] = {}
"""Functions with the arguments of a call in ``DECOMPOSITIONS`` that return whether an operator of this project's table computes the call.

Such a call is not decomposed, except for a converter that reads only LiteRT's operators.
"""


def decomposes(
    *targets: str, own_operator: Callable[..., bool] | None = None
) -> Callable[[Decomposition], Decomposition]:
    """Register a function for these operators (``aten.layer_norm.default``), and with ``own_operator`` a row of ``OWN_OPERATORS``."""

    def register(function: Decomposition) -> Decomposition:
        for target in targets:
            assert target not in DECOMPOSITIONS, f"two decompositions of {target}"
            DECOMPOSITIONS[target] = function
            if own_operator is not None:
                OWN_OPERATORS[target] = own_operator
        return function

    return register
