# SPDX-License-Identifier: BSD-3-Clause
"""LiteRT files, compared with LiteRT's reference kernels byte by byte."""

from __future__ import annotations

from functools import partial

from ai_edge_litert import schema_py_generated as schema

from tests.suites.people.case import case
from tests.support.litert_files import FileBuilder, branching_file, mixed_file
from tests.support.made_networks import models_folder
from tests.support.recurrent_files import Svdf, lstm_file, random_lstm, random_svdf, svdf_file
from tests.support.uint8_files import near_a_half, network

files = partial(case, kind="files")
BUILTIN = schema.BuiltinOperator


def island(*operators: int, dtype: str = "int8") -> bytes:
    """Return a file of DEQUANTIZE, float operators of one value, and QUANTIZE."""
    b = FileBuilder()
    b.tensor("x", (1, 6, 8), dtype, 0.03, 0 if dtype == "int8" else 128)
    b.operator(BUILTIN.DEQUANTIZE, ["x"], [b.tensor("f0", (1, 6, 8), "float32", None)])
    for number, operator in enumerate(operators):
        b.operator(operator, [f"f{number}"], [b.tensor(f"f{number + 1}", (1, 6, 8), "float32", None)])
    b.operator(
        BUILTIN.QUANTIZE, [f"f{len(operators)}"], [b.tensor("y", (1, 6, 8), dtype, 0.04, 3 if dtype == "int8" else 131)]
    )
    return b.finish(["x"], ["y"])


for _name in ("ad01", "kws", "resnet8", "vww96"):
    files(f"mlperf_tiny_{_name}", lambda name=_name: (models_folder() / f"mlperf_tiny_{name}_int8.tflite").read_bytes())
    files(
        f"mlperf_tiny_{_name}_imx95",
        lambda name=_name: (models_folder() / f"mlperf_tiny_{name}_int8.tflite").read_bytes(),
        target="imx95",
    )
files("uint8_network", network)
for _op in ("CONV_2D", "FULLY_CONNECTED"):
    files(f"uint8_near_a_half_{_op.lower()}", lambda op=_op: near_a_half(op))
files("branches", branching_file, calls=9)
files("mixed_with_float", mixed_file, calls=9)
for _operator in ("NEG", "ABS", "SQUARE", "SQRT", "EXP", "LOG", "SIN", "COS", "ELU", "RSQRT"):
    files(f"float_island_{_operator.lower()}", lambda op=_operator: island(getattr(BUILTIN, op)))
files("float_island_of_three", lambda: island(BUILTIN.NEG, BUILTIN.SQUARE, BUILTIN.EXP))
for _seed in (0, 1, 2):
    files(f"lstm_{_seed}", lambda seed=_seed: random_lstm(seed), stateful=True)
    files(f"svdf_{_seed}", lambda seed=_seed: random_svdf(seed), stateful=True)
files("svdf_small", lambda: svdf_file(Svdf(), 1), stateful=True)
files("lstm_plain", lambda: lstm_file(3), stateful=True)
