# SPDX-License-Identifier: BSD-3-Clause
"""Checks of a float graph before it is quantized: what has no quantized form, or would break later for another reason."""

from __future__ import annotations

import math

import torch
from torch.fx import GraphModule, Node

from openneutron.errors import InvalidModelError
from openneutron.pytorch.graph.program import source_line
from openneutron.pytorch.graph.rewriting import held_by

LOOPS = ("while_loop", "scan", "associative_scan")
"""Higher-order operators that ExecuTorch can't lower beside quantized values."""

VMAP = "torch._functorch.predispatch"
"""The module of the functions that torch.export leaves in a graph for ``torch.vmap``. They change the state of the process, and where
one fails between them, every later operator of the process fails."""


def check_graph(module: GraphModule) -> None:
    """Raise InvalidModelError for loops, ``torch.vmap``, and weights with NaN or infinite values."""
    for node in module.graph.nodes:
        if node.op == "call_function":
            _check_call(node)
    _check_values(module)


def is_vmapped(node: Node) -> bool:
    """Return whether a node is a part of ``torch.vmap`` in a graph that is not taken apart."""
    return node.op == "call_function" and getattr(node.target, "__module__", "") == VMAP


def _check_call(node: Node) -> None:
    line = source_line(node)
    where = f"'{node.name}'" + (f" ({line})" if line else "")
    if isinstance(node.target, torch._ops.HigherOrderOperator) and node.target.name() in LOOPS:
        raise InvalidModelError(
            f"{where}: {node.target.name()} is a loop at run time, which ExecuTorch can't lower beside quantized operators. Write a "
            "Python loop with a fixed number of steps, or end the model before it."
        )
    if is_vmapped(node):
        raise InvalidModelError(
            f"{where}: torch.vmap is still in the exported graph. Take it apart first: "
            "torch.export.export(...).run_decompositions({})."
        )


def _check_values(module: GraphModule) -> None:
    """Raise InvalidModelError for a parameter of the graph with NaN or infinite values, or a buffer with NaN.

    A buffer may be a mask with infinite values.
    """
    for node in module.graph.find_nodes(op="get_attr"):
        held = held_by(module, node)
        if not isinstance(held, torch.Tensor) or not held.is_floating_point() or not held.numel():
            continue
        if held.is_meta or isinstance(held, torch._subclasses.FakeTensor):
            continue
        low, high = (float(end) for end in held.detach().aminmax())
        is_finite = -math.inf < low and high < math.inf
        if is_finite or (not isinstance(held, torch.nn.Parameter) and not math.isnan(low)):
            continue
        kind = "a buffer" if not isinstance(held, torch.nn.Parameter) else "a parameter"
        count = int((~held.isfinite()).sum())
        raise InvalidModelError(
            f"'{node.target}': {kind} of the model with {count} of {held.numel()} values that are NaN or infinite; int8 takes "
            "finite ones. Load weights of a training that converged."
        )
