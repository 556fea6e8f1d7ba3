# SPDX-License-Identifier: BSD-3-Clause
"""uint8 models run on the NPU, byte-equal with LiteRT's uint8 reference kernels, with uint8 inputs and outputs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from openneutron import litert
from openneutron.compiler import CompileOptions
from openneutron.compiler.legalize.legalize import parts_of
from openneutron.compiler.legalize.partition import ONLY_VIEWS
from openneutron.device.mixed import CompiledFile, FileSimulator, compile_file
from openneutron.errors import BudgetError
from openneutron.features.report import of_compiled_file
from openneutron.ir import Graph, Node, QuantParams, constant
from openneutron.ops import BY_NAME
from openneutron.ops.rescaling import reciprocal
from tests.support import oracle, random_graphs
from tests.support.litert_files import BUILTIN, FileBuilder
from tests.support.small_graphs import dilated_image
from tests.support.uint8_files import as_uint8, near_a_half, network, with_uint8_weights

UNSIGNED = sorted(name for name, row in BY_NAME.items() if row.unsigned)
ONLY_INT8 = (
    "abs",
    "batch_matmul",
    "elu",
    "exp",
    "log",
    "neg",
    "resize_bilinear",
    "rsqrt",
    "sqrt",
    "squared_difference",
)


def compiled(data: bytes, budget: int | None = None) -> CompiledFile:
    options = CompileOptions(sram_budget=budget, check=True)
    return compile_file(litert.read(data), "model", options, must_delegate=False)


def assert_equal(data: bytes, made: CompiledFile, inputs: list[np.ndarray]) -> None:
    got = FileSimulator(made.to_bytes()).run(inputs)
    for ours, theirs in zip(got, oracle.reference_outputs(data, inputs), strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs, str(made.graph))


def uint8_inputs(graph: Graph, seed: int) -> list[np.ndarray]:
    inputs = oracle.random_inputs(graph, seed)
    return [value.view(np.uint8) if value.dtype == np.int8 else value for value in inputs]


@pytest.mark.parametrize("op", UNSIGNED)
def test_an_operator_equals_its_uint8_kernel(op: str) -> None:
    random = np.random.default_rng(1)
    for seed in range(5):
        graph = with_uint8_weights(random_graphs.single(op, seed), random)
        data = as_uint8(graph)
        made = compiled(data)
        assert {item.reason for item in made.partitioning.on_cpu} <= {ONLY_VIEWS}
        assert_equal(data, made, uint8_inputs(graph, seed))


@pytest.mark.parametrize("op", ONLY_INT8)
def test_an_operator_without_such_a_kernel_stays_on_the_cpu(op: str) -> None:
    made = compiled(as_uint8(random_graphs.single(op, 0)))
    assert made.partitioning.on_cpu[-1].reason == (
        "its tensors are uint8, and LiteRT has no uint8 kernel that computes what its int8 kernel does"
    )


@pytest.mark.parametrize("op", ["CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV"])
def test_results_near_a_half_are_rounded_as_litert_rounds_them(op: str) -> None:
    """Convolutions multiply by the product of two scales in float32, fully connected layers in double."""
    data = near_a_half(op)
    made = compiled(data)
    assert made.partitioning.on_cpu == ()
    (tensor,) = FileSimulator(data).inputs
    x = [np.zeros(tensor.shape, np.uint8)]
    assert set(oracle.reference_outputs(data, x)[0].reshape(-1).tolist()) == {100, 101}
    assert_equal(data, made, x)


def test_a_network_is_one_neutron_graph_with_uint8_inputs_and_outputs() -> None:
    data = network()
    made = compiled(data)
    assert [str(item) for item in made.partitioning.on_cpu] == []
    after = litert.read(made.to_bytes()).graph
    assert [str(after[name]) for name in (*after.inputs, *after.outputs)] == [
        "uint8[1,16,16,3] scale=0.0078125 zp=128",
        "uint8[1,5] scale=0.00390625 zp=0",
    ]
    summary = of_compiled_file(made)
    assert (summary.whole, len(summary.delegated)) == (True, len(made.graph.nodes))
    for seed in range(3):
        x = np.random.default_rng(seed).integers(0, 256, (1, 16, 16, 3), np.uint8)
        assert_equal(data, made, [x])


def test_a_network_in_the_least_memory() -> None:
    data = network(32)
    (part,) = compiled(data).parts
    with pytest.raises(BudgetError) as caught:
        compiled(data, 1)
    smaller = compiled(data, caught.value.least_bytes)
    assert smaller.parts[0].report.sram_bytes == caught.value.least_bytes < part.report.sram_bytes
    assert_equal(data, smaller, [np.random.default_rng(0).integers(0, 256, (1, 32, 32, 3), np.uint8)])


def test_uint8_and_int8_in_one_file() -> None:
    b = FileBuilder()
    b.tensor("x", (1, 4, 4, 2), "uint8", 0.02, 131)
    b.tensor("q", (1, 4, 4, 2), scale=0.03, zero_point=-4)
    b.operator(BUILTIN.QUANTIZE, ["x"], ["q"], "QuantizeOptions", 2)
    b.conv("c", "q", (1, 4, 4, 4), 2, 3)
    b.tensor("y", (1, 4, 4, 4), "uint8", 0.04, 125)
    b.operator(BUILTIN.QUANTIZE, ["c"], ["y"], "QuantizeOptions", 2)
    data = b.finish(["x"], ["y"])
    made = compiled(data)
    assert made.partitioning.on_cpu == ()
    assert_equal(data, made, [np.random.default_rng(0).integers(0, 256, (1, 4, 4, 2), np.uint8)])


def test_an_operator_on_the_cpu_between_two_partitions() -> None:
    b = FileBuilder()
    for name in "xabcy":
        b.tensor(name, (1, 4, 4, 2), "uint8", 0.02, 131)
    b.constant("size", np.array([4, 4], np.int32))
    b.operator(BUILTIN.RELU, ["x"], ["a"])
    b.operator(BUILTIN.RESIZE_BILINEAR, ["a", "size"], ["b"], "ResizeBilinearOptions")
    b.operator(BUILTIN.ADD, ["a", "b"], ["c"], "AddOptions")
    b.operator(BUILTIN.RELU6, ["c"], ["y"])
    data = b.finish(["x"], ["y"])
    made = compiled(data)
    assert [item.operator for item in made.partitioning.on_cpu] == ["RESIZE_BILINEAR"]
    assert [item.operator for item in of_compiled_file(made).delegated] == ["RELU", "ADD", "RELU6"]
    assert len(made.parts) == 2
    assert_equal(data, made, [np.random.default_rng(0).integers(0, 256, (1, 4, 4, 2), np.uint8)])


@pytest.mark.parametrize("zero_point", [-128, 127, 6])
@pytest.mark.parametrize(
    ("shape", "attrs"),
    [
        ((6, 2, 3, 2), {"stride_h": 2, "stride_w": 1, "dilation_h": 2, "dilation_w": 1}),
        ((6, 3, 1, 4), {"stride_h": 1, "stride_w": 1, "dilation_h": 1, "dilation_w": 1}),
    ],
)
def test_a_depthwise_convolution_with_weights_of_every_value(
    zero_point: int, shape: tuple[int, int, int, int], attrs: dict[str, int]
) -> None:
    """Weights less their zero point take two int8 numbers, at the ends of the range three."""
    rows, kernel_h, kernel_w, channels = shape
    values = np.arange(kernel_h * kernel_w * channels) * 255 // (kernel_h * kernel_w * channels - 1) - 128
    weights = constant("w", values.astype(np.int8).reshape(1, kernel_h, kernel_w, channels), QuantParams((0.01,), (zero_point,)))  # fmt: skip
    data = oracle.activation("x", (1, rows, 6, channels), 0.02, 3)
    height = -(-rows // attrs["stride_h"])
    output = oracle.activation("y", (1, height, 6, channels), 0.1, -10)
    every = {"padding": "SAME", "activation": "NONE", "depth_multiplier": 1, **attrs}
    graph = oracle.graph_of([data], [Node("depthwise_conv_2d", ("x", "w"), ("y",), every)], [weights, output])
    assert_equal(as_uint8(graph), compiled(as_uint8(graph)), uint8_inputs(graph, 0))


@pytest.mark.parametrize(
    ("difference", "parts"), [(0, 1), (127, 1), (-128, 1), (128, 2), (254, 2), (-255, 2), (255, 3)]
)
def test_how_many_int8_numbers_make_a_difference(difference: int, parts: int) -> None:
    found = parts_of(np.array([difference], np.int16))
    assert len(found) == parts
    assert sum(int(part[0]) for part in found) == difference


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize(("kernel", "stride"), [(2, 1), (4, 2), (3, 2)])
def test_averages_that_are_halves_are_rounded_up(padding: str, kernel: int, stride: int) -> None:
    extent = 7 if padding == "VALID" else 6
    data = oracle.activation("x", (2, extent, 7, 3), 0.02, 3)
    attrs = {"padding": padding, "stride_h": stride, "stride_w": stride, "kernel_h": kernel, "kernel_w": kernel, "activation": "RELU"}  # fmt: skip
    sizes = [-(-n // stride) if padding == "SAME" else (n - kernel) // stride + 1 for n in (extent, 7)]
    output = oracle.activation("y", (2, *sizes, 3), 0.02, 3)
    graph = oracle.graph_of([data], [Node("average_pool_2d", ("x",), ("y",), attrs)], [output])
    assert_equal(as_uint8(graph), compiled(as_uint8(graph)), uint8_inputs(graph, 0))


@pytest.mark.parametrize("count", [2, 4, 6, 14, 49, 64, 1000, 65536])
def test_a_reciprocal_rounds_every_sum_of_bytes_halves_up(count: int) -> None:
    (multiplier,), (word,) = (array.tolist() for array in reciprocal(count))
    shift, low = (word & 0xFF ^ 0x80) - 0x80, word >> 8
    near = np.arange(0, 256)[:, None] * count + count // 2 + np.arange(-2, 3)
    for total in (int(value) for value in near.reshape(-1) if 0 <= value <= 255 * count):
        rounded = (total * multiplier + (total * low >> 20) + (1 << (30 - shift))) >> (31 - shift)
        assert rounded == (total + count // 2) // count, total


def test_a_pool_of_too_many_shapes_of_windows() -> None:
    data = oracle.activation("x", (1, 20, 20, 1))
    attrs = {"padding": "SAME", "stride_h": 1, "stride_w": 1, "kernel_h": 10, "kernel_w": 10, "activation": "NONE"}
    graph = oracle.graph_of([data], [Node("average_pool_2d", ("x",), ("y",), attrs)], [oracle.activation("y", (1, 20, 20, 1))])  # fmt: skip
    (pool,) = compiled(as_uint8(graph)).partitioning.on_cpu
    assert pool.reason == (
        "its windows have 100 different shapes and places at the edges, each a kernel call in uint8; at most 64"
    )


@pytest.mark.parametrize(
    ("first", "second"), [((0.02, 131), (0.05, 7)), ((0.0371, 0), (0.01, 255)), ((3e4, 3), (1e-6, 9))]
)
def test_a_concatenation_rescales_inputs_of_other_scales(first: tuple[float, int], second: tuple[float, int]) -> None:
    b = FileBuilder()
    b.tensor("x", (1, 256), "uint8", *first)
    b.tensor("z", (1, 256), "uint8", *second)
    b.tensor("y", (1, 768), "uint8", 0.0231, 119)
    b.operator(BUILTIN.CONCATENATION, ["x", "z", "x"], ["y"], "ConcatenationOptions", axis=1)
    data = b.finish(["x", "z"], ["y"])
    made = compiled(data)
    assert made.partitioning.on_cpu == ()
    every = np.arange(256, dtype=np.uint8).reshape(1, 256)
    assert_equal(data, made, [every, every])


def test_a_concatenation_of_scales_too_far_apart_stays_on_the_cpu() -> None:
    b = FileBuilder()
    b.tensor("x", (1, 4), "uint8", 1e6)
    b.tensor("y", (1, 8), "uint8", 0.1)
    b.operator(BUILTIN.CONCATENATION, ["x", "x"], ["y"], "ConcatenationOptions", axis=1)
    (item,) = compiled(b.finish(["x"], ["y"])).partitioning.on_cpu
    assert item.reason == "an input has 1e+07 times the output's scale; it must be below 2^22"


def test_a_zero_point_that_no_byte_holds_is_a_reason() -> None:
    b = FileBuilder()
    b.tensor("x", (1, 4), "uint8", 0.1)
    b.tensor("w", (2, 4), "uint8", 0.1, 1 << 40, np.ones((2, 4), np.uint8))
    b.tensor("y", (1, 2), "uint8", 0.1)
    b.operator(BUILTIN.FULLY_CONNECTED, ["x", "w"], ["y"], "FullyConnectedOptions")
    (item,) = compiled(b.finish(["x"], ["y"])).partitioning.on_cpu
    assert item.reason == "its weights 'w' have zero points that 8 bits do not hold"


def test_uint8_weights_of_a_kernel_over_too_many_rows_are_a_reason() -> None:
    """Each row that it reaches over becomes up to three rows of the kernel that runs."""
    rows = 2 * 9000 + 1
    attrs = {"padding": "VALID", "stride_h": 1, "stride_w": 1, "dilation_h": 9000, "dilation_w": 1}
    node = Node("depthwise_conv_2d", ("x", "w"), ("y",), {**attrs, "activation": "NONE", "depth_multiplier": 1})
    weights = constant("w", np.array([-100, 3, 120], np.int8).reshape(1, 3, 1, 1), QuantParams((0.01,), (100,)))
    result = oracle.activation("y", (1, 9, 1, 1), 0.1)
    graph = oracle.graph_of([oracle.activation("x", (1, rows + 8, 1, 1))], [node], [weights, result])
    (left,) = compiled(as_uint8(graph)).partitioning.on_cpu
    assert left.reason == "its kernel reaches over 18001 rows; with uint8 weights it must be at most 10922"


@pytest.mark.parametrize("op", ["conv_2d", "depthwise_conv_2d"])
def test_a_dilation_written_with_blocks_and_weights_with_a_zero_point(op: str) -> None:
    """The blocks become a dilation first, and the weights are taken apart then."""
    graph = dilated_image(op, [2, 3], [[2, 3], [1, 4]], [[0, 1], [0, 2]])
    weights = replace(graph["weights"], quant=QuantParams((0.01,), (-30,)))
    graph = replace(graph, tensors={**graph.tensors, "weights": weights})
    data = as_uint8(graph)
    made = compiled(data)
    assert made.partitioning.on_cpu == ()
    assert_equal(data, made, uint8_inputs(graph, 0))
