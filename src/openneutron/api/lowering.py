# SPDX-License-Identifier: BSD-3-Clause
"""Programs through ExecuTorch's lowering."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from executorch.exir import EdgeCompileConfig, EdgeProgramManager, to_edge_transform_and_lower
from executorch.exir.lowered_backend_module import LoweredBackendModule
from torch.export import ExportedProgram

from openneutron.errors import InvalidModelError, OpenNeutronError
from openneutron.pytorch.neutron_partitioner import NeutronPartitioner
from openneutron.pytorch.nxp_backend import (
    CompiledPartition,
    ConvertedPartition,
    core_aten_ops_exception_list,
)
from openneutron.pytorch.source.exporting import first_line

Info = TypeVar("Info", CompiledPartition, ConvertedPartition)

PACKAGE = Path(__file__).parents[2]


def lowered(program: ExportedProgram, partitioner: NeutronPartitioner) -> tuple[EdgeProgramManager, NeutronPartitioner]:
    """Return the program in delegate calls and what stays on the CPU, and the partitioner that did it in the end:
    operators that were kept whole for nothing, and that the CPU can't run so, are taken apart in another go."""
    while True:
        edge = to_edge_transform_and_lower(
            program,
            partitioner=[partitioner],
            compile_config=EdgeCompileConfig(
                _core_aten_ops_exception_list=list(core_aten_ops_exception_list),
                # What is no core operator, or mixes types, is for ExecuTorch's runtime to take or to refuse.
                _check_ir_validity=False,
            ),
        )
        if not partitioner.left_whole:
            return edge, partitioner
        partitioner = partitioner.taking_apart(partitioner.left_whole)


def partitions(edge: EdgeProgramManager, kind: type[Info]) -> Iterator[Info]:
    """Yield the info of each partition whose info has this type."""
    for child in edge.exported_program().graph_module.children():
        if isinstance(child, LoweredBackendModule) and isinstance(child.meta, dict):
            info = child.meta.get("_delegate_info_meta")
            if isinstance(info, kind):
                yield info


@contextmanager
def in_words(name: str, doing: str) -> Iterator[None]:
    """Raise an exception of ExecuTorch's as an InvalidModelError with its first line; pass those that this project
    raises itself: they are mistakes."""
    try:
        yield
    except OpenNeutronError:
        raise
    # ExecuTorch raises RuntimeErrors, SpecViolationErrors, InternalErrors, AssertionErrors and any other exception of
    # its passes.
    except Exception as error:
        if _is_own(error):
            raise
        said = f"{first_line(error)} ({type(error).__name__})"
        raise InvalidModelError(f"'{name}': ExecuTorch can't {doing} it: {_plain(said)}.") from error


_PLAIN = (
    (r"Missing out variants: \{(.*)\}.*", r"it has no kernel for \1. Replace the operator in the model"),
    (
        r".*mem_offset \d+ does not fit.*",
        "the size of a tensor is known only when the model runs. Give it a fixed shape",
    ),
)
"""ExecuTorch's messages that name neither cause nor remedy, and what to write instead."""


def _plain(said: str) -> str:
    for pattern, words in _PLAIN:
        said = re.sub(pattern, words, said)
    return said


def _is_own(error: Exception) -> bool:
    """Return whether the exception was raised in this package."""
    *_, last = traceback.walk_tb(error.__traceback__)
    return Path(last[0].f_code.co_filename).is_relative_to(PACKAGE)


def keep_state(program: ExportedProgram) -> None:
    """Mark the program's initial state, so that ExecuTorch writes it to the file. Unmarked state begins with any
    values."""
    signature = program.graph_signature
    changed = set(signature.buffers_to_mutate.values())
    for node in program.graph.nodes:
        if node.op == "placeholder" and signature.inputs_to_buffers.get(node.name) in changed:
            node.meta["et_init_buffer"] = True
