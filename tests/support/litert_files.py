# SPDX-License-Identifier: BSD-3-Clause
"""LiteRT files with operators of every kind, built object by object."""

from __future__ import annotations

from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from openneutron.device.mixed import FileSimulator
from openneutron.ir import DType, Graph
from openneutron.isa import Program
from openneutron.litert.neutron_graph import NeutronNode, splice
from openneutron.litert.read import read
from openneutron.litert.write import pack, write

BUILTIN = schema.BuiltinOperator


def graph_file(graph: Graph, program: Program) -> bytes:
    """Return a file of one NeutronGraph: the program in place of the whole graph that it was compiled from."""
    return splice(read(write(graph)), [NeutronNode(graph.name, graph.inputs, graph.outputs, program)])


class FileBuilder:
    """A model under construction: tensors, then operators over them by name."""

    def __init__(self) -> None:
        self.model = schema.ModelT()
        self.model.version = 3
        self.model.description = b"test"
        self.model.buffers = [schema.BufferT()]
        self.model.operatorCodes = []
        self.graph = schema.SubGraphT()
        self.graph.name = b"main"
        self.graph.tensors = []
        self.graph.operators = []
        self.model.subgraphs = [self.graph]
        self.places: dict[str, int] = {}

    def buffer(self, data: bytes) -> int:
        buffer = schema.BufferT()
        buffer.data = np.frombuffer(data, np.uint8)
        self.model.buffers.append(buffer)
        return len(self.model.buffers) - 1

    def tensor(
        self,
        name: str,
        shape: tuple[int, ...],
        dtype: str = "int8",
        scale: float | None = 0.05,
        zero_point: int = 0,
        data: np.ndarray | None = None,
    ) -> str:
        item = schema.TensorT()
        item.name = name.encode()
        item.shape = np.array(shape, np.int32)
        item.type = getattr(schema.TensorType, dtype.upper())
        item.buffer = 0 if data is None else self.buffer(np.ascontiguousarray(data).tobytes())
        if dtype in ("int8", "uint8", "int16") and scale is not None:
            item.quantization = schema.QuantizationParametersT()
            item.quantization.scale = np.array([scale], np.float32)
            item.quantization.zeroPoint = np.array([zero_point], np.int64)
        self.places[name] = len(self.graph.tensors)
        self.graph.tensors.append(item)
        return name

    def constant(self, name: str, data: np.ndarray, scale: float = 0.01) -> str:
        return self.tensor(name, data.shape, data.dtype.name, scale, 0, data)

    def operator(
        self, builtin: int, inputs: list[str], outputs: list[str], options: str = "", version: int = 1, **fields: Any
    ) -> None:
        code = schema.OperatorCodeT()
        code.builtinCode = builtin
        code.deprecatedBuiltinCode = min(builtin, 127)
        code.version = version
        operator = schema.OperatorT()
        operator.opcodeIndex = len(self.model.operatorCodes)
        operator.inputs = np.array([self.places[name] for name in inputs], np.int32)
        operator.outputs = np.array([self.places[name] for name in outputs], np.int32)
        if options:
            operator.builtinOptionsType = getattr(schema.BuiltinOptions, options)
            operator.builtinOptions = getattr(schema, f"{options}T")()
            for name, value in fields.items():
                setattr(operator.builtinOptions, name, value)
        self.model.operatorCodes.append(code)
        self.graph.operators.append(operator)

    def conv(self, name: str, source: str, shape: tuple[int, ...], inputs: int, seed: int, scale: float = 0.05) -> str:
        """A 3x3 convolution that keeps rows and columns; int8."""
        generator = np.random.default_rng(seed)
        weights = self.constant(f"{name}/weights", generator.integers(-127, 128, (shape[-1], 3, 3, inputs), np.int8))
        bias = self.constant(f"{name}/bias", generator.integers(-500, 500, shape[-1], np.int32))
        self.tensor(name, shape, scale=scale, zero_point=-3)
        self.operator(
            BUILTIN.CONV_2D, [source, weights, bias], [name], "Conv2DOptions", 3, padding=0, strideH=1, strideW=1
        )
        return name

    def finish(self, inputs: list[str], outputs: list[str]) -> bytes:
        self.graph.inputs = np.array([self.places[name] for name in inputs], np.int32)
        self.graph.outputs = np.array([self.places[name] for name in outputs], np.int32)
        return pack(self.model)


