# SPDX-License-Identifier: BSD-3-Clause
"""Linear layers, products of matrices and vectors, and attention."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.fx import Node

from openneutron.pytorch.graph.program import Reject, Rejected, arguments_of, shape_of
from openneutron.pytorch.operators.annotations import MASKED
from openneutron.pytorch.operators.convolution import bias_of, weights_for_bias
from openneutron.pytorch.operators.elementwise import times
from openneutron.pytorch.operators.rules.context import Context, Shape, Value, lies_as, plain
from openneutron.pytorch.operators.rules.tables import KEPT, Keep, Layout, always, decomposes, lowers

_aten = torch.ops.aten


def _sum(added: Tensor, beta: float, product: Tensor) -> Tensor:
    # With beta 0, PyTorch does not read the tensor to add, even if it has NaNs.
    return product + times(added, beta) if beta else product


@decomposes("aten.addmm.default", "aten.addmv.default", "aten.baddbmm.default")
def add_product(self: Tensor, beta: float, alpha: float, **factors: Tensor) -> Tensor | Keep:
    """Return beta * self + alpha * (first @ second), with alpha applied to the second factor, which may be a constant.

    Return KEPT for a linear layer with a bias.
    """
    first, second = factors.values()
    if alpha == beta == 1 and (self.dim(), second.dim()) == (1, 2):
        return KEPT
    return _sum(self, beta, _aten.matmul.default(first, times(second, alpha)))


@decomposes("aten.addbmm.default")
def addbmm(self: Tensor, batch1: Tensor, batch2: Tensor, beta: float, alpha: float) -> Tensor:
    rows, columns = batch1.transpose(0, 1).flatten(1), batch2.flatten(0, 1)
    return _sum(self, beta, _aten.matmul.default(rows, times(columns, alpha)))


@decomposes("aten.mv.default")
def mv(self: Tensor, vec: Tensor) -> Tensor:
    return _aten.matmul.default(self, vec)


@decomposes("aten.dot.default", "aten.vdot.default", "aten.inner.default")
def inner(self: Tensor, other: Tensor | None = None, tensor: Tensor | None = None) -> Tensor:
    other = tensor if other is None else other
    assert other is not None
    if not self.dim() or not other.dim():
        return self * other
    left, right = self.reshape(-1, self.shape[-1]), other.reshape(-1, other.shape[-1])
    return _aten.matmul.default(left, right.transpose(0, 1)).reshape([*self.shape[:-1], *other.shape[:-1]])


@decomposes("aten.outer.default", "aten.ger.default")
def outer(self: Tensor, vec2: Tensor) -> Tensor:
    return self.unsqueeze(1) * vec2


@decomposes("aten.addr.default")
def addr(self: Tensor, vec1: Tensor, vec2: Tensor, beta: float, alpha: float) -> Tensor:
    return _sum(self, beta, vec1.unsqueeze(1) * times(vec2, alpha))


@decomposes("aten.tensordot.default")
def tensordot(self: Tensor, other: Tensor, dims_self: Sequence[int], dims_other: Sequence[int]) -> Tensor:
    gone, met = [dim % self.dim() for dim in dims_self], [dim % other.dim() for dim in dims_other]
    for one, two in zip(gone, met, strict=True):
        # A dimension that is contracted with one of extent 1 is summed.
        if self.shape[one] < other.shape[two]:
            other = other.sum(two, keepdim=True)
        elif self.shape[one] > other.shape[two]:
            self = self.sum(one, keepdim=True)
    kept = [dim for dim in range(self.dim()) if dim not in gone]
    other_kept = [dim for dim in range(other.dim()) if dim not in met]
    depth = math.prod(self.shape[dim] for dim in gone)
    left = self.permute([*kept, *gone]).reshape(-1, depth)
    right = other.permute([*met, *other_kept]).reshape(depth, -1)
    shape = [self.shape[dim] for dim in kept] + [other.shape[dim] for dim in other_kept]
    return _aten.matmul.default(left, right).reshape(shape)


@decomposes("aten.linalg_multi_dot.default", "aten.chain_matmul.default")
def multi_dot(tensors: Sequence[Tensor] = (), matrices: Sequence[Tensor] = ()) -> Tensor:
    first, *rest = tensors or matrices
    for each in rest:
        first = _aten.matmul.default(first, each)
    return first


@decomposes("aten.einsum.default")
def einsum(equation: str, tensors: Sequence[Tensor], **_: object) -> Tensor | Keep:
    """Contract two operands at a time, from the left. Return KEPT if an operand names a dimension twice (a diagonal)."""
    terms, wanted = _terms(equation.replace(" ", ""), tensors)
    if any(len(set(term)) != len(term) for term in terms):
        return KEPT
    here, term = tensors[0], terms[0]
    for place, (other, name) in enumerate(zip(tensors[1:], terms[1:], strict=True), start=2):
        later = set(wanted).union(*terms[place:])
        here, term = _contracted(
            _reduced(here, term, later | set(name)), _reduced(other, name, later | set(term)), later
        )
    here, term = _reduced(here, term, set(wanted))
    order = [term.index(label) for label in wanted]
    return here if order == sorted(order) else here.permute(order)


_Labelled = tuple[Tensor, list[str]]


def _terms(equation: str, tensors: Sequence[Tensor]) -> tuple[list[list[str]], list[str]]:
    """Return the labels of each operand and of the result. The dimensions of an ellipsis have the labels "...0", "...1" and so on,
    from the last one."""
    left, arrow, right = equation.partition("->")
    pieces = left.split(",")
    dots = [tensor.dim() - len(piece.replace("...", "")) for piece, tensor in zip(pieces, tensors, strict=True)]

    def labels(piece: str, count: int) -> list[str]:
        before, _, after = piece.partition("...")
        filled = [f"...{place}" for place in reversed(range(count))] if "..." in piece else []
        return [*before, *filled, *after]

    terms = [labels(piece, count) for piece, count in zip(pieces, dots, strict=True)]
    most = max((count for piece, count in zip(pieces, dots, strict=True) if "..." in piece), default=0)
    if not arrow:
        seen = [label for term in terms for label in term if not label.startswith("...")]
        once = sorted(label for label in seen if seen.count(label) == 1)
        right = ("..." if most else "") + "".join(once)
    return terms, labels(right, most)


def _reduced(x: Tensor, term: list[str], needed: set[str]) -> _Labelled:
    gone = [place for place, label in enumerate(term) if label not in needed]
    return (x.sum(gone) if gone else x), [label for label in term if label in needed]


def _contracted(a: _Labelled, b: _Labelled, needed: set[str]) -> _Labelled:
    """Return the product of two operands, summed over the labels that both have and that are not in ``needed``.

    It is computed as [batch, left, depth] @ [batch, depth, right], or elementwise if there is no label to sum over.
    """
    (left, own), (right, other) = a, b
    shared = [label for label in own if label in other]
    depth = [label for label in shared if label not in needed]
    batch = [label for label in shared if label in needed]
    only_left, only_right = [x for x in own if x not in shared], [x for x in other if x not in shared]
    size = dict(zip(other, right.shape, strict=True))
    for label, extent in zip(own, left.shape, strict=True):
        size[label] = max(extent, size.get(label, 1))
    if not depth:
        order = [*batch, *only_left, *only_right]
        return _spread(left, own, order) * _spread(right, other, order), order

    def matrix(x: Tensor, term: list[str], groups: tuple[list[str], ...]) -> Tensor:
        x = x.permute([term.index(label) for group in groups for label in group])
        named = [label for group in groups for label in group]
        x = x.expand([size[label] for label in named])
        return x.reshape([math.prod(size[label] for label in group) for group in groups])

    batches = (batch,) if batch else ()
    product = _aten.matmul.default(
        matrix(left, own, (*batches, only_left, depth)), matrix(right, other, (*batches, depth, only_right))
    )
    order = [*batch, *only_left, *only_right]
    return product.reshape([size[label] for label in order]), order


def _spread(x: Tensor, term: list[str], order: list[str]) -> Tensor:
    x = x.permute([term.index(label) for label in order if label in term])
    places = iter(x.shape)
    return x.reshape([next(places) if label in term else 1 for label in order])


@lowers(
    "aten.linear.default", fuses=True, preserve=always, layout=Layout.OWN, emits=("fully_connected", "batch_matmul")
)
def linear(node: Node, context: Context) -> Value | Reject:
    given = arguments_of(node)
    weight = context.value(given["weight"])
    if not context.tensors[weight.tensor].is_constant and given["bias"] is None:
        return _product(node, context, context.value(given["input"]), weight, weight_turned=True)
    return _linear(node, context, given["input"], weight, given["bias"])


@lowers("aten.addmm.default", fuses=True, layout=Layout.OWN, emits=("fully_connected",))
def addmm(node: Node, context: Context) -> Value | Reject:
    given = arguments_of(node)
    if given["alpha"] != 1 or given["beta"] != 1:
        return Reject(f"alpha is {given['alpha']} and beta {given['beta']}; both must be 1")
    return _linear(node, context, given["mat1"], _transposed_weight(context, given["mat2"]), given["self"])


@lowers("aten.mm.default", fuses=True, layout=Layout.OWN, emits=("fully_connected", "batch_matmul"))
def mm(node: Node, context: Context) -> Value | Reject:
    given = arguments_of(node)
    if context.tensors[context.value(given["mat2"]).tensor].is_constant:
        return _linear(node, context, given["self"], _transposed_weight(context, given["mat2"]), None)
    return _product(node, context, context.value(given["self"]), context.value(given["mat2"]))


@lowers("aten.matmul.default", preserve=always, layout=Layout.OWN, emits=("batch_matmul",))
def matmul(node: Node, context: Context) -> Value | Reject:
    """Lower to a BATCH_MATMUL. A vector on the left becomes a matrix of one row, a vector on the right one of one column."""
    a, b = (context.value(item) for item in node.args)
    if len(a.shape) == 1:
        a = context.viewed(a, (1, *a.shape))
    if len(b.shape) == 1:
        b = context.viewed(b, (*b.shape, 1))
    return _product(node, context, a, b)


lowers("aten.bmm.default", layout=Layout.OWN, emits=("batch_matmul",))(matmul)


def _product(node: Node, context: Context, a: Value, b: Value, weight_turned: bool = False) -> Value | Reject:
    """Add a BATCH_MATMUL and return its result. The BATCH_MATMUL reads each operand as it is stored, whether its rows
    or its columns are innermost in memory.

    weight_turned: ``b`` is the weight [outputs, inputs] of a linear layer.
    """
    if context.results.fused(node) is not None:
        return Reject(
            "a clamp behind it runs inside it, which products of computed matrices can't", "Quantize between."
        )
    if not a.shape or not b.shape:
        return Reject("an operand is a single number")
    left, adj_x = _as_matrices(context, a)
    right, adj_y = _as_matrices(context, b)
    columns = b.shape[-2 if weight_turned else -1]
    batches = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    stored = (*batches, a.shape[-2], columns)
    quant = context.results.quant(node)
    adj_y ^= weight_turned
    name = context.emit("batch_matmul", (left, right), stored, quant, node.name, adj_x=adj_x, adj_y=adj_y)
    return context.viewed(plain(name, stored), shape_of(node))


def _as_matrices(context: Context, value: Value) -> tuple[str, bool]:
    """Return the tensor with the last two dimensions innermost, and whether they are transposed (BATCH_MATMUL's adj_x or adj_y)."""
    value = context.settled(value)
    order = tuple(range(len(value.shape)))
    turned = (*order[:-2], order[-1], order[-2])
    for each, adjoint in ((order, False), (turned, True)):
        if lies_as(value.shape, value.order, each):
            return context.arranged(value, each), adjoint
    return context.arranged(value, order), False


def _transposed_weight(context: Context, node: Any) -> Value:
    value = context.settled(context.value(node))
    if len(value.shape) != 2:
        raise Rejected(f"its weights have rank {len(value.shape)}; it must be 2")
    return Value(value.tensor, value.shape[::-1], tuple(1 - axis for axis in value.order), value.shape[::-1])


def _linear(node: Node, context: Context, data: Any, weight: Value, bias: Any) -> Value | Reject:
    if not context.tensors[weight.tensor].is_constant:
        return Reject("its weights are computed at run time; they must be constant")
    shape, quant = shape_of(node), context.results.quant(node)
    weights = context.arranged(weight, (0, 1))
    value = context.value(data)
    source, weights, order = _features_last(context, value, weights)
    stored = tuple(shape[axis] for axis in order)
    weights = weights_for_bias(context, bias, source, weights)
    inputs = (source, weights, bias_of(context, bias, source, weights, shape[-1]))
    name = context.emit(
        "fully_connected",
        inputs,
        stored,
        quant,
        node.name,
        activation=context.activation(node, quant),
        keep_num_dims=len(shape) != 2,
    )
    return Value(name, shape, order, shape)


def _features_last(context: Context, value: Value, weights: str) -> tuple[str, str, Shape]:
    """Return (input tensor, weights, order of the input's axes) with the features innermost.

    If the input is a flattened image, the columns of the weights are reordered to the stored order of the image.
    """
    features = len(value.shape) - 1
    if not value.is_settled and len(value.shape) == 2 and value.order[0] == 0 and value.base[0] == value.shape[0]:
        inputs = tuple(axis - 1 for axis in value.order[1:])
        weights = _columns_in_order(context, weights, value.base[1:], inputs)
        return context.reshaped(value.tensor, value.shape), weights, (0, 1)
    if value.is_settled and value.order[-1] == features:
        return value.tensor, weights, value.order
    order = tuple(range(len(value.shape)))
    return context.arranged(value, order), weights, order


def _columns_in_order(context: Context, weights: str, extents: Shape, order: Shape) -> str:
    here = context.tensors[weights]
    assert here.data is not None
    filters = here.shape[0]
    if not any(here.data.strides):
        return weights
    cube = here.data.reshape(filters, *extents).transpose(0, *(axis + 1 for axis in order))
    return context.add_constant(f"{weights}_nhwc", np.ascontiguousarray(cube).reshape(here.shape), here.quant)


MOST_KEYS_OF_SOFTMAX = 16
"""The limit on keys for LiteRT's SOFTMAX, whose result has the fixed scale 1/256.

With n equal probabilities rounded to that scale, the weighted mean of n values has a signal-to-noise ratio of 58.9 - 20 log10(n)
dB: 34.8 at 16 keys, 28.8 at 32, 16.8 at 128. For more keys, the exponentials relative to the largest of their row are multiplied
by the values, and the products by the reciprocal of the row's sum: 37 dB at 32 and at 128 keys. A causal mask always uses SOFTMAX:
it makes the sums of some rows many times larger than others, so that their reciprocals have few steps, and the two methods are
equally accurate (25 and 24 dB at 128 keys).
"""


@decomposes("aten.scaled_dot_product_attention.default")
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
    **_: object,
) -> Tensor | Keep:
    if dropout_p:
        return KEPT
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    query = query if factor == 1 else query * factor
    scores = _masked(_grouped_product(query, key.transpose(-2, -1)), attn_mask, is_causal)
    return attended(scores, value, is_causal)


