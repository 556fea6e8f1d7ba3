# SPDX-License-Identifier: BSD-3-Clause
"""The passes on edge programs before partitioning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch.fx import GraphModule
from torch.fx.passes.infra.pass_base import PassResult
from torch.fx.passes.infra.pass_manager import PassManager

from openneutron.pytorch.graph.rewriting import duplicate_dequantize


class NeutronEdgePassManager(PassManager):
    """A pass manager for ``to_edge_transform_and_lower(transform_passes=…)``.

    ``passes`` by default has only ``DuplicateDequantizePass``. A program needs none of the passes: it can be lowered without them too.
    """

    def __init__(self, passes: Sequence[Any] | None = None) -> None:
        super().__init__(passes=list(passes) if passes is not None else [DuplicateDequantizePass()])


class DuplicateDequantizePass:
    """A pass for ExecuTorch's pass managers that calls ``duplicate_dequantize``."""

    def __call__(self, graph_module: GraphModule) -> PassResult:
        changed = duplicate_dequantize(graph_module.graph)
        if changed:
            graph_module.recompile()
        return PassResult(graph_module, changed)
