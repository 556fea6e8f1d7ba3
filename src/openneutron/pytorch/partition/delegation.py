# SPDX-License-Identifier: BSD-3-Clause
"""Which nodes of a program went to the NPU, and why each of the others did not."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch.fx import Node

from openneutron.diagnostics import Fallback, OnCpu
from openneutron.pytorch.backend.cpu_kernels import has_cpu_kernel
from openneutron.pytorch.graph.macs import macs
from openneutron.pytorch.graph.origin import call_of, title, written
from openneutron.pytorch.graph.program import GETITEM, module_path, op_name, source_line
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