def attended(scores: Tensor, value: Tensor, is_causal: bool = False) -> Tensor:
    """Compute softmax(scores) @ value, with the division last if that is more accurate (see ``MOST_KEYS_OF_SOFTMAX``)."""
    if is_causal or scores.shape[-1] <= MOST_KEYS_OF_SOFTMAX:
        return _grouped_product(torch.softmax(scores, -1), value)
    parts = torch.exp(scores - scores.amax(-1, keepdim=True))
    return _grouped_product(parts, value) * torch.reciprocal(parts.mean(-1, keepdim=True) * scores.shape[-1])


def _grouped_product(rows: Tensor, matrix: Tensor) -> Tensor:
    """Return rows @ matrix. If several heads of ``rows`` share a head of ``matrix``, as in grouped-query attention,
    these heads are joined to one head with more rows. This avoids a copy of ``matrix``."""
    if (
        min(rows.dim(), matrix.dim()) < 3
        or rows.shape[-3] == matrix.shape[-3]
        or 1 in (rows.shape[-3], matrix.shape[-3])
    ):
        return torch.matmul(rows, matrix)
    *batch, heads, length, depth = rows.shape
    groups = matrix.shape[-3]
    grouped = torch.matmul(rows.reshape(*batch, groups, heads // groups * length, depth), matrix)
    return grouped.reshape(*batch, heads, length, matrix.shape[-1])


def _masked(scores: Tensor, mask: Tensor | None, is_causal: bool) -> Tensor:
    """Return the scores plus the mask. In the mask, False and numbers below ``MASKED``, such as -infinity, become
    ``MASKED``. With ``is_causal``, ``MASKED`` is also added to the scores of all keys after each query's position."""
    if is_causal:
        rows, columns = scores.shape[-2:]
        scores = scores + torch.full((rows, columns), MASKED).triu(1)
    if mask is None:
        return scores
    if mask.dtype == torch.bool:
        return scores + torch.where(mask, 0.0, MASKED)
    return scores + mask.clamp(min=MASKED)
