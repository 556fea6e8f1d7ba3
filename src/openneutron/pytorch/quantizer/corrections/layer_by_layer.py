# SPDX-License-Identifier: BSD-3-Clause
"""A quantized module beside its float twin, layer after layer, on all samples at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from openneutron.device.timings import advance
from openneutron.pytorch.graph.program import is_dequantize
from openneutron.pytorch.source.exporting import ModelInputs

_aten = torch.ops.aten
CONV_1D, CONV_2D, LINEAR = _aten.conv1d.default, _aten.conv2d.default, _aten.linear.default
LAYERS = (CONV_1D, CONV_2D, LINEAR)

Values = dict[Node, Any]


@dataclass(frozen=True, slots=True, eq=False)
class LayerPair:
    """A layer of the quantized module and the same layer of the float module, with the values before both for each sample.

    ``there`` has the float layer's result too.
    """

    real: GraphModule
    quantized: GraphModule
    node: Node
    twin: Node
    here: Sequence[Values]
    there: Sequence[Values]

    def stored(self, operand: object) -> torch.Tensor | None:
        """Return the integers of a constant operand of the quantized layer; None for any other operand."""
        if not isinstance(operand, Node) or not is_dequantize(operand) or operand.args[0].op != "get_attr":
            return None
        found: torch.Tensor = attrgetter(str(operand.args[0].target))(self.quantized)
        return found

    def scales(self, operand: Node) -> torch.Tensor:
        """Return the scale or the scales of a constant operand, in double."""
        scale = operand.args[1]
        if isinstance(scale, Node):
            return attrgetter(str(scale.target))(self.quantized).double()
        return torch.tensor(float(scale), dtype=torch.float64)

    def store(self, operand: Node, values: torch.Tensor) -> None:
        """Change the integers of a constant operand, in place."""
        stored = self.stored(operand)
        assert stored is not None
        stored.copy_(values.to(stored.dtype))
        for known in self.here:
            known[operand] = computed(operand, {**known, operand.args[0]: stored})


Change = Callable[[LayerPair], None]


def layer_by_layer(
    real: GraphModule, quantized: GraphModule, samples: Sequence[ModelInputs], changes: Sequence[Change]
) -> None:
    """Apply the changes to each layer, which sees its inputs as the changed layers before it compute them.

    ``real`` has the operators of ``quantized`` under the same names.
    """
    twins = {node.name: node for node in real.graph.nodes}
    ends = {side: _last_uses(side) for side in (real, quantized)}
    there: list[Values] = [_inputs(real, call) for call in samples]
    here: list[Values] = [_inputs(quantized, call) for call in samples]
    order = {node: place for place, node in enumerate(real.graph.nodes)}
    nodes = list(real.graph.nodes)
    reached = done = 0
    total = sum(node.target in LAYERS and node.name in twins for node in quantized.graph.nodes)
    with torch.no_grad():
        for node in quantized.graph.nodes:
            if node.op in ("placeholder", "output"):
                continue
            twin = twins.get(node.name)
            if twin is not None and node.op == "call_function" and node.target in LAYERS:
                while reached <= order[twin]:
                    _step(real, nodes[reached], there, ends[real])
                    reached += 1
                for change in changes:
                    change(LayerPair(real, quantized, node, twin, here, there))
                done += 1
                advance(done, total)
            _step(quantized, node, here, ends[quantized])
    quantized.recompile()


def _inputs(module: GraphModule, call: ModelInputs) -> Values:
    return dict(zip(module.graph.find_nodes(op="placeholder"), call.leaves, strict=True))


def _last_uses(module: GraphModule) -> dict[Node, list[Node]]:
    """Return for each node the nodes whose values nothing after it reads. Constants are kept."""
    last = {source: node for node in module.graph.nodes for source in node.all_input_nodes}
    found: dict[Node, list[Node]] = {}
    for source, node in last.items():
        if source.op != "get_attr":
            found.setdefault(node, []).append(source)
    return found


def _step(module: GraphModule, node: Node, samples: list[Values], ends: dict[Node, list[Node]]) -> None:
    for values in samples:
        if node.op == "get_attr":
            values[node] = attrgetter(str(node.target))(module)
        elif node.op == "call_function" and node not in values:
            values[node] = computed(node, values)
        if node.op != "output":
            for source in ends.get(node, ()):
                values.pop(source, None)


def computed(node: Node, values: Values) -> Any:
    """Return the result of a node."""
    args, kwargs = map_arg((node.args, node.kwargs), values.__getitem__)
    assert callable(node.target)
    return node.target(*args, **kwargs)
