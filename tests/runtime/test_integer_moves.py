# SPDX-License-Identifier: BSD-3-Clause
"""Indices, positions and booleans are concatenated and split unchanged, against LiteRT's reference kernels."""

from __future__ import annotations

import numpy as np

from openneutron.ir import DType, Node, Tensor, constant
from tests.support import oracle

ATTRS = {"begin_mask": 0, "end_mask": 0, "ellipsis_mask": 0, "new_axis_mask": 0, "offset": False}


def test_positions_are_joined_and_sliced() -> None:
    x, y = Tensor("x", (2, 3), DType.INT64), Tensor("y", (2, 3), DType.INT64)
    joined, part = Tensor("joined", (2, 6), DType.INT64), Tensor("part", (1, 3), DType.INT64)
    numbers = [constant("begin", np.array([1, 2], np.int32)), constant("size", np.array([1, 3], np.int32))]
    nodes = [
        Node("concatenation", ("x", "y"), ("joined",), {"axis": 1, "activation": "NONE"}),
        Node("slice", ("joined", "begin", "size"), ("part",)),
    ]
    oracle.assert_bit_exact(oracle.graph_of([x, y], nodes, [*numbers, joined, part], ["joined", "part"]))


def test_single_indices_are_taken_out_of_a_list_and_packed() -> None:
    x, result = Tensor("x", (4,), DType.INT32), Tensor("packed", (2,), DType.INT32)
    numbers = [constant(f"n{i}", np.array([i], np.int32)) for i in range(4)]
    singles = [Tensor(name, (), DType.INT32) for name in ("first", "last")]
    nodes = [
        Node("strided_slice", ("x", "n0", "n1", "n1"), ("first",), {**ATTRS, "shrink_axis_mask": 1}),
        Node("strided_slice", ("x", "n3", "n3", "n1"), ("last",), {**ATTRS, "shrink_axis_mask": 1}),
        Node("pack", ("last", "first"), ("packed",), {"values_count": 2, "axis": 0}),
    ]
    oracle.assert_bit_exact(oracle.graph_of([x], nodes, [*numbers, *singles, result]))


def test_booleans_are_joined() -> None:
    x, result = Tensor("x", (3, 2), DType.BOOL), Tensor("y", (4, 2), DType.BOOL)
    other = constant("other", np.array([[True, False]]))
    node = Node("concatenation", ("x", "other"), ("y",), {"axis": 0, "activation": "NONE"})
    oracle.assert_bit_exact(oracle.graph_of([x], [node], [other, result]))
