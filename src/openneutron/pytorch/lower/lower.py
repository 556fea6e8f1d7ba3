# SPDX-License-Identifier: BSD-3-Clause
"""Lower edge operators, and the inputs, outputs and states of a partition, to a ``Graph``.

The partitioner lowers the whole program to learn which units it can delegate, and then lowers each partition. The backend lowers the
partition to compile it. All of these calls use the same functions. A unit is a set of nodes that are delegated together (``lower.units``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch.export import ExportedProgram
from torch.fx import Node

from openneutron import ops
from openneutron.ir import DType, Graph, QuantParams, State, Tensor, per_tensor
from openneutron.ir import Node as IrNode
from openneutron.pytorch.graph.program import (
    ACTIVATIONS,
    CHANNELS_INNERMOST,
    CHANNELS_LAST,
    DTYPE_OF_TORCH,
    KEPT_FLOAT,
    LEFT_FLOAT,
    QUANTIZE_FIRST,
    REWRITE,
    STAYS_WHOLE,
    WITH_INTEGERS,
    Constants,
    Reject,
    Rejected,
    activation_params,
    is_channels_last,
    is_decomposed,
    is_dequantize,
    is_exact,
    is_number,
    is_plain_layout,
    is_pointwise_operator,
    is_quantize,
    model_name,
    op_name,
    overload_of,
    quant_params,
    quantized,
    shape_of,
    short_name,
    stored_type,
    written,
)
from openneutron.pytorch.lower.units import (
    CLOSER,
    Function,
    Unit,
    factor_of,
    functions_of,
    only_inside,
    table_of,
    tables_near_zero,
)
from openneutron.pytorch.operators.families import LOWER_RULES
from openneutron.pytorch.operators.rules.context import FACTOR_STEPS, Context, Results, Value, lies_as, moves, plain
from openneutron.pytorch.operators.rules.tables import COUNTED_AT_RUN_TIME, Layout, is_computed, objection

QUANTIZER = "quantizer"
"""``Reject.rule`` of a node that stays on the CPU only because it is not quantized."""

LITERT_OF = {
    "bmm": "batch_matmul",
    "matmul": "batch_matmul",
    "split_with_sizes": "split_v",
    "stack": "pack",
    "unbind": "unpack",
    "index_select": "gather",
    "embedding": "gather",
    "flip": "reverse_v2",
    "repeat": "tile",
    "expand": "broadcast_to",
    "amax": "reduce_max",
    "amin": "reduce_min",
    "upsample_bilinear2d": "resize_bilinear",
    "upsample_nearest2d": "resize_nearest_neighbor",
    "reflection_pad2d": "mirror_pad",
}
"""The names of rows in the operator table (``ops``) by the names of ATen operators, where the two differ."""

COMPUTED_WEIGHTS = Reject("its weights are computed at run time; they must be constant")

_ORDERS = "it puts values in order, for which there is no kernel"
_WITHOUT_ORDER = "argmax and max with a dimension, which have one, find the first of them."

NO_KERNEL_PLANNED = {
    **dict.fromkeys(("topk", "sort", "argsort", "kthvalue", "median", "mode"), Reject(_ORDERS, _WITHOUT_ORDER)),
    **dict.fromkeys(("nonzero", "masked_select", "unique", "unique2"), COUNTED_AT_RUN_TIME),
}
"""The reasons for operators for which no kernel is planned, by the operator's name."""


def no_rule(node: Node) -> Reject:
    """Return why an operator without a lowering rule stays on the CPU."""
    name = short_name(node)
    overload = overload_of(node)
    if overload is None:
        return Reject(f"'{name}' is control flow or no operator of a library; those run on the CPU")
    if (against := objection(node)) is not None:
        return against
    base = name.rpartition(".")[2].strip("_").removesuffix("_copy")
    if base in NO_KERNEL_PLANNED:
        return NO_KERNEL_PLANNED[base]
    if (whole := stays_whole(node)) is not None:
        return whole
    value = node.meta.get("val")
    is_exact = isinstance(value, torch.Tensor) and not value.is_floating_point()
    if is_pointwise_operator(overload) or is_exact:
        return not_quantized(node)
    row = ops.BY_NAME.get(LITERT_OF.get(base, base))
    if row is not None and row.kernels and row.litert:
        return Reject(
            f"{name} is not connected for PyTorch yet; there is a kernel for it in .tflite files ({row.litert})"
        )
    return Reject(f"there is no kernel for {name}", REWRITE)


