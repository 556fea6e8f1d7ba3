# SPDX-License-Identifier: BSD-3-Clause
"""Every lowering in these tests also checks what its rule declares."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

ARRANGING = {"quantize", "reshape", "transpose"}
"""The operators that bring a rule's operands into an order or to a scale; any rule may add them."""


def checked(target: str, rule: Callable[..., Any], emits: tuple[str, ...]) -> Callable[..., Any]:
    """Return the rule, with a check that it adds no operators but those that it declares."""

    @functools.wraps(rule)
    def lower(node: Any, context: Any) -> Any:
        before = len(context.nodes)
        result = rule(node, context)
        added = {made.op for made in context.nodes[before:]}
        assert added <= {*emits, *ARRANGING}, f"{target} adds {sorted(added)}; it declares {emits}"
        return result

    return lower


@pytest.fixture(scope="session", autouse=True)
def declared_operators() -> Iterator[None]:
    pytest.importorskip("torch")
    from openneutron.pytorch.operators.families import LOWER_RULES

    kept = dict(LOWER_RULES)
    for target, row in kept.items():
        LOWER_RULES[target] = dataclasses.replace(row, rule=checked(target, row.rule, row.emits))
    yield
    LOWER_RULES.update(kept)
