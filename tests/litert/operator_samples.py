# SPDX-License-Identifier: BSD-3-Clause
"""A small LiteRT file for each operator and type that its reference kernel might accept: int8, indices and booleans."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from openneutron.litert.write import pack
from tests.support.litert_files import BUILTIN, FileBuilder
from tests.support.recurrent_files import BidirectionalFile, Lstm, Svdf, lstm_file, svdf_file

OPTIONS = {name for name in vars(schema.BuiltinOptions) if not name.startswith("_")}
OPTIONS_2 = {name for name in vars(schema.BuiltinOptions2) if not name.startswith("_")}
OPTIONS_BY_LETTERS = {name.lower(): name for name in (*OPTIONS, *OPTIONS_2)}
REDUCTIONS = ("MEAN", "SUM", "REDUCE_PROD", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_ANY", "REDUCE_ALL")
POOLS = ("AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D")
SHARED_OPTIONS = {
    "CONV_3D_TRANSPOSE": "Conv3DOptions",
    "L2_NORMALIZATION": "L2NormOptions",
    **dict.fromkeys(REDUCTIONS, "ReducerOptions"),
    **dict.fromkeys(("MAXIMUM", "MINIMUM"), "MaximumMinimumOptions"),
    **dict.fromkeys(POOLS, "Pool2DOptions"),
    **dict.fromkeys(("RNN", "UNIDIRECTIONAL_SEQUENCE_RNN"), "SequenceRNNOptions"),
    **dict.fromkeys(("RANDOM_UNIFORM", "RANDOM_STANDARD_NORMAL", "MULTINOMIAL"), "RandomOptions"),
}
"""Options tables of the operators whose table has another name."""


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor of a sample; a constant where ``data`` is given."""

    shape: tuple[int, ...]
    dtype: str = "int8"
    data: np.ndarray | None = None
    scale: float = 0.05
    zero_point: int = 0


@dataclass(frozen=True, slots=True)
class Sample:
    """One operator between these tensors. ``version`` is the operator's version in the file."""

    operator: str
    inputs: tuple[Value | None, ...]
    outputs: tuple[Value, ...]
    fields: dict[str, Any] = field(default_factory=dict)
    version: int = 1
    content: bytes | None = None
    """The file, where the operator has variables or intermediate tensors."""

    def file(self) -> bytes:
        """Return the sample as a LiteRT file."""
        if self.content is not None:
            return self.content
        builder = FileBuilder()
        names = [None if value is None else _tensor(builder, f"in{i}", value) for i, value in enumerate(self.inputs)]
        results = [_tensor(builder, f"out{i}", value) for i, value in enumerate(self.outputs)]
        builder.operator(getattr(BUILTIN, self.operator), [], results, version=self.version)
        (operator,) = builder.graph.operators
        operator.inputs = np.array([-1 if name is None else builder.places[name] for name in names], np.int32)
        _set_options(operator, self.operator, self.fields)
        given = [name for name, value in zip(names, self.inputs, strict=True) if name and value and value.data is None]
        builder.graph.inputs = np.array([builder.places[name] for name in given], np.int32)
        builder.graph.outputs = operator.outputs
        return pack(builder.model)


def _tensor(builder: FileBuilder, name: str, value: Value) -> str:
    return builder.tensor(name, value.shape, value.dtype, value.scale, value.zero_point, value.data)


def _set_options(operator: Any, name: str, fields: dict[str, Any]) -> None:
    table = SHARED_OPTIONS.get(name) or OPTIONS_BY_LETTERS.get(name.replace("_", "").lower() + "options")
    if table is None:
        assert not fields
        return
    options = getattr(schema, f"{table}T")()
    for key, value in fields.items():
        assert hasattr(options, key), f"{table} has no field {key}"
        setattr(options, key, value)
    if table in OPTIONS:
        operator.builtinOptionsType, operator.builtinOptions = getattr(schema.BuiltinOptions, table), options
    else:
        operator.builtinOptions2Type, operator.builtinOptions2 = getattr(schema.BuiltinOptions2, table), options


def x(*shape: int, scale: float = 0.05, zero_point: int = 0) -> Value:
    """Return an int8 activation."""
    return Value(shape, "int8", None, scale, zero_point)


