# SPDX-License-Identifier: BSD-3-Clause
"""Which nodes of a program went to the NPU, and why each of the others did not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch.fx import Graph, Node

from openneutron.diagnostics import Fallback, OnCpu
from openneutron.pytorch.backend.cpu_kernels import has_cpu_kernel
from openneutron.pytorch.graph.macs import macs
from openneutron.pytorch.graph.order import Groups, components
from openneutron.pytorch.graph.program import GETITEM, call_of, module_path, op_name, source_line, title, written
from openneutron.pytorch.graph.reject import Reject
from openneutron.pytorch.operators.lowerings import LOWER_RULES


@dataclass(frozen=True, slots=True)
class NodeOnCpu(OnCpu):
    """A node that stays on the CPU. ``operator`` is what the user wrote, with what it became (``silu (aten.sigmoid)``), ``name`` the
    module it came from, or the node's own name where that is not known; ``overload`` is the operator in full, ``rule`` what refused
    it (a lowering rule, or a stage)."""

    node: str = ""
    module: str = ""
    overload: str = ""
    rule: str = ""


@dataclass(frozen=True, slots=True)
class NodeOnNpu:
    """A delegated node and the number of its delegate call. ``computes``: see ``OnCpu``."""

    operator: str
    name: str
    node: str
    partition: int
    computes: bool = True


@dataclass(frozen=True, slots=True)
class Delegation:
    """The placement of every operator of one method, without quantize and dequantize nodes. The text counts only
    operators that compute."""

    on_npu: tuple[NodeOnNpu, ...] = ()
    on_cpu: tuple[NodeOnCpu, ...] = ()
    partitions: int = 0

    def __str__(self) -> str:
        npu, cpu = (sum(item.computes for item in items) for items in (self.on_npu, self.on_cpu))
        head = f"{npu} of {npu + cpu} operators on the NPU, in {self.partitions} delegate calls"
        return "\n".join([head, *(str(item) for item in self.on_cpu)])


def counts(node: Node) -> bool:
    """Whether the node is an operator of the model to a user: not a part of another one, nor a number computed from a shape."""
    value = node.meta.get("val")
    has_tensor = value is None or isinstance(value, (torch.Tensor, list, tuple))
    return op_name(node) != GETITEM and has_tensor


def computes(node: Node) -> bool:
    """Return whether the node computes or moves values: false for views, identities and dropouts in eval mode."""
    rule = LOWER_RULES.get(op_name(node))
    if rule is None or not rule.renames or not node.args or not isinstance(node.args[0], Node):
        return True
    before, after = (each.meta.get("val") for each in (node.args[0], node))
    return not isinstance(before, torch.Tensor) or not isinstance(after, torch.Tensor) or before.dtype != after.dtype


def on_cpu(node: Node, reject: Reject, fallback: Fallback | None = None) -> NodeOnCpu:
    module = module_path(node)
    hints = [reject.hint] if reject.hint else []
    if not has_cpu_kernel(node):
        hints.append("ExecuTorch has no kernel for it on the CPU either: the program won't load.")
    return NodeOnCpu(
        operator=title(node),
        name=module or node.name,
        reason=reject.reason,
        way_out=" ".join(hints),
        line=source_line(node),
        written=written(node),
        call=call_of(node),
        fallback=fallback,
        node=node.name,
        module=module,
        overload=op_name(node),
        rule=reject.rule,
        macs=macs(node),
        computes=computes(node),
    )


def on_npu(nodes: Iterable[Node], partition: int) -> list[NodeOnNpu]:
    return [
        NodeOnNpu(title(node), module_path(node) or node.name, node.name, partition, computes(node))
        for node in nodes
        if counts(node)
    ]


def fallbacks(graph: Graph, partitions: Sequence[Iterable[Node]]) -> dict[Node, Fallback]:
    """For each call on the CPU what it costs together with those it exchanges values with on the CPU."""
    part_of = {node: number for number, nodes in enumerate(partitions) for node in nodes}
    on_cpu = [node for node in graph.nodes if node.op == "call_function" and node not in part_of]
    if not on_cpu or not part_of:
        return {}

    def beside(node: Node) -> list[Node]:
        near = (*node.all_input_nodes, *node.users)
        return [other for other in near if other.op == "call_function" and other not in part_of]

    groups = Groups(graph.nodes, lambda node: part_of.get(node, node))
    found: dict[Node, Fallback] = {}
    for island in components(on_cpu, beside):
        on_npu = {*part_of, *island}
        level = groups.levels(on_npu.__contains__)
        without = len({level[node] for node in on_npu})
        cost = Fallback(len(partitions), without, _bytes(island, part_of))
        found |= dict.fromkeys(island, cost)
    return found


def _bytes(island: Sequence[Node], part_of: Mapping[Node, int]) -> int:
    come = {source for node in island for source in node.all_input_nodes if source in part_of}
    go = [node for node in island if any(user in part_of for user in node.users)]
    return sum(_size(node) for node in (*come, *go))


def _size(node: Node) -> int:
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or any(not isinstance(extent, int) for extent in value.shape):
        return 0
    return value.numel() * value.element_size()
