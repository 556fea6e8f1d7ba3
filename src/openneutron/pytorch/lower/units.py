# SPDX-License-Identifier: BSD-3-Clause
"""Units of delegation, execution orders, and lookup tables of pointwise functions.

A unit is a set of nodes that are connected by float values. Its nodes run on the NPU together or not at all. A lookup table has the result
for each of the 256 values of int8, or for 513 values of int16.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import TypeVar

import numpy as np
import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.fx import Graph, Node

from openneutron.ir import DType, QuantParams
from openneutron.litert.write import interpolated
from openneutron.pytorch.graph.program import (
    Constants,
    evaluate,
    has_fixed_shape,
    is_compute,
    is_delegated,
    is_dequantize,
    is_exact,
    is_pointwise,
    is_quantize,
    is_real,
    jumps,
    op_name,
    quant_params,
    quantized,
    shape_of,
    stored_type,
)
from openneutron.pytorch.operators.families import LOWER_RULES
from openneutron.pytorch.operators.rules.context import SATURATING

Item = TypeVar("Item", bound=Hashable)


def in_order(items: Iterable[Item], sources: Callable[[Item], Iterable[Item]]) -> list[Item]:
    """Return the items in topological order: each after its sources. Items on a cycle, and items that depend on one,
    are left out.

    Items that become ready at the same time are sorted by their last source: the one that comes latest in the order.
    An item that is its own source does not count as a cycle.
    """
    items = list(items)
    sorter: TopologicalSorter[Item] = TopologicalSorter()
    for item in items:
        sorter.add(item)
    for item in items:
        sorter.add(item, *(source for source in sources(item) if source is not item))
    with suppress(CycleError):  # what does not depend on the cycle is handed out all the same
        sorter.prepare()
    order: list[Item] = []
    while ready := sorter.get_ready():
        order += ready
        sorter.done(*ready)
    return order


def components(items: Iterable[Item], neighbors: Callable[[Item], Iterable[Item]]) -> list[list[Item]]:
    """Return the connected components. Each is in breadth-first order from its first item on."""
    seen: set[Item] = set()
    found = []
    for first in items:
        if first in seen:
            continue
        seen.add(first)
        component = [first]
        for item in component:
            new = [near for near in dict.fromkeys(neighbors(item)) if near not in seen]
            seen.update(new)
            component += new
        found.append(component)
    return found


class Groups:
    """The nodes of a graph in groups that run together, in execution order."""

    def __init__(self, nodes: Iterable[Node], key_of: Callable[[Node], Hashable]) -> None:
        together: dict[Hashable, list[Node]] = defaultdict(list)
        for node in nodes:
            together[key_of(node)].append(node)
        group_of = {node: key for key, members in together.items() for node in members}
        reads = {
            key: [
                source
                for source in dict.fromkeys(s for node in members for s in node.all_input_nodes)
                if group_of[source] != key
            ]
            for key, members in together.items()
        }
        order = in_order(together, lambda key: dict.fromkeys(group_of[source] for source in reads[key]))
        assert len(order) == len(together), "groups on a cycle"
        self.groups: Sequence[tuple[Sequence[Node], Sequence[Node]]] = [(together[key], reads[key]) for key in order]
        """The nodes of each group, and the nodes outside of the group that they read."""

    def levels(self, on_npu: Callable[[Node], bool]) -> Mapping[Node, int]:
        """Return the level of each node: the largest number of transfers from the NPU to the CPU on any path of values to the node.

        NPU nodes of one level can run together: a path from one to another through the CPU would raise the level of the second. The number
        of levels with NPU nodes is the lower bound of the number of delegate calls.
        """
        level: dict[Node, int] = {}
        for nodes, reads in self.groups:
            npu = on_npu(nodes[0])
            # A value that goes from the NPU to the CPU ends a level; its later readers on the NPU belong to the next level.
            here = max((level[source] + (on_npu(source) and not npu) for source in reads), default=0)
            level |= dict.fromkeys(nodes, here)
        return level


@dataclass(frozen=True, slots=True)
class Function:
    """A pointwise function of one quantized value. ``nodes`` compute it, in execution order.

    dequantized: the dequantize nodes of the quantized value. source: the first of them. numbers: the nodes of constants that are single
    numbers.
    """

    source: Node
    nodes: tuple[Node, ...]
    dequantized: tuple[Node, ...]
    numbers: tuple[Node, ...]

    @property
    def has_operator(self) -> bool:
        """Return whether the function is a single call of an operator that has a lowering rule and only one tensor as
        an operand."""
        if len(self.nodes) != 1 or op_name(self.nodes[0]) not in LOWER_RULES:
            return False
        return sum(isinstance(argument, Node) for argument in self.nodes[0].args) == 1


def function_behind(end: Node, constants: Constants) -> Function | None:
    """Return the pointwise function of one quantized value that computes ``end``, or None if ``end`` is no such
    function.

    The function reads only dequantize nodes of this value and single numbers, and all its operators are pointwise.
    The value is no constant. ``end`` is float32 and has the shape of the value. A function of an int16 value has no
    operator with steps, such as a comparison (``jumps``).
    """
    order: dict[Node, None] = {}
    dequantized: dict[Node, None] = {}
    numbers: dict[Node, None] = {}
    waiting = [(end, False)]
    while waiting:
        node, is_done = waiting.pop()
        if is_done:
            order[node] = None
        elif node in order or node in dequantized or node in numbers:
            continue
        elif _is_number(node, constants):
            numbers[node] = None
        elif is_dequantize(node):
            dequantized[node] = None
        elif is_pointwise(node) and is_real(node) and node.all_input_nodes:
            waiting.append((node, True))
            waiting += [(source, False) for source in node.all_input_nodes]
        else:
            return None
    sources = {(node.args[0], str(node.args[1:])) for node in dequantized}
    if not order or len(sources) != 1 or end.meta["val"].dtype != torch.float32:
        return None
    first = next(iter(dequantized))
    if first.args[0] in constants or not has_fixed_shape(first) or not has_fixed_shape(end):
        return None
    if shape_of(first) != shape_of(end):
        return None
    if stored_type(first) is DType.INT16 and any(map(jumps, order)):
        return None
    return Function(first, tuple(order), tuple(dequantized), tuple(numbers))


def _is_number(node: Node, constants: Constants) -> bool:
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.dtype not in (torch.float32, torch.bool):
        return False
    if not all(isinstance(extent, int) and extent == 1 for extent in value.shape):
        return False
    if is_dequantize(node):
        return node.args[0] in constants
    return node in constants or (node.op == "call_function" and not node.all_input_nodes)


def table_of(function: Function, quantize: Node, result: QuantParams, constants: Constants) -> np.ndarray:
    """Return the lookup table of a function, computed from PyTorch's float32 results.

    For int8 input: the result for each of the 256 stored values, as ``quantize`` stores it. For int16 input: int16 [513], between whose
    entries LiteRT interpolates. ``result``: the quantization of the entries. An input without a result (the root of a negative number) gets
    the result of the nearest input that has one.
    """
    source = quant_params(function.source, constants)
    if stored_type(function.source) is DType.INT16:
        return _interpolated(_results(function, constants, np.arange(-32768, 32769, 64), source), result)
    values = _results(function, constants, np.arange(-128, 128), source)
    return quantized(values, quantize, result)


def factor_of(function: Function, constants: Constants) -> float | None:
    """Return the factor if the function multiplies an int16 value by a constant other than 0, or None for any other function."""
    source = quant_params(function.source, constants)
    stored = np.arange(-32768, 32768, 64)
    values = _results(function, constants, stored, source).astype(np.float64)
    factor = float(values[-1] / (stored[-1] * source.scale))
    if not math.isfinite(factor) or factor == 0:
        return None
    return factor if np.allclose(values, stored * source.scale * factor, rtol=1e-6, atol=0) else None


def _results(function: Function, constants: Constants, stored: np.ndarray, source: QuantParams) -> np.ndarray:
    """Return the float32 results of the function for the stored integers ``stored``. A NaN is replaced by the nearest
    result that is a number (``_without_gaps``)."""
    with unset_fake_temporarily(), torch.no_grad():
        steps = torch.from_numpy(stored.astype(np.int32)) - source.zero_point
        real = steps.to(torch.float32) * torch.tensor(source.scale, dtype=torch.float32)
        known = dict.fromkeys(function.dequantized, real)
        known |= {node: _number(node, constants) for node in function.numbers}
        values = evaluate(function.nodes, known).to(torch.float32).expand(stored.size).numpy()
    return _without_gaps(values)


def _interpolated(values: np.ndarray, result: QuantParams) -> np.ndarray:
    """Return the entries of an int16 lookup table, one for every 128th stored value. ``values`` has the results for
    every 64th stored value: at the entries, and in the middle between two entries.

    In the middle, linear interpolation to the next entry has an error. As in LiteRT's tables, an entry is moved by
    half of this error. Neighbouring entries differ by at most ``STEEPEST``: at a pole, such as that of 1 / x at 0,
    the entries below the pole are changed.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        steps = values.astype(np.float64) / result.scale
    steps = np.clip(np.nan_to_num(steps, posinf=SATURATING, neginf=-SATURATING), -SATURATING, SATURATING)
    ends, middles = _away(steps[::2]), _away(steps[1::2])
    error = _away((steps[2::2] + ends[:-1]) / 2) - middles
    entries = np.clip(np.append(ends[:-1] - _away(error / 2), ends[-1]), -32768, 32767)
    for place in np.flatnonzero(np.abs(np.diff(entries)) > STEEPEST)[::-1]:
        while place >= 0 and abs(entries[place + 1] - entries[place]) > STEEPEST:
            entries[place] = np.clip(entries[place], entries[place + 1] - STEEPEST, entries[place + 1] + STEEPEST)
            place -= 1
    return entries.astype(np.int16)


