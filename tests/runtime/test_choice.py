# SPDX-License-Identifier: BSD-3-Clause
"""Comparisons, truth values, choices, positions of extrema and computed indices against LiteRT's reference kernels."""

from __future__ import annotations

import numpy as np
import pytest

from openneutron.device.simulator import Simulator
from openneutron.errors import DriverError
from openneutron.ir import DType, Graph, Node, Tensor, constant
from openneutron.ir.graph import AttrValue
from openneutron.ops import reject
from openneutron.ops.elementwise import COMPARISONS
from tests.runtime import element_calls
from tests.support import oracle, random_graphs
from tests.support.altered_programs import CODES


@pytest.mark.parametrize(
    "op", [*COMPARISONS, "logical_and", "logical_not", "select_v2", "arg_max", "arg_min", "gather"]
)
def test_bit_exact_in_any_windows(op: str) -> None:
    for seed in range(100, 115):
        graph = random_graphs.single(op, seed)
        if len(graph.nodes) == 1:
            element_calls.assert_bit_exact(graph, seed)


@pytest.mark.parametrize("scale", [0.999, 0.0123, 1 / 256, 1 / 512, 1e-3, 1e-12])
@pytest.mark.parametrize("op", COMPARISONS)
def test_every_pair_of_values_compares_as_in_litert(op: str, scale: float) -> None:
    zero_points = {0.999: (-128, 127), 0.0123: (3, -7)}.get(scale, (0, 0))
    x, y = (oracle.activation(n, s, scale, z) for n, s, z in zip("xy", ((256, 1), (1, 256)), zero_points, strict=True))
    graph = oracle.graph_of([x, y], [Node(op, ("x", "y"), ("z",))], [Tensor("z", (256, 256), DType.BOOL)])
    inputs = [np.arange(-128, 128).astype(np.int8).reshape(shape) for shape in (x.shape, y.shape)]
    (got,) = oracle.simulated_outputs(oracle.compile_graph(graph, oracle.TARGET), inputs)
    np.testing.assert_array_equal(got, oracle.reference_outputs(graph, inputs)[0])
    if scale == 1 / 512 and op == "less":
        assert not got[129, 130], "steps of 1/256 hold neighbours of a smaller scale together"


def _table(dtype: DType) -> Graph:
    node = Node("gather", ("x", "i"), ("y",), {"axis": 0, "batch_dims": 0})
    others = [oracle.activation("y", (2, 3))]
    return oracle.graph_of([oracle.activation("x", (5, 3)), Tensor("i", (2,), dtype)], [node], others)


@pytest.mark.parametrize("dtype", [DType.INT32, DType.INT64])
def test_indices_below_0_count_from_the_end(dtype: DType) -> None:
    graph, x = _table(dtype), np.arange(15).astype(np.int8).reshape(5, 3)
    compiled = oracle.compile_graph(graph, oracle.TARGET)
    for index in range(-5, 5):
        (got,) = oracle.simulated_outputs(compiled, [x, np.array([index, 4], dtype.numpy)])
        np.testing.assert_array_equal(got, x[[index, 4]])


@pytest.mark.parametrize("dtype", [DType.INT32, DType.INT64])
@pytest.mark.parametrize("index", [5, -6, 2**31 - 1, -(2**31), 2**32, 2**63 - 1, -(2**63)])
def test_an_index_outside_the_axis_ends_the_run(dtype: DType, index: int) -> None:
    if index not in range(-(2**31), 2**31) and dtype is DType.INT32:
        return
    compiled = oracle.compile_graph(_table(dtype), oracle.TARGET)
    inputs = [np.zeros((5, 3), np.int8), np.array([1, index], dtype.numpy)]
    with Simulator(compiled.program) as simulator:
        with pytest.raises(DriverError) as refused:
            simulator.run(inputs)
        assert refused.value.code == CODES["INDEX"]
        assert str(refused.value) == (
            "run: the driver says that an index that was given or computed is outside the tensor that it takes values from; "
            f"error 0x{CODES['INDEX']:x}."
        )
        simulator.run([inputs[0], np.array([1, 2], dtype.numpy)])


@pytest.mark.parametrize("dtype", [DType.INT32, DType.INT64, DType.BOOL])
def test_integers_and_truth_values_move(dtype: DType) -> None:
    nodes = [
        Node("transpose", ("x", "p"), ("t",)),
        Node("reshape", ("t", "s"), ("y",), {"new_shape": (4, 6)}),
        Node("reshape", ("x", "s"), ("z",), {"new_shape": (4, 6)}),
    ]
    others = [constant("p", np.array([2, 0, 1], np.int32)), constant("s", np.array([4, 6], np.int32))]
    others += [Tensor(name, shape, dtype) for name, shape in (("t", (4, 2, 3)), ("y", (4, 6)), ("z", (4, 6)))]
    graph = oracle.graph_of([Tensor("x", (2, 3, 4), dtype)], nodes, others, ["y", "t", "z"])
    oracle.assert_bit_exact(graph)


def _node(op: str, operands: list[Tensor], result: Tensor, **attrs: AttrValue) -> tuple[Graph, Node]:
    node = Node(op, tuple(tensor.name for tensor in operands), (result.name,), attrs)
    given = [tensor for tensor in operands if not tensor.is_constant]
    others = [tensor for tensor in operands if tensor.is_constant]
    return oracle.graph_of(given, [node], [*others, result]), node


def test_what_can_not_be_taken_is_said() -> None:
    x, y = oracle.activation("x", (2, 3)), oracle.activation("y", (2, 3), 1.5)
    truth = Tensor("z", (2, 3), DType.BOOL)
    assert reject(*_node("less", [x, y], truth)) == "input 'y' has scale 1.5; LiteRT compares for scales below 1"
    long = [oracle.activation(name, (2, 1, 1, 1, last)) for name, last in (("x", 1), ("y", 3))]
    result = Tensor("z", (2, 1, 1, 1, 3), DType.BOOL)
    assert reject(*_node("less", long, result)) == "it broadcasts at rank 5; at most 4, as in LiteRT"
    bools = [Tensor(name, (2, 3), DType.BOOL) for name in "xy"]
    assert reject(*_node("less", bools, truth)) == "input 'x' is bool; the NPU computes on int8"
    assert reject(*_node("equal", [x, bools[1]], truth)) == "its inputs are int8 and bool; they must be of one type"
    other = oracle.activation("y", (2, 3), 0.1)
    assert reject(*_node("select_v2", [Tensor("c", (2, 3), DType.BOOL), x, other], oracle.activation("z", (2, 3)))) == (
        "input 'y' has scale=0.1 zp=0, the output scale=0.05 zp=0; they must be the same"
    )
    axis = constant("a", np.array(2, np.int32))
    assert reject(*_node("arg_max", [x, axis], Tensor("z", (2,), DType.INT64), output_type="INT64")) == (
        "it names axis 2 of a tensor of rank 2"
    )
    axis = constant("a", np.array(1, np.int32))
    assert reject(*_node("arg_max", [x, axis], Tensor("z", (2,), DType.INT64), output_type="INT32")) == (
        "its output is int64; its option says INT32"
    )
    indices = Tensor("i", (2,), DType.INT16)
    assert reject(*_node("gather", [x, indices], oracle.activation("z", (2, 3)), axis=0, batch_dims=0)) == (
        "input 'i' is int16; it must be int32 or int64"
    )
    indices = Tensor("i", (3, 2), DType.INT32)
    assert reject(*_node("gather", [x, indices], oracle.activation("z", (2, 2)), axis=1, batch_dims=1)) == (
        "its input has batches [2], its indices [3]"
    )
