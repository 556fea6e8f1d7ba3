# SPDX-License-Identifier: BSD-3-Clause
"""Batch normalization in quantization-aware training: weights are rounded as they will be once it is folded into them.

The layer computes with its weights times the normalization's factor, made from the running variance; its result is divided by
that factor again and normalized as usual, so that the statistics, and what they are trained by, stay the layer's own
(Krishnamoorthi, "Quantizing deep convolutional networks for efficient inference", 2018, section 3.2.2; torchao does so for
convolutions). In eval mode this computes what the folded layer computes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.fx import GraphModule, Node
from torch.fx.passes.infra.pass_base import PassResult

from openneutron.pytorch.graph.program import arguments_of
from openneutron.pytorch.graph.rewriting import NodePass, add_call, add_constant, constant_of, finished

_aten = torch.ops.aten
BATCH_NORM = _aten.batch_norm.default
TRANSPOSED = (_aten.conv_transpose1d.default, _aten.conv_transpose2d.input)
CONVOLUTIONS = (
    _aten.conv1d.default,
    _aten.conv1d.padding,
    _aten.conv2d.default,
    _aten.conv2d.padding,
    *TRANSPOSED,
)

_LEAST_FACTOR = 2.0**-40
"""Below this the result could not be divided by a factor again; such a channel's weights keep their scale."""


def factor_of(gamma: Tensor | None, variance: Tensor, eps: float) -> Tensor:
    """Return the factor that a normalization multiplies each channel with."""
    factor = torch.rsqrt(variance + eps)
    return factor if gamma is None else gamma * factor


def _safe(factor: Tensor) -> Tensor:
    return torch.where(factor.abs() < _LEAST_FACTOR, torch.ones_like(factor), factor)


