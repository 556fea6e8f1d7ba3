# SPDX-License-Identifier: BSD-3-Clause
"""Rewrite normalizations in the form that the NPU computes in one call, with constant gain and bias.

Transformer language models spell RMS norms out: ``weight * (x * rsqrt(mean(x ** 2) + eps))``. Adaptive norms, as in diffusion
transformers, compute gain and bias from another input of the model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.fx import GraphModule, Node

from openneutron.ops.normalization import MOST_NORMALIZED
from openneutron.pytorch.graph.program import arguments_of
from openneutron.pytorch.graph.rewriting import NodePass, add_call, constant_of, hand_over

_aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class WrittenNorms(NodePass):
    """Rewrite x over the root of the mean of its squares along the last axis as ``rms_norm``, with the weight behind it.

    This applies only where no other operator reads the intermediate values. keep: calls to leave alone.
    """

    keep: Callable[[Node], bool] | None = None

    targets = (_aten.rsqrt.default,)

    def rewrite(self, module: GraphModule, node: Node) -> bool:
        product = _only_user(node)
        if product is None or product.target is not _aten.mul.Tensor:
            return False
        for x in product.args[:2]:
            found = _squares_of(node, x)
            if found is None or not isinstance(x, Node) or x is node:
                continue
            epsilon, between = found
            extent = x.meta["val"].shape[-1]
            if not isinstance(extent, int) or extent > MOST_NORMALIZED or any(map(self._is_kept, (product, *between))):
                return False
            end, weight = _weighted(module, product, extent)
            if weight is not None and self._is_kept(end):
                end, weight = product, None
            hand_over(module, end, add_call(module, end, _aten.rms_norm.default, x, [extent], weight, epsilon))
            return True
        return False

    def _is_kept(self, node: Node) -> bool:
        return self.keep is not None and self.keep(node)


def _only_user(node: Node) -> Node | None:
    return next(iter(node.users)) if len(node.users) == 1 else None


def _squares_of(root: Node, x: object) -> tuple[float, list[Node]] | None:
    """Return the epsilon of ``rsqrt(mean(x ** 2) + epsilon)`` and the nodes between, the last first; None for anything else."""
    added = root.args[0]
    if not isinstance(added, Node) or added.target is not _aten.add.Tensor or added.kwargs or len(added.users) != 1:
        return None
    mean, epsilon = added.args
    if not isinstance(mean, Node) or not isinstance(epsilon, (int, float)):
        return None
    if (
        mean.target is not _aten.mean.dim
        or len(mean.users) != 1
        or mean.kwargs
        or len(mean.args) < 3
        or not mean.args[2]
    ):
        return None
    square, dims = mean.args[:2]
    value = square.meta.get("val") if isinstance(square, Node) else None
    if (
        not isinstance(value, torch.Tensor)
        or value.dtype != torch.float32
        or list(dims) not in ([-1], [value.dim() - 1])
    ):
        return None
    assert isinstance(square, Node)
    if len(square.users) != 1 or not _is_square(square, x):
        return None
    return float(epsilon), [root, added, mean, square]


def _is_square(node: Node, x: object) -> bool:
    if node.target is _aten.mul.Tensor:
        return node.args == (x, x)
    return node.args[0] is x and (
        node.target is _aten.square.default or (node.target is _aten.pow.Tensor_Scalar and node.args[1] == 2)
    )


def _weighted(module: GraphModule, product: Node, extent: int) -> tuple[Node, Node | None]:
    """Return the product with a constant of one value for each element of a line, and this constant; the node itself where
    none follows."""
    user = _only_user(product)
    if user is None or user.target is not _aten.mul.Tensor:
        return product, None
    for other in user.args[:2]:
        known = constant_of(module, other)
        if isinstance(other, Node) and known is not None and tuple(known.shape) == (extent,):
            return user, other
    return product, None


@dataclass(frozen=True, slots=True)
class ComputedGains(NodePass):
    """Rewrite a normalization with a computed gain or bias as one without it, with a product or a sum behind it.

    The gain or bias is computed at run time, or an input of the model. keep: calls to leave alone.
    """

    keep: Callable[[Node], bool] | None = None

    targets = (
        _aten.layer_norm.default,
        _aten.rms_norm.default,
        _aten.group_norm.default,
        _aten.instance_norm.default,
    )

    def rewrite(self, module: GraphModule, node: Node) -> bool:
        given = arguments_of(node)
        gain, bias = given.get("weight"), given.get("bias")
        computed = [value is not None and constant_of(module, value) is None for value in (gain, bias)]
        if not any(computed) or (self.keep is not None and self.keep(node)):
            return False
        gain_is_computed = computed[0]
        if gain_is_computed:
            given["weight"] = None
        if bias is not None:
            given["bias"] = None  # the sum comes behind the product
        places = [item.name for item in _schema(node).arguments]
        end = add_call(module, node, node.target, *(given[name] for name in places))
        if gain_is_computed:
            end = add_call(module, node, _aten.mul.Tensor, end, _beside(module, node, gain))
        if bias is not None:
            end = add_call(module, node, _aten.add.Tensor, end, _beside(module, node, bias))
        hand_over(module, node, end)
        return True


def _schema(node: Node) -> torch.FunctionSchema:
    assert isinstance(node.target, torch._ops.OpOverload)
    return node.target._schema


def _beside(module: GraphModule, norm: Node, values: Node) -> Node:
    """Return a gain or bias in a shape that broadcasts against the result of its norm: those of channels as [channels, 1, ...]."""
    if norm.target in (_aten.layer_norm.default, _aten.rms_norm.default):
        return values
    extents = [values.meta["val"].shape[0], *(1,) * (norm.meta["val"].dim() - 2)]
    return add_call(module, norm, _aten.reshape.default, values, extents)