def i32(*shape: int) -> Value:
    """Return an int32 activation."""
    return Value(shape, "int32")


def flags(*shape: int) -> Value:
    """Return a bool activation."""
    return Value(shape, "bool")


def real(*shape: int) -> Value:
    """Return a float32 activation."""
    return Value(shape, "float32")


def const(values: Any, dtype: str = "int32") -> Value:
    """Return a constant."""
    data = np.array(values, dtype)
    return Value(data.shape, dtype, data)


A = x(1, 2, 2, 4)
CONV = {"strideH": 1, "strideW": 1, "padding": 1}
WEIGHTS = const(np.ones((4, 1, 1, 4)), "int8")
BIAS = const(np.zeros(4), "int32")
SQUARE = const(np.ones((1, 1, 1, 4)), "int8")
FIXED = {
    "LOGISTIC": x(1, 2, 2, 4, scale=1 / 256, zero_point=-128),
    "TANH": x(1, 2, 2, 4, scale=1 / 128),
    "SOFTMAX": x(1, 2, 2, 4, scale=1 / 256, zero_point=-128),
    "LOG_SOFTMAX": x(1, 2, 2, 4, scale=16 / 256, zero_point=127),
    "L2_NORMALIZATION": x(1, 2, 2, 4, scale=1 / 128),
}
ONE_OPERAND = [
    "ABS",
    "CEIL",
    "COS",
    "DEQUANTIZE",
    "ELU",
    "EXP",
    "FAKE_QUANT",
    "FLOOR",
    "GELU",
    "HARD_SWISH",
    "LEAKY_RELU",
    "L2_NORMALIZATION",
    "LOCAL_RESPONSE_NORMALIZATION",
    "LOG",
    "LOGISTIC",
    "LOG_SOFTMAX",
    "NEG",
    "QUANTIZE",
    "RELU",
    "RELU6",
    "RELU_0_TO_1",
    "RELU_N1_TO_1",
    "ROUND",
    "RSQRT",
    "SIGN",
    "SIN",
    "SOFTMAX",
    "SQRT",
    "SQUARE",
    "TANH",
    "ZEROS_LIKE",
    "IMAG",
    "REAL",
    "COMPLEX_ABS",
    "BITCAST",
    "CAST",
    "SKIP_GRAM",
    "BUCKETIZE",
]
TWO_OPERANDS = [
    "ADD",
    "ADD_N",
    "ATAN2",
    "BITWISE_XOR",
    "DIV",
    "FLOOR_DIV",
    "FLOOR_MOD",
    "MAXIMUM",
    "MINIMUM",
    "MUL",
    "POW",
    "PRELU",
    "RIGHT_SHIFT",
    "SQUARED_DIFFERENCE",
    "SUB",
    "STABLEHLO_ADD",
    "STABLEHLO_MULTIPLY",
    "STABLEHLO_MAXIMUM",
    "STABLEHLO_MINIMUM",
]
COMPARISONS = ("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL")
SEGMENTS = ("UNSORTED_SEGMENT_MAX", "UNSORTED_SEGMENT_MIN", "UNSORTED_SEGMENT_PROD", "UNSORTED_SEGMENT_SUM")


def samples() -> list[Sample]:
    """Return every sample, in a fixed order."""
    return [*_elementwise(), *_reductions(), *_layers(), *_moves(), *_indexed(), *_rest(), *_stateful(), *_stablehlo()]


