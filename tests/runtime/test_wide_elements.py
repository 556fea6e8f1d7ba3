# SPDX-License-Identifier: BSD-3-Clause
"""Element-by-element operators on int16 activations: the kernels against LiteRT's reference kernels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from openneutron.compiler.select.select import select_node
from openneutron.ir import Graph, Node, per_tensor
from openneutron.ir.graph import DType, Tensor
from openneutron.ops import reject
from openneutron.ops.elementwise import COMPARISONS
from tests.runtime import element_calls
from tests.support import oracle

pytestmark = pytest.mark.int16

PROPERTY = settings(
    max_examples=60, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None
)
ACTIVATIONS = ("NONE", "RELU", "RELU_N1_TO_1", "RELU6")


@st.composite
def sums(draw: st.DrawFn) -> Graph:
    """Any broadcasting up to rank 6, scales over four orders of magnitude."""
    random = np.random.default_rng(draw(st.integers(0, 2**31)))
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=6)))
    if draw(st.booleans()):
        shape = (*shape[:5], draw(st.sampled_from([8, 17, 40, 67])))
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


def _sides(draw: st.DrawFn, most: int) -> tuple[list[int], list[int], tuple[int, ...]]:
    """Two shapes that broadcast, and the shape that they give."""
    shape = draw(st.lists(st.integers(1, 3), min_size=1, max_size=most))
    shape[-1] = draw(st.sampled_from([1, 3, 8, 17, 40, 67]))
    kept = [
        draw(st.lists(st.sampled_from([True, True, True, False]), min_size=len(shape), max_size=len(shape)))
        for _ in "ab"
    ]
    one, other = ([extent if here else 1 for extent, here in zip(shape, side, strict=True)] for side in kept)
    if draw(st.booleans()):
        one = list(shape)
    return one, other, np.broadcast_shapes(tuple(one), tuple(other))


def _scale(draw: st.DrawFn, low: float = 1e-5, high: float = 1e-1) -> float:
    return float(np.float32(np.exp(draw(st.floats(float(np.log(low)), float(np.log(high)))))))


@st.composite
def products_and_extrema(draw: st.DrawFn) -> Graph:
    """MUL with factors below 1 that make results of 1 to 31 bits, MAXIMUM, MINIMUM; up to rank 6."""
    one, other, result = _sides(draw, 6)
    op = draw(st.sampled_from(("mul", "mul", "maximum", "minimum")))
    scales = [_scale(draw), _scale(draw)] if op == "mul" else [1e-3, 1e-3]
    of_result = float(np.float32(scales[0] * scales[1] * 2.0 ** draw(st.floats(0.1, 20)))) if op == "mul" else 1e-3
    inputs = [
        oracle.wide_activation(name, side, scale) for name, side, scale in zip("ab", (one, other), scales, strict=True)
    ]
    attrs = {"activation": draw(st.sampled_from(ACTIVATIONS))} if op == "mul" else {}
    return oracle.graph_of(
        inputs, [Node(op, ("a", "b"), ("y",), attrs)], [oracle.wide_activation("y", result, of_result)]
    )


@st.composite
def slopes(draw: st.DrawFn) -> Graph:
    """PRELU with int8 slopes that broadcast to the input, with a zero point."""
    _, other, _ = _sides(draw, 4)
    shape = [draw(st.integers(1, 3)) if extent == 1 else extent for extent in other]
    scale, by = _scale(draw), _scale(draw, 1e-3, 1e-1)
    result = float(np.float32(scale * 2.0 ** draw(st.floats(-4, 8))))
    slope = oracle.activation("b", other, by, draw(st.integers(-128, 127)))
    inputs = [oracle.wide_activation("a", shape, scale), slope]
    return oracle.graph_of(inputs, [Node("prelu", ("a", "b"), ("y",))], [oracle.wide_activation("y", shape, result)])


@st.composite
def choices(draw: st.DrawFn) -> Graph:
    """Comparisons at two scales, and SELECT_V2 on a broadcast condition."""
    one, other, result = _sides(draw, 4)
    truth = Tensor("y", result, DType.BOOL)
    op = draw(st.sampled_from((*COMPARISONS, "select_v2")))
    if op != "select_v2":
        scales = (_scale(draw, 1e-3, 0.9), _scale(draw, 1e-3, 0.9))
        inputs = [
            oracle.wide_activation(name, side, scale)
            for name, side, scale in zip("ab", (one, other), scales, strict=True)
        ]
        return oracle.graph_of(inputs, [Node(op, ("a", "b"), ("y",))], [truth])
    condition = Tensor("c", tuple(draw(st.sampled_from((one, other)))), DType.BOOL)
    inputs = [oracle.wide_activation(name, side) for name, side in zip("ab", (one, other), strict=True)]
    return oracle.graph_of(
        [condition, *inputs], [Node(op, ("c", "a", "b"), ("y",))], [oracle.wide_activation("y", result)]
    )


@PROPERTY
@given(st.one_of(products_and_extrema(), slopes(), choices()), st.integers(0, 2**31))
def test_other_operators_of_two_are_bit_exact_in_any_windows(graph: Graph, seed: int) -> None:
    element_calls.assert_bit_exact(graph, seed)


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


def test_a_product_that_would_overflow_is_refused() -> None:
    tensors = [
        oracle.wide_activation(name, (1, 8), scale) for name, scale in zip("aby", (0.5, 0.25, 0.0625), strict=True)
    ]
    graph = oracle.graph_of(tensors[:2], [Node("mul", ("a", "b"), ("y",), {"activation": "NONE"})], tensors[2:])
    assert reject(graph, graph.nodes[0]) == "its scales make a rescaling factor of 2; it must be below 2^0"


def test_int16_slopes_are_refused() -> None:
    tensors = [oracle.wide_activation(name, (1, 8)) for name in "aby"]
    graph = oracle.graph_of(tensors[:2], [Node("prelu", ("a", "b"), ("y",))], tensors[2:])
    assert reject(graph, graph.nodes[0]) == "its slopes 'b' are int16; LiteRT has int8 slopes alone"


def test_extrema_of_two_scales_are_refused() -> None:
    tensors = [
        oracle.wide_activation(name, (1, 8), scale) for name, scale in zip("aby", (1e-3, 2e-3, 1e-3), strict=True)
    ]
    graph = oracle.graph_of(tensors[:2], [Node("maximum", ("a", "b"), ("y",))], tensors[2:])
    assert reject(graph, graph.nodes[0]) == (
        "input 'b' has scale=0.002 zp=0, the output scale=0.001 zp=0; they must be the same"
    )
