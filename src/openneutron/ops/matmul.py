# SPDX-License-Identifier: BSD-3-Clause
"""Products of matrices."""

from __future__ import annotations

from openneutron.ir import Graph, Node
from openneutron.ops.limits import limit, rank
from openneutron.ops.rescaling import WIDE_SUM_EXPONENT, matmul_factor, of_two, rescales
from openneutron.ops.table import INT8_OR_INT16, Attribute, Op, Operand, Role, broadcast_shape

MOST_DEPTH = 2**15
"""Products of two differences of stored values that surely fit the kernel's 32-bit accumulator."""


def matrices(graph: Graph, node: Node) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the shapes of both operands as [..., rows, depth] and [..., depth, columns]."""
    a, b = graph.given(node, 0), graph.given(node, 1)
    return _turned(a.shape, node["adj_x"]), _turned(b.shape, node["adj_y"])


def _turned(shape: tuple[int, ...], turned: bool) -> tuple[int, ...]:
    return (*shape[:-2], shape[-1], shape[-2]) if turned else shape


def _matmul_shape(graph: Graph, node: Node) -> tuple[tuple[int, ...], ...]:
    a, b = matrices(graph, node)
    batches = broadcast_shape(a[:-2], b[:-2])
    assert batches is not None
    return ((*batches, a[-2], b[-1]),)


def _multiply(graph: Graph, node: Node) -> str | None:
    a, b = matrices(graph, node)
    if a[-1] != b[-2] or broadcast_shape(a[:-2], b[:-2]) is None:
        return f"its matrices are {list(a)} and {list(b)}, which do not multiply"
    if a[-1] > MOST_DEPTH:
        return f"it adds {a[-1]} products; at most {MOST_DEPTH}"
    return None


BATCH_MATMUL = Op(
    "batch_matmul",
    operands=(Operand(Role.ACTIVATION, "a"), Operand(Role.ACTIVATION, "b")),
    shape=_matmul_shape,
    kernels=("batch_matmul_s8", "batch_matmul_s16"),
    types=INT8_OR_INT16,
    options="BatchMatMulOptions",
    attributes=(Attribute("adj_x", "adjX", False), Attribute("adj_y", "adjY", False)),
    limits=(
        rank(0, 2, 5),
        rank(1, 2, 5),
        limit(f"matrices that multiply, batches that broadcast, a depth of at most {MOST_DEPTH}", _multiply),
        rescales(of_two(matmul_factor), wide=WIDE_SUM_EXPONENT),
    ),
    version=2,
    doc="Products of matrices, either of them transposed; batches broadcast.",
)

OPS = (BATCH_MATMUL,)
