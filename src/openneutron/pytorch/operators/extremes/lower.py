# SPDX-License-Identifier: BSD-3-Clause
"""The larger or smaller of two tensors, and the largest or smallest values along dimensions."""

from __future__ import annotations

from collections.abc import Callable

from torch.fx import Node

from openneutron.pytorch.graph.program import arguments_of, op_name, shape_of
from openneutron.pytorch.graph.reject import Reject
from openneutron.pytorch.operators.elementwise.lower import of_both
from openneutron.pytorch.operators.rules.context import Context
from openneutron.pytorch.operators.rules.lowering import Layout, lowers
from openneutron.pytorch.operators.rules.results import Value


def _extremum(op: str) -> Callable[[Node, Context], Value | Reject]:
    def rule(node: Node, context: Context) -> Value | Reject:
        quant = context.result_quant(node)
        a, b = (context.requantized(context.value(item), quant, f"{node.name}_operand") for item in node.args[:2])
        return of_both(node, context, op, a, b)

    return rule


for _op in ("maximum", "minimum"):
    lowers(f"aten.{_op}.default", moves=True)(_extremum(_op))


@lowers("aten.amax.default", "aten.amin.default", moves=True, layout=Layout.OWN)
def extreme(node: Node, context: Context) -> Value | Reject:
    given = arguments_of(node)
    value = context.settled(context.value(given["self"]))
    rank = len(value.shape)
    if not rank:
        return Reject("its input is a single number")
    dims = {dim % rank for dim in (given["dim"] or range(rank))}
    places = [place for place, axis in enumerate(value.order) if axis in dims and value.shape[axis] > 1]
    quant, name = context.quant(value), value.tensor
    op = "reduce_max" if op_name(node).startswith("aten.amax") else "reduce_min"
    for part in _two_runs(places):
        stored = tuple(1 if place in part else extent for place, extent in enumerate(context.tensors[name].shape))
        axes = context.add_integers(f"{node.name}_axes", part)
        name = context.emit(op, (name, axes), stored, quant, node.name, keep_dims=True)
    kept = tuple(1 if axis in dims else extent for axis, extent in enumerate(value.shape))
    result = context.viewed(Value(name, kept, value.order, kept), shape_of(node))
    return context.requantized(result, context.result_quant(node), f"{node.name}_requantized")


def _two_runs(places: list[int]) -> list[list[int]]:
    """Return the places, at most two runs of neighbours in each list: what the kernel reduces at a time."""
    runs: list[list[int]] = []
    for place in places:
        if runs and runs[-1][-1] == place - 1:
            runs[-1].append(place)
        else:
            runs.append([place])
    return [[place for run in runs[first : first + 2] for place in run] for first in range(0, len(runs), 2)]
