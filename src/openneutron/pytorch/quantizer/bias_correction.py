# SPDX-License-Identifier: BSD-3-Clause
"""Biases with the mean difference that quantization makes, layer by layer (Nagel et al., arXiv 1906.04721, section 4.2)."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from openneutron.pytorch.graph.program import is_dequantize
from openneutron.pytorch.graph.rewriting import add_constant
from openneutron.pytorch.source.exporting import ModelInputs

_aten = torch.ops.aten
CHANNEL_AXES = {_aten.conv1d.default: 1, _aten.conv2d.default: 1, _aten.linear.default: -1}
INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1

Values = dict[Node, Any]


def correct_biases(real: GraphModule, quantized: GraphModule, samples: Sequence[ModelInputs]) -> None:
    """Add to the biases of the quantized module, in place, what makes the mean of each channel that of the float module.

    Layer after layer: each sees its inputs as the corrected layers before it compute them. ``real`` has the operators of
    ``quantized`` under the same names.
    """
    twins = {node.name: node for node in real.graph.nodes}
    ends = {side: _last_uses(side) for side in (real, quantized)}
    there: list[Values] = [_inputs(real, call) for call in samples]
    here: list[Values] = [_inputs(quantized, call) for call in samples]
    order = {node: place for place, node in enumerate(real.graph.nodes)}
    nodes = list(real.graph.nodes)
    reached = 0
    with torch.no_grad():
        for node in quantized.graph.nodes:
            if node.op in ("placeholder", "output"):
                continue
            twin = twins.get(node.name)
            if twin is not None and node.op == "call_function" and node.target in CHANNEL_AXES:
                while reached <= order[twin]:
                    _step(real, nodes[reached], there, ends[real])
                    reached += 1
                _correct(quantized, node, twin, here, there)
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
            values[node] = _computed(node, values)
        if node.op != "output":
            for source in ends.get(node, ()):
                values.pop(source, None)


def _computed(node: Node, values: Values) -> Any:
    args, kwargs = map_arg((node.args, node.kwargs), values.__getitem__)
    assert callable(node.target)
    return node.target(*args, **kwargs)


def _correct(module: GraphModule, node: Node, twin: Node, here: list[Values], there: list[Values]) -> None:
    """Correct the bias of one layer, whose inputs are known on both sides."""
    operand = node.args[2] if len(node.args) > 2 else None
    if not isinstance(operand, Node):
        return
    source = operand.args[0] if is_dequantize(operand) else operand
    if not isinstance(source, Node) or source.op != "get_attr":
        return
    axis = CHANNEL_AXES[node.target]
    differences = []
    for mine, real in zip(here, there, strict=True):
        difference = (real[twin] - _computed(node, mine)).double()
        channel = axis % difference.dim()
        differences.append(difference.mean([other for other in range(difference.dim()) if other != channel]))
    shift = torch.stack(differences).mean(0)
    if source is operand:
        _replace(module, node, source, shift, here)
        return
    scale = operand.args[1]
    scales = attrgetter(str(scale.target))(module) if isinstance(scale, Node) else torch.tensor(float(scale))
    stored = attrgetter(str(source.target))(module)
    changed = (stored.double() + torch.round(shift / scales.double())).clamp(INT32_MIN, INT32_MAX)
    stored.copy_(changed.to(torch.int32))
    for values in here:
        values[operand] = _computed(operand, {**values, source: stored})


def _replace(module: GraphModule, node: Node, bias: Node, shift: torch.Tensor, here: list[Values]) -> None:
    """Give a layer another float bias, that of a layer on int16 activations. The float module keeps the tensor that both had."""
    changed = (attrgetter(str(bias.target))(module).double() + shift).float()
    constant = add_constant(module, node, f"{bias.target}_corrected", changed)
    node.update_arg(2, constant)
    for values in here:
        values[constant] = changed
