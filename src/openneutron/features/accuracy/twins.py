# SPDX-License-Identifier: BSD-3-Clause
"""A quantized module beside its float twin: one graph, with the same names of operators, without a quantize node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

import torch
from torch.fx import GraphModule, Node

from openneutron.device.timings import advance
from openneutron.options import QuantizationOptions
from openneutron.pytorch.graph.program import is_dequantize, is_quantize, model_name, title
from openneutron.pytorch.quantizer.measures import copied, copy_of, quantized_with
from openneutron.pytorch.quantizer.neutron_quantizer import NeutronQuantizer
from openneutron.pytorch.source.exporting import AtenGraph, ModelInputs, restore


@dataclass(frozen=True, slots=True, eq=False)
class Twins:
    """A quantized module (``quantize`` and ``dequantize`` nodes around operators), and the float module that it was made from.

    An operator has the same name in both graphs. ``inputs`` are the example inputs. ``state`` has the values before the first run
    of the buffers that the model changes, by name.
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
    """Return a model that is quantized already, with a twin whose activations are float. Constants have the values of their integers
    in both."""
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
    """Return a model quantized as ``openneutron.compile`` quantizes it, with its float twin. ``source`` stays as it is."""
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
    """A tensor that is quantized: the ``quantize`` node, and the node whose float value it stores.

    ``lead`` is the operator that names the layer: the one with weights, where an activation runs inside of it.
    """

    quantize: Node
    source: Node
    lead: Node

    @property
    def name(self) -> str:
        """Return the name for people; see ``model_name``."""
        return model_name(self.lead)

    @property
    def operator(self) -> str:
        """Return the operator as the user knows it; ``input`` of an input of the model."""
        return "input" if self.lead.op == "placeholder" else title(self.lead)

    @property
    def scale(self) -> float:
        return float(self.quantize.args[1])

    @property
    def zero_point(self) -> int:
        return int(self.quantize.args[2])

    @property
    def bounds(self) -> tuple[float, float]:
        """Return the representable range."""
        low, high = (int(each) for each in self.quantize.args[3:5])
        return (low - self.zero_point) * self.scale, (high - self.zero_point) * self.scale

    @property
    def channel_axis(self) -> int | None:
        """Return the axis of channels: the second of images, the last of other tensors; None without one."""
        value = self.source.meta.get("val")
        rank = value.dim() if isinstance(value, torch.Tensor) else 0
        return None if rank < 2 else 1 if rank in (4, 5) else rank - 1


def is_activation(node: Node) -> bool:
    """Return whether a node quantizes a value of a run, with one scale."""
    source = node.args[0] if node.args else None
    per_tensor = is_quantize(node) and str(node.target).endswith("per_tensor.default")
    return per_tensor and isinstance(source, Node) and source.op != "get_attr"


def origin_of(quantize: Node) -> Node:
    """Return the node whose value is quantized, in front of conversions between int8 and int16 too."""
    source = quantize.args[0]
    assert isinstance(source, Node)
    while is_dequantize(source):
        source = source.args[0].args[0]
    return source


def layers_of(quantized: GraphModule) -> list[Layer]:
    """Return the quantized activations of a module, in execution order: inputs and results of operators."""
    found = []
    for node in quantized.graph.nodes:
        if is_activation(node):
            source = node.args[0]
            assert isinstance(source, Node)
            if not is_dequantize(source):
                found.append(Layer(node, source, _lead(source)))
    return found


def _lead(source: Node) -> Node:
    """Return the operator with constant weights that ends in ``source``; without one, ``source`` itself."""
    node = source
    while node.op == "call_function" and not is_dequantize(node):
        operands = node.all_input_nodes
        if any(is_dequantize(item) and item.args[0].op == "get_attr" for item in operands[1:]):
            return node
        if len(operands) != 1:
            break
        (node,) = operands
    return source
