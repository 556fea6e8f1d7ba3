# SPDX-License-Identifier: BSD-3-Clause
"""Tensors of which only the differences within a row matter, since softmax reads them."""

from __future__ import annotations

from torch.fx import Node

_SOFTMAX = ("aten.softmax.int", "aten._softmax.default")


def row_dimension(node: Node) -> int | None:
    """The dimension over which every reader of ``node`` takes a softmax, at once or by subtracting the largest value; None
    where one does something else."""
    found = {_row_of(user, node) for user in node.users}
    return found.pop() if len(found) == 1 else None


def _row_of(user: Node, node: Node) -> int | None:
    rank = node.meta["val"].dim()
    if str(user.target) in _SOFTMAX:
        dim = user.args[1]
        return dim % rank if isinstance(dim, int) and rank else None
    if str(user.target) == "aten.amax.default":
        if all(_subtracts(other, node, user) for other in user.users):
            return _only_dimension(user, rank)
    elif str(user.target) == "aten.sub.Tensor" and user.args[0] is node and isinstance(user.args[1], Node):
        largest = user.args[1]
        if str(largest.target) == "aten.amax.default" and largest.args[0] is node:
            return _only_dimension(largest, rank)
    return None


def _subtracts(user: Node, node: Node, largest: Node) -> bool:
    return str(user.target) == "aten.sub.Tensor" and user.args == (node, largest)


def _only_dimension(largest: Node, rank: int) -> int | None:
    dims = largest.args[1] if len(largest.args) > 1 else ()
    if isinstance(dims, (list, tuple)) and len(dims) == 1 and isinstance(dims[0], int) and largest.args[2:] == (True,):
        return dims[0] % rank
    return None
