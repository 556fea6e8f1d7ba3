# SPDX-License-Identifier: BSD-3-Clause
"""Give operators that no partition of the NPU has to ExecuTorch's XNNPACK backend."""

from __future__ import annotations

from dataclasses import replace

from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import EdgeProgramManager
from executorch.exir.backend.partitioner import PartitionResult
from torch.export import ExportedProgram
from torch.fx import Node

from openneutron.options import XNNPACK
from openneutron.pytorch.graph.program import is_compute
from openneutron.pytorch.partition.delegation import Delegation, computes, counts

TAG = "delegation_tag"
"""The key of ``node.meta`` in which ExecuTorch keeps the partition of a node."""


class LeftoversPartitioner(XnnpackPartitioner):
    """An XNNPACK partitioner that leaves out partitions in which no operator computes or moves values.

    After a call of ``partition``, ``parts`` has the number of the partition of each node, by the node's name.
    """

    def __init__(self) -> None:
        super().__init__()
        self.parts: dict[str, int] = {}

    def _check_if_called_from_to_backend(self) -> bool:
        """Return False: ExecuTorch's warning of an older workflow does not apply to a second backend."""
        return False

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        """Return the program with the nodes of each XNNPACK partition tagged. ExecuTorch calls this method.

        Partitions of conversions or views alone are not tagged, since a delegate call would gain nothing:
        ExecuTorch's kernel for ``dequantize`` is as fast as XNNPACK's, and a view takes no call at all.
        """
        result = super().partition(exported_program)
        nodes = [
            node for node in result.tagged_exported_program.graph.nodes if node.meta.get(TAG) in result.partition_tags
        ]
        kept = dict.fromkeys(node.meta[TAG] for node in nodes if _works(node))
        numbers = {tag: len(set(self.parts.values())) + place for place, tag in enumerate(kept)}
        for node in nodes:
            if node.meta[TAG] in kept:
                self.parts[node.name] = numbers[node.meta[TAG]]
            else:
                del node.meta[TAG]
        tags = {tag: spec for tag, spec in result.partition_tags.items() if tag in kept}
        return PartitionResult(tagged_exported_program=result.tagged_exported_program, partition_tags=tags)


def _works(node: Node) -> bool:
    return node.op == "call_function" and is_compute(node) and counts(node) and computes(node)


def with_xnnpack(edge: EdgeProgramManager, delegation: Delegation) -> tuple[EdgeProgramManager, Delegation]:
    """Return the program in which XNNPACK computes operators that are on the CPU, and the delegation that says which
    of them XNNPACK computes. If no operator on the CPU computes, both are returned unchanged."""
    if not any(item.computes for item in delegation.on_cpu):
        return edge, delegation
    partitioner = LeftoversPartitioner()
    edge = edge.to_backend(partitioner)
    on_cpu = (replace(item, kernels=XNNPACK) if item.node in partitioner.parts else item for item in delegation.on_cpu)
    return edge, replace(delegation, on_cpu=tuple(on_cpu), cpu_parts=len(set(partitioner.parts.values())))
