# SPDX-License-Identifier: BSD-3-Clause
"""A table of the ATen operators that only move values of their first operand, with the most that each may change."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType

import torch
from torch.fx import Node

_aten = torch.ops.aten


class Change(IntEnum):
    """The most that an operator changes. Each kind may change what the kinds before it may."""

    SAME = 0
    """The result is the operand."""
    VIEW = 1
    """The result has the elements of the operand in the same order in another shape."""
    PERMUTED = 2
    """The result has each element of the operand once."""
    TAKEN = 3
    """Each element of the result is an element of the operand. An element may be left out or repeated."""


MOVES: Mapping[object, Change] = MappingProxyType(
    {
        **{getattr(_aten, name).default: Change.SAME for name in ("alias", "clone", "contiguous", "detach")},
        _aten.flatten.using_ints: Change.VIEW,
        _aten.reshape.default: Change.VIEW,
        _aten.squeeze.default: Change.VIEW,
        _aten.squeeze.dim: Change.VIEW,
        _aten.squeeze.dims: Change.VIEW,
        _aten.unflatten.int: Change.VIEW,
        _aten.unsqueeze.default: Change.VIEW,
        _aten.view.default: Change.VIEW,
        _aten.flip.default: Change.PERMUTED,
        _aten.permute.default: Change.PERMUTED,
        _aten.t.default: Change.PERMUTED,
        _aten.transpose.int: Change.PERMUTED,
        _aten.expand.default: Change.TAKEN,
        _aten.gather.default: Change.TAKEN,
        _aten.index.Tensor: Change.TAKEN,
        _aten.index_select.default: Change.TAKEN,
        _aten.repeat.default: Change.TAKEN,
        _aten.select.int: Change.TAKEN,
        _aten.slice.Tensor: Change.TAKEN,
    }
)
"""The operators with their kinds.

A result that depends only on the values, such as their bounds, is the same before and after most moves. A sum or a mean is the same
before and after views and permutations only: a move of kind ``TAKEN`` changes how often each element is added.
"""


def is_move(node: Node, most: Change = Change.TAKEN) -> bool:
    """Return whether a node calls an operator of ``MOVES`` whose kind is at most ``most``."""
    return node.op == "call_function" and MOVES.get(node.target, most + 1) <= most
