# SPDX-License-Identifier: BSD-3-Clause
"""Variables of LiteRT files as states of partitions.

A file makes the handle of a variable with VAR_HANDLE, gives the variable its first value with CALL_ONCE of another subgraph, reads the
variable with READ_VARIABLE, and writes it with ASSIGN_VARIABLE. A partition that alone uses the value that is read, and alone
computes the value that is written, keeps it in its program, and these operators leave the file.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from openneutron.compiler.legalize.partition import Partitioning, partition
from openneutron.ir import DType
from openneutron.litert import LiteRTModel
from openneutron.litert.read import DTYPE_OF_LITERT, StatePlaces, operator_name, places, read_model
from openneutron.litert.write import copied
from openneutron.targets import Target

ON_CPU = "an operator on the CPU reads or writes its variable, or another partition; one partition alone can keep it"

Key = tuple[bytes, bytes]
"""The container and the name of a variable, which all its handles share."""


@dataclass(slots=True)
class _Variable:
    """The operators of a variable in the main subgraph, by their places, and its first value."""

    handles: list[int] = field(default_factory=list)
    reads: list[int] = field(default_factory=list)
    writes: list[int] = field(default_factory=list)
    initial: Any = None
    others: bool = False


def partitioned(model: LiteRTModel, excluded: Iterable[str], target: Target) -> tuple[LiteRTModel, Partitioning]:
    """Return the partitioning of a model, and the model without the variables that the partitions keep."""
    excluded = tuple(excluded)
    usable = _usable(model)
    left = usable
    while True:
        tried = _with_states(model, left)
        result = partition(tried.graph, excluded, target)
        kept = {state.tensor for part in result.partitions for state in part.graph.states}
        # Behind them are the states of operators, which no operator of the file reads or writes.
        names = [state.tensor for state in tried.graph.states[: len(left)]]
        if kept.issuperset(names):
            return tried, _with_reasons(model, usable, left, result)
        left = [variable for variable, name in zip(left, names, strict=True) if name in kept]


def _with_reasons(
    model: LiteRTModel, usable: Sequence[_Variable], left: Sequence[_Variable], result: Partitioning
) -> Partitioning:
    """Return the partitioning with the reason of each operator of a variable that could be kept, and is not."""
    scattered = [variable for variable in usable if variable not in left]
    reads = {model.graph.nodes[place].name for variable in scattered for place in variable.reads}
    writes = {model.graph.nodes[place].source for variable in scattered for place in variable.writes}
    return replace(
        result,
        on_cpu=tuple(
            replace(item, reason=ON_CPU, suggestion="") if item.name in reads | writes else item
            for item in result.on_cpu
        ),
    )


def _usable(model: LiteRTModel) -> list[_Variable]:
    """Return the variables that a partition could keep: read before they are written, which happens once, and nowhere else."""
    variables: dict[Key, _Variable] = {}
    operators = model.model.subgraphs[0].operators or []
    of_handle: dict[int, Key] = {}
    for place, operator in enumerate(operators):
        name = operator_name(model.model, operator)
        inputs, outputs = places(operator.inputs), places(operator.outputs)
        if name == "VAR_HANDLE":
            key = of_handle[outputs[0]] = _key(operator)
            variables.setdefault(key, _Variable()).handles.append(place)
            continue
        for position, tensor in enumerate(inputs):
            if tensor not in of_handle:
                continue
            variable = variables[of_handle[tensor]]
            if name == "READ_VARIABLE":
                variable.reads.append(place)
            elif name == "ASSIGN_VARIABLE" and position == 0:
                variable.writes.append(place)
            else:
                variable.others = True
    first = dict(_first_values(model.model))
    found = []
    for key, variable in variables.items():
        variable.initial = first.get(key)
        if _is_usable(model, variable):
            found.append(variable)
    return found


def _key(operator: Any) -> Key:
    options = operator.builtinOptions
    return bytes(options.container or b""), bytes(options.sharedName or b"")


def _first_values(model: Any) -> Iterator[tuple[Key, np.ndarray | None]]:
    """Yield the variables that other subgraphs have, each with the constant that it is set to by an operator that runs once; None
    for what is used otherwise."""
    once = {
        operator.builtinOptions.initSubgraphIndex
        for operator in model.subgraphs[0].operators or ()
        if operator_name(model, operator) == "CALL_ONCE"
    }
    seen: set[Key] = set()
    for index, subgraph in enumerate(model.subgraphs[1:], 1):
        of_handle: dict[int, Key] = {}
        for operator in subgraph.operators or ():
            name, inputs = operator_name(model, operator), places(operator.inputs)
            if name == "VAR_HANDLE":
                of_handle[places(operator.outputs)[0]] = _key(operator)
                continue
            for key in {of_handle[tensor] for tensor in inputs if tensor in of_handle}:
                is_first = index in once and name == "ASSIGN_VARIABLE" and key not in seen
                seen.add(key)
                yield key, _constant(model, subgraph.tensors[inputs[1]]) if is_first else None


def _constant(model: Any, tensor: Any) -> np.ndarray | None:
    data, dtype = model.buffers[tensor.buffer].data, DTYPE_OF_LITERT.get(tensor.type, DType.OPAQUE)
    if data is None or dtype is DType.OPAQUE:
        return None
    shape = () if tensor.shape is None else tuple(int(extent) for extent in tensor.shape)
    content = np.asarray(data, np.uint8)
    size = math.prod(shape) * dtype.size_bytes
    # As in LiteRT, a buffer may be longer than its tensor.
    return np.frombuffer(content[:size].tobytes(), dtype.numpy).reshape(shape) if 0 <= size <= content.size else None


def _is_usable(model: LiteRTModel, variable: _Variable) -> bool:
    graph = model.graph
    if variable.others or not variable.reads or len(variable.writes) != 1 or variable.initial is None:
        return False
    (write,) = variable.writes
    if max(variable.reads) > write:
        return False
    held = [graph[graph.nodes[place].name] for place in variable.reads]
    new = graph.given(graph.nodes[write], 1)
    wanted = {(tensor.shape, tensor.dtype, tensor.quant) for tensor in (*held, new)}
    return len(wanted) == 1 and (held[0].shape, held[0].dtype.numpy) == (variable.initial.shape, variable.initial.dtype)


def _with_states(model: LiteRTModel, variables: Sequence[_Variable]) -> LiteRTModel:
    """Return the model with these variables as states; the same model where there are none."""
    if not variables:
        return model
    new = copied(model.model)
    main = new.subgraphs[0]
    gone: set[int] = set()
    same: dict[int, int] = {}
    states = []
    for variable in variables:
        first, *others = (places(main.operators[place].outputs)[0] for place in variable.reads)
        same.update(dict.fromkeys(others, first))
        (write,) = variable.writes
        states.append(StatePlaces(first, places(main.operators[write].inputs)[1], variable.initial))
        gone.update(variable.handles, variable.reads, variable.writes)
    keys = {_key(main.operators[place]) for variable in variables for place in variable.handles}
    gone.update(_idle_calls(model.model, keys))
    main.operators = [_renamed(operator, same) for place, operator in enumerate(main.operators) if place not in gone]
    states = [replace(state, update=same.get(state.update, state.update)) for state in states]
    return read_model(new, states)


def _idle_calls(model: Any, keys: set[Key]) -> Iterator[int]:
    """Yield the operators that run a subgraph once, and set nothing there but these variables."""
    for place, operator in enumerate(model.subgraphs[0].operators):
        if operator_name(model, operator) != "CALL_ONCE":
            continue
        inside = model.subgraphs[operator.builtinOptions.initSubgraphIndex].operators or ()
        names = {operator_name(model, each) for each in inside}
        own = {_key(each) for each in inside if operator_name(model, each) == "VAR_HANDLE"}
        if names <= {"VAR_HANDLE", "ASSIGN_VARIABLE"} and own <= keys:
            yield place


def _renamed(operator: Any, same: dict[int, int]) -> Any:
    twin = copy.copy(operator)
    twin.inputs = np.array([same.get(place, place) for place in places(operator.inputs)], np.int32)
    return twin
