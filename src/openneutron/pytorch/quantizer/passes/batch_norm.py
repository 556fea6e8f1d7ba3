# SPDX-License-Identifier: BSD-3-Clause
"""Passes that fold batch normalizations before torchao does.

torchao (0.17) folds batch normalizations before a quantizer sees the graph, and raises "Expected get_attr node" for
a layer whose weight is computed, as weight_norm, spectral_norm, pruning and any other parametrization leave it.
These passes fold values that depend only on constants, and the normalizations of the other layers too. Programs
that were exported in training mode, or whose operators are decomposed, then have the usual form.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps

import torch
from torch import Tensor
from torch.fx import GraphModule, Node
from torch.fx.passes.infra.pass_base import PassResult
from torchao.quantization.pt2e import quantize_pt2e

from openneutron.pytorch.backend.neutron_target_spec import NeutronTargetSpec
from openneutron.pytorch.graph.program import arguments_of
from openneutron.pytorch.graph.rewriting import (
    NORMS,
    NodePass,
    Pass,
    add_call,
    add_constant,
    constant_of,
    replace,
    to_inference,
)
from openneutron.pytorch.quantizer.passes.constants import FoldConstants
from openneutron.pytorch.quantizer.passes.exported_forms import (
    InlineWrappers,
    MakeFunctional,
    PlainCasts,
    Recompose,
    StatedConversions,
)
from openneutron.pytorch.quantizer.passes.slices import ComputedPositions

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
"""The smallest factor by which weights are scaled in training, since the result is divided by the factor again. The
weights of a channel with a smaller factor keep their scale."""


def factor_of(gamma: Tensor | None, variance: Tensor, eps: float) -> Tensor:
    """Return the factor by which a normalization multiplies each channel."""
    factor = torch.rsqrt(variance + eps)
    return factor if gamma is None else gamma * factor


def _safe(factor: Tensor) -> Tensor:
    return torch.where(factor.abs() < _LEAST_FACTOR, torch.ones_like(factor), factor)


def times_factor(weight: Tensor, factor: Tensor, transposed: bool) -> Tensor:
    """Return the weights, with those of each output channel multiplied by the channel's factor. The output channels
    are axis 0, or for a transposed convolution axis 1 within each group."""
    ones = [1] * (weight.dim() - 2)
    if not transposed:
        return weight * factor.reshape(-1, 1, *ones)
    inputs, outputs = weight.shape[:2]
    groups = factor.numel() // outputs
    cube = weight.reshape(groups, inputs // groups, *weight.shape[1:])
    return (cube * factor.reshape(groups, 1, outputs, *ones)).reshape(weight.shape)


def scaled_weight(weight: Tensor, gamma: Tensor | None, variance: Tensor, eps: float, transposed: bool) -> Tensor:
    """Return the weights times the normalization's factors, which is what quantization-aware training quantizes. A
    factor whose magnitude is below ``_LEAST_FACTOR`` counts as 1."""
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
class Affine:
    """The function y = factor * x + offset of each channel. Both tensors are float64."""

    factor: torch.Tensor
    offset: torch.Tensor

    def into(self, weight: Tensor, bias: Tensor | None, transposed: bool) -> tuple[Tensor, Tensor]:
        """Return the weights and the bias of a layer that also applies this function to its result."""
        offset = self.offset if bias is None else bias.double() * self.factor + self.offset
        return times_factor(weight.double(), self.factor, transposed).to(weight.dtype), offset.to(weight.dtype)


def _affine(mean: Tensor, variance: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Affine:
    factor = factor_of(None if weight is None else weight.double(), variance.double(), eps)
    offset = -mean.double() * factor
    return Affine(factor, offset if bias is None else offset + bias.double())


@dataclass(frozen=True, slots=True)
class SimulateBatchNorm(NodePass):
    """Let each batch normalization scale the weights of the layer before it, so that training quantizes the weights
    as they are after folding.

    If no layer before it can take the normalization, a new depthwise 1x1 convolution with weights of 1 does. A
    normalization does not change if it has no running statistics, or if its statistics or parameters are not
    constant. One that would need a new convolution does not change either if its rank is above 4, or if ``keep``
    returns True for it.
    """

    targets = (BATCH_NORM,)

    def is_kept(self, node: Node) -> bool:
        return False  # a layer takes a normalization even if ``keep`` holds for it

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
        # The normalization's own constant nodes come after the layer in the graph.
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
    return replace(norm, result)


def _takes_norm(module: GraphModule, layer: Node) -> bool:
    """Return whether a batch normalization can be joined with the node before it.

    That node must be a convolution, or a linear layer whose result is a matrix. It must have constant parameters and
    one reader.
    """
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
    """Return a new depthwise 1x1 convolution of ones that reads ``source``. A matrix first gets a last axis of extent
    1."""
    value = norm.meta["val"]
    channels, spatial = value.shape[1], max(1, value.dim() - 2)
    weight = add_constant(module, norm, f"{norm.name}_ones", torch.ones(channels, 1, *[1] * spatial))
    if value.dim() == 2:
        source = add_call(module, norm, _aten.unsqueeze.default, source, -1)
    target = _aten.conv1d.default if spatial == 1 else _aten.conv2d.default
    each = [1] * spatial
    return add_call(module, norm, target, source, weight, None, each, [0] * spatial, each, channels)


@dataclass(frozen=True, slots=True)
class FoldSimulatedBatchNorm(NodePass):
    """Fold each normalization that ``SimulateBatchNorm`` joined with a layer into the layer's weights and bias.

    The fake quantization of the weights stays in the graph.
    """

    targets = (normalized,)

    def rewrite(self, module: GraphModule, node: Node) -> bool:
        layer, *given, _, _, eps = node.args
        assert isinstance(layer, Node) and isinstance(eps, float)
        scaled = layer.args[1]
        while isinstance(scaled, Node) and scaled.target is not scaled_weight:
            scaled = scaled.args[0]
        assert isinstance(scaled, Node)
        weight_node, transposed = scaled.args[0], bool(scaled.args[4])
        weight = constant_of(module, weight_node)
        bias, gamma, beta, mean, variance = (constant_of(module, item) for item in given)
        assert weight is not None and mean is not None and variance is not None
        new_weight, new_bias = _affine(mean, variance, gamma, beta, eps).into(weight, bias, transposed)
        stem = str(getattr(weight_node, "target", layer.name))
        scaled.replace_all_uses_with(add_constant(module, scaled, f"{stem}_folded", new_weight))
        bias_node = add_constant(module, layer, f"{stem}_folded_bias", new_bias)
        layer.args = (layer.args[0], layer.args[1], bias_node, *layer.args[3:])
        _replace(module, node, layer)
        return True


def constant_users(module: GraphModule) -> list[tuple[torch.nn.Module, torch.Tensor]]:
    """Return every submodule call on a constant, with the constant: the fake quantizations of weights and biases."""
    found = []
    for node in module.graph.nodes:
        if node.op == "call_module":
            value = constant_of(module, node.args[0])
            if value is not None:
                found.append((module.get_submodule(str(node.target)), value))
    return found


_VOLUMES = (_aten.conv3d.default, _aten.conv3d.padding, _aten.conv_transpose3d.input)
"""Convolutions that a later pass decomposes into convolutions of images."""


@dataclass(frozen=True, slots=True)
class FoldBatchNorm(NodePass):
    """Fold each batch normalization in eval mode whose statistics and parameters are constant into a layer.

    layers: the kinds of layers to fold into, tried in the order of the default value. "convolution" and "linear" are
    the layer before the normalization, "behind" stands for the linear layers that read its result, and "alone" for a
    new depthwise convolution in its place.
    """

    layers: tuple[str, ...] = ("convolution", "linear", "behind", "alone")

    targets = (BATCH_NORM,)

    def rewrite(self, module: GraphModule, node: Node) -> bool:
        affine, source = _affine_of(module, node), node.args[0]
        assert isinstance(source, Node)
        if affine is None:
            return False
        if len(source.users) == 1:
            is_convolution = "convolution" in self.layers and source.target in (*CONVOLUTIONS, *_VOLUMES)
            is_matrix = source.target is _aten.linear.default and source.meta["val"].dim() == 2
            is_layer = is_convolution or ("linear" in self.layers and is_matrix)
            if is_layer and _into_layer(module, node, source, affine):
                return True
        if "behind" in self.layers and _into_layers_behind(module, node, source, affine):
            return True
        return "alone" in self.layers and _to_depthwise(module, node, source, affine)


def _affine_of(module: GraphModule, node: Node) -> Affine | None:
    """Return the function of a batch normalization in eval mode with constant statistics and parameters; None for any
    other one."""
    given = arguments_of(node)
    mean, variance = constant_of(module, given["running_mean"]), constant_of(module, given["running_var"])
    if given["training"] or mean is None or variance is None:
        return None
    weight, bias = constant_of(module, given["weight"]), constant_of(module, given["bias"])
    if (weight is None and given["weight"] is not None) or (bias is None and given["bias"] is not None):
        return None
    return _affine(mean, variance, weight, bias, given["eps"])


def _into_layer(module: GraphModule, norm: Node, layer: Node, affine: Affine) -> bool:
    weight = constant_of(module, layer.args[1])
    bias_node = layer.args[2] if len(layer.args) > 2 else layer.kwargs.get("bias")
    bias = constant_of(module, bias_node)
    if weight is None or (bias is None and bias_node is not None):
        return False
    transposed = layer.target in (*TRANSPOSED, _aten.conv_transpose3d.input)
    new_weight, new_bias = affine.into(weight, bias, transposed)
    stem = str(getattr(layer.args[1], "target", layer.name))
    weight_node = add_constant(module, layer, f"{stem}_folded", new_weight)
    bias_node = add_constant(module, layer, f"{stem}_folded_bias", new_bias)
    layer.args = (layer.args[0], weight_node, bias_node, *layer.args[3:])
    layer.kwargs = {key: value for key, value in layer.kwargs.items() if key != "bias"}
    _replace(module, norm, layer)
    return True


def _into_layers_behind(module: GraphModule, norm: Node, source: Node, affine: Affine) -> bool:
    """Fold a batch normalization into the linear layers that read its result, if nothing else reads it.

    The layers read the result with channels last: a matrix as it is, another rank through one transpose. The factor
    of a channel multiplies a column of a layer's weights. The weights times the offsets are added to the layer's
    bias. Return whether the normalization was folded.
    """
    read = _with_channels_last(norm)
    readers = [] if read is None else list(read.users)
    layers = [_layer_of(module, reader) for reader in readers]
    if not layers or any(layer is None for layer in layers):
        return False
    if any(reader.args[0] is not read or read in reader.args[1:] for reader in readers):
        return False
    for reader, layer in zip(readers, layers, strict=True):
        assert layer is not None
        weight, bias = layer
        exact = weight.double()
        offset = exact @ affine.offset + (0 if bias is None else bias.double())
        stem = str(getattr(reader.args[1], "target", reader.name))
        weight_node = add_constant(module, reader, f"{stem}_normalized", (exact * affine.factor).to(weight.dtype))
        bias_node = add_constant(module, reader, f"{stem}_normalized_bias", offset.to(weight.dtype))
        reader.args, reader.kwargs = (reader.args[0], weight_node, bias_node), {}
    _replace(module, norm, source)
    return True


def _with_channels_last(norm: Node) -> Node | None:
    """Return the node whose value is the normalization's result with channels last.

    For a matrix that is the normalization itself. Otherwise it is a transpose that exchanges the channels with the
    last axis; None if the normalization's only reader is not such a transpose.
    """
    rank, users = norm.meta["val"].dim(), list(norm.users)
    if rank == 2:
        return norm
    if len(users) != 1 or users[0].target is not _aten.transpose.int:
        return None
    exchanged = sorted(int(axis) % rank for axis in users[0].args[1:])
    return users[0] if exchanged == [1, rank - 1] else None


def _layer_of(module: GraphModule, reader: Node) -> tuple[Tensor, Tensor | None] | None:
    """Return the weights and the bias of a linear layer, or None in place of the bias if the layer has none. Return
    None for any other node, and for a layer whose weights or bias are not constant."""
    if reader.target is not _aten.linear.default:
        return None
    given = arguments_of(reader)
    weight, bias = constant_of(module, given["weight"]), constant_of(module, given["bias"])
    return None if weight is None or (bias is None and given["bias"] is not None) else (weight, bias)


def _to_depthwise(module: GraphModule, norm: Node, source: Node, affine: Affine) -> bool:
    """Replace the normalization by a depthwise 1x1 convolution, with reshapes around it if the input's rank is not 4.
    Return False if the shape is not fixed, else True."""
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
    replace(norm, layer)


@dataclass(frozen=True, slots=True)
class Inference(Pass):
    """Let batch normalizations of graphs that were exported in training mode use their running statistics."""

    targets = (*NORMS, BATCH_NORM)

    def __call__(self, module: GraphModule) -> PassResult:
        return PassResult(module, to_inference(module, with_dropout=False))


@dataclass(frozen=True, slots=True)
class BatchStatistics(NodePass):
    """Rewrite a batch normalization without running statistics to an instance normalization that sees the whole batch
    as one image.

    Both normalize each channel with its mean and variance over the batch.
    """

    targets = (BATCH_NORM,)

    def rewrite(self, module: GraphModule, node: Node) -> bool:
        given = arguments_of(node)
        shape = list(node.meta["val"].shape)
        if given["running_mean"] is not None or not all(isinstance(extent, int) for extent in shape):
            return False
        data = given["input"]
        if shape[0] != 1:
            data = add_call(module, node, _aten.transpose.int, data, 0, 1)
            data = add_call(module, node, _aten.reshape.default, data, [1, shape[1], math.prod(shape) // shape[1]])
        affine = given["weight"], given["bias"]
        arguments = (*affine, None, None, True, given["momentum"], given["eps"], False)
        result = add_call(module, node, _aten.instance_norm.default, data, *arguments)
        if shape[0] != 1:
            turned = [shape[1], shape[0], *shape[2:]]
            result = add_call(module, node, _aten.reshape.default, result, turned)
            result = add_call(module, node, _aten.transpose.int, result, 0, 1)
        return replace(node, result)


FIRST = (
    InlineWrappers(),
    MakeFunctional(),
    PlainCasts(),
    StatedConversions(),
    Inference(),
    Recompose(),
    ComputedPositions(),
    FoldConstants(),
    BatchStatistics(),
    FoldBatchNorm(),
)


def fold_batch_norms(module: GraphModule) -> None:
    """Run the passes ``FIRST`` on a module, in place. They rewrite the exported graph to its usual form, fold
    constants, and then fold the batch normalizations."""
    # The passes load the files of all decompositions and lowering rules.
    from openneutron.pytorch.quantizer.passes.neutron_aten_pass_manager import NeutronAtenPassManager

    NeutronAtenPassManager(NeutronTargetSpec(), FIRST)(module)


_FOLDED = (BATCH_NORM, _aten._native_batch_norm_legit_no_training.default)
"""The batch normalizations that torchao folds."""


def _raises(norm: Node) -> bool:
    """Return whether torchao may raise for a batch normalization.

    It raises if the normalization has no running statistics, or follows a layer whose weight or bias is computed. The
    result is True for any operator before the normalization whose second or third argument is computed.
    """
    layer = norm.args[0]
    assert isinstance(layer, Node)
    is_computed = any(isinstance(item, Node) and item.op != "get_attr" for item in layer.args[1:3])
    return is_computed or norm.args[3] is None


def _folding_first(fold: Callable[[GraphModule], None]) -> Callable[[GraphModule], None]:
    @wraps(fold)
    def folded(module: GraphModule) -> None:
        if any(_raises(node) for node in module.graph.nodes if node.target in _FOLDED):
            fold_batch_norms(module)
        fold(module)

    return folded


def mend_torchao() -> None:
    """Patch torchao in this process, so that ``prepare_pt2e`` accepts batch normalizations without running
    statistics, and those after layers with computed weights."""
    if not hasattr(quantize_pt2e._fuse_conv_bn_, "__wrapped__"):
        quantize_pt2e._fuse_conv_bn_ = _folding_first(quantize_pt2e._fuse_conv_bn_)


mend_torchao()