def stays_whole(node: Node) -> Reject | None:
    """Return the reason why an operator stays on the CPU, if the quantizer noted one in the metadata; else None.
    ``node`` is the operator, or a node of its decomposition.

    The quantizer notes a reason for a decomposable operator that can be quantized neither whole nor decomposed, and
    for an operator that computes positions for an operator on the CPU.
    """
    why = node.meta.get("custom", {}).get(STAYS_WHOLE)
    return None if why is None else Reject(*why)


def not_quantized(node: Node) -> Reject:
    """Return the reason why a node is not quantized, derived from the node and its operands alone."""
    against = objection(node) or (_computed_weights(node) if op_name(node) == "aten.convolution.default" else None)
    if against is not None:
        return against
    for source in (node, *node.all_input_nodes):
        value = source.meta.get("val")
        if not isinstance(value, torch.Tensor):
            continue
        which = "its result is" if source is node else f"its input '{source.name}' is"
        if any(not isinstance(extent, int) for extent in value.shape):
            shape = ", ".join(str(extent) if isinstance(extent, int) else "?" for extent in value.shape)
            return Reject(
                f"{which} of shape [{shape}]; every extent must be a fixed number", "Export without dynamic_shapes."
            )
        if value.dtype not in (torch.float32, torch.int8, torch.int16):
            wider = value.is_floating_point()
            hint = "Convert model and inputs with .float()." if wider else ""
            return Reject(f"{which} {value.dtype}; what can be quantized is torch.float32", hint)
    if (whole := stays_whole(node)) is not None:
        return whole
    subject = f"'{written(node)}', which it is a part of" if is_decomposed(node) else "it"
    if left_float(node):
        return Reject(f"the quantizer has no rule for {subject}", rule=QUANTIZER)
    return Reject(f"{subject}{',' if is_decomposed(node) else ''} is not quantized", QUANTIZE_FIRST, QUANTIZER)


def _computed_weights(node: Node) -> Reject | None:
    """Return a reason against a convolution if its weights are computed or are an input of the model, and None
    otherwise."""
    weight = node.args[1]
    while isinstance(weight, Node) and (is_dequantize(weight) or is_quantize(weight)):
        weight = weight.args[0]
    return COMPUTED_WEIGHTS if isinstance(weight, Node) and is_computed(weight) else None


def left_float(node: Node) -> bool:
    """Return whether NeutronQuantizer examined the operator, or the one that it was made from, and left it float."""
    return bool(node.meta.get("custom", {}).get(LEFT_FLOAT))


RULE = "states"


@dataclass(frozen=True, slots=True, eq=False)
class StateNodes:
    """A buffer that a partition can keep as its state between runs.

    buffer: the buffer's placeholder. reads: the quantize nodes that read it. update: the quantize node of its new value. write: the
    dequantize node that reads ``update`` and that the program's signature names.
    """

    target: str
    buffer: Node
    reads: tuple[Node, ...]
    update: Node
    write: Node

    @property
    def outside(self) -> tuple[Node, ...]:
        """Return the nodes that belong to the partition with this state, but to no unit."""
        return (*self.reads, self.write)

    def is_within(self, nodes: Collection[Node]) -> bool:
        """Return whether only nodes in ``nodes`` read and write the buffer."""
        return self.update in nodes and all(user in nodes for read in self.reads for user in read.users)


@dataclass(frozen=True, slots=True, eq=False)
class States:
    """The buffers that a program updates: those that a partition can keep, and the others with the reasons."""

    found: tuple[StateNodes, ...] = ()
    refused: tuple[tuple[Node, Reject], ...] = ()


NO_STATES = States()


