# SPDX-License-Identifier: BSD-3-Clause
"""Delegate calls in an ATen program, before ExecuTorch takes its operators apart.

ExecuTorch's decompositions and passes trace every operator again, several times. An operator that ends inside a delegate
call gains nothing by that. So the partitions of the ATen program become delegate calls first, and ExecuTorch traces what
is left.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, final

import executorch.exir.lowered_backend_module as exir
import torch
from executorch.exir.backend.backend_api import MethodProgramsPartitionerSpec, to_backend
from executorch.exir.backend.partitioner import Partitioner, PartitionResult
from executorch.exir.delegate import executorch_call_delegate
from torch._guards import detect_fake_mode
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from openneutron.pytorch.graph.program import Reject, has_plain_strides, is_functional
from openneutron.pytorch.lower.lower import kept_float
from openneutron.pytorch.partition.delegation import UNITS, decomposed

HISTORY = "from_node"
"""The key under which torch.export keeps the nodes that a node came from."""


class NotNow(Exception):
    """The program is to be taken apart first."""


def has_free_order(program: ExportedProgram) -> bool:
    """Return whether the order of the program's nodes is free, as in the Edge program that is made of it: its operators
    change nothing in place, and there is no control flow."""
    signature = program.graph_signature
    mutated = signature.buffers_to_mutate or signature.user_inputs_to_mutate
    return not mutated and all(map(is_functional, program.graph_module.graph.nodes))


def delegated(program: ExportedProgram, tag: Callable[[ExportedProgram], PartitionResult]) -> ExportedProgram:
    """Return the ATen program with its partitions as delegate calls; the program itself where ``tag`` raises NotNow.

    ``tag`` marks the nodes of the partitions, as ``Partitioner.partition`` does.
    """
    program = _named_for_copies(program)
    try:
        lowered = to_backend(MethodProgramsPartitionerSpec({"forward": program}, {"forward": _Tagging(tag)}))["forward"]
    except NotNow:
        return program
    for name, child in lowered.graph_module.named_children():
        if isinstance(child, exir.LoweredBackendModule):
            setattr(lowered.graph_module, name, LoweredBackendModule.of(child))
    found: ExportedProgram = lowered
    return found


def copied(module: GraphModule) -> GraphModule:
    """Return a copy without the nodes' histories: each pass of ExecuTorch would copy them again, a fifth of the time of
    lowering."""
    histories = {node: node.meta.pop(HISTORY) for node in module.graph.nodes if HISTORY in node.meta}
    try:
        twins = copy.deepcopy(module)
        # fx makes other names of some (input_1 of input); the program's signature knows the nodes by the names they had.
        for node, twin in zip(module.graph.nodes, twins.graph.nodes, strict=True):
            twin.name = node.name
        return twins
    finally:
        for node, history in histories.items():
            node.meta[HISTORY] = history


def _named_for_copies(program: ExportedProgram) -> ExportedProgram:
    """Return the program with other names for the inputs that fx renames in a copy (``input``, a builtin of Python),
    since the signature knows them by name."""
    copied = copy.deepcopy(program.graph)
    names = {
        node.name: twin.name
        for node, twin in zip(program.graph.nodes, copied.nodes, strict=True)
        if node.name != twin.name
    }
    if not names:
        return program
    signature = copy.deepcopy(program.graph_signature)
    for old, new in names.items():
        signature.replace_all_uses(old, new)
    return program._update(GraphModule(program.graph_module, copied), signature)


def delegate_calls(module: GraphModule) -> list[list[Node]]:
    """Return the nodes of each delegate call that ``delegated`` made: the call and the results that it is read by."""
    return [
        [call, *call.users]
        for call in module.graph.find_nodes(op="call_function", target=executorch_call_delegate)
        if isinstance(getattr(module, str(call.args[0])), LoweredBackendModule)
    ]


def is_final(node: Node, reject: Reject) -> bool:
    """Return whether a CPU fallback of the ATen program is one of the Edge program too, with the same reason.

    ExecuTorch's decomposition may make pieces of an operator that can be delegated, and gives a view a memory format of
    its own.
    """
    if not all(map(_has_plain_layout, (node, *node.all_input_nodes))):
        return False
    return kept_float(node) is not None or reject.rule == UNITS or node.target not in decomposed()


def _has_plain_layout(node: Node) -> bool:
    values = node.meta.get("val")
    tensors = values if isinstance(values, (list, tuple)) else (values,)
    return all(has_plain_strides(value) for value in tensors if isinstance(value, torch.Tensor))


@final
class _Tagging(Partitioner):
    """A function as a partitioner."""

    def __init__(self, tag: Callable[[ExportedProgram], PartitionResult]) -> None:
        super().__init__()
        self._tag = tag

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        return self._tag(exported_program)


class LoweredBackendModule(exir.LoweredBackendModule):
    """A delegated program that costs no time in a trace: ExecuTorch's passes trace each delegate call by a run of what is
    in it, and copy it with all its nodes.

    Its name is ExecuTorch's: torch knows a delegate by the name of the module's class.
    """

    @classmethod
    def of(cls, module: exir.LoweredBackendModule) -> LoweredBackendModule:
        made = cls(
            _Known.of(module.original_module),
            module.backend_id,
            module.processed_bytes,
            module.compile_specs,
            module.named_data_store_output,
        )
        made.meta = module.meta
        return made

    def __deepcopy__(self, memo: dict[int, Any] | None) -> LoweredBackendModule:
        """Return a module with the same program: nothing in it changes."""
        del memo
        return self.of(self)


class _Known(ExportedProgram):
    """A program whose results in a trace are made of what its output node notes, without a run of its operators.

    Every pass of ExecuTorch traces a delegate call by a run of the program in it with FakeTensors.
    """

    @classmethod
    def of(cls, program: ExportedProgram) -> _Known:
        made = copy.copy(program)
        made.__class__ = cls
        return made

    def module(self, *args: Any, **kwargs: Any) -> GraphModule:
        whole = super().module
        (outputs,) = self.graph_module.graph.output_node().args
        values = [node.meta["val"] for node in outputs]

        def run(*inputs: Any) -> Any:
            mode = detect_fake_mode(inputs)
            if mode is None:
                return whole(*args, **kwargs)(*inputs)
            with mode:
                return tuple(
                    torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
                    for value in values
                )

        return run
