# SPDX-License-Identifier: BSD-3-Clause
"""Legalization, stage by stage, as text."""

from __future__ import annotations

import numpy as np

from openneutron.compiler.legalize.legalize import legalize
from openneutron.ir import DType, Graph, Node, Tensor, constant, per_tensor

QUANT = per_tensor(0.5, -3)


def tensor(name: str, *shape: int, quant: object = QUANT) -> Tensor:
    return Tensor(name, shape, DType.INT8, quant)


def graph(nodes: list[Node], tensors: list[Tensor], output: str) -> Graph:
    made = Graph("main", {t.name: t for t in tensors}, tuple(nodes), ("x",), (output,))
    made.verify()
    return made


CONV = {"padding": "VALID", "stride_h": 1, "stride_w": 1, "dilation_h": 1, "dilation_w": 1, "activation": "NONE"}
POOL = {"padding": "VALID", "stride_h": 2, "stride_w": 2, "kernel_h": 3, "kernel_w": 3, "activation": "NONE"}


def nodes_of(made: Graph) -> list[str]:
    return [str(node) for node in made.nodes]


def test_pad_and_activation_go_into_the_convolution() -> None:
    made = graph(
        [
            Node("pad", ("x", "amounts"), ("p",)),
            Node("conv_2d", ("p", "w", None), ("c",), CONV),
            Node("relu", ("c",), ("y",)),
        ],
        [
            tensor("x", 1, 4, 4, 2),
            constant("amounts", np.array([[0, 0], [1, 2], [0, 1], [0, 0]], np.int32)),
            tensor("p", 1, 7, 5, 2),
            constant("w", np.ones((3, 3, 3, 2), np.int8), per_tensor(1, 0)),
            tensor("c", 1, 5, 3, 3),
            tensor("y", 1, 5, 3, 3),
        ],
        "y",
    )
    assert nodes_of(legalize(made)) == [
        "%y = conv_2d(%x, %w, -) padding=(1,2,0,1) stride_h=1 stride_w=1 dilation_h=1 dilation_w=1 activation=RELU"
    ]


def test_a_pad_that_others_read_stays_for_all() -> None:
    made = graph(
        [
            Node("pad", ("x", "amounts"), ("p",)),
            Node("max_pool_2d", ("p",), ("m",), POOL),
            Node("conv_2d", ("p", "w", None), ("c",), CONV | {"stride_h": 2, "stride_w": 2}),
            Node("add", ("m", "c"), ("y",), {"activation": "NONE"}),
        ],
        [
            tensor("x", 1, 4, 4, 2),
            constant("amounts", np.array([[0, 0], [1, 1], [1, 1], [0, 0]], np.int32)),
            tensor("p", 1, 6, 6, 2),
            tensor("m", 1, 2, 2, 2),
            constant("w", np.ones((2, 3, 3, 2), np.int8), per_tensor(1, 0)),
            tensor("c", 1, 2, 2, 2),
            tensor("y", 1, 2, 2, 2),
        ],
        "y",
    )
    assert [node.op for node in legalize(made).nodes] == ["pad", "max_pool_2d", "conv_2d", "add"]


def test_a_pad_that_counts_stays() -> None:
    made = graph(
        [Node("pad", ("x", "amounts"), ("p",)), Node("average_pool_2d", ("p",), ("y",), POOL)],
        [
            tensor("x", 1, 4, 4, 2),
            constant("amounts", np.array([[0, 0], [1, 1], [1, 1], [0, 0]], np.int32)),
            tensor("p", 1, 6, 6, 2),
            tensor("y", 1, 2, 2, 2),
        ],
        "y",
    )
    assert [node.op for node in legalize(made).nodes] == ["pad", "average_pool_2d"]


def test_lowest_value_padding_goes_into_the_max_pool() -> None:
    tensors = [
        tensor("x", 1, 4, 4, 2),
        constant("amounts", np.array([[0, 0], [1, 1], [1, 1], [0, 0]], np.int32)),
        tensor("p", 1, 6, 6, 2),
        tensor("y", 1, 2, 2, 2),
    ]
    nodes = [Node("padv2", ("x", "amounts", "value"), ("p",)), Node("max_pool_2d", ("p",), ("y",), POOL)]
    lowest = constant("value", np.array([-128], np.int8), QUANT)
    other = constant("value", np.array([-127], np.int8), QUANT)
    assert nodes_of(legalize(graph(nodes, [*tensors, lowest], "y"))) == [
        "%y = max_pool_2d(%x) padding=(1,1,1,1) stride_h=2 stride_w=2 kernel_h=3 kernel_w=3 activation=NONE"
    ]
    assert [node.op for node in legalize(graph(nodes, [*tensors, other], "y")).nodes] == ["padv2", "max_pool_2d"]


def test_a_pad_that_would_leave_a_window_without_values_stays() -> None:
    # 4 rows and a pad of (1, 2), then SAME's own (1, 2): the last window would lie in rows 4 to 7, all padding.
    made = graph(
        [
            Node("padv2", ("x", "amounts", "value"), ("p",)),
            Node("max_pool_2d", ("p",), ("y",), {**POOL, "padding": "SAME", "kernel_h": 4}),
        ],
        [
            tensor("x", 1, 4, 4, 2),
            constant("amounts", np.array([[0, 0], [1, 2], [0, 0], [0, 0]], np.int32)),
            constant("value", np.array([-128], np.int8), QUANT),
            tensor("p", 1, 7, 4, 2),
            tensor("y", 1, 4, 2, 2),
        ],
        "y",
    )
    assert [node.op for node in legalize(made).nodes] == ["padv2", "max_pool_2d"]


def test_an_activation_that_rescales_stays() -> None:
    made = graph(
        [Node("conv_2d", ("x", "w", None), ("c",), CONV), Node("relu", ("c",), ("y",))],
        [
            tensor("x", 1, 4, 4, 2),
            constant("w", np.ones((3, 3, 3, 2), np.int8), per_tensor(1, 0)),
            tensor("c", 1, 2, 2, 3),
            tensor("y", 1, 2, 2, 3, quant=per_tensor(0.25, -128)),
        ],
        "y",
    )
    assert [node.op for node in legalize(made).nodes] == ["conv_2d", "relu"]


def test_what_moves_no_byte_becomes_a_reshape() -> None:
    made = graph(
        [
            Node("transpose", ("x", "order"), ("t",)),
            Node("squeeze", ("t",), ("s",), {"squeeze_dims": ()}),
            Node("quantize", ("s",), ("q",)),
            Node("relu", ("q",), ("y",)),
        ],
        [
            tensor("x", 1, 4, 1, 2),
            constant("order", np.array([0, 2, 1, 3], np.int32)),
            tensor("t", 1, 1, 4, 2),
            tensor("s", 4, 2),
            tensor("q", 4, 2),
            tensor("y", 4, 2),
        ],
        "y",
    )
    assert [node.op for node in legalize(made).nodes] == ["reshape", "reshape", "reshape", "relu"]
