# SPDX-License-Identifier: BSD-3-Clause
"""Compute the values of one run of a model in three ways: in float, in float with one layer quantized at a time, and as in the compiled program.

If a model changes its buffers, the samples are a stream: a run begins with the state after the previous sample. The float model and the int8
model have separate states. The simulator keeps the state of a delegate call.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree

from openneutron.features.accuracy.npu_tensors import (
    Layer,
    Observed,
    Twins,
    is_activation,
    layers_of,
    origin_of,
    tensor_of,
)
from openneutron.pytorch.graph.program import is_dequantize
from openneutron.pytorch.source.exporting import ModelInputs

Values = Mapping[Any, Any]

State = Mapping[str, torch.Tensor]
"""The values of the buffers that a model changes, by name."""

COPY = torch.ops.aten.copy_.default
"""A call of this operator at the end of a graph writes the new value of a buffer."""


def computed(node: Node, values: Values) -> Any:
    """Execute a call on the values of its operands, which ``values`` has by node. Return the result."""
    args, kwargs = map_arg((node.args, node.kwargs), values.__getitem__)
    assert callable(node.target)
    return node.target(*args, **kwargs)


def given(module: GraphModule, call: ModelInputs) -> dict[Node, Any]:
    """Return the values of a module's inputs by their placeholder nodes."""
    return dict(zip(module.graph.find_nodes(op="placeholder"), call.leaves, strict=True))


def calls_of(module: GraphModule) -> Iterator[Node]:
    """Yield the calls of a module, except calls that change its buffers."""
    return (node for node in module.graph.nodes if node.op == "call_function" and node.target != COPY)


def held(module: GraphModule, state: State) -> dict[Node, torch.Tensor]:
    """Return the values in ``state`` of a module's buffers, by their ``get_attr`` nodes."""
    return {node: state[node.target] for node in module.graph.find_nodes(op="get_attr") if node.target in state}


def updates_of(module: GraphModule) -> dict[str, Node]:
    """Return the nodes that compute the new values of buffers, by the names of the buffers."""
    writes = module.graph.find_nodes(op="call_function", target=COPY)
    return {str(node.args[0].target): node.args[1] for node in writes}


def state_after(module: GraphModule, values: Values, state: State) -> dict[str, torch.Tensor]:
    """Return the state after a run. ``values`` are the values of the run by node, and ``state`` is the state before."""
    return {**state, **{name: values[node] for name, node in updates_of(module).items()}}


def constants_of(module: GraphModule, state: State) -> dict[Node, Any]:
    """Return the values of a module's constants, and of calls that depend only on constants, by node. Buffers in
    ``state`` are not constants."""
    found: dict[Node, Any] = {}
    with torch.no_grad():
        for node in module.graph.nodes:
            if node.op == "get_attr":
                if node.target not in state:
                    found[node] = tensor_of(module, node)
            elif node.op == "call_function" and node.all_input_nodes and found.keys() >= set(node.all_input_nodes):
                found[node] = computed(node, found)
    return found


def computed_all(module: GraphModule, call: ModelInputs, constants: Values, state: State) -> dict[Node, Any]:
    """Return the value of every node of a module in a run that begins in ``state``, by node."""
    values = {**constants, **given(module, call), **held(module, state)}
    with torch.no_grad():
        for node in calls_of(module):
            if node not in values:
                values[node] = computed(node, values)
    return values


@dataclass(frozen=True, slots=True, eq=False)
class Twin:
    """The node of the float module for an operator of the quantized module. ``operands`` has pairs of the operands of
    both: (float, quantized)."""

    node: Node
    operands: tuple[tuple[Node, Node], ...]


def pairs_of(both: Twins) -> dict[Node, Twin]:
    """Return the float twin of each operator of the quantized module, by the operator's node. An operator without a
    node of the same name, target and number of operands is missing."""
    named = {node.name: node for node in both.real.graph.nodes if node.op == "call_function"}
    found = {}
    for node in both.quantized.graph.nodes:
        twin = named.get(node.name)
        if node.op == "call_function" and twin is not None and twin.target == node.target:
            here, there = _operands(node), _operands(twin)
            if len(here) == len(there):
                found[node] = Twin(twin, tuple(zip(there, here, strict=True)))
    return found


def _operands(node: Node) -> list[Node]:
    found: list[Node] = []
    map_arg((node.args, node.kwargs), found.append)
    return found


