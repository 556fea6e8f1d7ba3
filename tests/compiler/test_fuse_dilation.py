# SPDX-License-Identifier: BSD-3-Clause
"""Dilated convolutions as TensorFlow writes them become one convolution each, to the same bytes."""

from __future__ import annotations

import numpy as np
import pytest

from openneutron.compiler.legalize.legalize import legalize
from openneutron.ir import Graph, Node, constant, per_tensor
from tests.support import oracle
from tests.support.small_graphs import ATTRS, dilated_image


@pytest.mark.parametrize("op", ["conv_2d", "depthwise_conv_2d"])
@pytest.mark.parametrize(
    ("block", "pads", "crops"),
    [([3, 2], [[0, 0], [0, 0]], [[0, 0], [0, 0]]), ([2, 3], [[2, 3], [1, 4]], [[0, 1], [0, 2]]), ([1, 2], [[0, 0], [0, 0]], [[0, 0], [0, 0]])],
)  # fmt: skip
def test_space_to_batch_and_back_is_the_dilation(
    op: str, block: list[int], pads: list[list[int]], crops: list[list[int]]
) -> None:
    graph = dilated_image(op, block, pads, crops)
    (node,) = legalize(graph).nodes
    assert (node.op, node["dilation_h"], node["dilation_w"]) == (op, *block)
    oracle.assert_bit_exact(graph)


def test_what_no_padding_says_stays_as_it_is() -> None:
    cropped = dilated_image("conv_2d", [3, 2], [[0, 0], [0, 0]], [[2, 0], [0, 0]])
    padded = dilated_image("conv_2d", [3, 5], [[0, 0], [0, 0]], [[0, 0], [0, 0]])
    for graph in (cropped, padded):
        oracle.assert_bit_exact(graph)
    assert len(legalize(cropped).nodes) > 1
    assert len(legalize(padded).nodes) == 1


def _sequence(axis: int) -> Graph:
    """Return a causal convolution in one dimension, dilated by 4, along the columns (axis 2) or rows of an image."""
    random = np.random.default_rng(2)

    def image(batch: int, length: int, channels: int) -> tuple[int, ...]:
        return (batch, length, 1, channels) if axis == 1 else (batch, 1, length, channels)

    kernel = (5, 3, 1, 4) if axis == 1 else (5, 1, 3, 4)
    others = [
        constant("block", np.array([4], np.int32)),
        constant("pads", np.array([[8, 3]], np.int32)),
        constant("crops", np.array([[0, 3]], np.int32)),
        constant("weights", random.integers(-127, 128, kernel).astype(np.int8), per_tensor(0.01, 0)),
        constant("bias", random.integers(-900, 900, 5).astype(np.int32), per_tensor(0.0005, 0)),
        oracle.activation("s", (4, 6, 4), 0.05, 7),
        oracle.activation("wide", image(4, 6, 4), 0.05, 7),
        oracle.activation("c", image(4, 4, 5), 0.2, -100),
        oracle.activation("narrow", (4, 4, 5), 0.2, -100),
        oracle.activation("y", (1, 13, 5), 0.2, -100),
        constant("axis", np.array([3 - axis], np.int32)),
    ]
    nodes = [
        Node("space_to_batch_nd", ("x", "block", "pads"), ("s",)),
        Node("expand_dims", ("s", "axis"), ("wide",)),
        Node("conv_2d", ("wide", "weights", "bias"), ("c",), ATTRS),
        Node("squeeze", ("c",), ("narrow",), {"squeeze_dims": (3 - axis,)}),
        Node("batch_to_space_nd", ("narrow", "block", "crops"), ("y",)),
    ]
    return oracle.graph_of([oracle.activation("x", (1, 13, 4), 0.05, 7)], nodes, others)


@pytest.mark.parametrize("axis", [1, 2])
def test_sequences_go_through_an_image_of_one_row_or_column(axis: int) -> None:
    graph = _sequence(axis)
    (convolution,) = [node for node in legalize(graph).nodes if node.op != "reshape"]
    assert (convolution["dilation_h"], convolution["dilation_w"]) == ((4, 1), (1, 4))[axis - 1]
    assert convolution["padding"] == ((8, 0, 0, 0), (0, 0, 8, 0))[axis - 1]
    oracle.assert_bit_exact(graph)


def test_a_block_that_no_kernel_takes_as_a_dilation_stays_as_it_is() -> None:
    block = 33000
    others = [
        constant("block", np.array([block, 1], np.int32)),
        constant("none", np.zeros((2, 2), np.int32)),
        constant("weights", np.array([1, 2, 3], np.int8).reshape(1, 3, 1, 1), per_tensor(0.01, 0)),
        constant("bias", np.zeros(1, np.int32), per_tensor(0.0005, 0)),
        oracle.activation("s", (block, 3, 1, 1)),
        oracle.activation("c", (block, 1, 1, 1), 0.1),
        oracle.activation("y", (1, block, 1, 1), 0.1),
    ]
    nodes = [
        Node("space_to_batch_nd", ("x", "block", "none"), ("s",)),
        Node("conv_2d", ("s", "weights", "bias"), ("c",), ATTRS),
        Node("batch_to_space_nd", ("c", "block", "none"), ("y",)),
    ]
    graph = oracle.graph_of([oracle.activation("x", (1, 3 * block, 1, 1))], nodes, others)
    assert [node["dilation_h"] for node in legalize(graph).nodes if node.op == "conv_2d"] == [1]
    oracle.assert_bit_exact(graph, [0])
