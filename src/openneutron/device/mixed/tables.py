# SPDX-License-Identifier: BSD-3-Clause
"""Rewrite a LiteRT graph before it is partitioned: fold constants, replace float islands by lookup tables, and make variables states.

An island is a group of float operators between int8 tensors, which TensorFlow's converter leaves for operators without an int8 form:
DEQUANTIZE, NEG (or SQUARE, SIN, DIV ...), QUANTIZE. If each element of the island's result depends on a single stored 8-bit value, a lookup
table of 256 entries can replace the island. LiteRT's own kernels compute the entries, so that the compiled file returns the same bytes.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from openneutron.compiler.legalize.partition import EFFECTFUL, Partitioning, partition
from openneutron.errors import InvalidModelError
from openneutron.ir import DType, Graph, Node, QuantParams, Tensor
from openneutron.litert import LiteRTModel
from openneutron.litert.read import DTYPE_OF_LITERT, TABLE_NAME, StatePlaces, operator_name, places, read_model
from openneutron.litert.write import CALLING, constant_object, copied, cut, operator_object, stored
from openneutron.targets import Target

READ_BY_THE_NPU = (DType.INT8, DType.UINT8, DType.INT16, DType.INT32, DType.INT64, DType.BOOL)
"""The result types that are folded.

Floats are not: the CPU reads them, and a folded DEQUANTIZE of 16-bit float weights would only make the file larger.
"""

MOST_GROWTH = 8
"""The limit on the bytes of a folded result divided by the bytes of the constants that it was computed from.