def mixed_file(signature: bool = False) -> bytes:
    """Return a file with float inputs and outputs, and a SCATTER_ND with a repeated index in the middle and a residual
    around it.

    quantize, conv, max pool | scatter nd | add, conv, relu | dequantize, float logistic; and a second output, int8,
    from before the SCATTER_ND.
    """
    b = FileBuilder()
    b.tensor("x", (1, 8, 8, 4), "float32")
    b.tensor("unused", (1, 3), "float32")
    b.tensor("q", (1, 8, 8, 4), scale=0.03, zero_point=5)
    b.operator(BUILTIN.QUANTIZE, ["x"], ["q"], "QuantizeOptions")
    b.conv("c", "q", (1, 8, 8, 8), 4, 1)
    b.tensor("p", (1, 4, 4, 8), scale=0.05, zero_point=-3)
    b.operator(BUILTIN.MAX_POOL_2D, ["c"], ["p"], "Pool2DOptions", 2, padding=1, strideH=2, strideW=2, filterHeight=2, filterWidth=2)  # fmt: skip
    places = np.stack(np.meshgrid([0], np.arange(4) * 2, [0, 3, 3, 6], indexing="ij"), -1).astype(np.int32)
    b.constant("places", places)
    b.constant("shape", np.array([1, 8, 8, 8], np.int32))
    b.tensor("r", (1, 8, 8, 8), scale=0.05, zero_point=-3)
    b.operator(BUILTIN.SCATTER_ND, ["places", "p", "shape"], ["r"])
    b.tensor("s", (1, 8, 8, 8), scale=0.09, zero_point=1)
    b.operator(BUILTIN.ADD, ["c", "r"], ["s"], "AddOptions", 2)
    b.conv("d", "s", (1, 8, 8, 3), 8, 2)
    b.tensor("e", (1, 8, 8, 3), scale=0.05, zero_point=-3)
    b.operator(BUILTIN.RELU, ["d"], ["e"], version=2)
    b.tensor("f", (1, 8, 8, 3), "float32")
    b.operator(BUILTIN.DEQUANTIZE, ["e"], ["f"], "DequantizeOptions", 2)
    b.tensor("y", (1, 8, 8, 3), "float32")
    b.operator(BUILTIN.LOGISTIC, ["f"], ["y"])
    if signature:
        _describe(b)
    return b.finish(["x"], ["y", "p"])


def _describe(b: FileBuilder) -> None:
    """A signature, and metadata in a buffer of its own."""

    def entry(name: bytes, tensor: str) -> Any:
        item = schema.TensorMapT()
        item.name, item.tensorIndex = name, b.places[tensor]
        return item

    signature = schema.SignatureDefT()
    signature.signatureKey = b"serving_default"
    signature.inputs = [entry(b"image", "x")]
    signature.outputs = [entry(b"pooled", "p"), entry(b"scores", "y")]
    b.model.signatureDefs = [signature]
    metadata = schema.MetadataT()
    metadata.name, metadata.buffer = b"note", b.buffer(b"kept as it is")
    b.model.metadata = [metadata]


def float_file() -> bytes:
    """A convolution and a softmax in float32."""
    b = FileBuilder()
    generator = np.random.default_rng(0)
    b.tensor("x", (1, 4, 4, 2), "float32")
    b.constant("w", generator.standard_normal((3, 3, 3, 2)).astype(np.float32))
    b.constant("b", np.zeros(3, np.float32))
    b.tensor("c", (1, 4, 4, 3), "float32")
    b.operator(BUILTIN.CONV_2D, ["x", "w", "b"], ["c"], "Conv2DOptions", 1, padding=0, strideH=1, strideW=1)
    b.tensor("y", (1, 4, 4, 3), "float32")
    b.operator(BUILTIN.SOFTMAX, ["c"], ["y"], "SoftmaxOptions", 1, beta=1.0)
    return b.finish(["x"], ["y"])


def int16_file(scale: float | None = None) -> bytes:
    """Return a file with one addition in int16, with a scale or without."""
    b = FileBuilder()
    for name in "xzy":
        b.tensor(name, (1, 4), "int16", scale)
    b.operator(BUILTIN.ADD, ["x", "z"], ["y"], "AddOptions", 1)
    return b.finish(["x", "z"], ["y"])