def times_factor(weight: Tensor, factor: Tensor, transposed: bool) -> Tensor:
    """Weights times the factors of their output channels: axis 0, or axis 1 within each group of a transposed convolution."""
    ones = [1] * (weight.dim() - 2)
    if not transposed:
        return weight * factor.reshape(-1, 1, *ones)
    inputs, outputs = weight.shape[:2]
    groups = factor.numel() // outputs
    cube = weight.reshape(groups, inputs // groups, *weight.shape[1:])
    return (cube * factor.reshape(groups, 1, outputs, *ones)).reshape(weight.shape)


def scaled_weight(weight: Tensor, gamma: Tensor | None, variance: Tensor, eps: float, transposed: bool) -> Tensor:
    """Return the weights times the normalization's factor, which are then rounded."""
    return times_factor(weight, _safe(factor_of(gamma, variance, eps)), transposed)


def normalized(
    x: Tensor,
    bias: Tensor | None,
    gamma: Tensor | None,
    beta: Tensor | None,
    mean: Tensor,
    variance: Tensor,
    training: bool,
    momentum: float,
    eps: float,
) -> Tensor:
    """Return the layer's normalized result from ``x``, the result of its scaled weights without a bias."""
    ones = [1] * (x.dim() - 2)
    x = x / _safe(factor_of(gamma, variance, eps)).reshape(1, -1, *ones)
    if bias is not None:
        x = x + bias.reshape(1, -1, *ones)
    return torch.nn.functional.batch_norm(x, mean, variance, gamma, beta, training, momentum, eps)


TRAINING_PLACE = 6
"""The place of ``training`` among the arguments of ``normalized``."""


@dataclass(frozen=True, slots=True)
class SimulateBatchNorm(NodePass):
    """Join each batch normalization with the layer before it, or with a depthwise 1x1 convolution of ones put in front.

    Left alone: calls without running statistics, and of those that no layer can take the ones that ``keep`` holds for.
    """

    keep: Callable[[Node], bool] | None = None

    targets = (BATCH_NORM,)

    def rewrite(self, module: GraphModule, node: Node) -> bool:
        return _simulate(module, node, self.keep)


def _simulate(module: GraphModule, norm: Node, keep: Callable[[Node], bool] | None) -> bool:
    given = arguments_of(norm)
    statistics = [given[name] for name in ("running_mean", "running_var", "weight", "bias")]
    if any(item is not None and constant_of(module, item) is None for item in statistics):
        return False
    if given["running_mean"] is None or given["running_var"] is None:
        return False
    source, shape = given["input"], norm.meta["val"].shape
    layer = source if _takes_norm(module, source) else None
    if layer is None:
        if not 2 <= len(shape) <= 4 or (keep is not None and keep(norm)):
            return False
        layer = _ones(module, norm, source)
    mean, variance, gamma, beta = statistics
    settings = arguments_of(layer)
    with module.graph.inserting_before(layer):
        # The normalization's constants stand behind the layer in the graph.
        gamma_here, variance_here = (
            None if item is None else module.graph.get_attr(str(item.target)) for item in (gamma, variance)
        )
        transposed = layer.target in TRANSPOSED
        weight = module.graph.call_function(
            scaled_weight, (settings["weight"], gamma_here, variance_here, given["eps"], transposed)
        )
        weight.meta["val"] = settings["weight"].meta.get("val")
    layer.args = (settings["input"], weight, None, *layer.args[3:])
    layer.kwargs = {name: value for name, value in layer.kwargs.items() if name not in ("weight", "bias")}
    with module.graph.inserting_before(norm):
        joined = module.graph.call_function(
            normalized,
            (
                layer,
                settings["bias"],
                gamma,
                beta,
                mean,
                variance,
                given["training"],
                given["momentum"],
                given["eps"],
            ),
        )
        joined.meta = dict(norm.meta)
        joined.meta["val"] = layer.meta["val"]
        result = joined
        if joined.meta["val"].dim() != len(shape):
            result = add_call(module, norm, _aten.squeeze.dim, joined, -1)
    norm.replace_all_uses_with(result)
    module.graph.erase_node(norm)
    return True


def _takes_norm(module: GraphModule, layer: Node) -> bool:
    """Return whether a normalization of this result alone can go into the layer that computes it."""
    if layer.op != "call_function" or len(layer.users) != 1:
        return False
    if layer.target is not _aten.linear.default and layer.target not in CONVOLUTIONS:
        return False
    if layer.target is _aten.linear.default and layer.meta["val"].dim() != 2:
        return False
    given = arguments_of(layer)
    constants = [constant_of(module, given["weight"]), given["bias"] and constant_of(module, given["bias"])]
    return constants[0] is not None and (given["bias"] is None or constants[1] is not None)


def _ones(module: GraphModule, norm: Node, source: Node) -> Node:
    """Return a depthwise 1x1 convolution of ones behind ``source``; a matrix becomes rows of one column first."""
    value = norm.meta["val"]
    channels, spatial = value.shape[1], max(1, value.dim() - 2)
    weight = add_constant(module, norm, f"{norm.name}_ones", torch.ones(channels, 1, *[1] * spatial))
    if value.dim() == 2:
        source = add_call(module, norm, _aten.unsqueeze.default, source, -1)
    target = _aten.conv1d.default if spatial == 1 else _aten.conv2d.default
    each = [1] * spatial
    return add_call(module, norm, target, source, weight, None, each, [0] * spatial, each, channels)


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
    """Return a node, its first argument, the first argument of that node, and so on."""
    found = []
    while isinstance(item, Node):
        found.append(item)
        item = item.args[0] if item.args else None
    return found


def constant_users(module: GraphModule) -> list[tuple[torch.nn.Module, torch.Tensor]]:
    """Return every submodule call on a constant, with the constant: the fake quantizations of weights and biases."""
    found = []
    for node in module.graph.nodes:
        if node.op == "call_module":
            value = constant_of(module, node.args[0])
            if value is not None:
                found.append((module.get_submodule(str(node.target)), value))
    return found
