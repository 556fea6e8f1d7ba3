# SPDX-License-Identifier: BSD-3-Clause
"""Tags the nodes of an edge program that run on the NPU."""

from __future__ import annotations

import copy
import difflib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import torch
from executorch.exir.backend.compile_spec_schema import CompileSpec
from executorch.exir.backend.partitioner import DelegationSpec, Partitioner, PartitionResult
from executorch.exir.backend.utils import tag_constant_data
from torch.export import ExportedProgram
from torch.fx import Graph, GraphModule, Node

from openneutron.errors import InvalidOptionError
from openneutron.pytorch.backend.custom_delegation_options import CustomDelegationOptions
from openneutron.pytorch.backend.neutron_target_spec import NeutronTargetSpec
from openneutron.pytorch.compile_spec import decode
from openneutron.pytorch.delegation import Delegation, counts, on_cpu, on_npu
from openneutron.pytorch.edge_passes.duplicate_dequantize import duplicate_dequantize, has_shared_dequantize
from openneutron.pytorch.lower import LOWER_RULES, Constants
from openneutron.pytorch.lower.program import is_compute, op_name
from openneutron.pytorch.nxp_backend import NeutronBackend, claim_name
from openneutron.pytorch.partition import Partitioning, PartitionOptions, partition
from openneutron.pytorch.pointwise import is_pointwise

NXP_DELEGATION_TAG = "delegation_tag"

HISTORY = "from_node"
"""Where torch.export keeps the nodes that a node came from."""

TAKEN_APART = {"aten.linear.default": ("aten.addmm.default", "aten.mm.default")}
"""What operators that may stay whole are known as to users of other backends."""


@final
class NeutronPartitioner(Partitioner):
    """Delegates all that the compiler takes, in as few calls as possible.

    compile_spec: from ``generate_neutron_compile_spec``. post_quantization_state_dict: the quantized module's tensors, by
    name; ExecuTorch hides them while it partitions, and nothing but their shapes is needed. preserve_ops: ATen operators to
    keep whole where all of their calls can be delegated, beside those the lowering rules ask for; check_op_support: has a
    say in which calls those are.

    ``delegations`` tells afterwards, for each program partitioned, what went where and why.
    """

    def __init__(
        self,
        compile_spec: list[CompileSpec],
        neutron_target_spec: NeutronTargetSpec,
        custom_delegation_options: CustomDelegationOptions | None = None,
        post_quantization_state_dict: Mapping[str, torch.Tensor] | None = None,
        preserve_ops: list[torch._ops.OpOverload] | None = None,
        check_op_support: Callable[[Node], bool] | None = None,
    ) -> None:
        super().__init__()
        self._compile_spec = compile_spec
        self._options = decode(compile_spec)
        self.delegation_spec = DelegationSpec(NeutronBackend.__name__, compile_spec)
        self.neutron_target_spec = neutron_target_spec
        self.custom_delegation_options = custom_delegation_options or CustomDelegationOptions()
        self.post_quantization_state_dict = post_quantization_state_dict
        self.preserve_ops = tuple(preserve_ops or ())
        self.check_op_support = check_op_support
        self.delegations: list[Delegation] = []
        if self._options.target != neutron_target_spec.get_name():
            raise InvalidOptionError(
                f"NeutronPartitioner: the compile spec is for '{self._options.target}', the target spec for "
                f"'{neutron_target_spec.get_name()}'. Make both for the same target."
            )

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        claim_name()
        graph = exported_program.graph_module.graph
        check_names(self._options.patterns, graph)
        found = self._partitioned(exported_program)
        tags: dict[str, DelegationSpec] = {}
        for number, part in enumerate(found.partitions):
            tag = f"tag{number}"
            for node in part.nodes:
                node.meta[NXP_DELEGATION_TAG] = tag
            tags[tag] = self.delegation_spec
        tag_constant_data(exported_program)
        self.delegations.append(delegation_of(graph, found))
        return PartitionResult(tagged_exported_program=exported_program, partition_tags=tags)

    def _partitioned(self, program: ExportedProgram) -> Partitioning:
        constants = Constants(program, self.post_quantization_state_dict)
        options = PartitionOptions(
            self._options.patterns,
            self._options.use_neutron_for_format_conversion,
            self.custom_delegation_options.allow_no_op_partitions,
        )
        return partition(program.graph_module.graph, constants, options)

    def transform_for_pre_decomposition(self, exported_program: ExportedProgram) -> ExportedProgram:
        """The program with a dequantize node for each reader, so that each can be delegated or not, and without history."""
        graph = exported_program.graph_module.graph
        if not has_shared_dequantize(graph) and not any(HISTORY in node.meta for node in graph.nodes):
            return exported_program
        module = _copied(exported_program.graph_module)
        duplicate_dequantize(module.graph)
        module.recompile()
        return exported_program._update(module, exported_program.graph_signature)

    def ops_to_not_decompose(
        self, ep: ExportedProgram
    ) -> tuple[list[torch._ops.OpOverload], Callable[[Node], bool] | None]:
        """The operators of this ATen program that are delegated whole, wherever they are called.

        An operator with a call that can't be is taken apart everywhere: the CPU may have no kernel for it whole.
        """
        graph = ep.graph_module.graph
        wanted = {str(op) for op in self.preserve_ops if str(op) in LOWER_RULES}
        calls = [node for node in graph.nodes if node.op == "call_function"]
        for node in calls:
            rule = LOWER_RULES.get(str(node.target))
            if is_pointwise(node) if rule is None else rule.preserve is not None and rule.preserve(node):
                wanted.add(str(node.target))
        calls = [node for node in calls if str(node.target) in wanted]
        if not calls:
            return [], None
        rejected = self._partitioned(ep).rejected
        kept: dict[Any, bool] = {}
        for node in calls:
            fits = node not in rejected and not self._is_excluded_in_edge(node)
            fits = fits and (self.check_op_support is None or self.check_op_support(node))
            kept[node.target] = kept.get(node.target, True) and fits
        return [target for target, fits in kept.items() if fits], None

    def _is_excluded_in_edge(self, node: Node) -> bool:
        """Whether a name the node may have in the edge program, whole or taken apart, is one not to delegate."""
        names = [op_name(node), *TAKEN_APART.get(op_name(node), ())]
        return any(pattern in name.replace(".", "_") for name in names for pattern in self._options.patterns)


