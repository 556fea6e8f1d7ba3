# SPDX-License-Identifier: BSD-3-Clause
"""Operators that LiteRT's reference kernels lack, or compute wrongly, run on the CPU beside those on the NPU."""

from __future__ import annotations

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from openneutron import litert
from openneutron.device.mixed import FileSimulator, compile_file
from openneutron.litert.interpret import WITHOUT_REFERENCE, interpret
from tests.litert.operator_samples import A, Sample
from tests.support.litert_files import BUILTIN, FileBuilder


@pytest.mark.parametrize(
    ("operator", "table"), [("CEIL", None), ("ROUND", None), ("ELU", None), ("SEGMENT_SUM", "SegmentSumOptions")]
)
def test_what_only_optimized_kernels_have_runs_behind_a_neutron_graph(operator: str, table: str | None) -> None:
    b = FileBuilder()
    b.tensor("x", (3, 4), scale=0.1)
    b.tensor("q", (3, 4), scale=0.1)
    b.tensor("f", (3, 4), "float32")
    b.tensor("y", (2 if table else 3, 4), "float32")
    b.constant("places", np.array([0, 0, 1], np.int32))
    b.operator(BUILTIN.RELU, ["x"], ["q"])
    b.operator(BUILTIN.DEQUANTIZE, ["q"], ["f"], "DequantizeOptions", 2)
    b.operator(getattr(BUILTIN, operator), ["f", "places"] if table else ["f"], ["y"], table)
    data = b.finish(["x"], ["y"])
    made = compile_file(litert.read(data), "model")
    x = np.arange(-60, 60, 10, dtype=np.int8).reshape(3, 4)
    (got,) = FileSimulator(made.to_bytes()).run([x])
    real = np.maximum(x, 0).astype(np.float32) * np.float32(0.1)
    want = {"CEIL": np.ceil(real), "ROUND": np.round(real), "ELU": real}.get(operator)
    np.testing.assert_allclose(got, np.add.reduceat(real, [0, 2]) if want is None else want, rtol=1e-6)


def test_a_sum_of_int8_on_the_cpu_is_signed() -> None:
    b = FileBuilder()
    b.tensor("x", (1, 4), scale=0.1)
    b.tensor("y", (1,), scale=0.1)
    b.constant("axes", np.array([1], np.int32))
    b.operator(BUILTIN.SUM, ["x", "axes"], ["y"], "ReducerOptions", 2)
    assert interpret(b.finish(["x"], ["y"]), [np.array([[-3, -4, 1, 0]], np.int8)])[0].tolist() == [-6]


@pytest.mark.parametrize("operator", sorted(WITHOUT_REFERENCE))
def test_the_reference_kernels_lack_it(operator: str) -> None:
    content = Sample(operator, (A,), (A,)).file()
    with pytest.raises((RuntimeError, ValueError), match="Didn't find op"):
        Interpreter(model_content=content, experimental_op_resolver_type=OpResolverType.BUILTIN_REF).allocate_tensors()
