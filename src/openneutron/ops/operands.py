# SPDX-License-Identifier: BSD-3-Clause
"""What a node's operands hold."""

from __future__ import annotations

import numpy as np

from openneutron.ir import Graph, Node


def constant_values(graph: Graph, node: Node, index: int) -> tuple[int, ...]:
    """A parameter operand's values; asserts that it is a constant."""
    tensor = graph.operand(node, index)
    assert tensor is not None and tensor.data is not None
    return tuple(int(value) for value in np.asarray(tensor.data).reshape(-1))


def input_shape(graph: Graph, node: Node) -> tuple[int, ...]:
    """The shape of its first operand, which must be there."""
    data = graph.operand(node, 0)
    assert data is not None
    return data.shape
