# SPDX-License-Identifier: BSD-3-Clause
"""Read the tensors that the simulated NPU computes inside delegate calls, and make the float twin of a quantized module, with which they are
compared."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter

import numpy as np
import torch
from torch.fx import GraphModule, Node

from openneutron.compiler import compile_graph
from openneutron.device.simulator import Simulator
from openneutron.device.timings import advance
from openneutron.ir import Graph
from openneutron.options import CALLER, CompileOptions, QuantizationOptions
from openneutron.pytorch.graph.program import CHANNELS_LAST, is_dequantize, is_quantize, model_name, stored_type, title
from openneutron.pytorch.lower.lower import Lowered
from openneutron.pytorch.nxp_backend import CompiledPartition
from openneutron.pytorch.operators.rules.context import Value
from openneutron.pytorch.quantizer.calibrate import copied, copy_of, quantized_with
from openneutron.pytorch.quantizer.neutron_quantizer import NeutronQuantizer
from openneutron.pytorch.source.exporting import AtenGraph, ModelInputs, lifted, restore
from openneutron.targets import Target

ENDLESS_KIB = 1 << 30
"""The SRAM in KiB of a simulated chip whose memory suffices for every program."""

MOST_OUTPUTS = 128
"""The largest number of outputs of a program. A partition with more tensors is compiled to several programs."""


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """A quantized tensor inside a partition: its ``quantize`` node in the module, and its value in the partition's
    graph."""

    quantize: Node
    value: Value


@dataclass(frozen=True, slots=True, eq=False)
class Observed:
    """A partition that is compiled so that its inner tensors, ``places``, can be read. ``sources`` are the nodes of
    its inputs: ``quantize`` nodes, or nodes that compute integers or booleans. ``channels_last`` states for each
    input whether the partition expects it in channels-last order. ``programs`` has a simulator for each compiled
    program, with the tensors that the program returns."""

    sources: tuple[Node, ...]
    channels_last: tuple[bool, ...]
    places: tuple[Place, ...]
    programs: tuple[tuple[Simulator, tuple[Place, ...]], ...] = field(repr=False)

    def run(self, inputs: Sequence[torch.Tensor]) -> dict[Node, torch.Tensor]:
        """Run the partition on the simulator. Return the quantized values of all tensors of ``places`` by their
        ``quantize`` nodes, in the shapes of the module."""
        arrays = [
            (given.permute(CHANNELS_LAST) if last else given).contiguous().numpy()
            for given, last in zip(inputs, self.channels_last, strict=True)
        ]
        found: dict[Node, torch.Tensor] = {}
        for simulator, places in self.programs:
            tensors = dict.fromkeys(place.value.tensor for place in places)
            results = dict(zip(tensors, simulator.run(arrays), strict=True))
            for place in places:
                stored = results[place.value.tensor].view(stored_type(place.quantize).numpy)
                found[place.quantize] = _arranged(stored, place.value)
        return found


def _arranged(stored: np.ndarray, value: Value) -> torch.Tensor:
    """Return the stored values of a tensor in the shape and the order of axes that the module has."""
    axes = np.argsort(value.order)
    return torch.from_numpy(stored.reshape(value.stored).transpose(axes).reshape(value.shape).copy())


def observed(
    partitions: Iterable[CompiledPartition], quantized: GraphModule, inputs: ModelInputs, target: Target
) -> list[Observed]:
    """Compile partitions again so that their inner tensors can be read, and return them. A partition is left out if
    it is unclear which nodes compute its inputs, or if none of its tensors belongs to a known node. PyTorch computes
    the values of such a partition."""
    partitions = list(partitions)
    names = _names(quantized, inputs)
    places = _places(partitions, quantized, names)
    found = []
    for part, here in zip(partitions, places, strict=True):
        sources = [_source(part, number, quantized, names) for number in range(len(lowered_of(part).inputs))]
        if here and all(source is not None for source in sources):
            made = _programs(part.graph, here, target)
            last = tuple(item.channels_last for item in lowered_of(part).inputs)
            found.append(Observed(tuple(item for item in sources if item is not None), last, here, made))
    return found


def lowered_of(part: CompiledPartition) -> Lowered:
    """Return the mapping of a partition's tensors to nodes of the module. A model that comes from a cache has none."""
    assert part.lowered is not None, "a model from a cache has no nodes"
    return part.lowered


