# SPDX-License-Identifier: BSD-3-Clause
"""Find islands: partitions between operators on the CPU, which take less time on the CPU too.

Values are quantized on their way into an island and dequantized on their way out. On the CPU the operators of an island compute in float, as
their neighbours do, without these conversions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from executorch.exir import EdgeProgramManager
from torch.fx import GraphModule, Node
from torch.fx.passes.infra.pass_base import PassResult

from openneutron.compiler.cost.cycles import call_cost
from openneutron.compiler.cost.estimate import estimate, total, work_of_call, work_of_host
from openneutron.compiler.cost.host import HostKind, HostOperator, cpu_milliseconds
from openneutron.options import PORTABLE, CompileOptions
from openneutron.pytorch.graph.program import Reject, is_compute, is_dequantize, is_quantize
from openneutron.pytorch.partition.delegation import COST, on_cpu, work_of
from openneutron.pytorch.partition.gather import Partition
from openneutron.targets import Target

HINT = "Set cut_by_cost=False (--no-cut-by-cost) to have it on the NPU."


def islands(
    partitions: Sequence[Partition], target: Target, options: CompileOptions
) -> Iterator[tuple[Partition, Reject | None]]:
    """Yield each island, which is a partition between operators on the CPU. It comes with the reason to leave it on
    the CPU if it takes longer on the NPU than on the CPU, or else with None. Its time on the NPU includes the
    conversions of its inputs and outputs.

    Partitions with states, and partitions whose calls are not known, are left out. Without ``cut_by_cost`` there are
    no reasons.
    """
    inside = {node for part in partitions for node in part.nodes}
    for part in partitions:
        if part.states or part.trial is None or not _is_island(part, inside):
            continue
        reject = None
        if options.cuts_by_cost:
            on_npu, beside = _npu_milliseconds(part, target), _cpu_milliseconds(part, target, options)
            if beside is not None and beside < on_npu:
                words = [f"{time * 1000:,.1f} us" for time in (on_npu, beside)]
                reason = f"it is between operators on the CPU: {words[0]} on the NPU with the conversions around it, {words[1]} on the CPU"
                reject = Reject(reason, HINT, COST)
        yield part, reject


def _is_island(part: Partition, inside: set[Node]) -> bool:
    """Return whether all inputs of a partition come from operators on the CPU, and all its outputs go to such operators alone."""

    def is_on_cpu(nodes: Iterable[Node], onward: bool) -> bool:
        for node in nodes:
            if is_quantize(node) or is_dequantize(node):
                near = list(node.users) if onward else node.all_input_nodes[:1]
                if node in inside or not is_on_cpu(near, onward):
                    return False
            elif node in inside or not is_compute(node):
                return False
        return True

    own = set(part.nodes)
    users = [user for node in part.outputs for user in node.users if user not in own]
    return bool(part.inputs) and is_on_cpu(part.inputs, False) and is_on_cpu(users, True)


def _values(node: Node) -> int:
    value = node.meta["val"]
    return math.prod(value.shape)


def _npu_milliseconds(part: Partition, target: Target) -> float:
    assert part.trial is not None
    calls = [call for calls in part.trial.calls.values() for call in calls]
    conversions = [HostOperator(HostKind.CONVERSION, _values(node)) for node in (*part.inputs, *part.outputs)]
    parts = [work_of_call(call, call_cost(call, target), target) for call in calls]
    return estimate(total((*parts, work_of_host(conversions, target))), target).milliseconds


def _cpu_milliseconds(part: Partition, target: Target, options: CompileOptions) -> float | None:
    """Return the time of a partition's operators in float on the CPU, with the conversion of their weights; None where it is not known."""
    kernels = "" if options.cpu_kernels == PORTABLE else options.cpu_kernels
    nodes = [node for unit in part.units for node in unit.compute]
    times = [
        cpu_milliseconds(replace(on_cpu(node, Reject("")), kernels=kernels), target)
        for node in nodes
        if work_of(node)[0]
    ]
    weights = [node for unit in part.units for node in unit.nodes if is_dequantize(node) and not _is_computed(node)]
    known = [time for time in times if time is not None]
    if len(known) < len(nodes):
        return None
    conversions = work_of_host([HostOperator(HostKind.CONVERSION, _values(node)) for node in weights], target)
    return math.fsum(known) + estimate(conversions, target).milliseconds


def _is_computed(node: Node) -> bool:
    return node.all_input_nodes[0].op == "call_function"


def in_float(edge: EdgeProgramManager, names: set[str]) -> EdgeProgramManager:
    """Return the program in which the operators with these names compute in float. Each pair of a quantize and a
    dequantize node directly before or after such an operator is removed, and all readers of the pair read the float
    value."""

    def without_pairs(module: GraphModule) -> PassResult:
        for node in list(module.graph.nodes):
            if not is_dequantize(node) or not is_quantize(node.all_input_nodes[0]):
                continue
            source = node.all_input_nodes[0].all_input_nodes[0]
            if source.name in names or any(user.name in names for user in node.users):
                node.replace_all_uses_with(source)
        module.graph.eliminate_dead_code()
        module.recompile()
        return PassResult(module, True)

    changed: EdgeProgramManager = edge.transform([without_pairs])
    return changed
