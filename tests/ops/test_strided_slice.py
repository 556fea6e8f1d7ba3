# SPDX-License-Identifier: BSD-3-Clause
"""STRIDED_SLICE: positions that drop an axis, an ellipsis, new axes, and negative steps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from openneutron.ir import Graph, Node, constant
from openneutron.ir.graph import DType, Tensor
from openneutron.ops import BY_NAME, reject
from tests.support import oracle


def one_row(begin: int) -> Graph:
    """Return a graph that takes a row of a [4, 3] input, without its axis."""
    masks = {"begin_mask": 0, "end_mask": 0, "ellipsis_mask": 0, "new_axis_mask": 0, "shrink_axis_mask": 1, "offset": False}  # fmt: skip
    box = [constant(name, np.array(value, np.int32)) for name, value in (("b", [begin, 0]), ("e", [begin + 1, 3]), ("s", [1, 1]))]  # fmt: skip
    node = Node("strided_slice", ("x", "b", "e", "s"), ("y",), masks)
    return oracle.graph_of([oracle.activation("x", (4, 3))], [node], [*box, oracle.activation("y", (3,))])


@pytest.mark.parametrize("begin", [0, 3, -1, -4, -9])
def test_a_position_of_the_axis_equals_litert(begin: int) -> None:
    oracle.assert_bit_exact(one_row(begin))


@pytest.mark.parametrize("begin", [4, 9])
def test_a_position_behind_the_axis_is_a_reason(begin: int) -> None:
    graph = one_row(begin)
    assert reject(graph, graph.nodes[0]) == (
        "it takes one position of axis 0, from behind its 4; LiteRT reads outside the input there"
    )


MASKS = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")


def slice_of(
    shape: tuple[int, ...], begin: list[int], end: list[int], steps: list[int], dtype: DType = DType.INT8, **masks: int
) -> Graph:
    """Return a graph of one STRIDED_SLICE, with the shape of its row's rule."""
    made = {"int8": oracle.activation, "int16": oracle.wide_activation}[str(dtype)]
    source = made("x", shape)
    box = [constant(name, np.array(values, np.int32)) for name, values in zip("bes", (begin, end, steps), strict=True)]
    node = Node("strided_slice", ("x", "b", "e", "s"), ("y",), dict.fromkeys(MASKS, 0) | {"offset": False} | masks)
    unknown = oracle.graph_of([source], [node], [*box, made("y", ())])
    (result,) = BY_NAME["strided_slice"].shape(unknown, node)
    return oracle.graph_of([source], [node], [*box, Tensor("y", result, dtype, source.quant)])


@st.composite
def slices(draw: st.DrawFn) -> Graph:
    shape = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=4)))
    kinds = [draw(st.sampled_from(("range", "back", "one"))) for _ in shape]
    if draw(st.booleans()):
        kinds.insert(draw(st.integers(0, len(kinds))), "new")
    if draw(st.booleans()):
        first = draw(st.integers(0, len(kinds) - 1))
        kinds[first : first + draw(st.integers(0, 2))] = ["ellipsis"]
    begin, end, steps, masks, axis = [], [], [], dict.fromkeys(MASKS, 0), 0
    random = np.random.default_rng(draw(st.integers(0, 2**31)))
    for place, kind in enumerate(kinds):
        extent = shape[min(axis, len(shape) - 1)]
        low, high = np.sort(random.integers(0, extent + 1, 2)).tolist()
        begin.append(low if low < high else 0)
        end.append(high if low < high else extent)
        steps.append(int(random.integers(1, 4)))
        if kind == "back":
            begin[-1], end[-1], steps[-1] = end[-1] - 1, begin[-1] - 1 - (extent if begin[-1] == 0 else 0), -steps[-1]
        if kind == "one":
            begin[-1], steps[-1] = int(random.integers(-extent, extent)), 1
            masks["shrink_axis_mask"] |= 1 << place
        elif kind in ("range", "back"):
            masks["begin_mask"] |= int(random.random() < 0.3) << place
            masks["end_mask"] |= int(random.random() < 0.3) << place
        masks["new_axis_mask"] |= int(kind == "new") << place
        masks["ellipsis_mask"] |= int(kind == "ellipsis") << place
        axis += kind != "new"
    return slice_of(shape, begin, end, steps, draw(st.sampled_from(oracle.data_types())), **masks)


@settings(max_examples=60, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None)
@given(slices())
def test_random_slices_are_litert_s(graph: Graph) -> None:
    if 0 not in graph["y"].shape and reject(graph, graph.nodes[0]) is None:
        oracle.assert_bit_exact(graph, (0,))


@pytest.mark.parametrize(
    ("graph", "shape"),
    [
        (slice_of((1, 4, 5, 3), [0, 0], [0, 2], [1, 1], ellipsis_mask=1), (1, 4, 5, 2)),
        (slice_of((4, 5, 3), [1, 0, 1], [2, 0, 3], [1, 1, 1], ellipsis_mask=2, shrink_axis_mask=1), (5, 2)),
        (slice_of((4, 5), [0, 0, 1], [0, 0, 3], [1, 1, 1], new_axis_mask=1, end_mask=2, begin_mask=2), (1, 4, 2)),
        (slice_of((4, 5), [0, 0, 0], [0, 0, 0], [1, 1, -1], new_axis_mask=2, begin_mask=5, end_mask=5), (4, 1, 5)),
        pytest.param(slice_of((7,), [5], [-8], [-2], DType.INT16), (3,), marks=pytest.mark.int16),
    ],
)
def test_masks_and_steps_backwards_are_litert_s(graph: Graph, shape: tuple[int, ...]) -> None:
    assert graph["y"].shape == shape
    oracle.assert_bit_exact(graph, (0,))


@pytest.mark.parametrize(
    ("graph", "reason"),
    [
        (slice_of((4, 5), [0], [2], [-1], shrink_axis_mask=1), "its steps are [-1]; the step of a dropped axis must be above 0"),
        (slice_of((4, 5), [0, 0, 0], [2, 2, 2], [1, 1, 1]), "it states 3 axes; its input has only rank 2"),
        (slice_of((4, 5), [0, 0], [2, 2], [1, 1], ellipsis_mask=3), "its ellipsis_mask is 3; at most one bit may be set"),
        (slice_of((4,), [0] * 6, [1] * 6, [1] * 6, new_axis_mask=31), "it has 6 axes, new ones included; at most 5"),
    ],
)  # fmt: skip
def test_other_slices_are_refused(graph: Graph, reason: str) -> None:
    assert reject(graph, graph.nodes[0]) == reason
