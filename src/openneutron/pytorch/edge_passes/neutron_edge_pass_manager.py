# SPDX-License-Identifier: BSD-3-Clause
"""The passes on edge programs that come before partitioning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch.fx.passes.infra.pass_manager import PassManager

from openneutron.pytorch.edge_passes.duplicate_dequantize import DuplicateDequantizePass


class NeutronEdgePassManager(PassManager):
    """For ``to_edge_transform_and_lower(transform_passes=…)``. No pass is needed: the lowering takes clusters as they come."""

    def __init__(self, passes: Sequence[Any] | None = None) -> None:
        super().__init__(passes=list(passes) if passes is not None else [DuplicateDequantizePass()])
