# SPDX-License-Identifier: BSD-3-Clause
"""Float biases of quantized layers become int32, in units of the input's scale times the weights'."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.passes.infra.pass_base import PassResult

from openneutron.pytorch.graph.constants import add_constant, constant_of
from openneutron.pytorch.graph.rewriting import finished
from openneutron.pytorch.quantizer.passes.simulate_batch_norm import CONVOLUTIONS, arguments_of

_q = torch.ops.quantized_decomposed
INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1


@dataclass(frozen=True, slots=True)
class QuantizeBiases:
    """For a quantized graph, in which training or folding left biases float."""

    def __call__(self, module: GraphModule) -> PassResult:
        changed = False
        for node in list(module.graph.nodes):
            if node.op == "call_function" and node.target in (*CONVOLUTIONS, torch.ops.aten.linear.default):
                changed |= _quantize(module, node)
        return finished(module, changed)


def _quantize(module: GraphModule, layer: Node) -> bool:
    given = arguments_of(layer)
    bias = constant_of(module, given["bias"])
    data, weight = _scales(module, given["input"]), _scales(module, given["weight"])
    if bias is None or not bias.is_floating_point() or data is None or weight is None:
        return False
    scale = (data * weight).float()
    if scale.numel() > 1:
        # Groups of a transposed convolution share the scales of their output channels.
        scale = scale.repeat(bias.numel() // scale.numel())
    rounded = torch.round(bias.double() / scale.double()).clamp(INT32_MIN, INT32_MAX).to(torch.int32)
    stem = str(getattr(given["bias"], "target", layer.name))
    constant = add_constant(module, layer, f"{stem}_int32", rounded)
    if scale.numel() == 1:
        arguments: tuple[Any, ...] = (constant, float(scale), 0, INT32_MIN, INT32_MAX, torch.int32)
        target = _q.dequantize_per_tensor.default
    else:
        scales = add_constant(module, layer, f"{stem}_scales", scale)
        zeros = add_constant(module, layer, f"{stem}_zero_points", torch.zeros_like(scale, dtype=torch.int32))
        arguments = (constant, scales, zeros, 0, INT32_MIN, INT32_MAX, torch.int32)
        target = _q.dequantize_per_channel.default
    with module.graph.inserting_before(layer):
        dequantized = module.graph.call_function(target, arguments)
    dequantized.meta = {key: value for key, value in layer.meta.items() if key != "val"}
    dequantized.meta["val"] = given["bias"].meta.get("val")
    layer.args = (*layer.args[:2], dequantized, *layer.args[3:])
    layer.kwargs = {name: value for name, value in layer.kwargs.items() if name != "bias"}
    return True


def _scales(module: GraphModule, node: Node) -> torch.Tensor | None:
    """The scale or scales of a dequantized tensor, in double."""
    if node.target is _q.dequantize_per_tensor.default:
        return torch.tensor(float(node.args[1]), dtype=torch.float64).reshape(1)
    if node.target in (_q.dequantize_per_tensor.tensor, _q.dequantize_per_channel.default):
        found = constant_of(module, node.args[1])
        return None if found is None else found.double().reshape(-1)
    return None
