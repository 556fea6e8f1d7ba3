# SPDX-License-Identifier: BSD-3-Clause
"""Graphs that look up entries of a constant table by indices that come with the data."""

from __future__ import annotations

import functools

import numpy as np

from openneutron.ir import DType, Graph, Node, Tensor, constant, per_tensor
from tests.support import oracle


@functools.cache
def table(
    entries: int, shape: tuple[int, ...] = (12,), width: tuple[int, ...] = (64,), dtype: DType = DType.INT32
) -> Graph:
    """Return a lookup in a table, and a sigmoid of the result."""
    values = np.random.default_rng(0).integers(-128, 128, (entries, *width)).astype(np.int8)
    nodes = [
        Node("gather", ("table", "index"), ("found",), {"axis": 0, "batch_dims": 0}),
        Node("logistic", ("found",), ("y",)),
    ]
    results = [oracle.activation("found", (*shape, *width)), oracle.activation("y", (*shape, *width), 1 / 256, -128)]
    quant = per_tensor(0.05, 0)
    return oracle.graph_of([Tensor("index", shape, dtype)], nodes, [constant("table", values, quant), *results])
