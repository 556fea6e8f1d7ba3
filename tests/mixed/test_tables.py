# SPDX-License-Identifier: BSD-3-Clause
"""Islands of pointwise float operators between int8 operators are tables of the NPU, byte-equal with LiteRT for every stored value."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from openneutron import litert
from openneutron.device.mixed import FileSimulator, compile_file
from openneutron.device.mixed.tables import with_tables
from openneutron.litert.interpret import interpret
from openneutron.litert.neutron_graph import OPERATOR_NAME
from tests.support.litert_files import BUILTIN, FileBuilder

SHAPE = (1, 16, 16, 1)
EVERY = {
    "int8": np.arange(-128, 128).astype(np.int8),
    "uint8": np.arange(256).astype(np.uint8),
    "bool": np.arange(256) % 2 == 1,
}
"""All values of a type, in 256 elements."""

Chain = list[tuple[str, list[float | str], dict[str, Any]]]


def island(
    chain: Chain,
    kind: str = "int8",
    scale: float = 0.05,
    result: tuple[str, float, int] = ("int8", 0.04, 3),
    returned: str = "",
) -> bytes:
    """Return a file: an input, from there to float, the operators of ``chain``, and QUANTIZE. Operands of an operator are numbers, and
    names: ``x`` is the float input, ``0`` the result of the first operator, and so on."""
    b = FileBuilder()
    quantized = kind != "bool" and scale != 0
    b.tensor("input", SHAPE, kind, scale if quantized else None, -7 if kind == "int8" else 131)
    b.tensor("x", SHAPE, "float32")
    if quantized:
        b.operator(BUILTIN.DEQUANTIZE, ["input"], ["x"], "DequantizeOptions", 2)
    else:
        types = {"inDataType": getattr(schema.TensorType, kind.upper()), "outDataType": schema.TensorType.FLOAT32}
        b.operator(BUILTIN.CAST, ["input"], ["x"], "CastOptions", **types)
    for place, (name, operands, fields) in enumerate(chain):
        inputs = [
            operand if isinstance(operand, str) else b.constant(f"c{place}.{number}", np.array(operand, np.float32))
            for number, operand in enumerate(operands)
        ]
        dtype = fields.pop("dtype", "float32")
        b.tensor(str(place), SHAPE, dtype)
        words = "".join(part.capitalize() for part in name.split("_"))
        options = {"MINIMUM": "MaximumMinimumOptions"}.get(name, f"{words}Options")
        options = options if hasattr(schema.BuiltinOptions, options) else ""
        b.operator(getattr(BUILTIN, name), inputs, [str(place)], options, 1, **fields)
    dtype, out_scale, zero = result
    b.tensor("y", SHAPE, dtype, out_scale, zero)
    b.operator(BUILTIN.QUANTIZE, [str(len(chain) - 1) if chain else "x"], ["y"], "QuantizeOptions")
    return b.finish(["input"], ["y", returned] if returned else ["y"])


CHAINS: dict[str, Chain] = {
    "none": [],
    "negation": [("NEG", ["x"], {})],
    "square": [("SQUARE", ["x"], {})],
    "sine": [("SIN", ["x"], {})],
    "elu": [("ELU", ["x"], {})],
    "softsign": [("ABS", ["x"], {}), ("ADD", ["0", 1.0], {}), ("DIV", ["x", "1"], {})],
    "swish": [("LOGISTIC", ["x"], {}), ("MUL", ["x", "0"], {"fusedActivationFunction": 1})],
    "mish": [("EXP", ["x"], {}), ("ADD", ["0", 1.0], {}), ("LOG", ["1"], {}), ("TANH", ["2"], {}), ("MUL", ["x", "3"], {})],
    "power": [("SUB", [0.3, "x"], {}), ("POW", ["0", 2.0], {}), ("RSQRT", ["1"], {}), ("MINIMUM", ["2", 4.0], {})],
    "compared": [
        ("GREATER", ["x", 0.5], {"dtype": "bool"}), ("FLOOR", ["x"], {}), ("ROUND", ["x"], {}), ("SELECT_V2", ["0", "1", "2"], {})
    ],
    "divided by zero": [("DIV", [1.0, "x"], {})],
}  # fmt: skip


def assert_whole(data: bytes, kind: str = "int8") -> None:
    compiled = compile_file(litert.read(data), "m")
    assert compiled.partitioning.on_cpu == () and len(compiled.parts) == 1
    made = compiled.to_bytes()
    assert [node.op for node in litert.read(made).graph.nodes] == [OPERATOR_NAME]
    x = EVERY[kind].reshape(SHAPE)
    (want,), (got,) = interpret(data, [x]), FileSimulator(made).run([x])
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", CHAINS)
def test_an_island_of_one_value_is_a_table(name: str) -> None:
    assert_whole(island([(*item[:2], dict(item[2])) for item in CHAINS[name]]))


@pytest.mark.parametrize(("kind", "scale"), [("uint8", 0.05), ("uint8", 0), ("int8", 0), ("bool", 0)])
@pytest.mark.parametrize("result", [("int8", 0.04, 3), ("uint8", 0.02, 120)])
def test_types_other_than_int8(kind: str, scale: float, result: tuple[str, float, int]) -> None:
    """``x.float() / 255`` of a picture, and a mask that becomes numbers."""
    assert_whole(
        island([("MUL", ["x", 1 / 255 if kind == "uint8" else 0.7], {}), ("SUB", ["0", 0.5], {})], kind, scale, result),
        kind,
    )


def test_what_the_cpu_reads_stays_there() -> None:
    data = island([("NEG", ["x"], {}), ("SIN", ["0"], {})], returned="0")
    compiled = compile_file(litert.read(data), "m")
    assert [item.operator for item in compiled.partitioning.on_cpu] == ["DEQUANTIZE", "NEG"]
    x = EVERY["int8"].reshape(SHAPE)
    for got, want in zip(FileSimulator(compiled.to_bytes()).run([x]), interpret(data, [x]), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", ["SIN", "y"])
def test_an_operator_that_is_to_stay_on_the_cpu_does(name: str) -> None:
    data = island([("SIN", ["x"], {})])
    compiled = compile_file(litert.read(data), "m", operators_not_to_delegate=[name], must_delegate=False)
    assert [item.operator for item in compiled.partitioning.on_cpu] == ["DEQUANTIZE", "SIN", "QUANTIZE"]


def softsign_in_two_types() -> bytes:
    """Return softsign as the converter writes it: the magnitude plus 1 in int8, the quotient in float, and a second island behind."""
    b = FileBuilder()
    b.tensor("x", SHAPE, "int8", 0.05, -7)
    b.tensor("magnitude", SHAPE, "int8", 0.03, -128)
    b.operator(BUILTIN.ABS, ["x"], ["magnitude"], "AbsOptions", 2)
    b.constant("one", np.array(100, np.int8), 0.01)
    b.tensor("sum", SHAPE, "int8", 0.035, -128)
    b.operator(BUILTIN.ADD, ["magnitude", "one"], ["sum"], "AddOptions", 2)
    for name in ("x", "sum"):
        b.tensor(f"{name}/float", SHAPE, "float32")
        b.operator(BUILTIN.DEQUANTIZE, [name], [f"{name}/float"], "DequantizeOptions", 2)
    b.tensor("quotient", SHAPE, "float32")
    b.operator(BUILTIN.DIV, ["x/float", "sum/float"], ["quotient"], "DivOptions")
    b.tensor("soft", SHAPE, "int8", 0.0078, 0)
    b.operator(BUILTIN.QUANTIZE, ["quotient"], ["soft"], "QuantizeOptions")
    b.tensor("soft/float", SHAPE, "float32")
    b.operator(BUILTIN.DEQUANTIZE, ["soft"], ["soft/float"], "DequantizeOptions", 2)
    b.tensor("sine", SHAPE, "float32")
    b.operator(BUILTIN.SIN, ["soft/float"], ["sine"])
    b.tensor("y", SHAPE, "int8", 0.01, 5)
    b.operator(BUILTIN.QUANTIZE, ["sine"], ["y"], "QuantizeOptions")
    return b.finish(["x"], ["y"])


def test_several_stored_tensors_that_one_determines_are_one_source() -> None:
    data = softsign_in_two_types()
    assert_whole(data)
    assert [node.op for node in with_tables(litert.read(data)).graph.nodes] == ["lookup", "lookup"]


def test_constants_of_other_types_are_cast_first() -> None:
    b = FileBuilder()
    b.tensor("input", SHAPE, "int8", 0.05, -7)
    b.tensor("x", SHAPE, "float32")
    b.operator(BUILTIN.DEQUANTIZE, ["input"], ["x"], "DequantizeOptions", 2)
    b.constant("two", np.full((1, 1, 1, 1), 2, np.int32))
    b.tensor("c", (1, 1, 1, 1), "float32")
    b.operator(BUILTIN.CAST, ["two"], ["c"], "CastOptions", inDataType=schema.TensorType.INT32)
    b.tensor("s", SHAPE, "float32")
    b.operator(BUILTIN.MUL, ["x", "c"], ["s"], "MulOptions")
    b.tensor("y", SHAPE, "int8", 0.04, 3)
    b.operator(BUILTIN.QUANTIZE, ["s"], ["y"], "QuantizeOptions")
    assert_whole(b.finish(["input"], ["y"]))


def test_a_constant_with_several_numbers_is_no_table() -> None:
    b = FileBuilder()
    b.tensor("input", (1, 4))
    b.tensor("x", (1, 4), "float32")
    b.operator(BUILTIN.DEQUANTIZE, ["input"], ["x"], "DequantizeOptions", 2)
    b.constant("c", np.array([1, 2, 3, 4], np.float32))
    b.tensor("s", (1, 4), "float32")
    b.operator(BUILTIN.MUL, ["x", "c"], ["s"], "MulOptions")
    b.tensor("y", (1, 4))
    b.operator(BUILTIN.QUANTIZE, ["s"], ["y"], "QuantizeOptions")
    compiled = compile_file(litert.read(b.finish(["input"], ["y"])), "m", must_delegate=False)
    assert len(compiled.partitioning.on_cpu) == 3
