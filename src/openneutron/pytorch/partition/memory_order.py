# SPDX-License-Identifier: BSD-3-Clause
"""Compute operators on the CPU on contiguous tensors, where ExecuTorch's portable kernels can't take channels-last ones.

Few of these kernels are written for channels-last tensors. Others end the run (error 0x12) if an operand has another order than the result
(``tensors_have_same_dim_order`` in ``tensor_util_portable.cpp``), and some take the elements in the wrong order without an error: pad, flip
and every operator that broadcasts an operand. Measured with the kernels of ExecuTorch 1.5.1.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from executorch.exir import EdgeProgramManager
from executorch.exir.dialects._ops import ops as exir_ops
from torch.fx import Graph, GraphModule, Node
from torch.fx.passes.infra.pass_base import PassResult

_COPY = exir_ops.edge.dim_order_ops._clone_dim_order.default
_LAST = {4: (0, 2, 3, 1), 5: (0, 2, 3, 4, 1)}
"""The order of the axes in memory of channels-last tensors, by rank."""

_TAKE_CHANNELS_LAST = frozenset(
    [
        "aten::convolution",
        "aten::_native_batch_norm_legit_no_training",
        "aten::max_pool2d_with_indices",
        "aten::avg_pool2d",
        "aten::upsample_nearest2d",
        "aten::upsample_bilinear2d",
        "quantized_decomposed::quantize_per_tensor",
        "quantized_decomposed::dequantize_per_tensor",
        "quantized_decomposed::quantize_per_channel",
        "quantized_decomposed::dequantize_per_channel",
    ]
)
"""The operators whose kernels take a channels-last first operand for a channels-last result. Those that compute element by element take
channels-last tensors of equal shapes."""


def with_contiguous_operands(edge: EdgeProgramManager) -> EdgeProgramManager:
    """Return the program in which operators on the CPU compute on contiguous copies of their operands, unless their
    kernels take the operands as they are. Results are copied back to the order in which their readers expect them."""
    if not any(_needs_copies(node) for node in edge.exported_program().graph.nodes):
        return edge
    changed: EdgeProgramManager = edge.transform([_with_copies])
    return changed


def _with_copies(module: GraphModule) -> PassResult:
    contiguous: dict[Node, Node] = {}
    """The contiguous tensor for each tensor that was copied, to or from it."""
    for node in [node for node in module.graph.nodes if _needs_copies(node)]:
        with module.graph.inserting_before(node):
            for given in node.all_input_nodes:
                if not _is_contiguous(given.meta["val"]):
                    if given not in contiguous:
                        value = given.meta["val"]
                        contiguous[given] = _copy(module.graph, given, range(value.dim()), value.contiguous())
                    node.replace_input_with(given, contiguous[given])
        for result in _results(node):
            value = result.meta["val"]
            if not _is_contiguous(value):
                readers = list(result.users)
                result.meta["val"] = value.contiguous()
                with module.graph.inserting_after(result):
                    back = _copy(module.graph, result, _LAST[value.dim()], value)
                contiguous[back] = result
                for reader in readers:
                    reader.replace_input_with(result, back)
        if isinstance(node.meta["val"], (tuple, list)):
            node.meta["val"] = tuple(value.contiguous() for value in node.meta["val"])
    module.graph.eliminate_dead_code()
    module.recompile()
    return PassResult(module, True)


def _copy(graph: Graph, source: Node, order: Sequence[int], value: torch.Tensor) -> Node:
    """Insert a copy of a tensor in the order ``order`` of its axes. ``value`` is the fake value of the copy."""
    made = graph.call_function(_COPY, (source,), {"dim_order": list(order)})
    made.meta = {**source.meta, "val": value}
    return made


def _results(node: Node) -> list[Node]:
    """Return the nodes that have the tensors which a node computes: itself, or the items of its tuple."""
    if isinstance(node.meta["val"], torch.Tensor):
        return [node]
    return [user for user in node.users if user.target is operator.getitem]


def _is_contiguous(value: torch.Tensor) -> bool:
    return value.dim_order() == tuple(range(value.dim()))


def _tensors(node: Node) -> Iterator[Any]:
    """Yield the values that a node reads and computes."""
    for each in node.all_input_nodes:
        yield each.meta.get("val")
    value = node.meta.get("val")
    yield from value if isinstance(value, (tuple, list)) else [value]


def _needs_copies(node: Node) -> bool:
    """Return whether a node is an operator on the CPU whose kernel can't take its tensors, since one of them is
    channels-last.

    The result is False if a tensor is neither contiguous nor channels-last, or if a value is no tensor.
    """
    overload = getattr(node.target, "_op", None)
    if not isinstance(overload, torch._ops.OpOverload) or overload.namespace == "dim_order_ops":
        return False
    values = list(_tensors(node))
    if not all(isinstance(value, torch.Tensor) for value in values) or all(map(_is_contiguous, values)):
        return False
    if not all(_is_contiguous(value) or value.dim_order() == _LAST.get(value.dim()) for value in values):
        return False
    if overload._schema.name in _TAKE_CHANNELS_LAST:
        given, result = values[0], values[len(node.all_input_nodes)]
        return bool(given.dim_order() != result.dim_order())
    is_alike = len({(value.shape, value.dim_order()) for value in values}) == 1
    return torch.Tag.pointwise not in overload.tags or not is_alike