@dataclass(frozen=True, slots=True, eq=False)
class Lanes:
    """A float module and its quantized twin, prepared to run samples, with the observed partitions of the compiled
    program."""

    twins: Twins
    layers: tuple[Layer, ...]
    parts: tuple[Observed, ...] = ()
    real_constants: Values = field(default_factory=dict, repr=False)
    constants: Values = field(default_factory=dict, repr=False)
    pairs: Mapping[Node, Twin] = field(default_factory=dict, repr=False)
    plan: tuple[Node | Observed, ...] = field(default=(), repr=False)
    """The nodes of the quantized module and the observed partitions, in the order in which they are run."""

    @classmethod
    def of(cls, both: Twins, parts: Sequence[Observed] = ()) -> Lanes:
        """Return the lanes of twins. ``parts`` are the partitions that the simulator runs."""
        layers = tuple(layers_of(both.quantized))
        constants = constants_of(both.quantized, both.state)
        real_constants = constants_of(both.real, both.state)
        plan = _plan(both.quantized, parts, constants, layers)
        return cls(both, layers, tuple(parts), real_constants, constants, pairs_of(both), plan)

    def float_values(self, call: ModelInputs, state: State) -> tuple[dict[str, Any], State]:
        """Run the float module. Return the values by the names of their nodes, and the state after the run."""
        real = self.twins.real
        found = computed_all(real, call, self.real_constants, state)
        return {node.name: value for node, value in found.items()}, state_after(real, found, state)

    def float_results(self, real: Mapping[str, Any]) -> list[torch.Tensor]:
        """Return the results of the float module. ``real`` has the values of its nodes by name."""
        nodes = self.twins.real.graph.output_node().all_input_nodes
        return results(self.twins.real, {node: real[node.name] for node in nodes})

    def with_noise(self, real: Mapping[str, Any], layer: Layer, noise: torch.Tensor) -> list[torch.Tensor]:
        """Return the results that the float module has if ``noise`` is added to the result of one layer. ``real`` has
        the values of a run without the noise, by node name. Only nodes that depend on the layer's result are computed
        again."""
        name = layer.source.name
        changed: dict[str, Any] = {name: real[name] + noise}
        with torch.no_grad():
            for node in calls_of(self.twins.real):
                sources = node.all_input_nodes
                if node.name != name and any(item.name in changed for item in sources):
                    operands = {item: changed.get(item.name, real[item.name]) for item in sources}
                    changed[node.name] = computed(node, operands)
        return self.float_results({**real, **changed})

    def alone(self, real: Mapping[str, Any], state: State) -> Iterator[tuple[Layer, torch.Tensor, torch.Tensor]]:
        """Yield each layer with two results: that of the quantized layer and that of the float layer. Both are
        computed from the same inputs, the float model's values after quantization.

        The difference of the results is the noise of the layer itself. A layer that only moves values has no such
        noise. ``real`` has the values of the float module in a run by node name, and ``state`` is its state before
        this run.
        """
        by_quantize = {layer.quantize: layer for layer in self.layers}
        quantized = self.twins.quantized
        inputs = {node: real[node.name] for node in quantized.graph.find_nodes(op="placeholder")}
        passed: dict[Node, Any] = {**inputs, **held(quantized, state)}
        values: dict[Node, Any] = {**self.constants, **passed}
        with torch.no_grad():
            for node in calls_of(quantized):
                if node in values:
                    continue
                if is_dequantize(node) and is_activation(node.args[0]):
                    quantize = node.args[0]
                    value = {quantize.args[0]: real[origin_of(quantize).name]}
                    values[node] = passed[node] = computed(node, {quantize: computed(quantize, value)})
                else:
                    values[node] = computed(node, values)
                    if node in by_quantize:
                        yield by_quantize[node], _dequantized(node, values[node]), passed[node.args[0]]
                    elif node in self.pairs:
                        there = self.pairs[node]
                        operands = {
                            other: self.real_constants[other] if other in self.real_constants else passed[here]
                            for other, here in there.operands
                        }
                        passed[node] = computed(there.node, operands)
                    else:
                        passed[node] = values[node]

    def accumulated(
        self, call: ModelInputs, state: State
    ) -> tuple[dict[Node, torch.Tensor], list[torch.Tensor], State]:
        """Run the quantized module, with the simulator for the observed partitions and PyTorch for the other nodes.
        Return each layer's dequantized result by its ``quantize`` node, the results of the model, and the state
        after the run."""
        quantized = self.twins.quantized
        values: dict[Node, Any] = {**self.constants, **given(quantized, call), **held(quantized, state)}
        with torch.no_grad():
            for item in self.plan:
                if isinstance(item, Observed):
                    values |= item.run([values[source] for source in item.sources])
                elif item not in values:
                    values[item] = computed(item, values)
        found = {layer.quantize: _dequantized(layer.quantize, values[layer.quantize]) for layer in self.layers}
        return found, results(quantized, values), state_after(quantized, values, state)

    @property
    def on_npu(self) -> set[Node]:
        """Return the ``quantize`` nodes whose values come from the simulator."""
        return {place.quantize for part in self.parts for place in part.places}


def results(module: GraphModule, values: Values) -> list[torch.Tensor]:
    """Return the results of a module that are tensors. ``values`` has the values of its nodes."""
    (found,) = map_arg(module.graph.output_node().args, values.__getitem__)
    return [item for item in pytree.tree_leaves(found) if isinstance(item, torch.Tensor)]


def _dequantized(quantize: Node, stored: torch.Tensor) -> torch.Tensor:
    scale, zero_point = quantize.args[1:3]
    return (stored.to(torch.float32) - zero_point) * scale


def _plan(
    quantized: GraphModule, parts: Sequence[Observed], constants: Values, layers: Sequence[Layer]
) -> tuple[Node | Observed, ...]:
    """Return what to run for the values of all layers, the results and the new values of buffers, in an order of
    execution. A partition stands for all nodes inside it. Constants are left out."""
    inside = {place.quantize: part for part in parts for place in part.places}

    def sources(item: Any) -> list[Any]:
        if isinstance(item, Observed):
            return list(item.sources)
        if item in inside:
            return [inside[item]]
        return [node for node in item.all_input_nodes if node not in constants]

    ends = [*quantized.graph.output_node().all_input_nodes, *updates_of(quantized).values()]
    waiting: list[Any] = [*ends, *(layer.quantize for layer in layers)]
    sorter: TopologicalSorter[Any] = TopologicalSorter()
    seen = set()
    while waiting:
        item = waiting.pop()
        if item in seen or item in constants:
            continue
        seen.add(item)
        sorter.add(item, *sources(item))
        waiting += sources(item)
    ready = (item for item in sorter.static_order() if item not in inside)
    return tuple(item for item in ready if isinstance(item, Observed) or item.op == "call_function")
