# SPDX-License-Identifier: BSD-3-Clause
"""After training, simulated batch normalizations go into their layers for good."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.fx import GraphModule, Node
from torch.fx.passes.infra.pass_base import PassResult

from openneutron.pytorch.graph.constants import add_constant, constant_of
from openneutron.pytorch.graph.rewriting import finished
from openneutron.pytorch.quantizer.passes.simulate_batch_norm import factor_of, normalized, scaled_weight, times_factor


@dataclass(frozen=True, slots=True)
class FoldSimulatedBatchNorm:
    """Undoes ``SimulateBatchNorm``: each layer gets weights and a bias that do the normalization too.

    A fake quantization of the weights stays where it is.
    """

    def __call__(self, module: GraphModule) -> PassResult:
        joined = [node for node in module.graph.nodes if node.op == "call_function" and node.target is normalized]
        for node in joined:
            _fold(module, node)
        return finished(module, bool(joined))


def _fold(module: GraphModule, joined: Node) -> None:
    layer, bias, gamma, beta, mean, variance, _, _, eps = joined.args
    assert isinstance(layer, Node) and isinstance(eps, float)
    scaled = next(node for node in _upwards(layer.args[1]) if node.target is scaled_weight)
    weight_node, transposed = scaled.args[0], bool(scaled.args[4])
    weight = constant_of(module, weight_node)
    given = [constant_of(module, item) for item in (bias, gamma, beta, mean, variance)]
    old, scale, shift, centre, spread = (None if item is None else item.double() for item in given)
    assert weight is not None and centre is not None and spread is not None
    factor = factor_of(scale, spread, eps)
    offset = (-centre if old is None else old - centre) * factor
    if shift is not None:
        offset = offset + shift
    stem = str(getattr(weight_node, "target", layer.name))
    new_weight = times_factor(weight.double(), factor, transposed).to(weight.dtype)
    scaled.replace_all_uses_with(add_constant(module, scaled, f"{stem}_folded", new_weight))
    new_bias = add_constant(module, layer, f"{stem}_folded_bias", offset.to(weight.dtype))
    layer.args = (layer.args[0], layer.args[1], new_bias, *layer.args[3:])
    joined.replace_all_uses_with(layer)
    module.graph.erase_node(joined)


def _upwards(item: object) -> list[Node]:
    """A node, what its first argument is, and so on."""
    found = []
    while isinstance(item, Node):
        found.append(item)
        item = item.args[0] if item.args else None
    return found


def constant_users(module: GraphModule) -> list[tuple[torch.nn.Module, torch.Tensor]]:
    """Every submodule call on a constant, with the constant: the fake quantizations of weights and biases."""
    found = []
    for node in module.graph.nodes:
        if node.op == "call_module":
            value = constant_of(module, node.args[0])
            if value is not None:
                found.append((module.get_submodule(str(node.target)), value))
    return found