COARSE = 1024
"""The error of an int16 lookup table, in stored steps, from which on ``tables_near_zero`` is used: 1 / 32 of the largest stored value."""

CLOSER = 128
"""The factor by which values are multiplied before the lookup table for values near 0.

An int16 table has an entry for every 128th stored value, so that after the multiplication each stored value has an entry of its own.
"""


@dataclass(frozen=True, slots=True)
class TablesNearZero:
    """Two int16 lookup tables for a function that is steep at 0, such as a root.

    ``whole`` covers the whole range. ``near`` is read with the value times ``CLOSER``, saturated, and so has an entry for each of the
    stored values 0 to 255. ``op``: the operator that combines the results of both tables to the function.
    """

    op: str
    whole: np.ndarray
    near: np.ndarray


def tables_near_zero(
    function: Function, whole: np.ndarray, result: QuantParams, constants: Constants
) -> TablesNearZero | None:
    """Return two tables for a function of an int16 value whose single table ``whole`` is too coarse near 0. Return
    None if the single table is good enough, or if two tables do not at least halve its largest error.

    The result is also None unless the function is constant for values up to 0, and monotonic from 0 on. ``result``:
    the quantization of the entries.
    """
    source = quant_params(function.source, constants)
    size = np.iinfo(np.int16).max

    def exact(first: int, last: int) -> np.ndarray:
        steps = _results(function, constants, np.arange(first, last + 1), source).astype(np.float64) / result.scale
        return _away(np.clip(np.nan_to_num(steps, posinf=SATURATING, neginf=-SATURATING), -size - 1, size))

    found = interpolated(whole)
    if np.abs(exact(0, CLOSER) - found[size + 1 : size + CLOSER + 2]).max() < COARSE:
        return None
    right = exact(-size - 1, size)
    rises = bool(right[-1] > right[size + 1])
    if (right[: size + 1] != right[size + 1]).any() or (np.diff(right[size + 1 :]) * (1 if rises else -1) < 0).any():
        return None
    beyond, near = whole.copy(), whole.copy()
    beyond[:258] = near[:256] = right[0]
    near[256:] = right[size + 1 : size + 1 + 257]
    choose = np.maximum if rises else np.minimum
    closer = np.clip(np.arange(-size - 1, size + 1) * CLOSER, -size - 1, size)
    joined = choose(interpolated(beyond), interpolated(near)[closer + size + 1])
    if np.abs(joined - right).max() * 2 > np.abs(found - right).max():
        return None
    return TablesNearZero("maximum" if rises else "minimum", beyond, near)


