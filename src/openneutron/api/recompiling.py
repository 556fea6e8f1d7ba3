# SPDX-License-Identifier: BSD-3-Clause
"""A program after ExecuTorch's passes, written to a ``.pte``, and its delegate calls compiled with other options.

ExecuTorch's passes read the nodes of a delegate call and never its payload. So another payload needs no pass again.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from executorch.exir import ExecutorchBackendConfig, ExecutorchProgramManager
from executorch.exir.backend.compile_spec_schema import CompileSpec
from executorch.exir.lowered_backend_module import LoweredBackendModule
from torch import nn
from torch.export import ExportedProgram
from torch.fx import GraphModule

from openneutron.pytorch.backend.compile_spec import decode
from openneutron.pytorch.partition.compiled import CompiledPartition, all_compiled

INFO = "_delegate_info_meta"
"""The key under which ExecuTorch keeps what a backend returns beside its payload."""


def backend_config() -> ExecutorchBackendConfig:
    """Return the settings of ``to_executorch``: payloads stay inside the program, aligned for the driver."""
    return ExecutorchBackendConfig(extract_delegate_segments=False, delegate_alignment=16)


def delegate_calls(module: nn.Module) -> Iterator[tuple[LoweredBackendModule, CompiledPartition]]:
    """Yield the delegate calls of a program that this backend compiled, those in branches of control flow too."""
    for child in module.modules():
        if isinstance(child, LoweredBackendModule) and isinstance(child.meta, dict):
            info = child.meta.get(INFO)
            if isinstance(info, CompiledPartition):
                yield child, info


@dataclass(frozen=True, slots=True, eq=False)
class PlannedProgram:
    """A program after ExecuTorch's passes, with the methods that return a number of its inputs and outputs."""

    program: ExportedProgram
    constant_methods: Mapping[str, Any] | None

    @classmethod
    def of(cls, manager: ExecutorchProgramManager) -> PlannedProgram:
        """Return the program that was written."""
        return cls(manager.exported_program(), manager._config_methods)

    @property
    def partitions(self) -> list[CompiledPartition]:
        """Return the partitions that this backend compiled."""
        return [part for _, part in delegate_calls(self.program.graph_module)]

    def recompiled(self, specs: Sequence[CompileSpec]) -> PlannedProgram:
        """Return the program with its partitions compiled for another compile spec. Raises as the backend does."""
        calls = list(delegate_calls(self.program.graph_module))
        delegate = decode(specs)
        made = all_compiled([(partial(part.recompiled, delegate), lambda: delegate) for _, part in calls])
        others = {call: _with(call, part, specs) for (call, _), part in zip(calls, made, strict=True)}
        program = copy.copy(self.program)
        program._graph_module = _replaced(self.program.graph_module, others)
        return replace(self, program=program)

    def to_bytes(self) -> bytes:
        """Return the ``.pte``."""
        methods = None if self.constant_methods is None else dict(self.constant_methods)
        return bytes(ExecutorchProgramManager({"forward": self.program}, methods, backend_config()).buffer)


def _with(call: LoweredBackendModule, part: CompiledPartition, specs: Sequence[CompileSpec]) -> LoweredBackendModule:
    made = copy.copy(call)
    made._processed_bytes = part.interface.payload(part.conversion)
    made._compile_specs = list(specs)
    made.meta = {**(call.meta or {}), INFO: part}
    return made


def _replaced(module: GraphModule, others: Mapping[Any, LoweredBackendModule]) -> GraphModule:
    """Return a module with the same graph and other delegate calls."""
    made: GraphModule = copy.copy(module)
    for name, child in module.named_children():
        if child in others:
            setattr(made, name, others[child])
        elif isinstance(child, GraphModule):
            setattr(made, name, _replaced(child, others))
    return made
