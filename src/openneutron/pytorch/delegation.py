# SPDX-License-Identifier: BSD-3-Clause
"""Which nodes of a program went to the NPU, and why each of the others did not."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from torch.fx import Node

from openneutron.diagnostics import OnCpu
from openneutron.pytorch.lower.program import GETITEM, module_path, op_name, short_name, source_line
from openneutron.pytorch.lower.rules import Reject


@dataclass(frozen=True, slots=True)
class NodeOnCpu(OnCpu):
    """A node that stays on the CPU. ``name`` is the module it came from, or the node's own name where that is not known;
    ``line`` is the line of the model's source."""

    node: str = ""
    module: str = ""
    line: str = ""


@dataclass(frozen=True, slots=True)
class NodeOnNpu:
    """A delegated node and the number of the delegate call it is in."""

    operator: str
    name: str
    node: str
    partition: int


@dataclass(frozen=True, slots=True)
class Delegation:
    """Every operator of one method. Quantize and dequantize nodes count for nothing, on either side."""

    on_npu: tuple[NodeOnNpu, ...] = ()
    on_cpu: tuple[NodeOnCpu, ...] = ()
    partitions: int = 0

    def __str__(self) -> str:
        total = len(self.on_npu) + len(self.on_cpu)
        head = f"{len(self.on_npu)} of {total} operators on the NPU, in {self.partitions} delegate calls"
        return "\n".join([head, *(str(item) for item in self.on_cpu)])


def counts(node: Node) -> bool:
    """Whether the node is an operator of the model to a user, not a part of another one."""
    return op_name(node) != GETITEM


def on_cpu(node: Node, reject: Reject) -> NodeOnCpu:
    module = module_path(node)
    return NodeOnCpu(
        operator=short_name(node),
        name=module or node.name,
        reason=reject.reason,
        way_out=reject.hint,
        node=node.name,
        module=module,
        line=source_line(node),
    )


def on_npu(nodes: Iterable[Node], partition: int) -> list[NodeOnNpu]:
    return [
        NodeOnNpu(short_name(node), module_path(node) or node.name, node.name, partition)
        for node in nodes
        if counts(node)
    ]
