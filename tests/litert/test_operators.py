# SPDX-License-Identifier: BSD-3-Clause
"""Every operator that LiteRT's reference kernels take for int8 has a row in the operator table or a reason."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter

from openneutron import litert, ops
from openneutron.compiler import CompileOptions, compile_graph
from openneutron.compiler.legalize.partition import partition
from tests.litert import operator_samples
from tests.litert.operator_samples import Sample
from tests.support import oracle

NO_OPERATORS = ("CUSTOM", "DELEGATE", "PLACEHOLDER_FOR_GREATER_OP_CODES")
"""Codes of the schema that name no operator of LiteRT's own."""

SAMPLES = operator_samples.samples()


def _interpreter(sample: Sample) -> Interpreter:
    content = sample.file()
    return Interpreter(model_content=content, experimental_op_resolver_type=oracle.resolver_of(content), num_threads=1)


def _inputs(shapes: Sequence[Sequence[int]], types: Sequence[npt.DTypeLike]) -> list[np.ndarray]:
    """Return small positive numbers, for which every function has a result; they are valid positions on every axis."""
    values = []
    for shape, dtype in zip(shapes, types, strict=True):
        counted = np.arange(math.prod(shape)) * 5
        most = {np.dtype(np.int8): 13, np.dtype(bool): 2}.get(np.dtype(dtype), 1)
        values.append((counted % most + (most != 2)).astype(dtype).reshape(shape))
    return values


def _results(sample: Sample) -> list[np.ndarray] | None:
    """Return what LiteRT computes, or None where it refuses."""
    try:
        interpreter = _interpreter(sample)
        interpreter.allocate_tensors()
        details = interpreter.get_input_details()
        values = _inputs([detail["shape"] for detail in details], [detail["dtype"] for detail in details])
        for detail, value in zip(details, values, strict=True):
            interpreter.set_tensor(detail["index"], value)
        interpreter.invoke()
        return [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]
    except (RuntimeError, ValueError):
        return None


@functools.cache
def _taken() -> tuple[tuple[Sample, list[np.ndarray]], ...]:
    """Return the samples that LiteRT runs, with its results."""
    pairs = ((sample, _results(sample)) for sample in SAMPLES)
    return tuple((sample, results) for sample, results in pairs if results is not None)


def _registered(operator: str) -> bool:
    """Return whether LiteRT's reference resolver has the operator, in any version."""
    a = operator_samples.A
    for version in (1, 2):
        try:
            _interpreter(Sample(operator, (a,), (a,), version=version)).allocate_tensors()
        except (RuntimeError, ValueError) as error:
            if "Didn't find op" in str(error):
                continue
        return True
    return False


def test_every_operator_of_the_schema_is_asked_for() -> None:
    names = {name for name in vars(schema.BuiltinOperator) if not name.startswith("_")} - {*NO_OPERATORS}
    asked = {sample.operator for sample in SAMPLES}
    assert asked <= names
    assert names - asked <= set(ops.ON_CPU)


WITHOUT_KERNEL = {"DIV", "FLOOR_DIV", "FLOOR_MOD", "LSH_PROJECTION", "REDUCE_PROD"}
"""Operators that LiteRT takes for int8 and for which the only reason is that there is no kernel."""


ONLY_HERE = {"BIDIRECTIONAL_SEQUENCE_LSTM"}
"""Operators with a row that LiteRT computes on float32 activations alone."""


def test_every_operator_that_litert_takes_has_a_row_or_a_reason() -> None:
    taken = {sample.operator for sample, _ in _taken()}
    assert taken - {*ops.BY_LITERT, *ops.ON_CPU} <= WITHOUT_KERNEL
    assert set(ops.BY_LITERT) - taken == ONLY_HERE, "a row without a sample"
    assert WITHOUT_KERNEL.isdisjoint({*ops.BY_LITERT, *ops.ON_CPU})


def test_a_reason_is_given_for_operators_of_litert_without_a_row() -> None:
    assert not {*ops.BY_LITERT} & {*ops.ON_CPU}
    assert [name for name in ops.ON_CPU if not _registered(name)] == []


def _graph(sample: Sample) -> litert.LiteRTModel:
    return litert.read(sample.file())


def test_every_row_compiles_a_sample_that_litert_takes_to_the_same_bytes() -> None:
    compiled = set()
    for sample, want in _taken():
        graph = _graph(sample).graph
        if sample.operator not in ops.BY_LITERT or ops.reject(graph, graph.nodes[0]) is not None:
            continue
        program = compile_graph(graph, oracle.TARGET, CompileOptions(check=True))
        tensors = [graph[name] for name in graph.inputs]
        inputs = _inputs([tensor.shape for tensor in tensors], [tensor.dtype.numpy for tensor in tensors])
        for got, expected in zip(oracle.simulated_outputs(program, inputs), want, strict=True):
            np.testing.assert_array_equal(got, expected, sample.operator)
        compiled.add(sample.operator)
    assert set(ops.BY_LITERT) - compiled == ONLY_HERE


@pytest.mark.parametrize("operator", ["TOPK_V2", "DIV", "LSH_PROJECTION"])
def test_the_reason_is_what_the_user_reads(operator: str) -> None:
    sample = next(sample for sample in SAMPLES if sample.operator == operator)
    (left,) = partition(_graph(sample).graph).on_cpu
    assert left.operator == operator
    assert dataclasses.astuple(left)[2] == ops.ON_CPU.get(operator, f"there is no kernel for {operator}")
