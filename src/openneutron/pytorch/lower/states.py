# SPDX-License-Identifier: BSD-3-Clause
"""Buffers that a program changes, as states of a partition.

In a quantized program such a buffer is float, and quantized where it is read. A partition that alone reads and writes the buffer
keeps it as int8, between the quantize node that reads it and the dequantize node that ExecuTorch would store::

    buffer -> quantize -> dequantize -> operators -> quantize -> dequantize -> buffer
              ^ from here on                         ^ to here, the value is the partition's state

Both sides have one quantization, so that a value that leaves the partition and comes back would be the same int8 value.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from torch.export import ExportedProgram
from torch.fx import Node

from openneutron.ir import State
from openneutron.pytorch.graph.program import Constants, Reject, is_dequantize, is_quantize, quant_params, quantized
from openneutron.pytorch.operators.rules.results import Value, lies_as

if TYPE_CHECKING:
    from openneutron.pytorch.operators.rules.context import Context

RULE = "states"


@dataclass(frozen=True, slots=True, eq=False)
class StateNodes:
    """A buffer that can be a state: its placeholder, the quantize nodes that read it, the quantize node of its new value, and the
    dequantize node behind that, which the program's signature names."""

    target: str
    buffer: Node
    reads: tuple[Node, ...]
    update: Node
    write: Node

    @property
    def outside(self) -> tuple[Node, ...]:
        """Return the nodes that belong to no unit, and to the partition that has the state."""
        return (*self.reads, self.write)

    def is_within(self, nodes: Collection[Node]) -> bool:
        """Return whether these nodes alone read and write the buffer."""
        return self.update in nodes and all(user in nodes for read in self.reads for user in read.users)


@dataclass(frozen=True, slots=True, eq=False)
class States:
    """The buffers that a program changes: those that a partition can keep, and reasons for the others."""

    found: tuple[StateNodes, ...] = ()
    refused: tuple[tuple[Node, Reject], ...] = ()


NO_STATES = States()


def states_of(program: ExportedProgram, constants: Constants) -> States:
    """Return the buffers that a program changes."""
    signature = program.graph_signature
    nodes = {node.name: node for node in program.graph_module.graph.nodes}
    buffers = {target: name for name, target in signature.inputs_to_buffers.items()}
    written = [str(item) for item in signature.buffers_to_mutate]
    (results,) = program.graph_module.graph.output_node().args
    assert isinstance(results, Sequence)
    found: list[StateNodes] = []
    refused: list[tuple[Node, Reject]] = []
    for name, target in signature.buffers_to_mutate.items():
        buffer, write = nodes[buffers[target]], nodes[name]
        reason = _objection(buffer, write, constants)
        if reason is None and (written.count(name) > 1 or list(results).count(write) > 1):
            reason = "its new value is that of another buffer or a result too"
        if reason is None:
            assert isinstance(write.args[0], Node)
            found.append(StateNodes(target, buffer, tuple(buffer.users), write.args[0], write))
        else:
            refused.append((buffer, Reject(reason, rule=RULE)))
    return States(tuple(found), tuple(refused))


def _objection(buffer: Node, write: Node, constants: Constants) -> str | None:
    if not buffer.users or not all(map(is_quantize, buffer.users)):
        return "its value is read without being quantized"
    if not is_dequantize(write) or not isinstance(write.args[0], Node) or not is_quantize(write.args[0]):
        return "its new value is not quantized"
    try:
        sides = [str(quant_params(node, constants)) for node in (*buffer.users, write, write.args[0])]
    except ValueError as error:
        return str(error)
    if len(set(sides)) > 1:
        return f"its value is read with {sides[0]} and its new value written with {sides[-1]}"
    return None


def lowered_state(state: StateNodes, context: Context, constants: Constants) -> State | None:
    """Return the state of a graph; None where no node of the graph reads it. Its new value gets the layout of the old one.

    Before the first run it is the buffer's value; zero bytes where that is not known yet.
    """
    read = state.reads[0]
    if read not in context.inputs:
        return None
    held = context.inputs[read]
    value = context.settled(context.values[state.update])
    if not lies_as(value.shape, value.order, held.order):
        value = Value(context.arranged(value, held.order), value.shape, held.order, value.shape)
    here, wanted = context.tensors[value.tensor], context.tensors[held.tensor]
    update = here.name
    if here.shape != wanted.shape:
        update = context.emit(
            "reshape", (update,), wanted.shape, here.quant, f"{read.name}_next", here.dtype, new_shape=wanted.shape
        )
    first = constants.state(state.buffer)
    if first is None:
        return State(held.tensor, update)
    stored = quantized(first, read, quant_params(read, constants)).transpose(held.order)
    return State(held.tensor, update, np.ascontiguousarray(stored).reshape(wanted.shape))
