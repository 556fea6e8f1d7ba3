# SPDX-License-Identifier: BSD-3-Clause
"""Questions about nodes of ATen and Edge graphs, under the names of ExecuTorch's NXP backend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node

from openneutron.pytorch.graph.program import is_dequantize, is_quantize
from openneutron.pytorch.graph.rewriting import constant_of


def input_tensor(node: Node, input_index: int) -> torch.Tensor:
    """Return the value in the ``meta`` of an input of the node. ``input_index`` counts only those arguments that are
    nodes. Raises IndexError if there is no such input."""
    value: torch.Tensor = node.all_input_nodes[input_index].meta["val"]
    return value


def input_tensor_safe(node: Node, input_index: int) -> torch.Tensor | None:
    """Return ``input_tensor``, or None where there is no such input."""
    return input_tensor(node, input_index) if input_index < len(node.all_input_nodes) else None


def output_tensor(node: Node) -> torch.Tensor:
    """Return the value of a node, as its ``meta`` has it."""
    value: torch.Tensor = node.meta["val"]
    return value


def tensor_rank(tensor: torch.Tensor) -> int:
    """Return the number of dimensions."""
    return tensor.dim()


def input_rank(node: Node, input_index: int) -> int:
    """Return the number of dimensions of an input. Raises IndexError where there is no such input."""
    return tensor_rank(input_tensor(node, input_index))


def node_has_well_defined_shape(node: Node) -> bool:
    """Return whether all dimensions of a node's value are known and above 0."""
    value = node.meta.get("val")
    return value is not None and all(isinstance(size, int) and size > 0 for size in value.shape)


def try_get_arg(node: Node, idx: int) -> Any:
    """Return a positional argument of a node, or None where there is no such argument."""
    return node.args[idx] if idx < len(node.args) else None


def try_get_tensor_constant_from_node(graph_module: GraphModule, node: Node | None) -> torch.Tensor | None:
    """Return the constant tensor that a ``get_attr`` node reads; None for state that a run changes, and for any other
    node."""
    return constant_of(graph_module, node)


def get_quantization_parameters_for(node: Node) -> tuple[Any, Any] | None:
    """Return scale and zero point of a quantize or dequantize node, as its arguments have them; None for any other node."""
    if not (is_quantize(node) or is_dequantize(node)) or len(node.args) < 3:
        return None
    return node.args[1], node.args[2]


def previous_non_qdq_node(node: Node, input_index: int = 0) -> Any:
    """Return the argument of a node without the quantize and dequantize nodes in front of it."""
    found = node.args[input_index]
    while isinstance(found, Node) and (is_quantize(found) or is_dequantize(found)):
        found = found.args[0]
    return found


def get_non_qdq_parent(node: Node, input_index: int = 0) -> Any:
    """Return the node that a quantize and dequantize pair reads, where the argument at ``input_index`` is the
    dequantize node of the pair. Return None if the argument is no such node."""
    dequantize = node.args[input_index]
    if not isinstance(dequantize, Node) or not is_dequantize(dequantize):
        return None
    quantize = dequantize.args[0]
    return quantize.args[0] if isinstance(quantize, Node) and is_quantize(quantize) else None


def get_non_qdq_users(node: Node) -> list[Node]:
    """Return the nodes that read a node's value through a quantize node and its dequantize nodes. Return an empty
    list if anything else reads the value, or reads the quantized value."""
    users = list(node.users)
    if len(users) != 1 or not is_quantize(users[0]) or not all(map(is_dequantize, users[0].users)):
        return []
    return [user for dequantize in users[0].users for user in dequantize.users]


def is_channels_last_dim_order(dim_order: Sequence[int]) -> bool:
    """Return whether the second dimension is the innermost one in memory, and the others are in their order."""
    rank = len(dim_order)
    return rank >= 3 and list(dim_order) == [0, *range(2, rank), 1]