def states_of(program: ExportedProgram, constants: Constants) -> States:
    """Return the buffers that a program updates: those that a partition can keep as states, and the others with the reasons."""
    signature = program.graph_signature
    nodes = {node.name: node for node in program.graph_module.graph.nodes}
    buffers = {target: name for name, target in signature.inputs_to_buffers.items()}
    written = [str(item) for item in signature.buffers_to_mutate]
    (results,) = program.graph_module.graph.output_node().args
    assert isinstance(results, Sequence)
    found: list[StateNodes] = []
    refused: list[tuple[Node, Reject]] = []
    for name, target in signature.buffers_to_mutate.items():
        buffer, write = nodes[buffers[target]], nodes[name]
        reason = _objection(buffer, write, constants)
        if reason is None and (written.count(name) > 1 or list(results).count(write) > 1):
            reason = "its new value is that of another buffer or a result too"
        if reason is None:
            assert isinstance(write.args[0], Node)
            found.append(StateNodes(target, buffer, tuple(buffer.users), write.args[0], write))
        else:
            refused.append((buffer, Reject(reason, rule=RULE)))
    return States(tuple(found), tuple(refused))


def _objection(buffer: Node, write: Node, constants: Constants) -> str | None:
    if not buffer.users or not all(map(is_quantize, buffer.users)):
        return "its value is read without being quantized"
    if not is_dequantize(write) or not isinstance(write.args[0], Node) or not is_quantize(write.args[0]):
        return "its new value is not quantized"
    try:
        sides = [str(quant_params(node, constants)) for node in (*buffer.users, write, write.args[0])]
    except ValueError as error:
        return str(error)
    if len(set(sides)) > 1:
        return f"its value is read with {sides[0]} and its new value written with {sides[-1]}"
    return None


def lowered_state(state: StateNodes, context: Context, constants: Constants) -> State | None:
    """Return the graph's state for a buffer, or None if no node of the graph reads the buffer.

    The new value has the layout of the old one. The initial value is that of the buffer, or zeros if it is unknown.
    """
    read = state.reads[0]
    if read not in context.inputs:
        return None
    held = context.inputs[read]
    value = context.settled(context.values[state.update])
    if not lies_as(value.shape, value.order, held.order):
        value = Value(context.arranged(value, held.order), value.shape, held.order, value.shape)
    here, wanted = context.tensors[value.tensor], context.tensors[held.tensor]
    update = here.name
    if here.shape != wanted.shape:
        update = context.emit(
            "reshape", (update,), wanted.shape, here.quant, f"{read.name}_next", here.dtype, new_shape=wanted.shape
        )
    first = constants.state(state.buffer)
    if first is None:
        return State(held.tensor, update)
    stored = quantized(first, read, quant_params(read, constants)).transpose(held.order)
    return State(held.tensor, update, np.ascontiguousarray(stored).reshape(wanted.shape))


@dataclass(frozen=True, slots=True)
class PartitionTensor:
    """An input or output of a partition: the edge node, its tensor in the graph, and whether the tensor is NHWC."""

    node: Node
    tensor: str
    channels_last: bool


@dataclass(frozen=True, slots=True)
class Lowered:
    """A partition as a ``Graph``. ``inputs`` and ``outputs`` are in the order of the graph's."""

    graph: Graph
    inputs: tuple[PartitionTensor, ...]
    outputs: tuple[PartitionTensor, ...]
    owners: Mapping[str, Node] = field(default_factory=dict, repr=False)
    """For each node of the graph, the edge node that it was made for. The key is the name of the node's result."""
    values: Mapping[str, Value] = field(default_factory=dict, repr=False)
    """The results of quantize nodes inside of the partition, by the node's name, each with the tensor that holds it."""

    @property
    def moves_nothing(self) -> bool:
        """Return whether the graph has no nodes other than RESHAPE, so that no value is computed and no byte moves."""
        return all(node.op == "reshape" for node in self.graph.nodes)


@dataclass(frozen=True, slots=True)
class Refusal:
    """The node because of which its unit or partition can't be lowered, and the reason."""

    node: Node
    reject: Reject


