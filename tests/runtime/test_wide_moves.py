# SPDX-License-Identifier: BSD-3-Clause
"""Operators that move int16 activations, against LiteRT's reference kernels: alone, and in graphs with sums and budgets."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from openneutron.compiler import CompileOptions, compile_graph
from openneutron.compiler.legalize.legalize import legalize
from openneutron.compiler.rewrite.passes import select_calls, selections
from openneutron.compiler.select.select import select_node
from openneutron.ir import DType, Graph, Node, Tensor, constant, per_tensor
from openneutron.ir.graph import AttrValue
from openneutron.ops import BY_NAME, reject
from openneutron.ops.limits import STORED
from tests.support import oracle, random_graphs
from tests.support.widened import widened

pytestmark = pytest.mark.int16

MOVERS = [
    *("reshape", "squeeze", "expand_dims", "pad", "padv2", "concatenation", "slice", "strided_slice", "transpose"),
    *("gather", "mirror_pad", "reverse_v2", "tile", "broadcast_to", "resize_nearest_neighbor", "resize_bilinear"),
    *("split", "split_v", "unpack", "pack", "space_to_batch_nd", "batch_to_space_nd", "gather_nd", "embedding_lookup"),
    *("dynamic_update_slice", "matrix_diag", "dilate", "fill"),
]
WIDE = oracle.wide_activation


def _sampled(op: str, seed: int) -> Graph | None:
    """A graph of this operator on int16; None where another operator in it has no int16 kernel."""
    graph = widened(random_graphs.single(op, seed))
    reasons = [reject(graph, node) for node in graph.nodes if node.op == op]
    assert reasons == [None] * len(reasons), graph
    return None if any(reject(graph, node) for node in graph.nodes) else graph


@pytest.mark.parametrize("op", MOVERS)
def test_bit_exact(op: str) -> None:
    assert DType.INT16 in BY_NAME[op].types
    graphs = [graph for seed in range(8) if (graph := _sampled(op, seed)) is not None]
    assert len(graphs) >= 3
    for seed, graph in enumerate(graphs):
        oracle.assert_bit_exact(graph, (seed,))


SUMS = {f"add {number}": random_graphs.SAMPLERS["add"] for number in range(6)}


@pytest.mark.parametrize("seed", range(12))
def test_graphs_of_moves_and_sums_at_budgets(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    movers = {op: random_graphs.SAMPLERS[op] for op in MOVERS if op not in ("matrix_diag", "embedding_lookup", "fill")}
    monkeypatch.setattr(random_graphs, "SAMPLERS", movers | SUMS)
    graph = widened(random_graphs.several(seed, most=8))
    assert not any(reject(graph, node) for node in graph.nodes)
    inputs = oracle.random_inputs(graph, seed)
    want = oracle.reference_outputs(graph, inputs)
    whole = compile_graph(graph, oracle.TARGET)
    for got, expected in zip(oracle.simulated_outputs(whole, inputs), want, strict=True):
        np.testing.assert_array_equal(got, expected)
    least = oracle.least_budget(graph)
    # A search for tiles names a size of a list, which may be more than a schedule takes.
    for budget in {least, max(least, (least + whole.report.sram_bytes) // 2)}:
        oracle.assert_fits_and_is_exact(graph, CompileOptions(sram_budget=budget), inputs, want)


def _sum(a: str, b: str, result: str) -> Node:
    return Node("add", (a, b), (result,), {"activation": "NONE", "pot_scale_int16": False})


def _dense_block(make: Callable[[str, tuple[int, ...]], Tensor]) -> Graph:
    """A slice of rows, sums of the slice and of both, and a concatenation of the sums' channels."""
    shape, joined = (1, 8, 6, 8), (1, 8, 6, 16)
    tensors = [make(name, shape) for name in ("rows", "twice", "more")] + [make("y", joined)]
    numbers = [constant("begin", np.array([0, 2, 0, 0], np.int32)), constant("size", np.array(shape, np.int32))]
    nodes = [
        Node("slice", ("x", "begin", "size"), ("rows",)),
        _sum("rows", "rows", "twice"),
        _sum("twice", "twice", "more"),
        Node("concatenation", ("twice", "more"), ("y",), {"axis": 3, "activation": "NONE"}),
    ]
    return oracle.graph_of([make("x", (1, 12, 6, 8))], nodes, [*numbers, *tensors])