def _copied(module: GraphModule) -> GraphModule:
    """A copy without the nodes' histories: each pass of ExecuTorch would copy them again, a fifth of the time of lowering."""
    histories = {node: node.meta.pop(HISTORY) for node in module.graph.nodes if HISTORY in node.meta}
    try:
        return copy.deepcopy(module)
    finally:
        for node, history in histories.items():
            node.meta[HISTORY] = history


def delegation_of(graph: Graph, found: Partitioning) -> Delegation:
    """The partitioning in words."""
    npu = [
        item
        for number, part in enumerate(found.partitions)
        for item in on_npu((node for node in part.nodes if is_compute(node)), number)
    ]
    cpu = [on_cpu(node, found.rejected[node]) for node in graph.nodes if node in found.rejected and counts(node)]
    return Delegation(tuple(npu), tuple(cpu), len(found.partitions))


def check_names(patterns: Sequence[str], graph: Graph) -> None:
    """Raises InvalidOptionError for a pattern that is part of no node's name and of no operator we know."""
    nodes = [node.name for node in graph.nodes if is_compute(node)]
    operators = [name.replace(".", "_") for name in LOWER_RULES]
    for pattern in patterns:
        if any(pattern in name for name in (*nodes, *operators)):
            continue
        stems = {
            name: name.removeprefix("aten_").removesuffix("_default") for name in dict.fromkeys((*nodes, *operators))
        }
        bare = pattern.removeprefix("aten_")
        near = difflib.get_close_matches(bare, stems.values(), 3, 0.5)
        hint = f" Did you mean {' or '.join(repr(name) for name in near)}?" if near else ""
        raise InvalidOptionError(
            f"operators_not_to_delegate: '{pattern}' is in the name of no operator of the model.{hint}"
        )