def _elementwise() -> Iterator[Sample]:
    one: dict[str, dict[str, Any]] = {
        "BUCKETIZE": {"boundaries": [0.0]},
        "LEAKY_RELU": {"alpha": 0.1},
        "SOFTMAX": {"beta": 1.0},
    }
    for name in ONE_OPERAND:
        yield Sample(name, (A,), (FIXED.get(name, A),), one.get(name, {}))
    yield Sample("DEQUANTIZE", (A,), (real(1, 2, 2, 4),), version=2)
    yield Sample("QUANTIZE", (real(1, 2, 2, 4),), (A,), version=2)
    yield Sample("BUCKETIZE", (i32(4),), (i32(4),), {"boundaries": [0.0]})
    for name in TWO_OPERANDS:
        yield Sample(name, (A, A), (A,))
        yield Sample(name, (A, const(np.full((1, 2, 2, 4), 3), "int8")), (A,))
    for name in COMPARISONS:
        yield Sample(name, (A, A), (flags(1, 2, 2, 4),))
    for name in ("LOGICAL_AND", "LOGICAL_OR"):
        yield Sample(name, (flags(4), flags(4)), (flags(4),))
        yield Sample(name, (A, A), (A,))
    yield Sample("LOGICAL_NOT", (flags(4),), (flags(4),))
    for name in ("SELECT", "SELECT_V2"):
        yield Sample(name, (flags(1, 2, 2, 4), A, A), (A,))
    types = {"int8": 9, "bool": 6, "int32": 2, "int64": 4}
    for name, code in types.items():
        for other, other_code in types.items():
            yield Sample(
                "CAST", (Value((4,), name),), (Value((4,), other),), {"inDataType": code, "outDataType": other_code}
            )
    yield Sample("BITCAST", (i32(2),), (x(2, 4),))


def _reductions() -> Iterator[Sample]:
    for name in REDUCTIONS:
        data, result = (flags(2, 3), flags(2)) if name in ("REDUCE_ANY", "REDUCE_ALL") else (x(2, 3), x(2))
        yield Sample(name, (data, const([1])), (result,), {"keepDims": False}, 2 if data.dtype == "int8" else 1)
    for name in ("ARG_MAX", "ARG_MIN"):
        yield Sample(name, (x(2, 3), const(1)), (Value((2,), "int32"),), {"outputType": 2})
    yield Sample("CUMSUM", (x(2, 3), const(1)), (x(2, 3),))
    yield Sample("TOPK_V2", (x(2, 4), const(2)), (x(2, 2), i32(2, 2)))
    yield Sample("WHERE", (flags(4),), (Value((0, 1), "int64"),))
    yield Sample("UNIQUE", (x(4),), (x(0), i32(4)), {"idxOutType": 2})
    for name in SEGMENTS:
        yield Sample(name, (x(3, 2), const([0, 1, 0]), const(2)), (x(2, 2),))
    yield Sample("SEGMENT_SUM", (x(3, 2), const([0, 0, 1])), (x(2, 2),))


def _layers() -> Iterator[Sample]:
    for name in POOLS:
        yield Sample(name, (A,), (x(1, 1, 1, 4),), {**CONV, "filterHeight": 2, "filterWidth": 2})
    yield Sample("CONV_2D", (A, WEIGHTS, BIAS), (A,), {**CONV, "dilationHFactor": 1, "dilationWFactor": 1})
    depthwise = {**CONV, "dilationHFactor": 1, "dilationWFactor": 1, "depthMultiplier": 1}
    yield Sample("DEPTHWISE_CONV_2D", (A, SQUARE, BIAS), (A,), depthwise)
    yield Sample("TRANSPOSE_CONV", (const([1, 2, 2, 4]), WEIGHTS, A), (A,), CONV)
    yield Sample("FULLY_CONNECTED", (x(2, 4), const(np.ones((3, 4)), "int8")), (x(2, 3),), version=4)
    yield Sample("BATCH_MATMUL", (x(2, 3, 4), x(2, 4, 5)), (x(2, 3, 5),))
    depth = {"strideD": 1, "strideH": 1, "strideW": 1, "padding": 1}
    depth |= {"dilationDFactor": 1, "dilationHFactor": 1, "dilationWFactor": 1}
    weights = const(np.ones((1, 1, 1, 4, 4)), "int8")
    yield Sample("CONV_3D", (x(1, 2, 2, 2, 4), weights), (x(1, 2, 2, 2, 4),), depth)
    shape = const([1, 2, 2, 2, 4])
    yield Sample("CONV_3D_TRANSPOSE", (shape, weights, x(1, 2, 2, 2, 4)), (x(1, 2, 2, 2, 4),), depth)
    for name in ("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"):
        yield Sample(name, (A, const([4, 4])), (x(1, 4, 4, 4),), {"halfPixelCenters": True}, 3)


