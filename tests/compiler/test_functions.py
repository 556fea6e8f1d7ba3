# SPDX-License-Identifier: BSD-3-Clause
"""Chains of operators that compute a function of one byte are one table."""

from __future__ import annotations

import numpy as np
import pytest

from openneutron.compiler import CompileOptions
from openneutron.compiler.rewrite.call_list import Cause
from openneutron.compiler.rewrite.fold import COMBINED
from openneutron.compiler.rewrite.passes import explained
from openneutron.ir import DType, Graph, Node, Tensor, per_tensor
from tests.support import oracle

SHAPE = (1, 4, 8, 8)
EVERY = np.arange(-128, 128, dtype=np.int8).reshape(SHAPE)
"""All values of int8."""

NONE = {"activation": "NONE"}
SIGMOID = (1 / 256, -128)


def value(name: str, stored: int, scale: float, zero: int, shape: tuple[int, ...] = ()) -> Tensor:
    """A constant of one value."""
    return Tensor(name, shape, DType.INT8, per_tensor(scale, zero), np.full(shape, stored, np.int8))


def chain(
    nodes: list[Node], quants: dict[str, tuple[float, int]], *constants: Tensor, outputs: tuple[str, ...] = ()
) -> Graph:
    """A graph of nodes on x, whose results have these scales and zero points."""
    x = oracle.activation("x", SHAPE, 0.05, -9)
    others = [oracle.activation(name, SHAPE, *quant) for name, quant in quants.items()]
    return oracle.graph_of([x], nodes, [*others, *constants], outputs or None)


def silu(outputs: tuple[str, ...] = (), swapped: bool = False, scale: float = 0.03) -> Graph:
    operands = ("s", "x") if swapped else ("x", "s")
    nodes = [Node("logistic", ("x",), ("s",)), Node("mul", operands, ("y",), NONE)]
    return chain(nodes, {"s": SIGMOID, "y": (scale, -100)}, outputs=outputs)


def hard_swish() -> Graph:
    """x * (relu6(x + 3) * 1/6)."""
    nodes = [
        Node("add", ("x", "three"), ("a",), {"activation": "RELU6"}),
        Node("mul", ("a", "sixth"), ("h",), NONE),
        Node("mul", ("x", "h"), ("y",), NONE),
    ]
    quants = {"a": (6 / 255, -128), "h": (1 / 255, -128), "y": (0.04, -100)}
    return chain(nodes, quants, value("three", 127, 3 / 127, 0), value("sixth", 127, 1 / 6 / 127, 0))


def gelu() -> Graph:
    """x * (tanh(x * x * x) + 1) / 2, with a cube of two products."""
    nodes = [
        Node("mul", ("x", "x"), ("square",), NONE),
        Node("mul", ("x", "square"), ("cube",), NONE),
        Node("tanh", ("cube",), ("t",)),
        Node("add", ("t", "one"), ("u",), NONE),
        Node("mul", ("x", "u"), ("v",), NONE),
        Node("mul", ("v", "half"), ("y",), NONE),
    ]
    quants = {
        "square": (0.2, -128),
        "cube": (1.5, 3),
        "t": (1 / 128, 0),
        "u": (2 / 255, -128),
        "v": (0.1, -90),
        "y": (0.05, -88),
    }
    return chain(nodes, quants, value("one", 127, 1 / 127, 0, (1,)), value("half", 64, 1 / 128, 0, (1, 1, 1, 1)))


def sum_times_input() -> Graph:
    nodes = [Node("add", ("a", "x"), ("s",), NONE), Node("mul", ("s", "x"), ("y",), NONE)]
    return chain(nodes, {"s": (0.07, 5), "y": (0.4, -60)}, value("a", 90, 0.02, 11, (1, 1)))


def between_bounds() -> Graph:
    """min(max(x, -40), 90) - x."""
    nodes = [
        Node("maximum", ("x", "low"), ("a",)), Node("minimum", ("high", "a"), ("b",)), Node("sub", ("b", "x"), ("y",), NONE),
    ]  # fmt: skip
    quants = {"a": (0.05, -9), "b": (0.05, -9), "y": (0.06, 3)}
    return chain(nodes, quants, value("low", -40, 0.05, -9), value("high", 90, 0.05, -9))


