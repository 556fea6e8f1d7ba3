# SPDX-License-Identifier: BSD-3-Clause
"""The table of lowering rules: what an edge operator becomes, or why it can't.

The support check is the lowering: the partitioner runs a node's rule and keeps the reason, the backend runs the same rule
and keeps the nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from torch.fx import Node

from openneutron.pytorch.graph.reject import Reject

if TYPE_CHECKING:
    from openneutron.pytorch.operators.rules.context import Context
    from openneutron.pytorch.operators.rules.values import Value


Rule = Callable[[Node, "Context"], "Value | Reject"]
"""Adds what a node becomes to the context and returns its value."""


class Layout(Enum):
    """The effect of a rule on the memory order of its first operand."""

    KEEPS = "it works on any order and keeps it"
    NHWC = "it works on channels innermost"
    OWN = "its result lies in an order of its own"


@dataclass(frozen=True, slots=True)
class LowerRule:
    """moves: it commutes with quantization, so that its result may keep the input's (maxima do, means don't).
    exact: its result may be integers or booleans.
    renames: the result holds the values of the first operand in the same order.
    fuses: a clamp behind it can run inside. preserve: whether ExecuTorch, which would take this call apart, is asked not to.
    against: gives a reason against a call that follows from the call itself, whatever the quantization of its operands is.
    """

    rule: Rule
    moves: bool = False
    fuses: bool = False
    preserve: Callable[[Node], bool] | None = None
    layout: Layout = Layout.KEEPS
    exact: bool = False
    renames: bool = False
    against: Callable[[Node], Reject | None] | None = None


LOWER_RULES: dict[str, LowerRule] = {}


def lowers(
    *targets: str,
    moves: bool = False,
    fuses: bool = False,
    preserve: Callable[[Node], bool] | None = None,
    layout: Layout = Layout.KEEPS,
    exact: bool = False,
    renames: bool = False,
    against: Callable[[Node], Reject | None] | None = None,
) -> Callable[[Rule], Rule]:
    """Register a rule for these operators (``aten.convolution.default``)."""

    def register(rule: Rule) -> Rule:
        for target in targets:
            assert target not in LOWER_RULES, f"two lowering rules for {target}"
            LOWER_RULES[target] = LowerRule(rule, moves, fuses, preserve, layout, exact, renames, against)
        return rule

    return register


def always(node: Node) -> bool:
    """Return True: every call stays whole."""
    del node
    return True
