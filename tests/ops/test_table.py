# SPDX-License-Identifier: BSD-3-Clause
"""Every row of the operator table has every rule, and every rule has a row."""

from __future__ import annotations

import pytest
from ai_edge_litert import schema_py_generated as schema

from openneutron.compiler.select.calls import SELECT_RULES
from openneutron.isa.kernels import language
from openneutron.isa.kernels.row import CostClass
from openneutron.isa.rows import KERNEL_BY_NAME
from openneutron.ops import BY_LITERT, BY_NAME, OPS, Op, Quantization
from openneutron.ops.shape import VIEWS


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_row_is_complete(op: Op) -> None:
    assert not op.litert or hasattr(schema.BuiltinOperator, op.litert)
    assert op.kernels
    assert all(kernel in KERNEL_BY_NAME for kernel in op.kernels)
    assert op.doc.endswith(".")
    assert op.limits, "an operator without a limit would take float tensors"
    assert all(limit.__doc__ for limit in op.limits)
    assert (op.fixed_output is not None) == (op.quantization is Quantization.FIXED)
    assert [op.name in SELECT_RULES, op.name in VIEWS, op.made_of is not None and op.composed is None].count(True) == 1


@pytest.mark.parametrize(
    "op", [op for op in OPS if op.options or hasattr(schema, f"{op.options_table}T")], ids=lambda op: op.name
)
def test_attributes_are_litert_fields(op: Op) -> None:
    assert any(hasattr(union, op.options_table) for union in (schema.BuiltinOptions, schema.BuiltinOptions2))
    options = getattr(schema, f"{op.options_table}T")()
    for attribute in op.attributes:
        assert hasattr(options, attribute.litert_field), attribute.litert_field


def test_names_are_unique() -> None:
    assert len(BY_NAME) == len(OPS)
    assert len(BY_LITERT) == len([op for op in OPS if op.litert])


def test_every_select_rule_has_a_row() -> None:
    assert set(SELECT_RULES) | set(VIEWS) == {op.name for op in OPS if op.made_of is None or op.composed is not None}


def test_every_kernel_has_an_operator() -> None:
    """Kernels of several operators, of the NPU's own driver and of language models, and transfers, have none."""
    apart = {
        name
        for name, row in KERNEL_BY_NAME.items()
        if row.traits.kernels or row.traits.cost.kind in (CostClass.ATTENTION, CostClass.JOB) or row.is_transfer
    }
    apart |= {row.name for row in language.KERNELS}
    apart |= {
        kernel for row in KERNEL_BY_NAME.values() if (two := row.traits.passes) for kernel in (two.first, two.second)
    }
    assert set(KERNEL_BY_NAME) - apart == {kernel for op in OPS for kernel in op.kernels}