def after_another_scale() -> Graph:
    """The sigmoid reads x at another scale, and the table before both belongs to the chain."""
    nodes = [
        Node("hard_swish", ("x",), ("e",)), Node("quantize", ("e",), ("q",)), Node("logistic", ("q",), ("s",)),
        Node("mul", ("e", "s"), ("y",), NONE), Node("quantize", ("y",), ("z",)),
    ]  # fmt: skip
    return chain(nodes, {"e": (0.06, -40), "q": (0.09, 4), "s": SIGMOID, "y": (0.03, -100), "z": (0.05, 17)})


@pytest.mark.parametrize(
    "graph",
    [silu(), silu(swapped=True), silu(scale=0.0007), hard_swish(), gelu(), sum_times_input(), between_bounds(), after_another_scale()],
    ids=("silu", "swapped", "saturated", "hard_swish", "gelu", "sum_times_input", "between_bounds", "another_scale"),
)  # fmt: skip
def test_a_function_of_one_byte_is_one_table(graph: Graph) -> None:
    compiled = oracle.assert_bit_exact(graph, ())
    assert oracle.kernels_of(compiled) == ["lookup_s8"]
    (found,), (wanted,) = oracle.simulated_outputs(compiled, [EVERY]), oracle.reference_outputs(graph, [EVERY])
    np.testing.assert_array_equal(found, wanted)


def test_a_result_that_others_read_stays() -> None:
    graph = silu(outputs=("s", "y"))
    assert oracle.kernels_of(oracle.assert_bit_exact(graph)) == ["lookup_s8", "mul_s8"]
    found = {each.row.name: each for each in explained(graph, oracle.TARGET, CompileOptions())}
    assert found["functions"].skipped == {Cause.READ_BY_OTHERS: ("y",)}


def test_a_diamond_with_another_reader_stays() -> None:
    """The sum of x and its sigmoid is not read alone: what reads the sigmoid too is no function of it by itself."""
    nodes = [
        Node("logistic", ("x",), ("s",)),
        Node("mul", ("x", "s"), ("y",), NONE),
        Node("add", ("s", "z"), ("w",), NONE),
    ]
    shapes = {"s": SIGMOID, "y": (0.03, -100), "w": (0.03, 0)}
    graph = oracle.graph_of(
        [oracle.activation(name, SHAPE) for name in "xz"],
        nodes,
        [oracle.activation(name, SHAPE, *quant) for name, quant in shapes.items()],
        ("y", "w"),
    )
    assert sorted(oracle.kernels_of(oracle.assert_bit_exact(graph))) == ["add_s8", "lookup_s8", "mul_s8"]


@pytest.mark.parametrize("other", ["tensor", "channels", "reshaped"])
def test_what_is_no_function_of_one_byte_stays(other: str) -> None:
    """Another tensor, a constant for each channel, and the same tensor with its rows exchanged."""
    inputs, others = [oracle.activation("x", SHAPE)], [oracle.activation("s", SHAPE, *SIGMOID)]
    before: list[Node] = []
    if other == "tensor":
        inputs.append(oracle.activation("z", SHAPE))
    elif other == "channels":
        data = np.arange(8, dtype=np.int8)
        others.append(Tensor("z", (8,), DType.INT8, per_tensor(0.05, 0), data))
    else:
        order = Tensor("order", (4,), DType.INT32, None, np.array([0, 1, 3, 2], np.int32))
        others += [order, oracle.activation("z", SHAPE)]
        before = [Node("transpose", ("x", "order"), ("z",))]
    nodes = [*before, Node("logistic", ("x",), ("s",)), Node("mul", ("z", "s"), ("y",), NONE)]
    graph = oracle.graph_of(inputs, nodes, [*others, oracle.activation("y", SHAPE, 0.03, -7)])
    assert "mul_s8" in oracle.kernels_of(oracle.assert_bit_exact(graph))


def test_a_sum_of_tensors_names_its_reason() -> None:
    inputs = [oracle.activation(name, SHAPE) for name in "xz"]
    graph = oracle.graph_of(inputs, [Node("add", ("x", "z"), ("y",), NONE)], [oracle.activation("y", SHAPE, 0.1)])
    found = {each.row.name: each for each in explained(graph, oracle.TARGET, CompileOptions())}
    assert found["functions"].skipped == {Cause.NO_PARTNER: ("y",)}


