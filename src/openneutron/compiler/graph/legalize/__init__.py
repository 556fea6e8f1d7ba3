# SPDX-License-Identifier: BSD-3-Clause
"""Graphs of LiteRT operators to graphs the kernels can take with as few calls as possible; no bit changes."""

from __future__ import annotations

from collections.abc import Callable, Collection

from openneutron.compiler.graph.legalize.fuse import (
    FUSED_NAME,
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

PASSES: tuple[tuple[Callable[[Graph], Graph], Collection[str]], ...] = (
    (fuse_dilation, ("batch_to_space_nd",)),
    (take_apart, ()),
    (drop_zero_sums, ("add", "sub")),
    (rescale_joined, ("concatenation",)),
    (rename_identities, ()),
    (view_before_pad, ("pad", "padv2")),
    (fuse_padding, ("pad", "padv2")),
    (fuse_crop, ("slice",)),
    (fuse_activation, FUSED_NAME),
    (split_weights, ()),
)
"""Each pass with the operators of which it rewrites one at least; none: it may rewrite any."""


def legalize(graph: Graph) -> Graph:
    """Return the graph after every pass that applies, once, in order."""
    for rewrite, operators in PASSES:
        if not operators or any(node.op in operators for node in graph.nodes):
            graph = rewrite(graph)
            graph.verify()
    return graph


__all__ = ["VIEWS", "legalize", "unchanged_operand"]
