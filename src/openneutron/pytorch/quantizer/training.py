# SPDX-License-Identifier: BSD-3-Clause
"""Quantization-aware training: a float ATen graph to one that rounds as the NPU will, and, once trained, to a quantized one."""

from __future__ import annotations

from dataclasses import dataclass
from types import MethodType
from typing import Any

import torch
from torch import nn
from torch.fx import GraphModule, Node
from torchao.quantization.pt2e.fake_quantize import FakeQuantizeBase
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_qat_pt2e
from torchao.quantization.pt2e.quantizer import Quantizer

from openneutron.pytorch.graph.program import arguments_of
from openneutron.pytorch.graph.rewriting import NodePass, add_constant, constant_of
from openneutron.pytorch.quantizer.neutron_quantizer import NeutronQuantizer
from openneutron.pytorch.quantizer.passes.fold_constants import FoldConstants
from openneutron.pytorch.quantizer.passes.simulate_batch_norm import (
    BATCH_NORM,
    CONVOLUTIONS,
    TRAINING_PLACE,
    FoldSimulatedBatchNorm,
    SimulateBatchNorm,
    constant_users,
    normalized,
)

_aten = torch.ops.aten
_TRAINING = {
    BATCH_NORM: 5,
    normalized: TRAINING_PLACE,
    _aten.dropout.default: 2,
    _aten.feature_dropout.default: 2,
    _aten.alpha_dropout.default: 2,
}
"""Calls that differ between training and inference, and the place of the argument that says which."""


def prepare_training(module: GraphModule, quantizer: Quantizer) -> GraphModule:
    """Return the module with fake quantizations, ready to be trained; ``train`` and ``eval`` work on it as on any
    module.

    With a NeutronQuantizer, batch normalizations of every kind of layer are trained along. Others leave that to torchao.
    """
    return with_modes(prepare_qat_pt2e(begun(module, quantizer), quantizer))


def begun(module: GraphModule, quantizer: Quantizer) -> GraphModule:
    """Return the module in the form for ``prepare_qat_pt2e``."""
    if isinstance(quantizer, NeutronQuantizer):
        quantizer.begin(module)
        SimulateBatchNorm(quantizer.keeps_float)(module)
    return module


def with_modes(prepared: GraphModule) -> GraphModule:
    """Return the module with ``set_training`` as ``train`` and ``eval``."""

    def train(model: GraphModule, mode: bool = True) -> GraphModule:
        return set_training(model, mode)

    def evaluate(model: GraphModule) -> GraphModule:
        return set_training(model, False)

    prepared.train = MethodType(train, prepared)
    prepared.eval = MethodType(evaluate, prepared)
    return prepared


def set_training(module: GraphModule, mode: bool) -> GraphModule:
    """Return the exported module in training or inference mode: batch norms and dropouts, with their own settings."""
    for node in module.graph.nodes:
        place = _TRAINING.get(node.target) if node.op == "call_function" else None
        if place is not None and len(node.args) > place:
            node.update_arg(place, mode)
    module.recompile()
    return module


def converted(prepared: GraphModule) -> GraphModule:
    """Return the trained module with quantize and dequantize nodes; weights have the scales of what they are now."""
    return with_biases(convert_pt2e(ended(prepared)))


def ended(prepared: GraphModule) -> GraphModule:
    """Return the trained module in the form for ``convert_pt2e``."""
    set_training(prepared, False)
    for node in list(prepared.graph.nodes):
        # A module exported in training mode counts its batches.
        if node.target is _aten.add_.Tensor and str(getattr(node.args[0], "target", "")).endswith(
            "num_batches_tracked"
        ):
            prepared.graph.erase_node(node)
    FoldConstants()(prepared)
    FoldSimulatedBatchNorm()(prepared)
    with torch.no_grad():
        for fake, value in constant_users(prepared):
            if isinstance(fake, FakeQuantizeBase):
                _observe(fake, value)
    return prepared


def with_biases(quantized: GraphModule) -> GraphModule:
    """Return the converted module with int32 biases where folding made new ones."""
    QuantizeBiases()(quantized)
    return quantized


def _observe(fake: nn.Module, value: torch.Tensor) -> None:
    observer = getattr(fake, "activation_post_process", None)
    if isinstance(observer, nn.Module):
        observer(value)


_q = torch.ops.quantized_decomposed
INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1


@dataclass(frozen=True, slots=True)
class QuantizeBiases(NodePass):
    """Quantize the biases that training or folding left float in a quantized graph: to int32, in units of the input's scale
    times the weights' scale."""

    targets = (*CONVOLUTIONS, torch.ops.aten.linear.default)

    def rewrite(self, module: GraphModule, node: Node) -> bool:
        return _quantize(module, node)


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
    """Return the scale or scales of a dequantized tensor, in double."""
    if node.target is _q.dequantize_per_tensor.default:
        return torch.tensor(float(node.args[1]), dtype=torch.float64).reshape(1)
    if node.target in (_q.dequantize_per_tensor.tensor, _q.dequantize_per_channel.default):
        found = constant_of(module, node.args[1])
        return None if found is None else found.double().reshape(-1)
    return None
