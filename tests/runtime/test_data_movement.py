# SPDX-License-Identifier: BSD-3-Clause
"""Pads, concatenations, slices, transposes and resizes: the kernels against LiteRT's reference kernels."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from openneutron.compiler.select.needs import Walk, boxes, row_major
from openneutron.compiler.select.rules.data_movement import nearest_neighbors
from openneutron.ir import Graph, Node, Tensor, constant
from openneutron.ops import BY_NAME, reject
from tests.runtime import element_calls
from tests.support import oracle

PROPERTY = settings(
    max_examples=80, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None
)

QUANT = (0.05, 7)


def _shape(draw: st.DrawFn, most: int) -> tuple[int, ...]:
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=most)))
    return (*shape[:-1], draw(st.sampled_from([1, 4, 9, 35])))


def _one(op: str, shape: tuple[int, ...], result: tuple[int, ...], operands: list[Tensor], **attrs: object) -> Graph:
    names = ("x", *(operand.name for operand in operands))
    node = Node(op, names, ("y",), attrs)
    return oracle.graph_of(
        [oracle.activation("x", shape, *QUANT)], [node], [*operands, oracle.activation("y", result, *QUANT)]
    )


@st.composite
def pads(draw: st.DrawFn) -> Graph:
    shape = _shape(draw, 5)
    amounts = [(draw(st.integers(0, 2)), draw(st.integers(0, 3))) for _ in shape]
    if len(shape) == 5:
        amounts[draw(st.integers(1, 4))] = (0, 0)
    result = tuple(extent + a + b for extent, (a, b) in zip(shape, amounts, strict=True))
    operands = [constant("p", np.array(amounts, np.int32))]
    if draw(st.booleans()):
        value = np.array([draw(st.integers(-128, 127))], np.int8)
        operands.append(constant("v", value, oracle.activation("x", shape, *QUANT).quant))
    return _one("pad" if len(operands) == 1 else "padv2", shape, result, operands)


@st.composite
def slices(draw: st.DrawFn) -> Graph:
    shape = _shape(draw, 5)
    begin = [draw(st.integers(0, extent - 1)) for extent in shape]
    size = [draw(st.integers(1, extent - first)) for extent, first in zip(shape, begin, strict=True)]
    operands = [constant("b", np.array(begin, np.int32)), constant("s", np.array(size, np.int32))]
    return _one("slice", shape, tuple(size), operands)


@st.composite
def strided_slices(draw: st.DrawFn) -> Graph:
    """Any begin and end that leave something, negative ones and ones behind the end included."""
    shape = _shape(draw, 5)
    rank = draw(st.integers(1, len(shape)))
    attrs = {name: draw(st.integers(0, 2**rank - 1)) for name in ("begin_mask", "end_mask")}
    attrs |= {"shrink_axis_mask": draw(st.sampled_from([0, 0, 1, 2**rank - 1]))}
    attrs |= {"ellipsis_mask": 0, "new_axis_mask": 0}
    begin, end, strides = [], [], []
    for axis in range(rank):
        extent = shape[axis]
        first = draw(st.integers(0, extent - 1))
        last = draw(st.integers(first + 1, extent + 2))
        begin.append(first - extent if draw(st.booleans()) else first)
        end.append(last - extent if last < extent and draw(st.booleans()) else last)
        strides.append(1 if attrs["shrink_axis_mask"] >> axis & 1 else draw(st.integers(1, 3)))
    attrs["begin_mask"] &= ~attrs["shrink_axis_mask"]
    operands = [constant(n, np.array(v, np.int32)) for n, v in (("b", begin), ("e", end), ("s", strides))]
    made = _one("strided_slice", shape, (1,), operands, offset=False, **attrs)
    (result,) = BY_NAME["strided_slice"].shape(made, made.nodes[0])
    return _one("strided_slice", shape, result, operands, offset=False, **attrs)


@st.composite
def transposes(draw: st.DrawFn) -> Graph:
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=6)))
    if len(shape) < 4 and draw(st.booleans()):
        shape = tuple(extent * 15 for extent in shape)
    order = draw(st.permutations(range(len(shape))))
    result = tuple(shape[axis] for axis in order)
    return _one("transpose", shape, result, [constant("p", np.array(order, np.int32))])


@st.composite
def resizes(draw: st.DrawFn) -> Graph:
    height, width = draw(st.integers(1, 7)), draw(st.integers(1, 7))
    size = (draw(st.integers(1, 15)), draw(st.integers(1, 15)))
    channels = draw(st.sampled_from([1, 5, 35]))
    operands = [constant("s", np.array(size, np.int32))]
    op = draw(st.sampled_from(["resize_nearest_neighbor", "resize_bilinear"]))
    align, half = draw(st.booleans()), draw(st.booleans())
    half &= op == "resize_nearest_neighbor" or not align
    return _one(
        op, (2, height, width, channels), (2, *size, channels), operands, align_corners=align, half_pixel_centers=half
    )


@PROPERTY
@given(st.one_of(pads(), slices(), strided_slices(), transposes(), resizes()), st.integers(0, 2**31))
def test_bit_exact_in_any_windows(graph: Graph, seed: int) -> None:
    node = graph.nodes[0]
    if reject(graph, node) is None:
        element_calls.assert_bit_exact(graph, seed)
    else:
        assert node.op in ("pad", "padv2")


@st.composite
def concatenations(draw: st.DrawFn) -> Graph:
    shape = _shape(draw, 5)
    axis = draw(st.integers(0, len(shape) - 1))
    lengths = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    shapes = [(*shape[:axis], length, *shape[axis + 1 :]) for length in lengths]
    pieces = [oracle.activation(f"x{i}", piece, *QUANT) for i, piece in enumerate(shapes)]
    others = [oracle.activation("y", (*shape[:axis], sum(lengths), *shape[axis + 1 :]), *QUANT)]
    if len(pieces) > 1 and draw(st.booleans()):
        last = pieces.pop()
        data = np.arange(math.prod(last.shape)).reshape(last.shape).astype(np.int8)
        others.append(constant(last.name, data, last.quant))
    names = [f"x{i}" for i in range(len(lengths))]
    attrs = {"axis": axis - draw(st.sampled_from([0, len(shape)])), "activation": "NONE"}
    return oracle.graph_of(pieces, [Node("concatenation", tuple(names), ("y",), attrs)], others)


@PROPERTY
@given(concatenations(), st.integers(0, 1000))
def test_concatenations_are_bit_exact(graph: Graph, seed: int) -> None:
    oracle.assert_bit_exact(graph, (seed,))


def test_a_transposition_of_six_axes_becomes_few_calls() -> None:
    shape, order = (2, 3, 1, 4, 2, 3), (5, 4, 2, 3, 1, 0)
    pitches = row_major(shape)
    extents = tuple(shape[axis] for axis in order)
    walks = {"input": Walk("x", tuple(pitches[axis] for axis in order)), "output": Walk("y", row_major(extents))}
    made = list(boxes(extents, walks))
    # Without the axis of one element five are left; the outermost becomes three calls.
    assert [views["output"].extents for views in made] == [(2, 4, 3, 2)] * 3
    assert [views["output"].offset for views in made] == [0, 48, 96]
    assert [views["input"].offset for views in made] == [0, 1, 2]


@given(st.lists(st.integers(1, 4), min_size=1, max_size=6), st.randoms(use_true_random=False))
@settings(derandomize=True, deadline=None, max_examples=200, database=None)
def test_boxes_walk_every_element_once_in_step(extents: list[int], random: object) -> None:
    order = list(range(len(extents)))
    random.shuffle(order)  # type: ignore[attr-defined]
    packed = row_major([extents[axis] for axis in order])
    pitches = tuple(packed[order.index(axis)] for axis in range(len(extents)))
    values = np.arange(math.prod(extents)).astype(np.int32)
    got = np.full(values.size, -1, np.int32)
    for views in boxes(extents, {"input": Walk("x", pitches), "output": Walk("y", row_major(extents))}):
        source, result = (
            np.lib.stride_tricks.as_strided(flat[view.offset :], view.extents, [4 * pitch for pitch in view.pitches])
            for flat, view in ((values, views["input"]), (got, views["output"]))
        )
        assert np.all(result == -1)
        result[...] = source
    want = np.lib.stride_tricks.as_strided(values, extents, [4 * pitch for pitch in pitches])
    np.testing.assert_array_equal(got, np.ascontiguousarray(want).reshape(-1))


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("half_pixel_centers", [False, True])
def test_nearest_neighbors_for_many_sizes(align_corners: bool, half_pixel_centers: bool) -> None:
    for inputs in (1, 2, 3, 5, 8, 13, 31, 96):
        for outputs in (1, 2, 3, 5, 7, 8, 16, 31, 97, 224):
            positions = np.arange(inputs, dtype=np.int8).reshape(1, inputs, 1, 1)
            size = constant("s", np.array([outputs, 1], np.int32))
            graph = _one(
                "resize_nearest_neighbor", (1, inputs, 1, 1), (1, outputs, 1, 1), [size],
                align_corners=align_corners, half_pixel_centers=half_pixel_centers,
            )  # fmt: skip
            (want,) = oracle.reference_outputs(graph, [positions])
            got = nearest_neighbors(inputs, outputs, align_corners, half_pixel_centers)
            np.testing.assert_array_equal(got, want.reshape(-1), f"{inputs} to {outputs}")


@pytest.mark.parametrize(("align_corners", "half_pixel_centers"), [(False, False), (True, False), (False, True)])
def test_bilinear_resizes_of_many_sizes(align_corners: bool, half_pixel_centers: bool) -> None:
    random = np.random.default_rng(3)
    for inputs in (1, 2, 3, 5, 8, 13, 31, 96):
        for outputs in (1, 2, 3, 5, 7, 8, 16, 31, 97, 224):
            sizes = (inputs, outputs), random.choice([1, 2, 7, 12], 2).tolist()
            size = constant("s", np.array([outputs, sizes[1][1]], np.int32))
            graph = _one(
                "resize_bilinear", (1, inputs, sizes[1][0], 3), (1, outputs, sizes[1][1], 3), [size],
                align_corners=align_corners, half_pixel_centers=half_pixel_centers,
            )  # fmt: skip
            if reject(graph, graph.nodes[0]) is not None:
                assert outputs >= 28 * inputs
                continue
            oracle.assert_bit_exact(graph, (outputs,))


def test_resize_bilinear_says_what_it_can_not_take() -> None:
    size = constant("s", np.array([2000, 1], np.int32))
    graph = _one(
        "resize_bilinear", (1, 1, 1, 3), (1, 2000, 1, 3), [size], align_corners=False, half_pixel_centers=False
    )
    assert reject(graph, graph.nodes[0]) == (
        "its 2000 output rows reach input position 1 of 1, because LiteRT rounds their step to 1/1024; "
        "it reads outside the input there"
    )
    size = constant("s", np.array([2, 2], np.int32))
    graph = _one("resize_bilinear", (1, 1, 1, 3), (1, 2, 2, 3), [size], align_corners=True, half_pixel_centers=True)
    assert reject(graph, graph.nodes[0]) == (
        "it has both align_corners and half_pixel_centers; LiteRT takes one of them"
    )


def test_a_large_transposition_is_bit_exact() -> None:
    shape = (1, 67, 71, 33)
    graph = _one("transpose", shape, (1, 33, 67, 71), [constant("p", np.array([0, 3, 1, 2], np.int32))])
    oracle.assert_bit_exact(graph)


def test_pad_says_which_axes_it_can_not_pad() -> None:
    amounts = constant("p", np.ones((5, 2), np.int32))
    graph = _one("pad", (1, 2, 1, 2, 1), (3, 4, 3, 4, 3), [amounts])
    assert reject(graph, graph.nodes[0]) == "it pads 5 axes that can't be merged; at most 4"
