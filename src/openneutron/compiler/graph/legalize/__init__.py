# SPDX-License-Identifier: BSD-3-Clause
"""Graphs of LiteRT operators to graphs the kernels can take with as few calls as possible; no bit changes."""

from __future__ import annotations

from collections.abc import Callable

from openneutron.compiler.graph.legalize.fuse import (
    fuse_activation,
    fuse_crop,
    fuse_padding,
    view_before_pad,
)
from openneutron.compiler.graph.legalize.fuse_dilation import fuse_dilation
from openneutron.compiler.graph.legalize.simplify import (
    VIEWS,
    drop_zero_sums,
    rename_identities,
    rescale_joined,
    take_apart,
    unchanged_operand,
)
from openneutron.compiler.graph.legalize.split_weights import split_weights
from openneutron.ir import Graph

PASSES: tuple[Callable[[Graph], Graph], ...] = (
    fuse_dilation,
    take_apart,
    drop_zero_sums,
    rescale_joined,
    rename_identities,
    view_before_pad,
    fuse_padding,
    fuse_crop,
    fuse_activation,
    split_weights,
)


def legalize(graph: Graph) -> Graph:
    """The graph after every pass, once, in order."""
    for rewrite in PASSES:
        graph = rewrite(graph)
        graph.verify()
    return graph


__all__ = ["PASSES", "VIEWS", "legalize", "unchanged_operand"]
