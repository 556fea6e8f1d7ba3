# SPDX-License-Identifier: BSD-3-Clause
"""Copies and tables that the calls around them do along."""

from __future__ import annotations

import numpy as np
import pytest

from openneutron.ir import Graph, Node, Tensor, constant
from tests.support import oracle, random_graphs

AXIS = {"axis": 3, "activation": "NONE"}


def integers(name: str, *values: int) -> Tensor:
    return constant(name, np.array(values, np.int32))


def test_tables_in_a_row_are_one() -> None:
    graph = oracle.graph_of(
        [oracle.activation("x", (1, 4, 4, 8))],
        [Node("logistic", ("x",), ("a",), {}), Node("abs", ("a",), ("b",), {}), Node("tanh", ("b",), ("c",), {})],
        [
            oracle.activation("a", (1, 4, 4, 8), 1 / 256, -128),
            oracle.activation("b", (1, 4, 4, 8), 1 / 256, -128),
            oracle.activation("c", (1, 4, 4, 8), 1 / 128, 0),
        ],
    )
    compiled = oracle.assert_bit_exact(graph)
    assert oracle.kernels_of(compiled) == ["lookup_s8"]
    # In the memory of the NPU, the table is beside one tensor, which is written in place.
    assert compiled.report.arena_bytes == (256 + 128 if oracle.TARGET.moves_tiles else 2 * 128)


def concatenated(readers: tuple[Node, ...] = (), more: tuple[Tensor, ...] = ()) -> Graph:
    """Two max pools side by side."""
    pool = {"padding": "SAME", "kernel_h": 2, "kernel_w": 2, "stride_h": 1, "stride_w": 1, "activation": "NONE"}
    return oracle.graph_of(
        [oracle.activation("x", (1, 6, 6, 8))],
        [
            Node("max_pool_2d", ("x",), ("a",), pool),
            Node("max_pool_2d", ("a",), ("b",), pool),
            Node("concatenation", ("a", "b"), ("c",), AXIS),
            *readers,
        ],
        [*(oracle.activation(name, (1, 6, 6, 8)) for name in "ab"), oracle.activation("c", (1, 6, 6, 16)), *more],
    )


def test_what_one_call_alone_reads_is_written_to_its_place() -> None:
    # So is a, where the second pool reads it (tests/compiler/test_copies_as_views.py).
    assert oracle.kernels_of(oracle.assert_bit_exact(concatenated())) == ["max_pool_2d_s8", "max_pool_2d_s8"]


def test_a_slice_is_read_where_it_lies() -> None:
    graph = concatenated(
        (Node("slice", ("c", "begin", "size"), ("s",), {}), Node("relu", ("s",), ("y",), {})),
        (
            integers("begin", 0, 1, 1, 4), integers("size", 1, 3, 4, 8),
            oracle.activation("s", (1, 3, 4, 8)), oracle.activation("y", (1, 3, 4, 8)),
        ),
    )  # fmt: skip
    made = oracle.kernels_of(oracle.assert_bit_exact(graph))
    assert made == ["max_pool_2d_s8", "max_pool_2d_s8", "lookup_s8"]


def test_a_transposed_copy_stays_in_front_of_what_sums_channels() -> None:
    pool = {"padding": "SAME", "kernel_h": 3, "kernel_w": 3, "stride_h": 1, "stride_w": 1, "activation": "NONE"}
    graph = oracle.graph_of(
        [oracle.activation("x", (1, 6, 8, 4))],
        [Node("transpose", ("x", "order"), ("t",), {}), Node("average_pool_2d", ("t",), ("y",), pool)],
        [
            integers("order", 0, 3, 1, 2),
            oracle.activation("t", (1, 4, 6, 8)),
            oracle.activation("y", (1, 4, 6, 8)),
        ],
    )
    assert oracle.kernels_of(oracle.assert_bit_exact(graph)) == ["copy_s8", "average_pool_2d_s8"]


@pytest.mark.parametrize("reshaped", [False, True])
def test_a_sum_with_its_own_transpose_lies_apart(reshaped: bool) -> None:
    """The sum reads one tensor by two views, also where they have two tensors' names: written over it, one would change."""
    pool = {"padding": "SAME", "kernel_h": 2, "kernel_w": 2, "stride_h": 1, "stride_w": 1, "activation": "NONE"}
    there_and_back = [Node("reshape", ("a", "long"), ("r",), {}), Node("reshape", ("r", "square"), ("b",), {})]
    graph = oracle.graph_of(
        [oracle.activation("x", (1, 8, 8, 4))],
        [
            Node("max_pool_2d", ("x",), ("a",), pool),
            *(there_and_back if reshaped else ()),
            Node("transpose", ("b" if reshaped else "a", "order"), ("t",), {}),
            Node("add", ("a", "t"), ("y",), {"activation": "NONE"}),
        ],
        [
            integers("long", 1, 64, 1, 4), integers("square", 1, 8, 8, 4), integers("order", 0, 2, 1, 3),
            oracle.activation("r", (1, 64, 1, 4)),
            *(oracle.activation(name, (1, 8, 8, 4)) for name in "abt"), oracle.activation("y", (1, 8, 8, 4), 0.1, 0),
        ],
    )  # fmt: skip
    compiled = oracle.assert_bit_exact(graph)
    assert oracle.kernels_of(compiled) == ["max_pool_2d_s8", "add_s8"]
    assert compiled.storages.of["y"] != compiled.storages.of["a"]


def test_random_graphs_keep_their_bytes() -> None:
    for seed in range(2000, 2040):
        oracle.assert_bit_exact(random_graphs.several(seed), (seed,))
