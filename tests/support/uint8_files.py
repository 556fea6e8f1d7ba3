# SPDX-License-Identifier: BSD-3-Clause
"""LiteRT files in uint8: int8 graphs with every value 128 higher, and layers whose results are near a half."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from openneutron import litert
from openneutron.ir import Graph, QuantParams
from openneutron.litert.read import unpack
from openneutron.litert.write import pack
from tests.support.litert_files import BUILTIN, FileBuilder

WEIGHTED = ("conv_2d", "depthwise_conv_2d", "fully_connected", "transpose_conv")


def with_uint8_weights(graph: Graph, random: np.random.Generator) -> Graph:
    """Return the graph with one scale and any zero point for weights, as in uint8 models, and with one scale for
    biases."""
    weights = {node.inputs[1] for node in graph.nodes if node.op in WEIGHTED}
    tensors = {}
    for name, tensor in graph.tensors.items():
        if tensor.quant is not None and (name in weights or tensor.quant.per_channel):
            zero_point = int(random.choice([-128, -30, 0, 5, 127])) if name in weights else 0
            tensor = replace(tensor, quant=QuantParams(tensor.quant.scales[:1], (zero_point,)))
        tensors[name] = tensor
    return replace(graph, tensors=tensors)


def as_uint8(graph: Graph) -> bytes:
    """Return the graph's file with uint8 tensors in place of int8 ones."""
    model = unpack(litert.write(graph), "model")
    for item in model.subgraphs[0].tensors:
        if item.type != schema.TensorType.INT8:
            continue
        item.type = schema.TensorType.UINT8
        if item.quantization is not None:
            item.quantization.zeroPoint = np.asarray(item.quantization.zeroPoint) + 128
        buffer = model.buffers[item.buffer]
        if buffer.data is not None:
            buffer.data = np.asarray(buffer.data, np.uint8) ^ 0x80
    return pack(model)


def near_a_half(op: str) -> bytes:
    """Return a layer of one input and many outputs, whose biases give results on both sides of 100.5."""
    count, x, w, y = 2048, np.float32(1.23456e-4), np.float32(2.34567e-4), np.float32(0.4357)
    middle = int(100.5 * np.float64(y) / (np.float64(x) * np.float64(w)))
    b = FileBuilder()
    flat = op == "FULLY_CONNECTED"
    shape = {"FULLY_CONNECTED": (count, 1), "DEPTHWISE_CONV_2D": (1, 1, 1, count)}.get(op, (count, 1, 1, 1))
    output = (1, count) if flat else (1, 1, 1, count)
    b.constant("shape", np.array(output, np.int32))
    b.tensor("x", (1, 1) if flat else (1, 1, 1, 1), "uint8", float(x))
    b.tensor("w", shape, "uint8", float(w), data=np.zeros(shape, np.uint8))
    b.constant("b", np.arange(middle - count // 2, middle + count // 2, dtype=np.int32))
    bias = b.graph.tensors[b.places["b"]].quantization = schema.QuantizationParametersT()
    bias.scale, bias.zeroPoint = np.array([x * w], np.float32), np.array([0], np.int64)
    b.tensor("y", output, "uint8", float(y))
    options = {"FULLY_CONNECTED": "FullyConnected", "DEPTHWISE_CONV_2D": "DepthwiseConv2D", "CONV_2D": "Conv2D"}
    fields = {} if flat else {"padding": 1, "strideH": 1, "strideW": 1}
    if op == "DEPTHWISE_CONV_2D":
        fields["depthMultiplier"] = count
    transposed = op == "TRANSPOSE_CONV"
    operands = ["shape", "w", "x", "b"] if transposed else ["x", "w", "b"]
    table = f"{options.get(op, 'TransposeConv')}Options"
    b.operator(getattr(BUILTIN, op), operands, ["y"], table, 3 if transposed else 1, **fields)
    return b.finish(["x"], ["y"])


def network(extent: int = 16) -> bytes:
    """Return a small image classifier with branches, in the form of TensorFlow 1's converters."""
    half, quarter = extent // 2, extent // 4
    features = quarter * quarter * 16
    random = np.random.default_rng(11)
    b = FileBuilder()

    def weights(name: str, shape: tuple[int, ...], zero_point: int) -> str:
        return b.tensor(name, shape, "uint8", 0.006, zero_point, random.integers(0, 256, shape, np.uint8))

    def biases(name: str, count: int) -> str:
        return b.constant(name, random.integers(-800, 800, count, np.int32))

    b.tensor("image", (1, extent, extent, 3), "uint8", 1 / 128, 128)
    b.tensor("c", (1, half, half, 8), "uint8", 0.03)
    b.operator(BUILTIN.CONV_2D, ["image", weights("cw", (8, 3, 3, 3), 121), biases("cb", 8)], ["c"], "Conv2DOptions", padding=0, strideH=2, strideW=2, fusedActivationFunction=3)  # fmt: skip
    b.tensor("d", (1, half, half, 8), "uint8", 0.05)
    b.operator(BUILTIN.DEPTHWISE_CONV_2D, ["c", weights("dw", (1, 3, 3, 8), 140), biases("db", 8)], ["d"], "DepthwiseConv2DOptions", padding=0, strideH=1, strideW=1, depthMultiplier=1, fusedActivationFunction=1)  # fmt: skip
    b.tensor("e", (1, half, half, 8), "uint8", 0.06, 100)
    b.operator(BUILTIN.CONV_2D, ["d", weights("ew", (8, 1, 1, 8), 128), biases("eb", 8)], ["e"], "Conv2DOptions", padding=0, strideH=1, strideW=1)  # fmt: skip
    b.tensor("s", (1, half, half, 8), "uint8", 0.07, 90)
    b.operator(BUILTIN.ADD, ["c", "e"], ["s"], "AddOptions")
    for name, operator in (("a", BUILTIN.AVERAGE_POOL_2D), ("m", BUILTIN.MAX_POOL_2D)):
        b.tensor(name, (1, quarter, quarter, 8), "uint8", 0.07, 90)
        b.operator(operator, ["s"], [name], "Pool2DOptions", padding=0, strideH=2, strideW=2, filterHeight=2, filterWidth=2)  # fmt: skip
    b.tensor("j", (1, quarter, quarter, 16), "uint8", 0.07, 90)
    b.operator(BUILTIN.CONCATENATION, ["a", "m"], ["j"], "ConcatenationOptions", axis=3)
    b.tensor("f", (1, features), "uint8", 0.07, 90)
    b.constant("flat", np.array([1, features], np.int32))
    b.operator(BUILTIN.RESHAPE, ["j", "flat"], ["f"], "ReshapeOptions")
    b.tensor("l", (1, 5), "uint8", 0.4, 120)
    b.operator(BUILTIN.FULLY_CONNECTED, ["f", weights("fw", (5, features), 131), biases("fb", 5)], ["l"], "FullyConnectedOptions")  # fmt: skip
    b.tensor("y", (1, 5), "uint8", 1 / 256)
    b.operator(BUILTIN.SOFTMAX, ["l"], ["y"], "SoftmaxOptions", beta=1.0)
    return b.finish(["image"], ["y"])
