# SPDX-License-Identifier: BSD-3-Clause
"""The table of decompositions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Keep:
    """The result of a decomposition for a call that it leaves whole, with a reason and a suggestion for the user."""

    reason: str = ""
    hint: str = ""


KEPT = Keep()

Decomposition = Callable[..., Any]
"""Takes the operator's own arguments by the names of its schema, all of them, and computes its result by simpler operators.
Shapes are fixed numbers. Its tensors hold no values: Python may branch on shapes and numbers only, and constants
come from torch.full, ones, arange, tril and such, not from torch.tensor. Of several results it may give None for those
it can't compute: calls where one of them is used are left alone."""

DECOMPOSITIONS: dict[str, Decomposition] = {}


def decomposes(*targets: str) -> Callable[[Decomposition], Decomposition]:
    """Register a function for these operators (``aten.layer_norm.default``)."""

    def register(function: Decomposition) -> Decomposition:
        for target in targets:
            assert target not in DECOMPOSITIONS, f"two decompositions of {target}"
            DECOMPOSITIONS[target] = function
        return function

    return register