def _names(quantized: GraphModule, inputs: ModelInputs) -> Mapping[str, Node]:
    """Return the nodes of the module by the names that they have in the program that is compiled. The mapping is
    empty if module and program have different operators or inputs."""
    program = lifted(quantized, inputs)
    if program is None:
        return {}
    here = [node for node in quantized.graph.nodes if node.op == "call_function"]
    there = [node for node in program.graph.nodes if node.op == "call_function"]
    given = [node for node in quantized.graph.nodes if node.op == "placeholder"]
    users = [node for node in program.graph.nodes if node.name in program.graph_signature.user_inputs]
    if [node.target for node in here] != [node.target for node in there] or len(given) != len(users):
        return {}
    return {other.name: node for node, other in zip((*here, *given), (*there, *users), strict=True)}


Signature = tuple[float, int, int]


def _signature(node: Node) -> Signature:
    """Return the scale, the zero point and the number of elements of a quantized tensor."""
    scale, zero_point = node.args[1:3]
    return float(np.float32(scale)), int(zero_point), origin_of(node).meta["val"].numel()


def _places(
    partitions: Sequence[CompiledPartition], quantized: GraphModule, names: Mapping[str, Node]
) -> list[tuple[Place, ...]]:
    """Return the tensors of each partition for which the node in the module is known.

    A tensor and its node have the same name, unless ExecuTorch decomposed the program. In that case, tensors are
    matched in their order with the nodes that have the same scale, zero point and size, provided that there are as many
    of both.
    """
    found: list[list[Place]] = [[] for _ in partitions]
    rest: dict[Signature, list[tuple[int, Value]]] = defaultdict(list)
    taken: set[Node] = set()
    for number, part in enumerate(partitions):
        graph = part.graph
        given = {*graph.inputs, *(state.tensor for state in graph.states)}
        for name, value in lowered_of(part).values.items():
            quant = graph[value.tensor].quant
            if quant is None or graph[value.tensor].is_constant or value.tensor in given:
                continue
            key = (quant.scale, quant.zero_point, graph[value.tensor].elements)
            node = names.get(name)
            if node is not None and is_activation(node) and _signature(node) == key and node not in taken:
                taken.add(node)
                found[number].append(Place(node, value))
            else:
                rest[key].append((number, value))
    free: dict[Signature, list[Node]] = defaultdict(list)
    for node in quantized.graph.nodes:
        if is_activation(node) and node not in taken:
            free[_signature(node)].append(node)
    for key, values in rest.items():
        if len(free[key]) == len(values):
            for node, (number, value) in zip(free[key], values, strict=True):
                found[number].append(Place(node, value))
    return [tuple(places) for places in found]


def _source(part: CompiledPartition, number: int, quantized: GraphModule, names: Mapping[str, Node]) -> Node | None:
    """Return the node in the module of a partition's input; None if no node or several nodes are possible."""
    item = lowered_of(part).inputs[number]
    tensor = part.graph[item.tensor]
    named = names.get(item.node.name)
    if tensor.quant is None or (named is not None and named.op == "placeholder"):  # integers, such as a frame's bytes
        return named
    key = (tensor.quant.scale, tensor.quant.zero_point, tensor.elements)
    if named is not None and is_activation(named) and _signature(named) == key:
        return named
    alike = [node for node in quantized.graph.nodes if is_activation(node) and _signature(node) == key]
    return alike[0] if len(alike) == 1 else None


def _programs(graph: Graph, places: Sequence[Place], target: Target) -> tuple[tuple[Simulator, tuple[Place, ...]], ...]:
    options = CompileOptions(io_place=CALLER)
    target = target.with_sram(ENDLESS_KIB)
    tensors = list(dict.fromkeys(place.value.tensor for place in places))
    made = []
    for start in range(0, len(tensors), MOST_OUTPUTS):
        some = tuple(tensors[start : start + MOST_OUTPUTS])
        program = compile_graph(replace(graph, outputs=some), target, options).program
        here = tuple(place for place in places if place.value.tensor in some)
        made.append((Simulator(program), tuple(sorted(here, key=lambda place: some.index(place.value.tensor)))))
    return tuple(made)


@dataclass(frozen=True, slots=True, eq=False)
class Twins:
    """A quantized module (``quantize`` and ``dequantize`` nodes around operators), and its float module.

    An operator has the same name in both graphs. ``inputs`` are the example inputs. ``state`` has the buffers that
    the model changes, by name, with their values before the first run.
    """

    real: GraphModule
    quantized: GraphModule
    inputs: ModelInputs
    name: str
    state: Mapping[str, torch.Tensor] = field(default_factory=dict, repr=False)