def _moves() -> Iterator[Sample]:
    yield Sample("RESHAPE", (A, const([4, 4])), (x(4, 4),), {"newShape": [4, 4]})
    yield Sample("EXPAND_DIMS", (x(2, 3), const(0)), (x(1, 2, 3),))
    yield Sample("SQUEEZE", (x(1, 2, 3),), (x(2, 3),), {"squeezeDims": [0]})
    yield Sample("TRANSPOSE", (x(2, 3), const([1, 0])), (x(3, 2),))
    yield Sample("CONCATENATION", (A, A), (x(1, 2, 2, 8),), {"axis": 3})
    yield Sample("PACK", (x(2, 3), x(2, 3)), (x(2, 2, 3),), {"valuesCount": 2, "axis": 0})
    yield Sample("UNPACK", (x(2, 3),), (x(3), x(3)), {"num": 2, "axis": 0})
    yield Sample("SPLIT", (const(1), x(2, 4)), (x(2, 2), x(2, 2)), {"numSplits": 2}, 2)
    yield Sample("SPLIT_V", (x(2, 4), const([1, 3]), const(1)), (x(2, 1), x(2, 3)), {"numSplits": 2}, 2)
    yield Sample("SLICE", (x(2, 4), const([0, 1]), const([2, 2])), (x(2, 2),))
    strided = (x(2, 4), const([0, 0]), const([2, 4]), const([1, 2]))
    yield Sample("STRIDED_SLICE", strided, (x(2, 2),))
    amounts = const([[0, 0], [1, 1]])
    yield Sample("PAD", (x(2, 4), amounts), (x(2, 6),))
    yield Sample("PADV2", (x(2, 4), amounts, const([5], "int8")), (x(2, 6),))
    yield Sample("MIRROR_PAD", (x(2, 4), amounts), (x(2, 6),), {"mode": 0})
    yield Sample("DEPTH_TO_SPACE", (x(1, 2, 2, 8),), (x(1, 4, 4, 2),), {"blockSize": 2})
    yield Sample("SPACE_TO_DEPTH", (x(1, 4, 4, 2),), (x(1, 2, 2, 8),), {"blockSize": 2})
    none = const([[0, 0], [0, 0]])
    yield Sample("SPACE_TO_BATCH_ND", (x(1, 4, 4, 2), const([2, 2]), none), (x(4, 2, 2, 2),))
    yield Sample("BATCH_TO_SPACE_ND", (x(4, 2, 2, 2), const([2, 2]), none), (x(1, 4, 4, 2),))
    yield Sample("TILE", (x(2, 3), const([1, 2])), (x(2, 6),))
    yield Sample("BROADCAST_TO", (x(1, 3), const([2, 3])), (x(2, 3),), version=3)
    yield Sample("REVERSE_V2", (x(2, 3), const([1])), (x(2, 3),))
    yield Sample("REVERSE_SEQUENCE", (x(2, 3), const([2, 3])), (x(2, 3),), {"seqDim": 1, "batchDim": 0})
    yield Sample("MATRIX_DIAG", (x(2, 3),), (x(2, 3, 3),))
    yield Sample("MATRIX_SET_DIAG", (x(2, 3, 3), x(2, 3)), (x(2, 3, 3),))
    yield Sample("DILATE", (x(2, 3), const([2, 1]), const([0], "int8")), (x(3, 3),))
    yield Sample("DYNAMIC_UPDATE_SLICE", (x(4, 3), x(2, 3), const([1, 0])), (x(4, 3),))