A CAST from int8 to int64, for instance, has the ratio 8.
"""

ALWAYS_STORED = 1 << 16
"""The number of bytes up to which a result is folded, whatever the size of its constants, for instance that of a FILL. The number is our
choice."""


def folded(model: LiteRTModel) -> LiteRTModel:
    """Return the model with constants in place of known shapes and of operators that read only constants. The results
    of such operators become constants only if the NPU reads their type and their size is worth storing.

    If LiteRT, in a child process, can't run the operators, only known shapes are replaced. The same model is returned
    where nothing is replaced.
    """
    model = with_known_shapes(model)
    graph = model.graph
    fixed = _fixed(model)
    ends = _ends(model, fixed)
    if not ends:
        return model
    needed = _needed(graph, fixed, ends)
    try:
        places = [model.tensor_index[name] for name in ends]
        from openneutron.litert.interpret import InterpreterProcess  # few models have anything to fold

        process = InterpreterProcess([(cut(model.model, needed, [], places), "operators that read constants alone")])
        results = process.run(0, [])
        process.close()
    except InvalidModelError:
        return model
    found = dict(zip(ends, results, strict=True))
    stated = {
        name: value
        for name, value in found.items()
        if (value.shape, value.dtype) == (graph[name].shape, graph[name].dtype.numpy)
    }
    return _with_constants(model, fixed, stated) if stated else model


def with_known_shapes(model: LiteRTModel) -> LiteRTModel:
    """Return the model with constants in place of its SHAPE and RANK operators; the same model where it has none.

    Keras layers that reshape, and resizes to the size of another tensor, read a shape and compute with it. A compiled
    program has fixed shapes. An operator stays where the file returns its result, or where an extent is unknown.
    """
    graph = model.graph
    found = {place: value for place, node in enumerate(graph.nodes) if (value := _known(graph, node)) is not None}
    values = {graph.nodes[place].name: value for place, value in found.items()}
    return _with_constants(model, found, values) if found else model


def _known(graph: Graph, node: Node) -> npt.NDArray[Any] | None:
    source = graph.operand(node, 0)
    if node.op not in ("shape", "rank") or source is None or len(node.outputs) != 1 or node.name in graph.outputs:
        return None
    value = np.array(source.shape if node.op == "shape" else len(source.shape), graph[node.name].dtype.numpy)
    fits = value.shape == graph[node.name].shape and all(extent > 0 for extent in source.shape)
    return value if fits else None


def _fixed(model: LiteRTModel) -> list[int]:
    """Return the indices of the operators whose operands are all constants or results of other such operators.

    Operators with side effects, calls of subgraphs and custom operators are left out. Variables, and constants whose
    values are in another file, do not count as constants.
    """
    graph, tensors = model.graph, model.model.subgraphs[0].tensors
    known = {name for name, tensor in graph.tensors.items() if tensor.is_constant}
    for name in list(known):
        tensor = tensors[model.tensor_index[name]]
        if tensor.isVariable or tensor.externalBuffer:  # it changes between runs, or its values are in another file
            known.remove(name)
    fixed = []
    for place, node in enumerate(graph.nodes):
        same = node.op not in EFFECTFUL and node.op not in CALLING and not node.op.startswith("CUSTOM")
        if node.outputs and same and all(name is None or name in known for name in node.inputs):
            known.update(node.outputs)
            fixed.append(place)
    return fixed


def _ends(model: LiteRTModel, fixed: Iterable[int]) -> list[str]:
    """Return the names of the tensors that become constants: results of the operators at the indices ``fixed``, which
    are folded.

    Such a result is an output of the file, or an operator that is not folded reads it. It has a type that the NPU
    reads, and its size is worth storing.
    """
    graph = model.graph
    inside = set(fixed)
    read = {*graph.outputs}
    for place, node in enumerate(graph.nodes):
        if place not in inside:
            read.update(name for name in node.inputs if name is not None)
    made = [name for place in sorted(inside) for name in graph.nodes[place].outputs if name in read]
    return [name for name in made if graph[name].dtype in READ_BY_THE_NPU and _small(graph, fixed, name)]


def _small(graph: Graph, fixed: Iterable[int], end: str) -> bool:
    needed = [graph.nodes[place] for place in _needed(graph, fixed, [end])]
    sources = {name for node in needed for name in node.inputs if name is not None and graph[name].is_constant}
    read = sum(graph[name].size_bytes for name in sources)
    return 0 <= graph[end].size_bytes <= max(ALWAYS_STORED, MOST_GROWTH * read)


def _needed(graph: Graph, fixed: Iterable[int], ends: Iterable[str]) -> list[int]:
    """Return those indices of ``fixed`` whose operators the tensors ``ends`` depend on, in order."""
    wanted, needed = set(ends), []
    for place in sorted(fixed, reverse=True):
        node = graph.nodes[place]
        if wanted.intersection(node.outputs):
            wanted.update(name for name in node.inputs if name is not None)
            needed.append(place)
    return needed[::-1]


def _with_constants(model: LiteRTModel, fixed: Collection[int], values: dict[str, np.ndarray]) -> LiteRTModel:
    new = copied(model.model)
    main = new.subgraphs[0]
    for name, value in values.items():
        place = model.tensor_index[name]
        main.tensors[place] = stored(new, main.tensors[place], value)
    graph = model.graph
    used, kept = {*graph.outputs}, []
    for place in reversed(range(len(graph.nodes))):
        node = graph.nodes[place]
        if place in fixed and not (used - values.keys()).intersection(node.outputs):
            continue
        used.update(name for name in node.inputs if name is not None)
        kept.append(place)
    main.operators = [main.operators[place] for place in sorted(kept)]
    return read_model(new)


POINTWISE = frozenset(
    (
        *("ABS", "ADD", "CAST", "CEIL", "COS", "DEQUANTIZE", "DIV", "ELU", "EQUAL", "EXP", "FLOOR", "FLOOR_DIV", "FLOOR_MOD", "GELU"),
        *("GREATER", "GREATER_EQUAL", "HARD_SWISH", "LEAKY_RELU", "LESS", "LESS_EQUAL", "LOG", "LOGICAL_AND", "LOGICAL_NOT", "LOGICAL_OR"),
        *("LOGISTIC", "MAXIMUM", "MINIMUM", "MUL", "NEG", "NOT_EQUAL", "POW", "PRELU", "RELU", "RELU6", "RELU_0_TO_1", "RELU_N1_TO_1"),
        *("ROUND", "RSQRT", "SELECT", "SELECT_V2", "SIGN", "SIN", "SQRT", "SQUARE", "SQUARED_DIFFERENCE", "SUB", "TANH"),
    )
)  # fmt: skip
"""LiteRT's operators that compute each element of the result from the operands' elements at the same index."""

STORED = {
    DType.INT8: np.arange(-128, 128).astype(np.int8),
    DType.UINT8: np.arange(256).astype(np.uint8),
    DType.BOOL: np.array([False, True]),
}
"""All stored values of a type, in the order of the entries of a lookup table."""

EIGHT_BITS = (DType.INT8, DType.UINT8)
"""The types of an island's result and of the entries of a lookup table."""