def wide_file() -> bytes:
    """Return a file with float inputs and outputs around int16, and float operators in the middle and a residual around these.

    quantize, pad | dequantize, sin, quantize | concatenation, bilinear resize, add | dequantize; and a second output, int16.
    """
    b = FileBuilder()
    b.tensor("x", (1, 6, 6, 4), "float32")
    b.tensor("q", (1, 6, 6, 4), "int16", 3e-4)
    b.operator(BUILTIN.QUANTIZE, ["x"], ["q"], "QuantizeOptions")
    b.constant("amounts", np.array([[0, 0], [1, 1], [1, 1], [0, 0]], np.int32))
    b.tensor("p", (1, 8, 8, 4), "int16", 3e-4)
    b.operator(BUILTIN.PAD, ["q", "amounts"], ["p"], "PadOptions", 2)
    b.tensor("pf", (1, 8, 8, 4), "float32")
    b.operator(BUILTIN.DEQUANTIZE, ["p"], ["pf"], "DequantizeOptions", 3)
    b.tensor("sf", (1, 8, 8, 4), "float32")
    b.operator(BUILTIN.SIN, ["pf"], ["sf"])
    b.tensor("s", (1, 8, 8, 4), "int16", 3e-4)
    b.operator(BUILTIN.QUANTIZE, ["sf"], ["s"], "QuantizeOptions")
    b.tensor("c", (1, 8, 8, 8), "int16", 3e-4)
    b.operator(BUILTIN.CONCATENATION, ["p", "s"], ["c"], "ConcatenationOptions", 3, axis=3)
    b.constant("size", np.array([5, 7], np.int32))
    b.tensor("r", (1, 5, 7, 8), "int16", 3e-4)
    b.operator(BUILTIN.RESIZE_BILINEAR, ["c", "size"], ["r"], "ResizeBilinearOptions", 4, halfPixelCenters=True)
    b.tensor("t", (1, 5, 7, 8), "int16", 7e-4)
    b.operator(BUILTIN.ADD, ["r", "r"], ["t"], "AddOptions", 4, potScaleInt16=False)
    b.tensor("y", (1, 5, 7, 8), "float32")
    b.operator(BUILTIN.DEQUANTIZE, ["t"], ["y"], "DequantizeOptions", 3)
    return b.finish(["x"], ["y", "c"])


def branching_file() -> bytes:
    """A WHILE around a float subgraph, behind an int8 convolution: three times y = y + y."""
    b = FileBuilder()
    b.tensor("x", (1, 4, 4, 2), scale=0.02)
    b.conv("c", "x", (1, 4, 4, 2), 2, 3)
    b.tensor("f", (1, 4, 4, 2), "float32")
    b.operator(BUILTIN.DEQUANTIZE, ["c"], ["f"], "DequantizeOptions", 2)
    b.constant("zero", np.array([0], np.int32))
    b.tensor("i", (1,), "int32")
    b.tensor("y", (1, 4, 4, 2), "float32")
    b.operator(BUILTIN.WHILE, ["zero", "f"], ["i", "y"], "WhileOptions", condSubgraphIndex=1, bodySubgraphIndex=2)
    condition, body = FileBuilder(), FileBuilder()
    for part in (condition, body):
        part.model = b.model
        part.graph.name = b"condition" if part is condition else b"body"
        b.model.subgraphs.append(part.graph)
        part.tensor("i", (1,), "int32")
        part.tensor("v", (1, 4, 4, 2), "float32")
    condition.constant("three", np.array([3], np.int32))
    condition.tensor("more", (1,), "bool")
    condition.operator(BUILTIN.LESS, ["i", "three"], ["more"], "LessOptions")
    body.constant("one", np.array([1], np.int32))
    body.tensor("j", (1,), "int32")
    body.tensor("w", (1, 4, 4, 2), "float32")
    body.operator(BUILTIN.ADD, ["i", "one"], ["j"], "AddOptions")
    body.operator(BUILTIN.ADD, ["v", "v"], ["w"], "AddOptions")
    for part, outputs in ((condition, ["more"]), (body, ["j", "w"])):
        part.graph.inputs = np.array([part.places[name] for name in ("i", "v")], np.int32)
        part.graph.outputs = np.array([part.places[name] for name in outputs], np.int32)
    return b.finish(["x"], ["y"])


def inputs_of(runner: FileSimulator, seed: int) -> list[np.ndarray]:
    """Return random inputs of a file, float32 or int8."""
    generator = np.random.default_rng(seed)
    return [
        generator.standard_normal(tensor.shape).astype(np.float32)
        if tensor.dtype is DType.FLOAT32
        else generator.integers(-128, 128, tensor.shape, np.int8)
        for tensor in runner.inputs
    ]
