# SPDX-License-Identifier: BSD-3-Clause
"""Which operator a node calls."""

from __future__ import annotations

import torch
from torch.fx import Node


def overload_of(node: Node) -> torch._ops.OpOverload | None:
    """The ATen overload a node calls, of the edge dialect's wrapper too; None where it calls something else."""
    target = node.target if isinstance(node.target, torch._ops.OpOverload) else getattr(node.target, "_op", None)
    return target if isinstance(target, torch._ops.OpOverload) else None
