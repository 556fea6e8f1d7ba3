# SPDX-License-Identifier: BSD-3-Clause
"""Keep a program after ExecuTorch's passes without the payloads of its delegate calls, and write it with other payloads.

ExecuTorch's passes read the nodes of a delegate call and never its payload. So a ``.pte`` with other payloads needs no pass again: the
payloads are inserted into the program that ExecuTorch emitted, and ExecuTorch writes the file.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from executorch.exir import (
    EdgeCompileConfig,
    EdgeProgramManager,
    ExecutorchBackendConfig,
    ExecutorchProgramManager,
    to_edge_transform_and_lower,
)
from executorch.exir._serialize._program import PTEFile, deserialize_pte_binary, serialize_pte_binary
from executorch.exir.backend.compile_spec_schema import CompileSpec
from executorch.exir.delegate import executorch_call_delegate
from executorch.exir.lowered_backend_module import LoweredBackendModule
from executorch.exir.passes import ToOutVarPass
from executorch.exir.schema import BackendDelegateDataReference, BackendDelegateInlineData, DataLocation, Program
from torch import nn
from torch.export import ExportedProgram
from torch.fx import Graph, GraphModule, Node

from openneutron.device.cache import PACKAGE
from openneutron.device.third_party import OPERATORS_LISTED_ONCE
from openneutron.errors import InvalidModelError, OpenNeutronError
from openneutron.pytorch.graph.program import depends_on_data, source_line, title
from openneutron.pytorch.neutron_partitioner import NeutronPartitioner
from openneutron.pytorch.nxp_backend import CompiledPartition, core_aten_ops_exception_list
from openneutron.pytorch.source.exporting import first_line

INFO = "_delegate_info_meta"
"""The metadata key under which ExecuTorch keeps the object that a backend returns in addition to its payload."""


def backend_config(is_analysis: bool = False) -> ExecutorchBackendConfig:
    """Return the settings of ``to_executorch``: payloads stay inside the program, aligned for the driver.

    With ``is_analysis``, operators without an out variant, such as a user's own, stay in the program instead of raising an error. No
    runtime can run such a program.
    """
    return ExecutorchBackendConfig(
        extract_delegate_segments=False,
        delegate_alignment=16,
        to_out_var_pass=ToOutVarPass(ignore_to_out_var_failure=is_analysis),
    )


def delegate_calls(module: nn.Module) -> Iterator[tuple[LoweredBackendModule, CompiledPartition]]:
    """Yield each lowered module of a program that this backend compiled, with its partition.

    Delegate calls in branches of control flow are included.
    """
    for child in module.modules():
        part = _partition_of(child)
        if part is not None:
            assert isinstance(child, LoweredBackendModule)
            yield child, part


def _partition_of(child: object) -> CompiledPartition | None:
    info = child.meta.get(INFO) if isinstance(child, LoweredBackendModule) and isinstance(child.meta, dict) else None
    return info if isinstance(info, CompiledPartition) else None


def _in_order(module: GraphModule) -> Iterator[CompiledPartition | None]:
    """Yield the partition of each delegate call, in the order in which ExecuTorch emits the calls; None for other backends."""
    for node in module.graph.nodes:
        if node.op != "call_function":
            continue
        named = (item for item in node.args if isinstance(item, Node) and item.op == "get_attr")
        children = [getattr(module, str(item.target), None) for item in named]
        if node.target is executorch_call_delegate:
            yield _partition_of(children[0])
            continue
        for child in children:
            if isinstance(child, GraphModule):
                yield from _in_order(child)


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """A ``.pte`` whose delegate calls lack their payloads, the compiled programs.

    ``places`` has for each delegate call, in the order of the file, the index of its partition. The index is None for
    a delegate call of another backend, whose payload stays in the file.
    """

    file: PTEFile
    places: tuple[int | None, ...]

    @classmethod
    def of(cls, manager: ExecutorchProgramManager) -> tuple[Frame, tuple[CompiledPartition, ...]]:
        """Return the frame and the partitions of a program that ExecuTorch has emitted."""
        module = manager.exported_program().graph_module
        parts = tuple(part for _, part in delegate_calls(module))
        numbers = {id(part): number for number, part in enumerate(parts)}
        places = tuple(None if part is None else numbers[id(part)] for part in _in_order(module))
        emitted = manager._emitter_output
        program = _with_payloads(emitted.program, places, [b""] * len(parts), [])
        named = manager._named_data
        # ExecuTorch writes no empty table of named data.
        named = named if named is not None and named.buffers and named.pte_data else None
        return cls(PTEFile(program, emitted.mutable_data, named), places), parts

    @classmethod
    def from_bytes(cls, data: bytes, places: Sequence[int | None]) -> Frame:
        """Return the frame in the bytes of a ``.pte`` without payloads."""
        file = deserialize_pte_binary(data)
        # The reader adds an empty table of named data, which an emitted program does not have. The writer adds it where needed.
        return cls(replace(file, program=replace(file.program, named_data=None)), tuple(places))

    def to_bytes(self, payloads: Sequence[bytes], specs: Sequence[CompileSpec]) -> bytes:
        """Return the bytes of the ``.pte`` with ``payloads``, which are those of the partitions in their order. Every
        partition gets the same compile specs ``specs``."""
        config = backend_config()
        file = replace(self.file, program=_with_payloads(self.file.program, self.places, payloads, specs))
        written = serialize_pte_binary(
            file,
            extract_delegate_segments=config.extract_delegate_segments,
            segment_alignment=config.segment_alignment,
            constant_tensor_alignment=config.constant_tensor_alignment,
            delegate_alignment=config.delegate_alignment,
        )
        return bytes(written)


def _with_payloads(
    program: Program, places: Sequence[int | None], payloads: Sequence[bytes], specs: Sequence[CompileSpec]
) -> Program:
    """Return the program with other payloads and compile specs. Equal payloads are stored once, as ExecuTorch does."""
    rest, numbers = iter(places), dict[bytes, int]()
    plans = []
    for plan in program.execution_plan:
        delegates = []
        for delegate in plan.delegates:
            place = next(rest)
            if place is None:
                payload, its = (
                    bytes(program.backend_delegate_data[delegate.processed.index].data),
                    delegate.compile_specs,
                )
            else:
                payload, its = payloads[place], list(specs)
            number = numbers.setdefault(payload, len(numbers))
            reference = BackendDelegateDataReference(location=DataLocation.INLINE, index=number)
            delegates.append(replace(delegate, processed=reference, compile_specs=its))
        plans.append(replace(plan, delegates=delegates))
    assert next(rest, ...) is ..., "a partition has no delegate call in the emitted program"
    data = [BackendDelegateInlineData(data=payload) for payload in numbers]
    return replace(program, execution_plan=plans, backend_delegate_data=data)


def lowered(
    program: ExportedProgram, partitioner: NeutronPartitioner, facts: Mapping[str, str]
) -> tuple[EdgeProgramManager, NeutronPartitioner]:
    """Return the lowered program, which has delegate calls and a constant method for each fact. Return also the
    partitioner that was used last.

    The partitioner keeps some operators whole for the NPU instead of decomposing them. If such an operator then stays
    on the CPU and has no kernel there, the program is lowered again with a partitioner that decomposes it.
    """
    while True:
        with OPERATORS_LISTED_ONCE:
            edge = to_edge_transform_and_lower(
                program,
                partitioner=[partitioner],
                constant_methods=dict(facts) or None,
                compile_config=EdgeCompileConfig(
                    _core_aten_ops_exception_list=list(core_aten_ops_exception_list),
                    # ExecuTorch's runtime accepts or refuses operators that are no core operators or mix types.
                    _check_ir_validity=False,
                ),
            )
        if not partitioner.left_whole:
            return edge, partitioner
        partitioner = partitioner.taking_apart(partitioner.left_whole)


@contextmanager
def in_words(name: str, doing: str, graph: Graph | None = None) -> Iterator[None]:
    """Raise an exception of ExecuTorch inside the block as an InvalidModelError.

    The message names the first operator of ``graph`` whose result has a size or an index that depends on the data. If
    there is none, or no graph, it has the first line of the exception. ``doing`` is the failed step as a verb. An
    OpenNeutronError is raised as it is, also where ExecuTorch raised another exception for it. Other exceptions from
    this project's code are bugs, and are not changed.
    """
    try:
        yield
    except OpenNeutronError:
        raise
    # ExecuTorch raises RuntimeErrors, SpecViolationErrors, InternalErrors, AssertionErrors and any other exception of
    # its passes.
    except Exception as error:
        if isinstance(error.__cause__, OpenNeutronError):
            # ExecuTorch's pass manager raises an exception of its own for every exception of a pass.
            raise error.__cause__ from None
        *_, (last, _) = traceback.walk_tb(error.__traceback__)
        if Path(last.f_code.co_filename).is_relative_to(PACKAGE):  # a bug of this package
            raise
        node = next((node for node in graph.nodes if depends_on_data(node)), None) if graph is not None else None
        if node is not None:
            line = source_line(node)
            raise InvalidModelError(
                f"'{name}': the result of {title(node)}{f' at {line}' if line else ''} has a size or an index that only a run knows, "
                "and ExecuTorch can't lower what follows. Give it a fixed size (topk in the place of nonzero, torch.where in the "
                "place of x[mask]), or end the model before it."
            ) from error
        said = f"{first_line(error)} ({type(error).__name__})"
        for pattern, words in _PLAIN:
            said = re.sub(pattern, words, said)
        raise InvalidModelError(f"'{name}': ExecuTorch can't {doing} it: {said}.") from error


_PLAIN = (
    (r"Missing out variants: \{(.*)\}.*", r"it has no kernel for \1. Replace the operator in the model"),
    (
        r".*mem_offset \d+ does not fit.*",
        "the size of a tensor is known only when the model runs. Give it a fixed shape",
    ),
)
"""Patterns of ExecuTorch's messages that name neither cause nor remedy, with the texts that replace them."""


def keep_state(program: ExportedProgram) -> None:
    """Mark the buffers that a run changes, so that ExecuTorch writes their initial values to the file.

    The initial value of an unmarked buffer is undefined.
    """
    signature = program.graph_signature
    changed = set(signature.buffers_to_mutate.values())
    for node in program.graph.nodes:
        if node.op == "placeholder" and signature.inputs_to_buffers.get(node.name) in changed:
            node.meta["et_init_buffer"] = True
