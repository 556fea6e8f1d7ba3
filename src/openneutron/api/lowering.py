# SPDX-License-Identifier: BSD-3-Clause
"""ExecuTorch's passes over a quantized program, with its exceptions as messages."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from executorch.exir import EdgeCompileConfig, EdgeProgramManager, to_edge_transform_and_lower
from torch.export import ExportedProgram
from torch.fx import Graph

from openneutron.device.cache.digests import PACKAGE
from openneutron.device.third_party import OPERATORS_LISTED_ONCE
from openneutron.errors import InvalidModelError, OpenNeutronError
from openneutron.pytorch.graph.program import depends_on_data, source_line, title
from openneutron.pytorch.neutron_partitioner import NeutronPartitioner
from openneutron.pytorch.nxp_backend import core_aten_ops_exception_list
from openneutron.pytorch.source.exporting import first_line


def lowered(
    program: ExportedProgram, partitioner: NeutronPartitioner, facts: Mapping[str, str]
) -> tuple[EdgeProgramManager, NeutronPartitioner]:
    """Return the program with its delegate calls, with methods that return the facts, and the partitioner of the last attempt: an operator that was kept whole,
    but is not delegated, is decomposed in another attempt where the CPU can't run it whole."""
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
    """Raise an exception of ExecuTorch as an InvalidModelError with its first line, or with the operator of the graph whose result has a
    size that depends on values. Exceptions from this project's code are bugs and stay as they are."""
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
        if Path(last.f_code.co_filename).is_relative_to(PACKAGE):  # a mistake of this package, no message
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
"""ExecuTorch's messages that name neither cause nor remedy, and their replacements."""


def keep_state(program: ExportedProgram) -> None:
    """Mark the program's initial state, so that ExecuTorch writes it to the file. Unmarked state is undefined at the start."""
    signature = program.graph_signature
    changed = set(signature.buffers_to_mutate.values())
    for node in program.graph.nodes:
        if node.op == "placeholder" and signature.inputs_to_buffers.get(node.name) in changed:
            node.meta["et_init_buffer"] = True
