# SPDX-License-Identifier: BSD-3-Clause
"""Rewrite operators of the Core ATen set, as ``ExportedProgram.run_decompositions`` leaves them, to those that torch.export writes."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch.fx import GraphModule, Node

from openneutron.pytorch.graph.program import arguments_of
from openneutron.pytorch.graph.rewriting import NodePass, add_call

_aten = torch.ops.aten

Call: TypeAlias = tuple[Any, tuple[Any, ...]]
"""An operator and its arguments."""


def _convolution(given: dict[str, Any]) -> Call | None:
    data = (given["input"], given["weight"], given["bias"])
    window = (given["stride"], given["padding"])
    axes = given["weight"].meta["val"].dim() - 2
    if not 1 <= axes <= 3:
        return None
    # Views of a signal as an image have one number for two axes.
    if any(len(each) != axes for each in (*window, given["dilation"])):
        return None
    if given["transposed"]:
        target = (_aten.conv_transpose1d.default, _aten.conv_transpose2d.input, _aten.conv_transpose3d.input)[axes - 1]
        return target, (*data, *window, given["output_padding"], given["groups"], given["dilation"])
    target = (_aten.conv1d.default, _aten.conv2d.default, _aten.conv3d.default)[axes - 1]
    return target, (*data, *window, given["dilation"], given["groups"])


def _batch_norm(given: dict[str, Any]) -> Call | None:
    statistics = (given["weight"], given["bias"], given["running_mean"], given["running_var"])
    return _aten.batch_norm.default, (given["input"], *statistics, False, given["momentum"], given["eps"], False)


def _statistics_norm(given: dict[str, Any]) -> Call | None:
    affine = (given["weight"], given["bias"], None, None)
    return _aten.batch_norm.default, (given["input"], *affine, True, given["momentum"], given["eps"], False)


def _linear(given: dict[str, Any]) -> Call | None:
    if given.get("beta", 1) != 1 or given.get("alpha", 1) != 1:
        return None
    data, bias = given.get("mat1", given["self"]), given["self"] if "mat1" in given else None
    weight = given["mat2"].args[0] if _is_transposed(given["mat2"]) else None
    if weight is None or (bias is not None and bias.meta["val"].dim() != 1):
        return None
    return _aten.linear.default, (data, weight, bias)


def _is_transposed(node: object) -> bool:
    if not isinstance(node, Node) or node.op != "call_function":
        return False
    exchanged = {_aten.t.default: (), _aten.permute.default: ([1, 0],), _aten.transpose.int: (0, 1)}.get(node.target)
    return exchanged is not None and tuple(map(_plain, node.args[1:])) == exchanged


def _plain(item: object) -> object:
    return list(item) if isinstance(item, (list, tuple)) else item


def _layer_norm(given: dict[str, Any]) -> Call | None:
    names = ("input", "normalized_shape", "weight", "bias", "eps")
    return _aten.layer_norm.default, (*(given[name] for name in names), False)


def _group_norm(given: dict[str, Any]) -> Call | None:
    return _aten.group_norm.default, (*(given[name] for name in ("input", "group", "weight", "bias", "eps")), False)


def _max_pool(given: dict[str, Any]) -> Call | None:
    names = ("self", "kernel_size", "stride", "padding", "dilation", "ceil_mode")
    return _aten.max_pool2d.default, tuple(given[name] for name in names)


def _softmax(target: Any) -> Callable[[dict[str, Any]], Call | None]:
    def rewritten(given: dict[str, Any]) -> Call | None:
        return None if given["half_to_float"] else (target, (given["self"], given["dim"]))

    return rewritten


_FORMS: dict[object, Callable[[dict[str, Any]], Call | None]] = {
    _aten.convolution.default: _convolution,
    _aten.addmm.default: _linear,
    _aten.mm.default: _linear,
    _aten._softmax.default: _softmax(_aten.softmax.int),
    _aten._log_softmax.default: _softmax(_aten.log_softmax.int),
    _aten._adaptive_avg_pool2d.default: lambda given: (
        _aten.adaptive_avg_pool2d.default,
        (given["self"], given["output_size"]),
    ),
}

_FIRST_RESULTS: dict[object, Callable[[dict[str, Any]], Call | None]] = {
    _aten._native_batch_norm_legit_no_training.default: _batch_norm,
    _aten._native_batch_norm_legit.no_stats: _statistics_norm,
    _aten.native_layer_norm.default: _layer_norm,
    _aten.native_group_norm.default: _group_norm,
    _aten.max_pool2d_with_indices.default: _max_pool,
}
"""Operators with several results, of which the other form has the first one alone."""


@dataclass(frozen=True, slots=True)
class Recompose(NodePass):
    """Rewrite each operator of Core ATen that is a piece of another one, where its pieces are no longer apart."""

    targets = (*_FORMS, *_FIRST_RESULTS)

    def rewrite(self, module: GraphModule, node: Node) -> bool:
        results = [node]
        if node.target in _FIRST_RESULTS:
            results = [user for user in node.users if user.users]
            if not all(user.target is operator.getitem and user.args[1] == 0 for user in results):
                return False
        call = (_FORMS | _FIRST_RESULTS)[node.target](arguments_of(node))
        if call is None:
            return False
        made = add_call(module, node, call[0], *call[1])
        for result in results:
            result.replace_all_uses_with(made)
        return True
