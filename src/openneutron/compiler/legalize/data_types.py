# SPDX-License-Identifier: BSD-3-Clause
"""Check the types of activations against those that a chip's NPU computes on, and find the processor for a node."""

from __future__ import annotations

from openneutron import targets
from openneutron.ir import DType, Graph, Node
from openneutron.ops.recurrent import state_operands
from openneutron.targets import Target


def type_reason(graph: Graph, node: Node, target: Target | None, host_calls: bool) -> str | None:
    """Return the reason why a node can't be in a program for ``target``: its activations have a type that the NPU lacks. None if it can.

    With ``host_calls``, a node that the NPU can't run is in the program where the chip's host core can make kernel calls of it.
    Only int16 can be missing, since all chips compute on int8. Without a target the result is None. The states of a recurrent layer
    are not activations: the cell state of an LSTM and the kept results of an SVDF are int16 in layers with int8 activations. Their
    products of 16 by 16 bits do not use the multipliers of any chip.
    """
    if target is None or targets.takes_int16(target, host_calls):
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
            return reason_of(target)
    return None


def reason_of(target: Target) -> str:
    """Return the reason why the NPU of ``target``, which lacks int16, can't compute on int16 activations."""
    return f"its activations are int16; {target.name} computes on {target.npu.data_types} activations"
