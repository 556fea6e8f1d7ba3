# SPDX-License-Identifier: BSD-3-Clause
"""Element-by-element operators on int16 activations: the kernels against LiteRT's reference kernels."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from openneutron.compiler.select.select import select_node
from openneutron.ir import Graph, Node, per_tensor
from openneutron.ir.graph import DType, Tensor
from openneutron.ops import reject
from tests.runtime import element_calls
from tests.support import oracle

PROPERTY = settings(
    max_examples=60, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None
)
ACTIVATIONS = ("NONE", "RELU", "RELU_N1_TO_1", "RELU6")


@st.composite
def sums(draw: st.DrawFn) -> Graph:
    """Any broadcasting up to rank 4, scales over four orders of magnitude."""
    random = np.random.default_rng(draw(st.integers(0, 2**31)))
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    if draw(st.booleans()):
        shape = (*shape[:3], draw(st.sampled_from([8, 17, 40, 67])))
    sides = [[1 if random.random() < 0.25 else extent for extent in shape] for _ in range(2)]
    if draw(st.booleans()):
        sides = [list(shape), list(shape)]
    result = np.broadcast_shapes(*(tuple(side) for side in sides))
    scales = np.exp(random.uniform(np.log(1e-5), np.log(1e-1), 3))
    scales[2] = max(scales[2], max(scales[:2]) * 2.0**-13)
    inputs = [
        oracle.wide_activation(name, side, float(scale)) for name, side, scale in zip("ab", sides, scales, strict=False)
    ]
    attrs = {"activation": draw(st.sampled_from(ACTIVATIONS)), "pot_scale_int16": draw(st.booleans())}
    node = Node(draw(st.sampled_from(("add", "sub"))), ("a", "b"), ("y",), attrs)
    return oracle.graph_of(inputs, [node], [oracle.wide_activation("y", result, float(scales[2]))])


@PROPERTY
@given(sums(), st.integers(0, 2**31))
def test_bit_exact_in_any_windows(graph: Graph, seed: int) -> None:
    element_calls.assert_bit_exact(graph, seed)


def test_equal_shapes_are_one_call_on_dense_views_of_two_bytes() -> None:
    graph = _sum()
    (call,) = select_node(graph, graph.nodes[0])
    assert str(call).startswith(
        "add_s16(input_a=%a[1x4x4x8] of 2 B, input_b=%b[1x4x4x8] of 2 B, output=%y[1x4x4x8] of 2 B)"
    )


def _sum(**changes: object) -> Graph:
    a, b, y = (oracle.wide_activation(name, (1, 4, 4, 8)) for name in "aby")
    node = Node("add", ("a", "b"), ("y",), {"activation": "NONE", "pot_scale_int16": False, **changes})
    return oracle.graph_of([a, b], [node], [y])


def _reason(graph: Graph, **tensors: Tensor) -> str | None:
    changed = oracle.graph_of(
        [tensors.get(name, graph[name]) for name in graph.inputs],
        graph.nodes,
        [tensors.get("y", graph["y"])],
    )
    return reject(changed, changed.nodes[0])


def test_a_zero_point_is_refused() -> None:
    shifted = Tensor("a", (1, 4, 4, 8), DType.INT16, per_tensor(1e-3, 5))
    assert _reason(_sum(), a=shifted) == "input 'a' has zero point 5; int16 has 0 alone"


def test_int8_beside_int16_is_refused() -> None:
    assert _reason(_sum(), b=oracle.activation("b", (1, 4, 4, 8))) == (
        "'a' is int16, 'b' is int8; its inputs and output must have one type"
    )


def test_the_form_for_powers_of_two_is_refused() -> None:
    graph = _sum(pot_scale_int16=True)
    assert reject(graph, graph.nodes[0]) is None
    powers = {name: oracle.wide_activation(name, (1, 4, 4, 8), 2.0**-10) for name in "aby"}
    assert _reason(graph, **powers) == (
        "its scales are powers of two and its option pot_scale_int16 is true, for which LiteRT has another arithmetic"
    )


def test_an_operator_without_an_int16_kernel_says_so() -> None:
    a = oracle.wide_activation("a", (1, 8))
    node = Node("hard_swish", ("a",), ("y",), {})
    graph = oracle.graph_of([a], [node], [oracle.wide_activation("y", (1, 8))])
    assert reject(graph, node) == "input 'a' is int16; this operator computes on int8"
