# SPDX-License-Identifier: BSD-3-Clause
"""The passes that come before torchao's folding of batch normalizations.

torchao (0.17) folds batch normalizations before a quantizer sees the graph, and raises "Expected get_attr node" for a layer whose
weight is computed, as weight_norm, spectral_norm, pruning and any other parametrization leave it. These passes compute what
depends on constants alone, and fold the normalizations of the other layers too. Programs that were exported in training mode, or whose
operators are taken apart already, have the usual form behind them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import wraps
from typing import ClassVar

import torch
from torch.fx import GraphModule, Node
from torch.fx.passes.infra.pass_base import PassResult
from torchao.quantization.pt2e import quantize_pt2e

from openneutron.pytorch.backend.neutron_target_spec import NeutronTargetSpec
from openneutron.pytorch.graph.inference import NORMS, to_inference
from openneutron.pytorch.graph.program import arguments_of
from openneutron.pytorch.graph.rewriting import NodePass, add_call
from openneutron.pytorch.quantizer.passes.batch_norm import BATCH_NORM, FoldBatchNorm
from openneutron.pytorch.quantizer.passes.computed_positions import ComputedPositions
from openneutron.pytorch.quantizer.passes.constants import FoldConstants
from openneutron.pytorch.quantizer.passes.exported_forms import (
    InlineWrappers,
    MakeFunctional,
    PlainCasts,
    StatedConversions,
)
from openneutron.pytorch.quantizer.passes.recompose import Recompose

_aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class Inference:
    """Let batch normalizations of graphs that were exported in training mode use their running statistics."""

    targets: ClassVar[Collection[object]] = (*NORMS, BATCH_NORM)

    def __call__(self, module: GraphModule) -> PassResult:
        return PassResult(module, to_inference(module, with_dropout=False))


@dataclass(frozen=True, slots=True)
class BatchStatistics(NodePass):
    """Rewrite batch normalizations without running statistics, which take those of the batch, as instance normalizations of one
    image with all values of the batch."""

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
        node.replace_all_uses_with(result)
        module.graph.erase_node(node)
        return True


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
    """Fold the batch normalizations of a module, in place."""
    # The passes load the files of all decompositions and lowering rules.
    from openneutron.pytorch.quantizer.passes.neutron_aten_pass_manager import NeutronAtenPassManager

    NeutronAtenPassManager(NeutronTargetSpec(), FIRST)(module)


_FOLDED = (BATCH_NORM, _aten._native_batch_norm_legit_no_training.default)
"""The batch normalizations that torchao folds."""


def _raises(norm: Node) -> bool:
    """Return whether torchao raises for a batch normalization: it has no running statistics, or follows a layer with a weight or a bias
    that is computed."""
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
    """Let ``prepare_pt2e`` accept batch normalizations behind layers with computed weights, in this process."""
    if not hasattr(quantize_pt2e._fuse_conv_bn_, "__wrapped__"):
        quantize_pt2e._fuse_conv_bn_ = _folding_first(quantize_pt2e._fuse_conv_bn_)


mend_torchao()