def test_copies_between_sums_go_away_as_on_int8() -> None:
    wide, narrow = (legalize(_dense_block(kind)) for kind in (WIDE, oracle.activation))
    (_, first), (_, second) = selections(wide)
    assert [call.kernel for call in first] == ["add_s16", "add_s16"]
    assert [call.kernel for call in second] == ["add_s16", "add_s16", "copy_s8"]
    assert [[call.name for call in calls] for _, calls in selections(narrow)] == [
        [call.name for call in calls] for calls in (first, second)
    ]
    assert str(first[0].views["input_a"]) == "%x[1x8x6x8] of 2 B@192 pitch (1152, 96, 16, 2)"
    assert str(first[1].views["output"]) == "%y[1x8x6x8] of 2 B@16 pitch (1536, 192, 32, 2)"
    oracle.assert_bit_exact(_dense_block(WIDE))


def _padded_sums(make: Callable[[str, tuple[int, ...]], Tensor]) -> Graph:
    """A sum, a pad, a sum and a slice of channels."""
    shape, padded, taken = (1, 64, 8, 16), (1, 66, 10, 16), (1, 66, 10, 5)
    numbers = [
        constant("amounts", np.array([[0, 0], [1, 1], [1, 1], [0, 0]], np.int32)),
        constant("begin", np.array([0, 0, 0, 3], np.int32)),
        constant("size", np.array(taken, np.int32)),
    ]
    nodes = [
        _sum("x", "x", "a"),
        Node("pad", ("a", "amounts"), ("b",)),
        _sum("b", "b", "c"),
        Node("slice", ("c", "begin", "size"), ("y",)),
    ]
    tensors = [make("a", shape), make("b", padded), make("c", padded), make("y", taken)]
    return oracle.graph_of([make("x", shape)], nodes, [*numbers, *tensors])


def test_a_cascade_goes_through_copies_of_bytes_in_twice_the_memory_of_int8() -> None:
    graph = _padded_sums(WIDE)
    least = oracle.least_budget(graph)
    assert least <= 2 * oracle.least_budget(_padded_sums(oracle.activation))
    assert least < compile_graph(graph, oracle.TARGET).report.sram_bytes // 2
    inputs = oracle.random_inputs(graph, 1)
    want = oracle.reference_outputs(graph, inputs)
    oracle.assert_fits_and_is_exact(graph, CompileOptions(sram_budget=least), inputs, want)


def _pad_with(value: int) -> Graph:
    amounts = constant("p", np.array([[0, 0], [1, 0], [0, 2], [0, 0]], np.int32))
    filler = constant("v", np.array([value], np.int16), per_tensor(1e-3, 0))
    node = Node("padv2", ("x", "p", "v"), ("y",))
    return oracle.graph_of([WIDE("x", (1, 3, 4, 5))], [node], [amounts, filler, WIDE("y", (1, 4, 6, 5))])


def test_elements_that_are_not_side_by_side_take_few_calls() -> None:
    begin = [constant(name, np.array(values, np.int32)) for name, values in (("b", [0] * 4), ("e", [9, 6, 6, 6]))]
    strides = constant("s", np.array([1, 2, 2, 3], np.int32))
    attrs = dict.fromkeys(("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask"), 0)
    node = Node("strided_slice", ("x", "b", "e", "s"), ("y",), {**attrs, "offset": False})
    strided = oracle.graph_of([WIDE("x", (9, 7, 6, 6))], [node], [*begin, strides, WIDE("y", (9, 3, 3, 2))])
    counts = constant("n", np.array([1, 2, 1, 2], np.int32))
    tile = Node("tile", ("x", "n"), ("y",))
    tiled = oracle.graph_of([WIDE("x", (3, 5, 6, 4))], [tile], [counts, WIDE("y", (3, 10, 6, 8))])
    order = constant("p", np.array([3, 2, 4, 1, 0], np.int32))
    turned = oracle.graph_of(
        [WIDE("x", (3, 4, 5, 6, 1))], [Node("transpose", ("x", "p"), ("y",))], [order, WIDE("y", (6, 5, 1, 4, 3))]
    )
    kernels = (["copy_s16"], ["resize_nearest_neighbor_s8"] * 2, ["copy_s16"])
    for graph, names in zip((strided, tiled, turned), kernels, strict=True):
        assert [call.kernel for call in select_node(graph, graph.nodes[0])] == names
        oracle.assert_bit_exact(graph)


def test_a_transposed_input_keeps_its_rows() -> None:
    order = constant("p", np.array([0, 2, 3, 1], np.int32))
    node = Node("transpose", ("x", "p"), ("y",))
    graph = oracle.graph_of([WIDE("x", (1, 3, 8, 5))], [node], [order, WIDE("y", (1, 8, 5, 3))])
    (call,) = select_node(graph, node)
    assert str(call) == ("copy_s16(input=%x[1x8x5x3] of 2 B@0 pitch (80, 10, 2, 80), output=%y[1x8x5x3] of 2 B) ; y")
    oracle.assert_bit_exact(graph)


