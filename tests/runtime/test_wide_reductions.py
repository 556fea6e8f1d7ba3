# SPDX-License-Identifier: BSD-3-Clause
"""Products of matrices, pools and reductions on int16 activations: the kernels against LiteRT's reference kernels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from openneutron.ir import Graph, Node, constant
from openneutron.ops import reject
from openneutron.ops.conv import window_output
from tests.runtime import element_calls
from tests.support import oracle

pytestmark = pytest.mark.int16

PROPERTY = settings(
    max_examples=50, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None
)


@st.composite
def products(draw: st.DrawFn) -> Graph:
    """Either operand transposed, batches that broadcast, a constant operand; results around the range's ends."""
    random = np.random.default_rng(draw(st.integers(0, 2**31)))
    rows, columns = draw(st.integers(1, 6)), draw(st.sampled_from([1, 5, 17, 40]))
    depth = draw(st.sampled_from([1, 9, 64, 600]))
    batches = tuple(draw(st.lists(st.integers(1, 3), max_size=2)))
    attrs = {"adj_x": draw(st.booleans()), "adj_y": draw(st.booleans())}
    left = (depth, rows) if attrs["adj_x"] else (rows, depth)
    right = (columns, depth) if attrs["adj_y"] else (depth, columns)
    sides = [tuple(1 if random.random() < 0.3 else extent for extent in batches) for _ in range(2)]
    result = np.broadcast_shapes(*sides)
    a, b = oracle.wide_activation("a", (*sides[0], *left)), oracle.wide_activation("b", (*sides[1], *right), 2e-3)
    scale = 2e-6 * 2**15 * np.sqrt(depth) * float(np.exp(random.uniform(-2, 2)))
    others, inputs = [oracle.wide_activation("y", (*result, rows, columns), scale)], [a, b]
    if draw(st.booleans()):
        others.append(constant("b", random.integers(-(2**15), 2**15, b.shape, np.int16), b.quant))
        inputs = [a]
    return oracle.graph_of(inputs, [Node("batch_matmul", ("a", "b"), ("y",), attrs)], others)


@st.composite
def pools(draw: st.DrawFn) -> Graph:
    kernel, stride = draw(st.sampled_from([(1, 1), (2, 2), (3, 3), (1, 4), (5, 2)])), draw(st.integers(1, 3))
    attrs = {
        "padding": draw(st.sampled_from(["SAME", "VALID"])),
        "stride_h": stride,
        "stride_w": draw(st.integers(1, 3)),
        "kernel_h": kernel[0],
        "kernel_w": kernel[1],
        "activation": draw(st.sampled_from(("NONE", "RELU", "RELU_N1_TO_1", "RELU6"))),
    }
    height, width = draw(st.integers(kernel[0], 9)), draw(st.integers(kernel[1], 9))
    channels, batches = draw(st.sampled_from([1, 3, 8, 33, 40])), draw(st.integers(1, 2))
    node = Node(draw(st.sampled_from(("average_pool_2d", "max_pool_2d"))), ("x",), ("y",), attrs)
    shape = (batches, *window_output(node, height, width, *kernel), channels)
    source = oracle.wide_activation("x", (batches, height, width, channels))
    return oracle.graph_of([source], [node], [oracle.wide_activation("y", shape)])


@st.composite
def reductions(draw: st.DrawFn, *ops: str) -> Graph:
    shape = tuple(draw(st.lists(st.sampled_from([1, 2, 5, 11]), min_size=1, max_size=4)))
    axes = draw(st.lists(st.integers(-len(shape), len(shape) - 1), min_size=1, max_size=len(shape), unique=True))
    op, keep = draw(st.sampled_from(ops)), draw(st.booleans())
    named = {axis % len(shape) for axis in axes}
    kept = [1 if axis in named else extent for axis, extent in enumerate(shape) if keep or axis not in named]
    scale = 1e-3 * draw(st.sampled_from([1.0, 0.71, 10.0, 0.03] if op == "mean" else [1.0]))
    result = oracle.wide_activation("y", kept, scale)
    node = Node(op, ("x", "axes"), ("y",), {"keep_dims": keep})
    operands = [constant("axes", np.array(axes, np.int32)), result]
    return oracle.graph_of([oracle.wide_activation("x", shape)], [node], operands)


@PROPERTY
@given(products(), st.integers(0, 2**31))
def test_products_are_bit_exact_in_any_windows(graph: Graph, seed: int) -> None:
    element_calls.assert_bit_exact(graph, seed)


@PROPERTY
@given(pools(), st.integers(0, 2**31))
def test_pools_are_bit_exact_in_any_windows(graph: Graph, seed: int) -> None:
    element_calls.assert_bit_exact(graph, seed)


@PROPERTY
@given(reductions("mean", "reduce_max", "reduce_min"), st.integers(0, 2**31))
def test_reductions_are_bit_exact_in_any_windows(graph: Graph, seed: int) -> None:
    element_calls.assert_bit_exact(graph, seed)


@pytest.mark.parametrize("op", ["mean", "average_pool_2d"])
def test_more_elements_than_32_bits_add_are_refused(op: str) -> None:
    source = oracle.wide_activation("x", (1, 256, 256, 1))
    if op == "mean":
        node = Node(op, ("x", "axes"), ("y",), {"keep_dims": True})
        reason = "it adds 65536 values to one; at most 65534"
    else:
        window = {"kernel_h": 256, "kernel_w": 256, "stride_h": 1, "stride_w": 1}
        node = Node(op, ("x",), ("y",), {"padding": "VALID", "activation": "NONE", **window})
        reason = "its window has 65536 elements; at most 65534"
    axes = constant("axes", np.array([1, 2], np.int32))
    graph = oracle.graph_of([source], [node], [axes, oracle.wide_activation("y", (1, 1, 1, 1))])
    assert reject(graph, node) == reason