IN_FLOAT = (DType.FLOAT32, DType.INT32, DType.INT64, DType.BOOL)
"""The types of the tensors inside an island."""


@dataclass(frozen=True, slots=True)
class Island:
    """Pointwise operators that compute each element of ``result`` from the element of ``source`` at the same index.

    ``source`` is an 8-bit or boolean tensor. ``operators`` has the indices of the island's operators, and ``end`` the
    index of the last one.
    """

    source: str
    result: str
    end: int
    operators: tuple[int, ...]


def with_tables(model: LiteRTModel, excluded: Collection[str] = ()) -> LiteRTModel:
    """Return the model with a lookup table in place of each island (pointwise operators whose result depends on one
    8-bit or boolean tensor). An island with a boolean source becomes a SELECT_V2.

    Operators whose results are no longer read are removed. ``excluded`` has names of operators and tensors: an
    operator stays if its name or its output is in it. The same model is returned if there are no islands, or if
    LiteRT, in a child process, can't run them.
    """
    islands = list(_islands(model, frozenset(excluded)))
    if not islands:
        return model
    try:
        tables = _computed(model, islands)
    except InvalidModelError:
        return model
    return _replaced(model, dict(zip(islands, tables, strict=True)))


@dataclass(frozen=True, slots=True)
class _Origin:
    """The tensor from which another tensor is computed element by element.

    ``source`` is a tensor that a table can index (``_is_stored``); None if the other tensor depends only on
    constants. ``operators`` has the indices of the operators between the two, with the one that computes the other
    tensor. Only ``_origin`` returns them without that one.
    """

    source: str | None
    operators: tuple[int, ...]


def _islands(model: LiteRTModel, excluded: frozenset[str]) -> Iterator[Island]:
    graph, operators = model.graph, model.model.subgraphs[0].operators or ()
    found: dict[str, _Origin] = {}
    before: dict[str, _Origin] = {}
    for place, (node, operator) in enumerate(zip(graph.nodes, operators, strict=True)):
        kind = operator_name(model.model, operator)
        if kind not in POINTWISE and kind != "QUANTIZE":
            continue
        if len(node.outputs) != 1 or not node.inputs or excluded & {node.op, kind, node.op.upper(), node.name}:
            continue
        result = graph[node.name]
        origin = _origin(graph, node, kind, found, before)
        if origin is None:
            continue
        through = (*origin.operators, place)
        if result.dtype in EIGHT_BITS:
            if origin.source is None or result.quant is None or result.quant.per_channel:
                continue
            before[node.name] = _Origin(origin.source, through)
            if any(name in found for name in node.inputs):
                yield Island(origin.source, node.name, place, through)
        elif kind != "QUANTIZE" and result.dtype in IN_FLOAT:
            found[node.name] = _Origin(origin.source, through)


def _origin(
    graph: Graph, node: Node, kind: str, found: Mapping[str, _Origin], before: Mapping[str, _Origin]
) -> _Origin | None:
    """Return the origin of a node's result: the tensor that alone determines each element of the result by the
    element at the same index. Return None if there is no such tensor, unless the result depends only on constants.

    ``found`` has the origins of tensors inside islands (types ``IN_FLOAT``). ``before`` has the origins of stored
    tensors that are computed from another stored tensor.
    """
    reads_stored = graph[node.name].dtype in EIGHT_BITS or kind in ("DEQUANTIZE", "CAST")
    sources: dict[str, None] = {}
    operators: set[int] = set()
    for name in node.inputs:
        if name is None:
            return None
        if name in found:
            operators.update(found[name].operators)
            if (source := found[name].source) is not None:
                sources[source] = None
        elif reads_stored and _is_stored(graph[name], kind):
            sources[name] = None
        elif not _is_uniform(graph[name]):
            return None
    if not sources:
        return _Origin(None, tuple(sorted(operators)))
    common = _common(tuple(sources), before)
    if common is None or graph[node.name].shape != graph[str(common.source)].shape:
        return None
    return _Origin(common.source, tuple(sorted(operators.union(common.operators))))