def test_a_padding_value_of_two_different_bytes_takes_two_calls() -> None:
    for value, count in ((0, 1), (-1, 1), (0x0101, 1), (-32768, 2), (255, 2), (32767, 2)):
        graph = _pad_with(value)
        assert len(select_node(graph, graph.nodes[0])) == count
        oracle.assert_bit_exact(graph)


def test_a_sum_with_zeros_costs_nothing() -> None:
    zeros = constant("z", np.zeros((1, 4), np.int16), per_tensor(5e-4, 0))
    graph = oracle.graph_of([WIDE("x", (3, 4))], [_sum("x", "z", "y")], [zeros, WIDE("y", (3, 4))])
    assert [call.kernel for call in select_calls(legalize(graph))[1]] == ["copy_s8"]
    oracle.assert_bit_exact(graph)


def test_a_concatenation_copies_stored_values_whatever_their_scales() -> None:
    inputs = [WIDE("a", (2, 3)), WIDE("b", (2, 2), 7e-3)]
    node = Node("concatenation", ("a", "b"), ("y",), {"axis": 1, "activation": "NONE"})
    oracle.assert_bit_exact(oracle.graph_of(inputs, [node], [WIDE("y", (2, 5), 2e-3)]))


@pytest.mark.parametrize("other", [DType.INT8, DType.INT32, DType.INT64])
def test_casts_to_and_from_int16(other: DType) -> None:
    for before, after in ((DType.INT16, other), (other, DType.INT16)):
        source, result = Tensor("x", (3, 5), before), Tensor("y", (3, 5), after)
        graph = oracle.graph_of([source], [Node("cast", ("x",), ("y",))], [result])
        data = np.random.default_rng(1).integers(-(2**15), 2**15, (3, 5)).astype(before.numpy)
        (want,) = oracle.reference_outputs(graph, [data])
        (got,) = oracle.simulated_outputs(compile_graph(graph, oracle.TARGET), [data])
        np.testing.assert_array_equal(got, want)


def _reason(
    op: str, given: list[Tensor], result: Tensor, others: Sequence[Tensor] = (), **attrs: AttrValue
) -> str | None:
    names = tuple(tensor.name for tensor in (*given, *others))
    graph = oracle.graph_of(given, [Node(op, names, ("y",), attrs)], [*others, result])
    return reject(graph, graph.nodes[0])


def test_refusals() -> None:
    x, y = WIDE("x", (1, 4, 4, 4)), WIDE("y", (1, 8, 8, 1))
    assert STORED == (DType.INT8, DType.INT16)
    assert _reason("depth_to_space", [x], y, block_size=2) == "input 'x' is int16; this operator computes on int8"
    assert _reason("reshape", [x], WIDE("y", (64,), 2e-3), new_shape=(64,)) == (
        "input 'x' has scale=0.001 zp=0, the output scale=0.002 zp=0; they must be the same"
    )
    assert _reason("concatenation", [x, oracle.activation("z", (1, 4, 4, 4))], WIDE("y", (1, 4, 4, 8)), axis=3) == (
        "'x' is int16, 'z' is int8; its inputs and output must have one type"
    )
    shifted = Tensor("x", (1, 4, 4, 4), DType.INT16, per_tensor(1e-3, 1))
    assert _reason("reshape", [shifted], WIDE("y", (64,)), new_shape=(64,)) == (
        "input 'x' has zero point 1; int16 has 0 alone"
    )
    others = [constant("p", np.zeros((4, 2), np.int32)), constant("v", np.array([3], np.int8))]
    assert _reason("padv2", [x], WIDE("y", (1, 4, 4, 4)), others) == (
        "its padding value is int8 [1]; it must be one int16"
    )


def test_a_slice_of_one_channel_of_more_than_four_axes_is_copied() -> None:
    window = [constant(name, np.array(v, np.int32)) for name, v in (("b", [0, 1, 0, 2, 3]), ("n", [2, 1, 8, 3, 1]))]
    node = Node("slice", ("x", "b", "n"), ("y",))
    graph = oracle.graph_of([WIDE("x", (2, 2, 8, 6, 8))], [node], [*window, WIDE("y", (2, 1, 8, 3, 1))])
    assert [call.kernel for call in select_node(graph, node)] == ["copy_s16"]
    oracle.assert_bit_exact(graph)