STEEPEST = 2**15 - 1
"""The largest difference of two neighbouring entries of an int16 lookup table: the kernels store slopes as int16."""


def _away(steps: np.ndarray) -> np.ndarray:
    """Round half away from zero."""
    return np.copysign(np.floor(np.abs(steps) + 0.5), steps)


def _number(node: Node, constants: Constants) -> torch.Tensor:
    if is_dequantize(node):
        source = node.args[0]
        assert isinstance(source, Node)
        quant = quant_params(node, constants)
        steps = constants.array(source).reshape(()).astype(np.int64) - quant.zero_points[0]
        return torch.tensor(np.float32(steps) * np.float32(quant.scales[0]))
    if node in constants:
        return torch.from_numpy(np.array(constants.array(node)).reshape(()))
    return evaluate((node,), {}).reshape(())


def _without_gaps(values: np.ndarray) -> np.ndarray:
    """Return the values with each NaN replaced by the nearest value that is a number, or by 0 if all values are NaN.

    Of two equally near values, the one with the lower index is used.
    """
    there = np.flatnonzero(~np.isnan(values))
    if there.size == values.size:
        return values
    if not there.size:
        return np.zeros_like(values)
    here = np.arange(values.size)
    after = np.searchsorted(there, here).clip(1, max(there.size - 1, 1))
    below, above = there[after - 1], there[np.minimum(after, there.size - 1)]
    return values[np.where(np.abs(above - here) < np.abs(here - below), above, below)]


