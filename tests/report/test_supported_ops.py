# SPDX-License-Identifier: BSD-3-Clause
"""The page of supported operators names every row and every limit there is; tests/test_generated.py compares the file."""

from __future__ import annotations

import inspect

from openneutron import ops
from openneutron.pytorch.operators.decompositions import DECOMPOSITIONS
from openneutron.pytorch.operators.lowerings import LOWER_RULES
from openneutron.report import supported_ops


def test_every_operator_has_its_row_and_every_limit_its_words() -> None:
    rows = {line.split("`")[1]: line for line in supported_ops.litert_table().splitlines()[2:]}
    assert rows.keys() == {row.litert or row.name for row in ops.OPS}
    for row in ops.OPS:
        assert row.doc and row.doc in rows[row.litert or row.name]
        for limit in row.limits:
            words = inspect.getdoc(limit)
            assert words, f"a limit of {row.name} has no words"
        for words in supported_ops._limits(row):
            assert words in rows[row.litert or row.name]


def test_every_operator_that_stays_on_the_cpu_has_its_reason() -> None:
    table = supported_ops.on_cpu_table()
    for name, reason in ops.ON_CPU.items():
        assert any(f"`{name}`" in line and f"| {reason} |" in line for line in table.splitlines())


def test_fixed_quantization_is_spelled_out() -> None:
    table = supported_ops.litert_table()
    assert "| `SOFTMAX` | exp(beta * x) over its sum along the last axis. | scale 1/256, zero point -128 |" in table


def test_every_lowered_operator_is_named() -> None:
    table = supported_ops.pytorch_table()
    assert all(f"`{name}`" in table for name in LOWER_RULES if "." in name)


def test_functions_and_composites_are_named() -> None:
    functions = supported_ops.functions()
    assert {"aten.silu", "aten.erf", "aten.reciprocal", "aten.pow", "aten.sqrt", "aten.mish"} <= set(functions)
    assert not {"aten.bernoulli", "aten.relu_", "aten.maximum"} & set(functions)
    table = supported_ops.composites_table()
    assert all(f"`{name}`" in table for name in DECOMPOSITIONS)
