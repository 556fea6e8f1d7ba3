# SPDX-License-Identifier: BSD-3-Clause
"""Products of matrices as kernel calls."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from openneutron.compiler.select.calls import KernelCall, View, quant_of, selects
from openneutron.compiler.select.walks import Walk, merged, row_major
from openneutron.ir import Graph, Node
from openneutron.ops.matmul import matrices
from openneutron.ops.rescaling import matmul_factor, quantize_multiplier


@selects("batch_matmul")
def batch_matmul(graph: Graph, node: Node) -> list[KernelCall]:
    """Select batch_matmul_s8: one call, or one for each leading batch where batches do not merge into one dimension."""
    a, b, result = tensors = graph.given(node, 0), graph.given(node, 1), graph[node.name]
    a_quant, b_quant, output = map(quant_of, tensors)
    multiplier, shift = quantize_multiplier(matmul_factor(a_quant, b_quant, output))
    left, right = matrices(graph, node)
    (rows, depth), columns = left[-2:], right[-1]
    params = {
        "depth": depth,
        "a_zero_point": a_quant.zero_point,
        "b_zero_point": b_quant.zero_point,
        "output_multiplier": multiplier,
        "output_shift": shift,
        "output_zero_point": output.zero_point,
    }
    batches = result.shape[:-2]
    walks: Mapping[str, Walk] = {
        "input_a": Walk(a.name, _repeated(a.shape[:-2], row_major(a.shape), batches)),
        "input_b": Walk(b.name, _repeated(b.shape[:-2], row_major(b.shape), batches)),
        "output": Walk(result.name, row_major(result.shape)[:-2]),
    }
    extents, walks = merged(batches, walks)
    last = extents[-1] if extents else 1
    a_row, a_depth = (1, a.shape[-1]) if node["adj_x"] else (a.shape[-1], 1)
    b_depth, b_column = (1, b.shape[-1]) if node["adj_y"] else (b.shape[-1], 1)
    inner = {
        "input_a": ((rows, 1, depth), (a_row, 1, a_depth)),
        "input_b": ((depth, 1, columns), (b_depth, 1, b_column)),
        "output": ((rows, 1, columns), (columns, 1, 1)),
    }
    calls = []
    for index in itertools.product(*map(range, extents[:-1])):
        views = {}
        for name, walk in walks.items():
            offset = sum(i * pitch for i, pitch in zip(index, walk.pitches[:-1], strict=True))
            shape, pitches = inner[name]
            batch = walk.pitches[-1] if walk.pitches else 1
            views[name] = View(walk.tensor, (last, *shape), (batch, *pitches), offset)
        calls.append(KernelCall("batch_matmul_s8", node.name, views, params))
    return calls


def _repeated(own: tuple[int, ...], pitches: tuple[int, ...], batches: tuple[int, ...]) -> tuple[int, ...]:
    """Return the pitches of the batches, 0 where the operand has one and the result more."""
    missing = len(batches) - len(own)
    here = zip(own, pitches[: len(own)], batches[missing:], strict=True)
    return (0,) * missing + tuple(0 if extent == 1 < count else pitch for extent, pitch, count in here)
