# SPDX-License-Identifier: BSD-3-Clause
"""The kernels of LiteRT that a file is run with: the reference kernels, as far as they have its operators."""

from __future__ import annotations

from typing import Any

from ai_edge_litert import schema_py_generated as schema

from openneutron.litert.read import operator_name

WITHOUT_REFERENCE = frozenset(
    (
        *("CEIL", "ELU", "ROUND", "SEGMENT_SUM"),
        *("HASHTABLE", "HASHTABLE_FIND", "HASHTABLE_IMPORT", "HASHTABLE_SIZE"),
        *("STABLEHLO_AND", "STABLEHLO_CASE", "STABLEHLO_SHIFT_LEFT"),
    )
)
"""Operators that LiteRT 2.3.0's reference resolver (BUILTIN_REF) leaves out, and BUILTIN_WITHOUT_DEFAULT_DELEGATES has."""


def beyond_reference(model: Any) -> bool:
    """Return whether a file's flatbuffer objects need LiteRT's optimized kernels (BUILTIN_WITHOUT_DEFAULT_DELEGATES).

    That is where the reference kernels lack an operator, or compute it wrongly: a SUM of int8 as if it was uint8.
    """
    return any(
        operator_name(model, operator) in WITHOUT_REFERENCE or _sums_int8(model, subgraph, operator)
        for subgraph in model.subgraphs
        for operator in subgraph.operators or ()
    )


def _sums_int8(model: Any, subgraph: Any, operator: Any) -> bool:
    first = operator.inputs[0] if operator_name(model, operator) == "SUM" and len(operator.inputs) else -1
    return bool(first >= 0 and subgraph.tensors[first].type == schema.TensorType.INT8)