def _common(sources: Sequence[str], before: Mapping[str, _Origin]) -> _Origin | None:
    """Return the nearest stored tensor from which all tensors of ``sources`` are computed element by element, as
    their common origin. Return None if there is none.

    Example: Softsign is the float quotient of an int8 tensor x and of |x| + 1, which is int8 too. The tensor x
    determines both.
    """
    lines = []
    for name in sources:
        line: dict[str, tuple[int, ...]] = {name: ()}
        at = name
        while (origin := before.get(at)) is not None and origin.source is not None:
            line[origin.source] = (*line[at], *origin.operators)
            at = origin.source
        lines.append(line)
    for name in lines[0]:
        if all(name in line for line in lines):
            return _Origin(name, tuple(sorted({place for line in lines for place in line[name]})))
    return None


def _is_stored(tensor: Tensor, kind: str) -> bool:
    """Return whether a tensor can be the source of a lookup table for this kind of operator.

    It is computed or given at run time, and its type is one of ``STORED``. For all kinds but CAST, it must also have
    one scale and one zero point for the whole tensor, and must not be boolean.
    """
    if tensor.data is not None or tensor.dtype not in STORED or not tensor.elements:
        return False
    if kind == "CAST":
        return True
    return tensor.dtype is not DType.BOOL and tensor.quant is not None and not tensor.quant.per_channel


def _is_uniform(tensor: Tensor) -> bool:
    """Return whether a tensor is a constant whose elements are all equal."""
    data = tensor.data
    if data is None or tensor.dtype is DType.OPAQUE or not data.size:
        return False
    first = data.reshape(-1)[:1].tobytes()
    return bool(data.tobytes() == first * data.size)


def _computed(model: LiteRTModel, islands: Sequence[Island]) -> list[npt.NDArray[Any]]:
    """Return the result of each island for all stored values of its source. Raises InvalidModelError if LiteRT can't run the island."""
    from openneutron.litert.interpret import InterpreterProcess  # few models have any islands

    process = InterpreterProcess(
        [(_alone(model, island), "operators in float between int8 operators") for island in islands]
    )
    try:
        return [
            process.run(number, [STORED[model.graph[island.source].dtype]])[0] for number, island in enumerate(islands)
        ]
    finally:
        process.close()


def _alone(model: LiteRTModel, island: Island) -> bytes:
    """Return a model with only the operators of an island. Its input is one tensor that has each stored value of the source once."""
    graph, places = model.graph, model.tensor_index
    new = copied(model.model)
    main = new.subgraphs[0]
    for place in island.operators:
        for name in graph.nodes[place].inputs:
            assert name is not None
            data = graph[name].data
            if data is not None:
                main.tensors[places[name]] = constant_object(new, main.tensors[places[name]], data.reshape(-1)[:1])
    for name, extent in _extents(graph, island).items():
        tensor = main.tensors[places[name]] = copy.copy(main.tensors[places[name]])
        tensor.shape, tensor.shapeSignature = np.array([extent], np.int32), None
    return cut(new, island.operators, [places[island.source]], [places[island.result]])


def _extents(graph: Graph, island: Island) -> dict[str, int]:
    """Return the number of elements of an island's source and of each tensor in the island, by name, for the run that
    computes the island's table. The source then has each of its stored values once.

    The number is 1 for a tensor that depends only on constants.
    """
    found = {island.source: len(STORED[graph[island.source].dtype])}
    for place in island.operators:
        node = graph.nodes[place]
        found[node.name] = max(found.get(str(name), 1) for name in node.inputs)
    return found


