# SPDX-License-Identifier: BSD-3-Clause
"""Lowered partitions that the partitioner passes on to the backend, so that no partition is lowered and selected twice."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from executorch.exir.backend.compile_spec_schema import CompileSpec
from torch.fx import Node

from openneutron.compiler.select.select import Trial
from openneutron.pytorch.backend.compile_spec import DelegateOptions
from openneutron.pytorch.graph.program import Constants, op_name
from openneutron.pytorch.lower.lower import Lowered, PartitionTensor
from openneutron.pytorch.lower.units import Unit

HANDOVER = "openneutron_handover"
"""The key of ``node.meta`` of a partition's first node. ExecuTorch copies it to the delegated program."""


@dataclass(frozen=True, slots=True, eq=False)
class Handover:
    """A partition as the partitioner lowered and tried it.

    ``key`` states the nodes, in the order in which they were lowered, and what crosses into and out of the partition;
    ``tensors`` are the constants by the names of their nodes. A delegated program that differs in one of them is lowered anew.
    """

    specs: Sequence[CompileSpec]
    delegate: DelegateOptions
    key: tuple[str, ...]
    tensors: Mapping[str, torch.Tensor]
    lowered: Lowered = field(repr=False)
    trial: Trial | None = field(repr=False)

    def __deepcopy__(self, memo: dict[int, object]) -> Handover:
        return self

    def taken(
        self, units: Iterable[Unit], constants: Constants, inputs: Sequence[Node], outputs: Sequence[Node]
    ) -> Lowered | None:
        """Return the lowered partition with the nodes of the delegated program; None where that is another program."""
        units = list(units)
        if self.key != key_of(units, inputs, outputs):
            return None
        tensors = tensors_of(units, constants)
        if tensors.keys() != self.tensors.keys():
            return None
        if not all(_same(tensor, self.tensors[name]) for name, tensor in tensors.items()):
            return None
        nodes = {node.name: node for node in (*inputs, *outputs)}

        def here(items: Iterable[PartitionTensor]) -> tuple[PartitionTensor, ...]:
            return tuple(replace(item, node=nodes[item.node.name]) for item in items)

        return replace(self.lowered, inputs=here(self.lowered.inputs), outputs=here(self.lowered.outputs), owners={})


def key_of(units: Iterable[Unit], inputs: Iterable[Node], outputs: Iterable[Node]) -> tuple[str, ...]:
    """Return all of a partition that lowering reads, besides the values of constants, as text."""
    nodes = [node for unit in units for node in unit.nodes]
    sources = dict.fromkeys(source for node in nodes for source in node.all_input_nodes)
    return (
        *(f"{node.name} = {op_name(node)} {node.args} {node.kwargs} {_layout(node)}" for node in nodes),
        *(f"{node.name} {_layout(node)}" for node in sources),
        f"inputs {[node.name for node in inputs]}",
        f"outputs {[node.name for node in outputs]}",
    )


def tensors_of(units: Iterable[Unit], constants: Constants) -> dict[str, torch.Tensor]:
    """Return the constants that the units read, by the names of their nodes."""
    sources = dict.fromkeys(source for unit in units for node in unit.nodes for source in node.all_input_nodes)
    return {node.name: constants.tensor(node) for node in sources if node in constants}


def _layout(node: Node) -> str:
    values = node.meta.get("val")
    tensors = values if isinstance(values, (list, tuple)) else (values,)
    return " ".join(
        f"{value.dtype}{list(value.shape)}{list(value.stride())}" if isinstance(value, torch.Tensor) else "-"
        for value in tensors
    )


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one is other or (one.dtype == other.dtype and torch.equal(one, other))