def _indexed() -> Iterator[Sample]:
    yield Sample("GATHER", (x(4, 3), const([1, 0])), (x(2, 3),))
    yield Sample("GATHER", (x(4, 3), i32(2)), (x(2, 3),))
    for data in (flags(4, 3), i32(4, 3)):
        yield Sample("GATHER", (data, const([1, 0])), (replace(data, shape=(2, 3)),))
        yield Sample("GATHER", (data, i32(2)), (replace(data, shape=(2, 3)),))
    yield Sample("GATHER_ND", (x(4, 3), const([[1, 0], [3, 2]])), (x(2),))
    yield Sample("GATHER_ND", (x(4, 3), i32(2, 1)), (x(2, 3),))
    yield Sample("SCATTER_ND", (const([[1], [3]]), x(2, 3), const([4, 3])), (x(4, 3),))
    yield Sample("SPARSE_TO_DENSE", (const([1, 3]), const([4]), x(2), const(0, "int8")), (x(4),))
    yield Sample("EMBEDDING_LOOKUP", (i32(2), const(np.ones((4, 3)), "int8")), (x(2, 3),))
    yield Sample("EMBEDDING_LOOKUP", (i32(2), const(np.ones((4, 3)), "int8")), (real(2, 3),))
    sparse = (const([0, 1]), const([[0], [1]]), const([2]), const([1.0, 1.0], "float32"))
    yield Sample("EMBEDDING_LOOKUP_SPARSE", (*sparse, const(np.ones((4, 3)), "int8")), (real(2, 3),))
    one_hot = (i32(2), const(4), const(9, "int8"), const(1, "int8"))
    yield Sample("ONE_HOT", one_hot, (x(2, 4),), {"axis": -1})
    hashed = (const([0, 1]), const([0, 1]), const(np.ones((2, 3)), "int8"))
    yield Sample("HASHTABLE_LOOKUP", hashed, (x(2, 3), Value((2,), "uint8")))
    boxes = (x(3, 4), x(3), const(2), const(0.5, "float32"), const(0.5, "float32"))
    yield Sample("NON_MAX_SUPPRESSION_V4", boxes, (i32(2), i32()))
    yield Sample("NON_MAX_SUPPRESSION_V5", (*boxes, const(0.5, "float32")), (i32(2), x(2), i32()))


def _rest() -> Iterator[Sample]:
    yield Sample("SHAPE", (x(2, 3),), (i32(2),), {"outType": 2})
    yield Sample("RANK", (x(2, 3),), (i32(),))
    yield Sample("FILL", (const([2, 3]), x()), (x(2, 3),))
    yield Sample("RANGE", (x(), x(), x()), (x(0),))
    yield Sample("RANGE", (i32(), i32(), i32()), (i32(0),))
    yield Sample("BROADCAST_ARGS", (i32(2), i32(2)), (i32(2),))
    yield Sample("DENSIFY", (A,), (A,))
    yield Sample("RFFT2D", (x(4, 4), const([4, 4])), (x(4, 3),))
    for name in ("RANDOM_UNIFORM", "RANDOM_STANDARD_NORMAL"):
        yield Sample(name, (i32(2),), (x(2, 3),))
    yield Sample("MULTINOMIAL", (x(2, 3), const(2)), (i32(2, 2),))
    yield Sample("LSH_PROJECTION", (const(np.ones((2, 2)), "float32"), x(4)), (i32(2),), {"type": 1})


def _stateful() -> Iterator[Sample]:
    for name in ("CALL", "CALL_ONCE", "IF", "WHILE", "CONCAT_EMBEDDINGS"):
        yield Sample(name, (A,), (A,))
    for name in ("HASHTABLE", "HASHTABLE_FIND", "HASHTABLE_IMPORT", "HASHTABLE_SIZE"):
        yield Sample(name, (A,), (A,))
    yield Sample("VAR_HANDLE", (), (i32(),), {"sharedName": b"a"})
    yield Sample("READ_VARIABLE", (i32(),), (A,))
    yield Sample("ASSIGN_VARIABLE", (i32(), A), ())
    yield Sample("UNIDIRECTIONAL_SEQUENCE_LSTM", (), (), content=lstm_file(0))
    content = BidirectionalFile(Lstm(), 0).bytes(as_one=True)
    yield Sample("BIDIRECTIONAL_SEQUENCE_LSTM", (), (), content=content)
    yield Sample("SVDF", (), (), content=svdf_file(Svdf(), 0))


def _stablehlo() -> Iterator[Sample]:
    for name in sorted(vars(BUILTIN)):
        if name.startswith("STABLEHLO_") and name not in TWO_OPERANDS:
            yield from _STABLEHLO.get(name, [Sample(name, (A,), (A,)), Sample(name, (A, A), (A,))])


_STABLEHLO: dict[str, Sequence[Sample]] = {}