def is_quantized(source: AtenGraph) -> bool:
    """Return whether a model is quantized already."""
    return any(is_quantize(node) for node in source.module.graph.nodes)


def of_quantized(source: AtenGraph, name: str) -> Twins:
    """Return twins of a model that is quantized already. The float twin has float activations, and its constants have
    the values of the quantized ones."""
    quantized = copied(source.module)
    graph = copy_of(quantized.graph)
    for node in list(graph.nodes):
        if is_dequantize(node) and is_activation(node.args[0]):
            node.replace_all_uses_with(node.args[0].args[0])
            graph.erase_node(node)
    for node in reversed(list(graph.nodes)):
        if is_activation(node) and not node.users:
            graph.erase_node(node)
    return Twins(GraphModule(quantized, graph), quantized, source.inputs, name, source.state)


def twins(
    source: AtenGraph,
    quantizer: NeutronQuantizer,
    calibration: Sequence[ModelInputs],
    name: str,
    options: QuantizationOptions = QuantizationOptions(),
) -> Twins:
    """Return a model quantized as ``openneutron.compile`` quantizes it, with its float twin. ``source`` is not
    changed."""
    module = copied(source.module)
    restore(module, source.state)
    real, quantized = quantized_with(
        module, quantizer, calibration, options, lambda done: advance(done, len(calibration))
    )
    restore(quantized, source.state)
    return Twins(real, quantized, source.inputs, name, source.state)


def tensor_of(module: GraphModule, node: Node) -> torch.Tensor:
    """Return the tensor of a ``get_attr`` node."""
    found: torch.Tensor = attrgetter(str(node.target))(module)
    return found


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """A quantized activation: the ``quantize`` node, and ``source``, the node whose float value is quantized.

    ``lead`` is the operator that gives the layer its name. If an operator with weights and an activation function are
    computed together, it is the operator with weights.
    """

    quantize: Node
    source: Node
    lead: Node

    @property
    def name(self) -> str:
        """Return the readable name of the layer; see ``model_name``."""
        return model_name(self.lead)

    @property
    def operator(self) -> str:
        """Return the operator's name in the user's model; ``input`` for an input of the model."""
        return "input" if self.lead.op == "placeholder" else title(self.lead)

    @property
    def scale(self) -> float:
        return float(self.quantize.args[1])

    @property
    def zero_point(self) -> int:
        return int(self.quantize.args[2])

    @property
    def bounds(self) -> tuple[float, float]:
        """Return the lowest and the highest real value that the quantized type represents."""
        low, high = (int(each) for each in self.quantize.args[3:5])
        return (low - self.zero_point) * self.scale, (high - self.zero_point) * self.scale

    @property
    def channel_axis(self) -> int | None:
        """Return the axis of channels: the second axis of 4D and 5D tensors, and the last axis of others; None for
        tensors of less than two axes."""
        value = self.source.meta.get("val")
        rank = value.dim() if isinstance(value, torch.Tensor) else 0
        return None if rank < 2 else 1 if rank in (4, 5) else rank - 1


def is_activation(node: Node) -> bool:
    """Return whether a node quantizes an activation, which has one scale for the tensor."""
    source = node.args[0] if node.args else None
    per_tensor = is_quantize(node) and str(node.target).endswith("per_tensor.default")
    return per_tensor and isinstance(source, Node) and source.op != "get_attr"


def origin_of(quantize: Node) -> Node:
    """Return the node that computes the float value. Conversions between int8 and int16 before ``quantize`` are
    skipped."""
    source = quantize.args[0]
    assert isinstance(source, Node)
    while is_dequantize(source):
        source = source.args[0].args[0]
    return source


def layers_of(quantized: GraphModule) -> list[Layer]:
    """Return the quantized activations of a module in execution order: inputs of the model and results of operators.
    Conversions between int8 and int16 are left out."""
    found = []
    for node in quantized.graph.nodes:
        if is_activation(node):
            source = node.args[0]
            assert isinstance(source, Node)
            if not is_dequantize(source):
                found.append(Layer(node, source, _lead(source)))
    return found


def _lead(source: Node) -> Node:
    """Return the operator with constant weights that computes ``source``, possibly followed by operators with a
    single operand, such as an activation function. Return ``source`` itself if there is none."""
    node = source
    while node.op == "call_function" and not is_dequantize(node):
        operands = node.all_input_nodes
        if any(is_dequantize(item) and item.args[0].op == "get_attr" for item in operands[1:]):
            return node
        if len(operands) != 1:
            break
        (node,) = operands
    return source