def test_a_reshape_between_does_not_matter() -> None:
    flat = (1, 256)
    nodes = [
        Node("logistic", ("x",), ("s",)), Node("reshape", ("s", "shape"), ("r",), {"new_shape": flat}),
        Node("reshape", ("x", "shape"), ("v",), {"new_shape": flat}), Node("mul", ("r", "v"), ("y",), NONE),
    ]  # fmt: skip
    others = [
        oracle.activation("s", SHAPE, *SIGMOID), oracle.activation("r", flat, *SIGMOID), oracle.activation("v", flat),
        oracle.activation("y", flat, 0.03, -100), Tensor("shape", (2,), DType.INT32, None, np.array(flat, np.int32)),
    ]  # fmt: skip
    graph = oracle.graph_of([oracle.activation("x", SHAPE)], nodes, others)
    assert oracle.kernels_of(oracle.assert_bit_exact(graph)) == ["lookup_s8"]


_ONE = ("logistic", "tanh", "abs", "relu", "quantize", "hard_swish", "exp")
_TWO = ("add", "sub", "mul", "maximum", "minimum", "squared_difference", "prelu")
_FIXED = {"logistic": SIGMOID, "tanh": (1 / 128, 0)}


def random_chain(seed: int) -> Graph:
    """A chain of two to five operators on x, constants of one value and the results before them."""
    random = np.random.default_rng(seed)
    tensors = {"x": oracle.activation("x", SHAPE, float(random.uniform(0.01, 0.1)), int(random.integers(-128, 128)))}
    nodes: list[Node] = []
    names = ["x"]
    for place in range(int(random.integers(2, 6))):
        op, name = str(random.choice([*_ONE, *_TWO, *_TWO])), f"t{place}"
        quant = _FIXED.get(op, (float(random.uniform(0.02, 0.2)), int(random.integers(-128, 128))))
        operands = (names[-1],)
        if op in _TWO:
            other = str(random.choice([*names, "constant"]))
            if other == "constant":
                other = f"c{place}"
                scale, zero = float(random.uniform(0.005, 0.1)), int(random.integers(-128, 128))
                tensors[other] = value(other, int(random.integers(-128, 128)), scale, zero, (1, 1, 1))
            operands = (names[-1], other) if op == "prelu" or random.random() < 0.5 else (other, names[-1])
        if op in ("maximum", "minimum"):
            # LiteRT compares stored values, so that the three have one scale and zero point.
            shared = tensors[names[-1]].quant
            other = next((each for each in operands if each != names[-1]), names[-1])
            if other in names[:-1]:
                operands = (names[-1], names[-1])
            elif other != names[-1]:
                tensors[other] = Tensor(other, (1, 1, 1), DType.INT8, shared, tensors[other].data)
            assert shared is not None
            quant = (shared.scale, shared.zero_point)
        tensors[name] = oracle.activation(name, SHAPE, *quant)
        attrs = {"activation": str(random.choice(["NONE", "RELU", "RELU6"]))} if op in ("add", "sub", "mul") else {}
        nodes.append(Node(op, operands, (name,), attrs))
        names.append(name)
    used = {name for node in nodes for name in node.inputs if name is not None}
    outputs = tuple(node.name for node in nodes if node.name not in used)
    others = [tensor for name, tensor in tensors.items() if name != "x"]
    return oracle.graph_of([tensors["x"]], nodes, others, outputs)


def test_random_chains_compute_the_bytes_of_litert() -> None:
    reached: set[str] = set()
    for seed in range(24):
        graph = random_chain(seed)
        compiled = oracle.assert_bit_exact(graph, ())
        wanted = oracle.reference_outputs(graph, [EVERY])
        for found, expected in zip(oracle.simulated_outputs(compiled, [EVERY]), wanted, strict=True):
            np.testing.assert_array_equal(found, expected, f"seed {seed}")
        if oracle.kernels_of(compiled) == ["lookup_s8"]:
            reached |= {node.op for node in graph.nodes}
    assert reached >= {*_TWO}, {*_TWO} - reached
    assert len(COMBINED) == 5