def _replaced(model: LiteRTModel, tables: Mapping[Island, npt.NDArray[Any]]) -> LiteRTModel:
    graph, places = model.graph, model.tensor_index
    new = copied(model.model)
    main = new.subgraphs[0]
    unquantized: dict[str, None] = {}
    for island, table in tables.items():
        result = main.tensors[places[island.result]]
        source = places[island.source]
        if graph[island.source].dtype is DType.BOOL:
            operands = [
                source,
                *(
                    _add(main, constant_object(new, result, table[at].reshape(1), f"{island.result}/{at}"))
                    for at in (1, 0)
                ),
            ]
            main.operators[island.end] = operator_object(new, "SELECT_V2", operands, [places[island.result]])
            continue
        entries = _add(main, constant_object(new, result, table, f"{island.result}/table"))
        main.operators[island.end] = operator_object(new, TABLE_NAME, [source, entries], [places[island.result]])
        if graph[island.source].quant is None:
            unquantized[island.source] = None
    ends = {island.end: island.source for island in tables}
    inside = {place for island in tables for place in island.operators}
    used, kept = set(graph.outputs), []
    for place in reversed(range(len(graph.nodes))):
        node = graph.nodes[place]
        if place in inside and not used.intersection(node.outputs):
            continue
        kept.append(place)
        # The table, which replaces the last operator of an island, reads the source alone.
        used.update([ends[place]] if place in ends else [name for name in node.inputs if name is not None])
    main.operators = [main.operators[place] for place in sorted(kept)]
    made = read_model(new)
    # CAST reads a stored value as a number: its scale is 1 and its zero point 0.
    tensors = {name: replace(made.graph[name], quant=QuantParams((1.0,), (0,))) for name in unquantized}
    return replace(made, graph=replace(made.graph, tensors={**made.graph.tensors, **tensors}))


def _add(subgraph: Any, tensor: Any) -> int:
    subgraph.tensors.append(tensor)
    return len(subgraph.tensors) - 1


ON_CPU = "an operator on the CPU reads or writes its variable, or another partition; one partition alone can keep it"

Key = tuple[bytes, bytes]
"""The container and the name of a variable. All handles of the variable share them."""


@dataclass(slots=True)
class _Variable:
    """A variable of the main subgraph: the indices of its VAR_HANDLE, READ_VARIABLE and ASSIGN_VARIABLE operators, and its initial value.

    ``others``: whether another kind of operator uses the variable.
    """

    handles: list[int] = field(default_factory=list)
    reads: list[int] = field(default_factory=list)
    writes: list[int] = field(default_factory=list)
    initial: Any = None
    others: bool = False


def partitioned(
    model: LiteRTModel,
    excluded: Iterable[str],
    target: Target,
    host_calls: bool,
    refused: Mapping[str, str] | None = None,
) -> tuple[LiteRTModel, Partitioning]:
    """Return the model with states in place of variables, and its partitioning.

    A variable becomes a state if one partition can keep it. The operators of other variables stay. ``host_calls`` is
    the option of this name. ``refused`` is None for this project's compiler. For another converter, it has the reason
    for each node that the converter refuses, by the name of the node's first result; no variable then becomes a
    state.
    """
    excluded = tuple(excluded)
    usable = _usable(model) if refused is None else []
    left = usable
    while True:
        tried = _with_states(model, left)
        result = partition(tried.graph, excluded, target, host_calls, refused or {})
        kept = {state.tensor for part in result.partitions for state in part.graph.states}
        # The states of variables come first. The states that operators keep follow; no operator of the file reads or
        # writes them.
        names = [state.tensor for state in tried.graph.states[: len(left)]]
        if kept.issuperset(names):
            return tried, _with_reasons(model, usable, left, result)
        left = [variable for variable, name in zip(left, names, strict=True) if name in kept]


def _with_reasons(
    model: LiteRTModel, usable: Sequence[_Variable], left: Sequence[_Variable], result: Partitioning
) -> Partitioning:
    """Return the partitioning with the reason ON_CPU for each read and write of a variable in ``usable`` that is not in ``left``."""
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
    """Return the variables that one partition could keep.

    The main subgraph reads such a variable, writes it exactly once, after all reads, and no other operator uses it.
    Its initial value is a known constant. All values that are read, written or initial have the same shape and type.
    """
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
    """Yield a variable and its initial value for each use of a variable in another subgraph. The last value that is
    yielded for a variable counts.

    The value is the constant that an ASSIGN_VARIABLE in a subgraph of CALL_ONCE writes, if this is the first use of
    the variable. It is None for any other use, or if no constant is written.
    """
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
    """Return the model with states in place of these variables and their operators; the same model where there are no
    variables."""
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
    """Yield the indices of the CALL_ONCE operators whose subgraph only sets variables of ``keys``."""
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