class Lowering:
    """Lowers units one after the other into one graph. A unit is a set of nodes, connected by float values, that run
    on the NPU together or not at all.

    transpose_on_npu: whether the graph transposes contiguous NCHW inputs and outputs. False: they are NHWC in the
    graph, and the runtime transposes them.
    """

    def __init__(
        self,
        constants: Constants,
        units: Sequence[Unit],
        transpose_on_npu: bool = True,
        states: Sequence[StateNodes] = (),
    ) -> None:
        self.constants = constants
        self.context = Context(constants, Results(constants))
        self.context.enter = self._exact
        self.transpose_on_npu = transpose_on_npu
        self._images = _images(units)
        self._states = states
        self._first_read = {read: state.reads[0] for state in states for read in state.reads}

    @classmethod
    def of(
        cls,
        units: Sequence[Unit],
        constants: Constants,
        transpose_on_npu: bool,
        states: Sequence[StateNodes] = (),
    ) -> Lowering | Refusal:
        """Return the lowering of all the units, or the first node that can't be lowered."""
        lowering = cls(constants, units, transpose_on_npu, states)
        for unit in units:
            refusal = lowering.lower_unit(unit)
            if refusal is not None:
                return refusal
        return lowering

    def lower_unit(self, unit: Unit) -> Refusal | None:
        """Add all nodes of a unit to the graph and return None. If a node can't be lowered, add nothing and return its refusal."""
        functions = functions_of(unit.nodes, self.constants)
        tables = {
            node: function
            for node, function in functions.items()
            if not function.has_operator or stored_type(node) is not stored_type(function.source)
        }
        while True:
            refusal = self._lower_unit(unit, tables)
            refused = refusal.node if refusal is not None else None
            # A table may compute a function that LiteRT's own operator can't.
            more = {node: function for node, function in functions.items() if refused in function.nodes}
            if refusal is None or more.keys() <= tables.keys():
                return refusal
            tables |= more

    def _lower_unit(self, unit: Unit, tables: Mapping[Node, Function]) -> Refusal | None:
        mark = self.context.mark()
        inside = only_inside(tables)
        for node in unit.nodes:
            if node in inside:
                continue
            try:
                rejected = self._lower_table(node, tables[node]) if node in tables else self._lower_node(node)
            except Rejected as error:
                rejected = error.reject
            except ValueError as error:
                rejected = Reject(str(error))
            if rejected is not None:
                self.context.back_to(mark)
                return Refusal(node, replace(rejected, rule=rejected.rule or _rule_of(node)))
        return None

    def _lower_table(self, node: Node, function: Function) -> Reject | None:
        context = self.context
        context.begin(function.nodes[-1])
        quant, dtype = activation_params(node, self.constants), stored_type(node)
        data = context.value(function.source)
        here = context.dtype(data)
        if here is DType.INT8 and dtype is DType.INT16:
            return _two_types(here, dtype)
        looked_up = _widened(quant) if here is not dtype else quant
        if here is DType.INT16 and (value := self._scaled(function, data, looked_up)) is not None:
            context.values[node] = context.requantized(value, quant, f"{function.nodes[-1].name}_int8", dtype)
            return None
        table = table_of(function, node, looked_up, self.constants)
        stored, name = context.tensors[data.tensor].shape, function.nodes[-1].name
        steep = tables_near_zero(function, table, looked_up, self.constants) if here is DType.INT16 else None
        entries = context.add_constant(f"{node.name}_table", steep.whole if steep else table, looked_up)
        result = context.emit("lookup", (data.tensor, entries), stored, looked_up, name)
        if steep is not None:
            closer = per_tensor(context.quant(data).scale / CLOSER, 0)
            small = context.emit("quantize", (data.tensor,), stored, closer, f"{name}_closer", here)
            entries = context.add_constant(f"{node.name}_table_near_zero", steep.near, looked_up)
            near = context.emit("lookup", (small, entries), stored, looked_up, f"{name}_near_zero")
            result = context.emit(steep.op, (result, near), stored, looked_up, f"{name}_joined")
        value = Value(result, data.shape, data.order, data.base)
        context.values[node] = context.requantized(value, quant, f"{name}_int8", dtype)
        return None

    def _scaled(self, function: Function, data: Value, quant: QuantParams) -> Value | None:
        """Add a multiplication if an int16 function multiplies by a constant, and return the result.

        Return None for any other function, and for a factor that is too large for LiteRT's int16 MUL
        (``FACTOR_STEPS``).

        A multiplication rounds once. Linear interpolation in an int16 table, whose entries are rounded too, would be
        one step off for a quarter of the values.
        """
        context, factor = self.context, factor_of(function, self.constants)
        if factor is None or abs(factor) * context.quant(data).scale >= FACTOR_STEPS * quant.scale:
            return None
        name, stored = function.nodes[-1].name, context.tensors[data.tensor].shape
        operands = (data.tensor, context.add_factor(f"{name}_factor", factor, DType.INT16))
        return Value(
            context.emit("mul", operands, stored, quant, name, activation="NONE"), data.shape, data.order, data.base
        )

    def why_not(self, node: Node) -> Reject | None:
        """Return a reason why a node can't be lowered that is known without a call of its lowering rule; None if
        there is none.

        The reasons are: the user keeps the node float, ``objection`` has a reason against the call, the node has no
        rule, or none of its inputs is quantized or computed.
        """
        if (kept := kept_float(node)) is not None:
            return kept
        if (against := objection(node)) is not None:
            return against
        if op_name(node) not in LOWER_RULES:
            return no_rule(node)
        if not any(is_dequantize(source) or source.op == "call_function" for source in node.all_input_nodes):
            return not_quantized(node)
        return None

    def _lower_node(self, node: Node) -> Reject | None:
        context = self.context
        if node in context.values:
            return None
        context.begin(node)
        if is_dequantize(node):
            context.values[node] = self._dequantized(node)
            return None
        if is_quantize(node):
            context.values[node] = self._quantized(node)
            return None
        if (against := objection(node)) is not None:
            return against
        name = op_name(node)
        if name not in LOWER_RULES:
            return no_rule(node)
        rule = LOWER_RULES[name]
        if is_exact(node) and not (rule.exact or rule.moves):
            return Reject(
                f"its result is {DTYPE_OF_TORCH[node.meta['val'].dtype]}; the NPU computes on int8 and int16",
                WITH_INTEGERS,
            )
        result = rule.rule(node, context)
        if isinstance(result, Reject):
            return result
        result.verify()
        context.values[node] = result
        clamp = context.results.fused(node)
        if clamp is not None:
            context.values[clamp] = result
        return None

    def _dequantized(self, node: Node) -> Value:
        context, source = self.context, node.args[0]
        assert isinstance(source, Node)
        source = self._first_read.get(source, source)
        if any(user.op == "output" for user in node.users):
            raise Rejected("its float value leaves the model too")
        quant = quant_params(node, self.constants)
        if source in self.constants:
            return plain(context.add_constant(source.name, self.constants.array(source), quant), shape_of(source))
        if source not in context.values:
            context.values[source] = self._input(source, quant)
        value = context.values[source]
        if not context.tensors[value.tensor].is_constant:
            quant = activation_params(node, self.constants)
        if context.tensors[value.tensor].quant != quant:
            raise Rejected(f"it dequantizes with {quant} what has {context.tensors[value.tensor].quant}")
        return value

    def _quantized(self, node: Node) -> Value:
        context, source = self.context, node.args[0]
        assert isinstance(source, Node)
        quant = quant_params(node, self.constants)
        if source in self.constants:
            data = quantized(self.constants.array(source), node, quant)
            return plain(context.add_constant(node.name, data, quant), shape_of(source))
        dtype = DTYPE_OF_TORCH.get(node.meta["val"].dtype)
        if dtype not in ACTIVATIONS:
            raise Rejected(f"its result is {node.meta['val'].dtype}; the NPU computes on int8 and int16")
        value = context.value(source)
        here = context.dtype(value)
        if here is not dtype and not (is_dequantize(source) or moves(source)):
            rejected = _two_types(here, dtype)
            raise Rejected(rejected.reason, rejected.hint)
        return context.requantized(value, activation_params(node, self.constants), node.name, dtype)

    def _input(self, node: Node, quant: QuantParams) -> Value:
        context, shape = self.context, shape_of(node)
        dtype = DTYPE_OF_TORCH.get(node.meta["val"].dtype)
        if dtype is None or dtype not in ACTIVATIONS:
            raise Rejected(
                f"its input '{model_name(node)}' is {node.meta['val'].dtype}; the NPU computes on int8 and int16"
            )
        if not is_plain_layout(node):
            raise Rejected(f"its input '{model_name(node)}' is neither contiguous nor channels-last")
        order = tuple(range(len(shape)))
        as_passed = CHANNELS_LAST if is_channels_last(node) else order
        wanted = CHANNELS_INNERMOST.get(len(shape), as_passed) if node in self._images else as_passed
        passed_so = wanted == CHANNELS_LAST and not self.transpose_on_npu
        if lies_as(shape, as_passed, wanted) or passed_so or node in self._first_read:
            as_passed = wanted
        stored = tuple(shape[axis] for axis in as_passed)
        name = next((state.target for state in self._states if node in state.reads), node.name)
        name = context.add_tensor(Tensor(context.unique(name), stored, dtype, quant))
        value = context.inputs[node] = Value(name, shape, as_passed, shape)
        arranged = value.tensor if as_passed == wanted else context.arranged(value, wanted)
        context.owners[name] = node
        context.owners.setdefault(arranged, node)
        return Value(arranged, shape, wanted, shape)

    def _exact(self, node: Node) -> Value:
        """Return the value of a node with integers or booleans that is a constant or comes from outside of the
        partition. The constant, or an input for the node, is added to the graph.

        Integers of 8 and 16 bits become quantized values with the scale 1. A uint8 input is also converted to int8.
        """
        context, shape = self.context, shape_of(node)
        dtype = DTYPE_OF_TORCH[node.meta["val"].dtype]
        quant = per_tensor(1.0, 0) if is_number(node) else None
        if node in self.constants:
            return plain(context.add_constant(node.name, self.constants.array(node), quant), shape)
        if not is_plain_layout(node):
            raise Rejected(f"its input '{model_name(node)}' is neither contiguous nor channels-last")
        order = CHANNELS_LAST if is_channels_last(node) else tuple(range(len(shape)))
        stored = tuple(shape[axis] for axis in order)
        name = context.add_tensor(Tensor(context.unique(node.name), stored, dtype, quant))
        value = context.inputs[node] = Value(name, shape, order, shape)
        if dtype is not DType.UINT8:
            return value
        as_int8 = context.emit("quantize", (name,), stored, per_tensor(1.0, -128), f"{node.name}_int8", DType.INT8)
        return Value(as_int8, shape, order, shape)

    def finished(self, name: str, inputs: Iterable[Node], outputs: Iterable[Node]) -> Lowered | Refusal:
        """Return the graph with these inputs and outputs. Inputs and states that no node reads are left out.

        Return a refusal if ExecuTorch can't pass an output because of its type or memory layout.
        """
        context = self.context
        taken = {value.tensor for value in context.inputs.values()}
        exits = []
        for node in outputs:
            try:
                exits.append(self._output(node, taken))
            except Rejected as error:
                return Refusal(node, error.reject)
            taken.add(exits[-1].tensor)
        states = [lowered_state(state, context, self.constants) for state in self._states]
        entries = [_io_tensor(node, context.inputs[node]) for node in inputs if node in context.inputs]
        whole = Graph(
            name,
            context.tensors,
            tuple(context.nodes),
            tuple(item.tensor for item in entries),
            tuple(item.tensor for item in exits),
            tuple(state for state in states if state is not None),
        )
        graph = whole.rebuilt(_live(whole))
        graph.verify()
        stored = {}
        for node, value in context.values.items():
            if node in context.inputs or not is_quantize(node):
                continue
            # A view that nothing reads is not in the graph; the tensor that it is a view of has the same bytes.
            held = next((name for name in context.holders(value.tensor) if name in graph.tensors), None)
            if held is not None:
                stored[node.name] = replace(value, tensor=held)
        return Lowered(graph, tuple(entries), tuple(exits), context.owners, stored)

    def _output(self, node: Node, taken: set[str]) -> PartitionTensor:
        """Return the partition's output for a node, in the layout of the edge program, or in NHWC if the runtime transposes it.

        An output that is a constant, or whose tensor is in ``taken`` (an input or an earlier output), is copied. Raises Rejected for a type
        or layout that ExecuTorch can't pass.
        """
        context = self.context
        if DTYPE_OF_TORCH.get(node.meta["val"].dtype) not in ACTIVATIONS and not is_exact(node):
            raise Rejected(f"its result leaves as {node.meta['val'].dtype}: nothing quantizes it")
        if not is_plain_layout(node):
            raise Rejected("its result is neither contiguous nor channels-last")
        value = context.settled(context.values[node])
        order = tuple(range(len(value.shape)))
        if is_channels_last(node) or (not self.transpose_on_npu and value.order == CHANNELS_LAST):
            order = CHANNELS_LAST
        # With dimensions of 1, other orders are channels-last in memory too. The output's flag asks for this order by name.
        named = order == CHANNELS_LAST and value.order != order
        if named or not lies_as(value.shape, value.order, order):
            value = Value(context.arranged(value, order), value.shape, order, value.shape)
        here = context.tensors[value.tensor]
        if here.name in taken or here.is_constant:
            name = context.emit(
                "reshape", (here.name,), here.shape, here.quant, node.name, here.dtype, new_shape=here.shape
            )
            value = Value(name, value.shape, value.order, value.shape)
        return _io_tensor(node, value)


