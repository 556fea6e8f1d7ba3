# SPDX-License-Identifier: BSD-3-Clause
"""The passes on edge programs that come before partitioning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch.fx import GraphModule
from torch.fx.passes.infra.pass_base import PassResult
from torch.fx.passes.infra.pass_manager import PassManager

from openneutron.pytorch.graph.rewriting import duplicate_dequantize


class NeutronEdgePassManager(PassManager):
    """For ``to_edge_transform_and_lower(transform_passes=…)``. No pass is needed: the lowering takes clusters as they come."""

    def __init__(self, passes: Sequence[Any] | None = None) -> None:
        super().__init__(passes=list(passes) if passes is not None else [DuplicateDequantizePass()])


class DuplicateDequantizePass:
    """``duplicate_dequantize`` as a pass for ExecuTorch's pass managers."""

    def __call__(self, graph_module: GraphModule) -> PassResult:
        changed = duplicate_dequantize(graph_module.graph)
        if changed:
            graph_module.recompile()
        return PassResult(graph_module, changed)
