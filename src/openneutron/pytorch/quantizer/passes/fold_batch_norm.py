# SPDX-License-Identifier: BSD-3-Clause
"""Fold batch normalization in eval mode into the layer before it, or make it a depthwise 1x1 convolution.

torchao folds it too, but also into a layer whose result is read elsewhere, which changes that result; this pass runs first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch.fx import GraphModule, Node

from openneutron.pytorch.graph.program import arguments_of
from openneutron.pytorch.graph.rewriting import NodePass, add_call, add_constant, constant_of
from openneutron.pytorch.quantizer.passes.simulate_batch_norm import BATCH_NORM, CONVOLUTIONS, TRANSPOSED, times_factor

_aten = torch.ops.aten

_VOLUMES = (_aten.conv3d.default, _aten.conv3d.padding, _aten.conv_transpose3d.input)
"""Convolutions that a later pass decomposes into convolutions of images."""


@dataclass(frozen=True, slots=True)
class Affine:
    """y = factor * x + offset, per channel."""

    factor: torch.Tensor
    offset: torch.Tensor


@dataclass(frozen=True, slots=True)
class FoldBatchNorm(NodePass):
    """Fold each batch normalization into a layer. layers: the kinds of layers to fold into; "alone" is a new convolution."""

    layers: tuple[str, ...] = ("convolution", "linear", "alone")

    targets = (BATCH_NORM,)

    def rewrite(self, module: GraphModule, node: Node) -> bool:
        affine = _affine_of(module, node)
        return affine is not None and _fold(module, node, affine, self.layers)


def _affine_of(module: GraphModule, node: Node) -> Affine | None:
    """Return the function of a batch normalization in eval mode with constant statistics; None for another one."""
    given = arguments_of(node)
    mean, variance = constant_of(module, given["running_mean"]), constant_of(module, given["running_var"])
    if given["training"] or mean is None or variance is None:
        return None
    weight, bias = constant_of(module, given["weight"]), constant_of(module, given["bias"])
    factor = torch.rsqrt(variance.double() + given["eps"])
    if weight is not None:
        factor = factor * weight.double()
    offset = -mean.double() * factor
    if bias is not None:
        offset = offset + bias.double()
    return Affine(factor, offset)


def _fold(module: GraphModule, norm: Node, affine: Affine, layers: tuple[str, ...]) -> bool:
    source = norm.args[0]
    assert isinstance(source, Node)
    alone = len(source.users) == 1
    if alone and "convolution" in layers and source.target in (*CONVOLUTIONS, *_VOLUMES):
        return _into_layer(module, norm, source, affine)
    if alone and "linear" in layers and source.target is _aten.linear.default and source.meta["val"].dim() == 2:
        return _into_layer(module, norm, source, affine)
    return "alone" in layers and _to_depthwise(module, norm, source, affine)


def _into_layer(module: GraphModule, norm: Node, layer: Node, affine: Affine) -> bool:
    weight = constant_of(module, layer.args[1])
    bias_node = layer.args[2] if len(layer.args) > 2 else layer.kwargs.get("bias")
    bias = constant_of(module, bias_node)
    if weight is None or (bias is None and bias_node is not None):
        return False
    new_weight = times_factor(
        weight.double(), affine.factor, layer.target in (*TRANSPOSED, _aten.conv_transpose3d.input)
    ).to(weight.dtype)
    new_bias = affine.offset if bias is None else bias.double() * affine.factor + affine.offset
    stem = str(getattr(layer.args[1], "target", layer.name))
    weight_node = add_constant(module, layer, f"{stem}_folded", new_weight)
    bias_node = add_constant(module, layer, f"{stem}_folded_bias", new_bias.to(weight.dtype))
    layer.args = (layer.args[0], weight_node, bias_node, *layer.args[3:])
    layer.kwargs = {key: value for key, value in layer.kwargs.items() if key != "bias"}
    _replace(module, norm, layer)
    return True


def _to_depthwise(module: GraphModule, norm: Node, source: Node, affine: Affine) -> bool:
    """Replace the normalization by a depthwise 1x1 convolution, on a view of rank 4 of its input."""
    value = norm.meta["val"]
    shape = tuple(value.shape)
    if not all(isinstance(extent, int) for extent in shape):
        return False
    channels = affine.factor.numel()
    weight = add_constant(module, norm, f"{norm.name}_factor", affine.factor.to(value.dtype).reshape(channels, 1, 1, 1))
    bias = add_constant(module, norm, f"{norm.name}_offset", affine.offset.to(value.dtype))
    image = source
    if len(shape) != 4:
        image = add_call(module, norm, _aten.reshape.default, source, [shape[0], channels, math.prod(shape[2:]), 1])
    layer = add_call(module, norm, _aten.conv2d.default, image, weight, bias, [1, 1], [0, 0], [1, 1], channels)
    _replace(module, norm, layer if image is source else add_call(module, norm, _aten.reshape.default, layer, [*shape]))
    return True


def _replace(module: GraphModule, norm: Node, layer: Node) -> None:
    norm.replace_all_uses_with(layer)
    module.graph.erase_node(norm)
