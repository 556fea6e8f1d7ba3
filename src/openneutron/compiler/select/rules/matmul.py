# SPDX-License-Identifier: BSD-3-Clause
"""Products of matrices as kernel calls."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from openneutron.compiler.select.calls import KernelCall, View, kernel_of, quant_of, selects
from openneutron.compiler.select.walks import Walk, merged, row_major
from openneutron.ir import DType, Graph, Node
from openneutron.ops.conv import matrices
from openneutron.ops.rescaling import matmul_factor, quantize_multiplier, reduced_multipliers


@selects("batch_matmul")
def batch_matmul(graph: Graph, node: Node) -> list[KernelCall]:
    """Select batch_matmul_s8 or batch_matmul_s16: one call, or one for each leading batch where batches do not merge into one dimension."""
    a, b, result = tensors = graph.given(node, 0), graph.given(node, 1), graph[node.name]
    a_quant, b_quant, output = map(quant_of, tensors)
    factor, size = matmul_factor(a_quant, b_quant, output), result.dtype.size_bytes
    left, right = matrices(graph, node)
    (rows, depth), columns = left[-2:], right[-1]
    params = {"depth": depth}
    if result.dtype is DType.INT16:
        multipliers, shifts = reduced_multipliers(factor)
        params |= {"output_multiplier": int(multipliers), "output_shift": int(shifts)}
    else:
        multiplier, shift = quantize_multiplier(factor)
        params |= {"a_zero_point": a_quant.zero_point, "b_zero_point": b_quant.zero_point}
        params |= {"output_multiplier": multiplier, "output_shift": shift, "output_zero_point": output.zero_point}
    batches = result.shape[:-2]
    walks: Mapping[str, Walk] = {
        "input_a": Walk(a.name, _repeated(a.shape[:-2], row_major(a.shape, size), batches)),
        "input_b": Walk(b.name, _repeated(b.shape[:-2], row_major(b.shape, size), batches)),
        "output": Walk(result.name, row_major(result.shape, size)[:-2]),
    }
    extents, walks = merged(batches, walks)
    last = extents[-1] if extents else 1
    a_row, a_depth = (size, a.shape[-1] * size) if node["adj_x"] else (a.shape[-1] * size, size)
    b_depth, b_column = (size, b.shape[-1] * size) if node["adj_y"] else (b.shape[-1] * size, size)
    inner = {
        "input_a": ((rows, 1, depth), (a_row, size, a_depth)),
        "input_b": ((depth, 1, columns), (b_depth, size, b_column)),
        "output": ((rows, 1, columns), (columns * size, size, size)),
    }
    calls = []
    for index in itertools.product(*map(range, extents[:-1])):
        views = {}
        for name, walk in walks.items():
            offset = sum(i * pitch for i, pitch in zip(index, walk.pitches[:-1], strict=True))
            shape, pitches = inner[name]
            batch = walk.pitches[-1] if walk.pitches else size
            views[name] = View(walk.tensor, (last, *shape), (batch, *pitches), offset, size)
        calls.append(KernelCall(kernel_of("batch_matmul", result.dtype), node.name, views, params))
    return calls


def _repeated(own: tuple[int, ...], pitches: tuple[int, ...], batches: tuple[int, ...]) -> tuple[int, ...]:
    """Return the pitches of the batches, 0 where the operand has one and the result more."""
    missing = len(batches) - len(own)
    here = zip(own, pitches[: len(own)], batches[missing:], strict=True)
    return (0,) * missing + tuple(0 if extent == 1 < count else pitch for extent, pitch, count in here)
