# SPDX-License-Identifier: BSD-3-Clause
"""The types of activations that a chip computes on."""

from __future__ import annotations

from openneutron.ir import DType, Graph, Node
from openneutron.ops.recurrent import state_operands
from openneutron.targets import Target
from openneutron.targets.target import INT16


def type_reason(graph: Graph, node: Node, target: Target | None) -> str | None:
    """Return the reason why a node computes on activations of a type that the target does not have, or None.

    The table of operators states the types of kernels; all chips run int8. The states of a recurrent layer do not count as activations:
    an LSTM's cell and an SVDF's kept results are int16 with int8 activations, and no chip's multipliers compute their products of 16 by
    16 bits. Without a target no type is refused.
    """
    if target is None or INT16 in target.npu.data_types.value:
        return None
    states = set(state_operands(node))
    if states:
        states.update(node.outputs[1:])
    for name in (*node.inputs, *node.outputs):
        if name in states:
            continue
        tensor = graph.tensors.get(name) if name is not None else None
        if tensor is None or tensor.is_constant or tensor.quant is None:
            continue
        if tensor.dtype is DType.INT16:
            return f"its activations are int16; {target.name} computes on {target.npu.data_types} activations"
    return None