def functions_of(nodes: Iterable[Node], constants: Constants) -> dict[Node, Function]:
    """Return the pointwise functions whose results are quantized, by the quantize node of the result; see ``function_behind``."""
    found: dict[Node, Function] = {}
    for node in nodes:
        source = node.args[0] if is_quantize(node) else None
        if isinstance(source, Node) and (function := function_behind(source, constants)) is not None:
            found[node] = function
    return found


def only_inside(functions: Mapping[Node, Function]) -> set[Node]:
    """Return the operators and numbers that only these functions read. Dequantize nodes are not among them.
    ``functions`` has pointwise functions, each under the quantize node of its result."""
    inside = {node for function in functions.values() for node in (*function.nodes, *function.numbers)}
    while outside := {
        node for node in inside if any(user not in inside and user not in functions for user in node.users)
    }:
        inside -= outside
    return inside


@dataclass(frozen=True, slots=True, eq=False)
class Unit:
    """Nodes that run on the NPU together or not at all: dequantize nodes, operators and quantize nodes that float values connect.

    ``nodes`` has all of them in execution order.
    """

    nodes: tuple[Node, ...]

    @property
    def compute(self) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes if is_compute(node))

    def __str__(self) -> str:
        return " ".join(node.name for node in self.nodes)


def find_units(graph: Graph, constants: Constants) -> tuple[list[Unit], list[Unit]]:
    """Return two lists: the units that can run one after the other, in execution order, and the units that can't.

    The second list has units on a cycle, and units that depend on one. A unit is on a cycle if it reads values that are computed from its
    own results. Quantize nodes of the model's inputs, dequantize nodes of its outputs and delegate calls belong to no unit.
    """
    functions = functions_of(graph.nodes, constants).values()
    inside = {node for function in functions for node in function.nodes}
    calls = [node for node in graph.nodes if node.op == "call_function" and not is_delegated(node)]
    place = {node: number for number, node in enumerate(calls)}
    near: dict[Node, list[Node]] = defaultdict(list)
    for node in calls:
        for source in node.all_input_nodes:
            if source not in place or (is_exact(source) and not {source, node} <= inside):
                continue  # integers and booleans may come from anywhere
            if not is_quantize(source) or all(each in constants for each in source.all_input_nodes):
                near[source].append(node)
                near[node].append(source)
    units = [
        Unit(tuple(sorted(nodes, key=place.__getitem__)))
        for nodes in components(calls, near.__getitem__)
        if any(map(is_compute, nodes)) or (any(map(is_quantize, nodes)) and any(map(is_dequantize, nodes)))
    ]
    unit_of = {node: unit for unit in units for node in unit.nodes}

    def sources(unit: Unit) -> Iterable[Unit]:
        read = (unit_of.get(source) for node in unit.nodes for source in node.all_input_nodes)
        return dict.fromkeys(other for other in read if other is not None)

    order = in_order(units, sources)
    return order, [unit for unit in units if unit not in order]
