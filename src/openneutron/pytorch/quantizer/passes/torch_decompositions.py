# SPDX-License-Identifier: BSD-3-Clause
"""PyTorch's own decompositions, for operators that have no rule of ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch._decomp import core_aten_decompositions, decomposition_table
from torch.fx import Node
from torch.utils._pytree import tree_leaves

from openneutron.pytorch.graph.pointwise import is_pointwise_operator
from openneutron.pytorch.graph.program import overload_of
from openneutron.pytorch.operators.annotations import annotation_rules
from openneutron.pytorch.operators.decompositions import DECOMPOSITIONS
from openneutron.pytorch.operators.lowerings import LOWER_RULES

_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd

REWRITTEN_LATER = frozenset(
    f"aten.{name}"
    for name in ("batch_norm.default", "div.Scalar", "div.Tensor", "reciprocal.default", "to.dtype", "to.dtype_layout")
)
"""Operators without an annotation rule that passes behind ``Decompose`` rewrite."""

FACTORIES = frozenset(
    f"aten.{name}"
    for name in (
        "arange.default",
        "arange.start",
        "arange.start_step",
        "empty.memory_format",
        "eye.default",
        "eye.m",
        "full.default",
        "full_like.default",
        "ones.default",
        "ones_like.default",
        "scalar_tensor.default",
        "tril.default",
        "triu.default",
        "zeros.default",
        "zeros_like.default",
    )
)
"""Operators whose results are constants, or become constants where their inputs are constants."""


def is_known(node: Node) -> bool:
    """Return whether a call has a rule of ours and thus stays whole.

    A rule is an annotation rule, a lowering rule for integers and booleans, a pass that rewrites the call, or a table
    (pointwise operators of one tensor).
    """
    overload = overload_of(node)
    if overload is None:
        return True
    name = str(overload)
    exact = name in LOWER_RULES and LOWER_RULES[name].exact
    if name in annotation_rules() or exact or name in REWRITTEN_LATER or name in FACTORIES:
        return True
    return is_pointwise_operator(overload) and sum(not _is_number(source) for source in node.all_input_nodes) <= 1


def _is_number(node: Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dim() == 0


def is_implicit(overload: torch._ops.OpOverload) -> bool:
    """Return whether an operator is a plain function of other operators, which PyTorch runs in its place."""
    return overload.has_kernel_for_dispatch_key(_COMPOSITE)


@dataclass(frozen=True, slots=True)
class TorchDecomposition:
    """Return PyTorch's decomposition of an operator, as a function of the operator's own arguments.

    pre_dispatch: trace in terms of operators such as linear and softmax. Decompositions written in C++ can only be
    traced below these (addmm, _softmax).
    """

    function: Callable[..., Any]
    pre_dispatch: bool


def torch_decompositions(node: Node) -> list[TorchDecomposition]:
    """Return PyTorch's decompositions of a call, best first.

    Empty where the call has a rule of ours or no decomposition, writes to its arguments, returns no tensor, or has real
    numbers that are not float32 and thus not quantized.
    """
    overload = overload_of(node)
    if overload is None or str(overload) in DECOMPOSITIONS or overload._schema.is_mutable or is_known(node):
        return []
    values = [item.meta.get("val") for item in (node, *node.all_input_nodes)]
    tensors = [value for value in tree_leaves(values) if isinstance(value, torch.Tensor)]
    if not isinstance(tree_leaves(values[0])[0], torch.Tensor):
        return []
    if any(tensor.is_complex() or (tensor.is_floating_point() and tensor.dtype != torch.float32) for tensor in tensors):
        return []
    view = _view_of(overload)
    if view is not None:
        return [TorchDecomposition(view, True)]
    found = [TorchDecomposition(_python()[overload], True)] if overload in _python() else []
    return [*found, TorchDecomposition(overload.decompose, False)] if is_implicit(overload) else found


def _view_of(overload: torch._ops.OpOverload) -> torch._ops.OpOverload | None:
    """Return the operator whose result an operator such as ``aten.narrow_copy`` copies, or None."""
    namespace, _, name = overload._schema.name.partition("::")
    if namespace != "aten" or not name.endswith("_copy"):
        return None
    packet = getattr(torch.ops.aten, name.removesuffix("_copy"), None)
    return getattr(packet, overload._overloadname, None)


@cache
def _python() -> Mapping[Any, Callable[..., Any]]:
    """Return the decompositions in Python that lead to core ATen operators. ExecuTorch also applies them, after
    quantization."""
    core = core_aten_decompositions()
    return {key: value for key, value in decomposition_table.items() if key in core}
