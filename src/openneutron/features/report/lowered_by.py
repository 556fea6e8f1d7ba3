# SPDX-License-Identifier: BSD-3-Clause
"""The PyTorch operators that become each LiteRT operator, from the code of the lowering rules."""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any

from openneutron import ops

RULES = "openneutron.pytorch.operators."
"""The modules whose functions belong to rules."""


def lowered_by() -> dict[str, list[str]]:
    """Return for each row of the operator table, by its name, the PyTorch operators whose lowering rule can emit it.

    A rule emits an operator by the name of its row. So the names in the code of the rule, and in that of the functions
    that it calls, are the operators that it can emit.
    """
    from openneutron.pytorch.operators.families import LOWER_RULES

    found: dict[str, set[str]] = {}
    for target, row in LOWER_RULES.items():
        if "." in target:  # getitem and its kin are parts of other operators
            for name in _texts(row.rule, set()) & ops.BY_NAME.keys():
                found.setdefault(name, set()).add(target)
    return {name: sorted(targets) for name, targets in found.items()}


def _texts(function: Callable[..., Any], seen: set[CodeType]) -> set[str]:
    """Return the texts in a function's code, its closure, and the functions of the rules' modules that it refers to."""
    if not isinstance(function, FunctionType) or function.__code__ in seen:
        return set()
    if not function.__module__.startswith(RULES):
        return set()
    seen.add(function.__code__)
    codes = list(_codes(function.__code__))
    values = [constant for code in codes for constant in _constants(code)]
    values += inspect.getclosurevars(function).nonlocals.values()
    globals_ = (function.__globals__.get(name) for code in codes for name in code.co_names)
    values += [value for value in globals_ if value is not ops.BY_NAME]
    texts = set()
    for value in values:
        if isinstance(value, FunctionType):
            texts |= _texts(value, seen)
        parts = (
            (*value, *value.values()) if isinstance(value, dict) else value if isinstance(value, tuple) else (value,)
        )
        texts |= {part for part in parts if isinstance(part, str)}
    return texts


def _constants(code: CodeType) -> Iterator[Any]:
    """Yield the constants of a code object, without those that it compares with: ``approximate == "tanh"`` emits nothing."""
    listed = list(dis.get_instructions(code))
    for item, following in zip(listed, [*listed[1:], None], strict=True):
        if item.opname.startswith("LOAD_CONST") and (following is None or following.opname != "COMPARE_OP"):
            yield item.argval


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)
