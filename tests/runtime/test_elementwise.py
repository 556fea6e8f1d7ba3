# SPDX-License-Identifier: BSD-3-Clause
"""Arithmetic of two operands: the kernels against LiteRT's reference kernels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from openneutron.compiler.select.rules.elementwise import add
from openneutron.compiler.select.select import select_node
from openneutron.ir import Graph, Node, constant, per_tensor
from openneutron.ops import reject
from tests.runtime import element_calls
from tests.support import oracle

PROPERTY = settings(
    max_examples=120, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None
)
OPERATORS = ("add", "sub", "mul", "maximum", "minimum", "prelu", "squared_difference")
ACTIVATIONS = ("NONE", "RELU", "RELU_N1_TO_1", "RELU6")


@st.composite
def two_operand_graphs(draw: st.DrawFn) -> Graph:
    """Any broadcasting up to rank 6, any zero points, scales over four orders of magnitude."""
    random = np.random.default_rng(draw(st.integers(0, 2**31)))
    op = draw(st.sampled_from(OPERATORS))
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=6)))
    if draw(st.booleans()):
        shape = (*shape[:3], draw(st.sampled_from([8, 17, 40, 67])))
    sides = []
    for _ in range(2):
        kept = draw(st.integers(0, len(shape)))
        sides.append([1 if random.random() < 0.25 else extent for extent in shape[len(shape) - kept :]])
    if draw(st.booleans()):
        sides = [list(shape), list(shape)]
    result = np.broadcast_shapes(*(tuple(side) for side in sides))
    if op == "prelu":
        sides[0] = list(result)
    scales = np.exp(random.uniform(np.log(3e-4), np.log(3.0), 3))
    zero_points = random.choice([-128, 127, *random.integers(-128, 128, 3)], 3)
    if op in ("maximum", "minimum"):
        scales[:], zero_points[:] = scales[0], zero_points[0]
    if op == "squared_difference":
        scales[2] = max(scales[0], scales[1]) ** 2 * np.exp(random.uniform(np.log(2.0**-11), np.log(600)))
    a = oracle.activation("a", sides[0], float(scales[0]), int(zero_points[0]))
    b = oracle.activation("b", sides[1], float(scales[1]), int(zero_points[1]))
    inputs, others = [a, b], [oracle.activation("y", result, float(scales[2]), int(zero_points[2]))]
    if draw(st.booleans()):
        inputs.remove(b)
        others.append(constant("b", random.integers(-128, 128, b.shape, np.int8), b.quant))
    attrs = {"activation": draw(st.sampled_from(ACTIVATIONS))} if op in ("add", "sub", "mul") else {}
    node = Node(op, ("a", "b"), ("y",), attrs)
    return oracle.graph_of(inputs, [node], others)


@PROPERTY
@given(two_operand_graphs(), st.integers(0, 2**31))
def test_bit_exact_in_any_windows(graph: Graph, seed: int) -> None:
    element_calls.assert_bit_exact(graph, seed)


def every_pair(op: str, scales: tuple[float, float, float], zero_points: tuple[int, int, int]) -> Graph:
    # PRELU broadcasts its slopes alone.
    a = oracle.activation("a", (1, 1, 256, 256 if op == "prelu" else 1), scales[0], zero_points[0])
    b = oracle.activation("b", (1, 1, 1, 256), scales[1], zero_points[1])
    y = oracle.activation("y", (1, 1, 256, 256), scales[2], zero_points[2])
    attrs = {"activation": "NONE"} if op in ("add", "sub", "mul") else {}
    return oracle.graph_of([a, b], [Node(op, ("a", "b"), ("y",), attrs)], [y])


@pytest.mark.parametrize("op", OPERATORS)
def test_every_pair_of_values(op: str) -> None:
    values = np.arange(-128, 128).astype(np.int8)
    inputs = [values.reshape(1, 1, 256, 1), values.reshape(1, 1, 1, 256)]
    random = np.random.default_rng(11)
    for round_ in range(12):
        # Powers of two put many products halfway between two values, where rounding shows.
        scales = 2.0 ** random.integers(-6, 2, 3) if round_ % 2 else np.exp(random.uniform(-6, 1, 3))
        zero_points = random.integers(-128, 128, 3)
        if op in ("maximum", "minimum"):
            scales[:], zero_points[:] = scales[0], zero_points[0]
        if op == "squared_difference":
            scales[2] = max(scales[0], scales[1]) ** 2 * 2.0 ** random.integers(-10, 9)
        graph = every_pair(op, tuple(map(float, scales)), tuple(map(int, zero_points)))
        inputs[0] = np.broadcast_to(inputs[0], graph["a"].shape)
        (want,) = oracle.reference_outputs(graph, inputs)
        compiled = oracle.compile_graph(graph, oracle.TARGET)
        np.testing.assert_array_equal(oracle.simulated_outputs(compiled, inputs)[0], want, str(graph))


def test_equal_shapes_are_one_call_on_dense_views() -> None:
    a, b = oracle.activation("a", (1, 4, 4, 8)), oracle.activation("b", (1, 4, 4, 8), 0.1, 3)
    node = Node("add", ("a", "b"), ("y",), {"activation": "NONE"})
    graph = oracle.graph_of([a, b], [node], [oracle.activation("y", (1, 4, 4, 8), 0.2, -5)])
    (call,) = select_node(graph, node)
    assert str(call).startswith("add_s8(input_a=%a[1x4x4x8], input_b=%b[1x4x4x8], output=%y[1x4x4x8])")


def test_a_channel_vector_is_broadcast_by_pitches_of_zero() -> None:
    a, b = oracle.activation("a", (2, 3, 4, 8)), oracle.activation("b", (8,))
    node = Node("mul", ("a", "b"), ("y",), {"activation": "NONE"})
    graph = oracle.graph_of([a, b], [node], [oracle.activation("y", (2, 3, 4, 8))])
    (call,) = select_node(graph, node)
    assert call.views["input_b"].pitches == (0, 0, 0, 1)


def test_subtraction_turns_the_sign_of_b_alone() -> None:
    a, b = oracle.activation("a", (3,), 0.25), oracle.activation("b", (3,), 0.5)
    result = oracle.activation("y", (3,), 1.0)
    made = []
    for op in ("add", "sub"):
        node = Node(op, ("a", "b"), ("y",), {"activation": "NONE"})
        made.append(dict(add(oracle.graph_of([a, b], [node], [result]), node)[0].params))
    assert made[1].pop("b_multiplier") == -made[0].pop("b_multiplier") == -(2**30)
    assert made[0] == made[1]


def test_add_says_which_scales_litert_refuses() -> None:
    a, b = oracle.activation("a", (3,), 1.0), oracle.activation("b", (3,), 0.5)
    node = Node("add", ("a", "b"), ("y",), {"activation": "NONE"})
    graph = oracle.graph_of([a, b], [node], [oracle.activation("y", (3,), 2.0**-19)])
    assert reject(graph, node) == (
        "its output has scale 1.90735e-06, an input 1; LiteRT demands an output scale above 1/2^19 of the larger input's"
    )
    almost = oracle.graph_of([a, b], [node], [oracle.activation("y", (3,), 2.0**-18.99)])
    assert reject(almost, node) is None
    oracle.assert_bit_exact(almost)


def test_constants_broadcast_the_whole_way() -> None:
    a = oracle.activation("a", (1, 5, 6, 7), 0.03, -4)
    b = constant("b", np.arange(-3, 4).astype(np.int8), per_tensor(0.02, 1))
    node = Node("mul", ("b", "a"), ("y",), {"activation": "RELU6"})
    oracle.assert_bit_exact(oracle.graph_of([a], [node], [b, oracle.activation("y", (1, 5, 6, 7), 0.04, 9)]))


def test_operators_say_what_they_refuse() -> None:
    a, b = oracle.activation("a", (2, 3), 0.5), oracle.activation("b", (3,), 0.25)
    squared = Node("squared_difference", ("a", "b"), ("y",))
    graph = oracle.graph_of([a, b], [squared], [oracle.activation("y", (2, 3), 2.0**-14)])
    assert reject(graph, squared) == (
        "its output has scale 6.10352e-05, an input 0.5; "
        "LiteRT demands an output scale above 1/2^12 of the larger input's square"
    )
    oracle.assert_bit_exact(oracle.graph_of([a, b], [squared], [oracle.activation("y", (2, 3), 2.0**-13.9)]))
    slopes = Node("prelu", ("b", "a"), ("y",))
    assert reject(oracle.graph_of([a, b], [slopes], [oracle.activation("y", (2, 3))]), slopes) == (
        "its input has shape [3], its slopes [2, 3]; the slopes must broadcast to the input"
    )
