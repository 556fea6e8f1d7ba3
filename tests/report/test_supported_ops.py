# SPDX-License-Identifier: BSD-3-Clause
"""The page of supported operators names every row and every limit there is; tests/test_generated.py compares the file."""

from __future__ import annotations

import inspect

from openneutron import ops
from openneutron.pytorch.operators.families import DECOMPOSITIONS, LOWER_RULES
from scripts import supported_ops_page


def test_every_operator_has_its_row_and_every_limit_its_words() -> None:
    rows = {line.split("`")[1]: line for line in supported_ops_page.litert_table().splitlines()[2:]}
    assert rows.keys() == {row.litert or row.name for row in ops.OPS}
    for row in ops.OPS:
        assert row.doc and row.doc in rows[row.litert or row.name]
        for limit in row.limits:
            words = inspect.getdoc(limit)
            assert words, f"a limit of {row.name} has no words"
        for words in supported_ops_page._limits(row):
            assert words in rows[row.litert or row.name]


def test_every_operator_that_stays_on_the_cpu_has_its_reason() -> None:
    table = supported_ops_page.on_cpu_table()
    for name, reason in ops.ON_CPU.items():
        assert any(f"`{name}`" in line and f"| {reason} |" in line for line in table.splitlines())


def test_fixed_quantization_is_spelled_out() -> None:
    table = supported_ops_page.litert_table()
    row = "| `SOFTMAX` | exp(beta * x) over its sum along the last axis. | scale 1/256, zero point -128 (int16: 1/32768, 0) |"
    assert row in table


def test_every_lowered_operator_is_named() -> None:
    table = supported_ops_page.pytorch_table()
    assert all(f"`{name}`" in table for name in LOWER_RULES if "." in name)


def test_functions_and_composites_are_named() -> None:
    functions = supported_ops_page.functions()
    assert {"aten.silu", "aten.erf", "aten.reciprocal", "aten.pow", "aten.sqrt", "aten.mish"} <= set(functions)
    assert not {"aten.bernoulli", "aten.relu_", "aten.maximum"} & set(functions)
    table = supported_ops_page.composites_table()
    assert all(f"`{name}`" in table for name in DECOMPOSITIONS)


def test_the_pytorch_operators_of_a_row_are_those_whose_rules_emit_it() -> None:
    found = supported_ops_page.lowered_by()
    assert found["conv_2d"] == ["aten.conv1d.default", "aten.conv2d.default", "aten.convolution.default"]
    assert found["softmax"] == ["aten._softmax.default", "aten.softmax.int"]
    assert found["tanh"] == ["aten.tanh.default"]  # and not gelu, whose rule compares with this word
    assert "aten.relu6.default" in found["relu6"]
    assert found["hard_swish"] == ["aten.hardswish.default"]
    rows = {line.split("`")[1]: line for line in supported_ops_page.litert_table().splitlines()[2:]}
    assert rows["CONV_2D"].endswith(" `aten.conv1d.default`, `aten.conv2d.default`, `aten.convolution.default` |")
    assert rows["UNPACK"].endswith(" | - |")


def test_pointwise_functions_have_rows_to_filter() -> None:
    rows = supported_ops_page.functions_table().splitlines()
    assert "| `aten.sigmoid` | `LOGISTIC`, or a table |" in rows
    assert "| `aten.erf` | a table |" in rows
    assert len(rows) == len(supported_ops_page.functions()) + 2
