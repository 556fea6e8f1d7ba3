# SPDX-License-Identifier: BSD-3-Clause
"""The annotation rules of elementwise operators and softmaxes."""

from __future__ import annotations

from torch.fx import Node

from openneutron.ops.reductions import MOST_ADDED
from openneutron.pytorch.operators.rules.annotation import FUNCTION, JOIN, MOVE, AnnotationRule, fixed_by
from openneutron.pytorch.operators.rules.results import ACTIVATIONS

_TWO = AnnotationRule(data=(0, 1), fuses=True)

SOFTMAX = ("aten.softmax.int", "aten._softmax.default")


def row_dimension(node: Node) -> int | None:
    """Return the dimension over which every reader of ``node`` takes a softmax, at once or by exponentials of
    differences from the largest value; None where one does something else. ``node`` may be those differences too."""
    if node.users and all(str(user.target) == "aten.exp.default" for user in node.users):
        return _dimension_of_differences(node)
    found = {_row_of(user, node) for user in node.users}
    return found.pop() if len(found) == 1 else None


def has_own_scale(softmax: Node) -> bool:
    """Return whether a softmax's result may have another scale than LiteRT's 1/256: LiteRT's wider sum holds
    ``MOST_ADDED`` values."""
    dim, rank = softmax.args[1], softmax.meta["val"].dim()
    extent = softmax.meta["val"].shape[dim] if isinstance(dim, int) and rank else None
    return isinstance(extent, int) and extent <= MOST_ADDED


def _row_of(user: Node, node: Node) -> int | None:
    rank = node.meta["val"].dim()
    if str(user.target) in SOFTMAX:
        dim = user.args[1]
        return dim % rank if isinstance(dim, int) and rank else None
    if str(user.target) == "aten.amax.default":
        dims = {row_dimension(other) if _subtracts(other, node, user) else None for other in user.users}
        return dims.pop() if len(dims) == 1 else None
    return row_dimension(user) if str(user.target) == "aten.sub.Tensor" and user.args[0] is node else None


def _dimension_of_differences(node: Node) -> int | None:
    if str(node.target) != "aten.sub.Tensor":
        return None
    data, largest = node.args[:2]
    if not isinstance(data, Node) or not isinstance(largest, Node) or str(largest.target) != "aten.amax.default":
        return None
    return _only_dimension(largest, data.meta["val"].dim()) if largest.args[0] is data else None


def _subtracts(user: Node, node: Node, largest: Node) -> bool:
    return str(user.target) == "aten.sub.Tensor" and user.args == (node, largest)


def _only_dimension(largest: Node, rank: int) -> int | None:
    dims = largest.args[1] if len(largest.args) > 1 else ()
    if isinstance(dims, (list, tuple)) and len(dims) == 1 and isinstance(dims[0], int) and largest.args[2:] == (True,):
        return dims[0] % rank
    return None


RULES = {
    "aten.add.Tensor": _TWO,
    "aten.sub.Tensor": _TWO,
    "aten.mul.Tensor": _TWO,
    "aten.prelu.default": AnnotationRule(data=(0, 1)),
    "aten.maximum.default": JOIN,
    "aten.minimum.default": JOIN,
    "aten.amax.default": MOVE,
    "aten.amin.default": MOVE,
    **dict.fromkeys(ACTIVATIONS, FUNCTION),
    "aten.abs.default": FUNCTION,
    "aten.exp.default": FUNCTION,
    "aten.gelu.default": FUNCTION,
    "aten.hardswish.default": FUNCTION,
    "aten.leaky_relu.default": FUNCTION,
    "aten.log.default": FUNCTION,
    "aten.sigmoid.default": fixed_by("logistic"),
    "aten.tanh.default": fixed_by("tanh"),
    **dict.fromkeys(SOFTMAX, FUNCTION),
    "aten.log_softmax.int": fixed_by("log_softmax"),
    "aten._log_softmax.default": fixed_by("log_softmax"),
}