def _two_types(source: DType, result: DType) -> Reject:
    return Reject(
        f"its inputs are {source} and its result is quantized to {result}; they must have one type",
        "NeutronQuantizer quantizes an operator in one type, and converts in front of it.",
    )


def _widened(quant: QuantParams) -> QuantParams:
    """Return an int16 quantization that covers the range of an int8 one."""
    return per_tensor(quant.scale * max(128 + quant.zero_point, 127 - quant.zero_point) / 32767, 0)


def _rule_of(node: Node) -> str:
    """Return the name of a node's lowering rule: the module of the rule and its function, such as ``convolution.linear``.

    Return "quantization" for quantize and dequantize nodes, and "none" for other nodes without a rule.
    """
    row = LOWER_RULES.get(op_name(node))
    if row is None:
        return "quantization" if is_quantize(node) or is_dequantize(node) else "none"
    return f"{row.rule.__module__.split('.')[-1]}.{row.rule.__qualname__.split('.')[0]}"


def kept_float(node: Node) -> Reject | None:
    """Return the reason for a node that the user keeps float, or None for other nodes."""
    said = node.meta.get("custom", {}).get(KEPT_FLOAT)
    return None if said is None else Reject(f"{said} keeps it float", "Take the name out to have it quantized.")


def _io_tensor(node: Node, value: Value) -> PartitionTensor:
    plain_order = tuple(range(len(value.shape)))
    nhwc = value.order == CHANNELS_LAST and not lies_as(value.shape, CHANNELS_LAST, plain_order)
    return PartitionTensor(node, value.tensor, nhwc)


def _live(graph: Graph) -> list[IrNode]:
    needed = set(graph.kept_tensors)
    kept = []
    for node in reversed(graph.nodes):
        if any(name in needed for name in node.outputs):
            kept.append(node)
            needed.update(name for name in node.inputs if name is not None)
    return kept[::-1]


def _images(units: Sequence[Unit]) -> set[Node]:
    """Return the nodes whose values some operator reads with channels last, directly or through other operators."""
    images: set[Node] = set()
    for unit in reversed(units):
        for node in reversed(unit.nodes):
            rule = LOWER_RULES.get(op_name(node))
            layout = rule.layout if rule is not None else Layout.KEEPS
            if layout is Layout.NHWC or (layout is Layout.KEEPS and node in images):
                images.update(source for source in node.all_input_nodes if _same_rank(source, node))
    return images


def _same_rank(source: Node, node: Node) -> bool:
    here, there = (item.meta.get("val") for item in (source, node))
    there = there[0] if isinstance(there, (list, tuple)) else there
    if not isinstance(here, torch.Tensor) or not isinstance(there, torch.Tensor):
        return False
    return here.dim() == there.dim() and here.dim() in CHANNELS_INNERMOST
