# SPDX-License-Identifier: BSD-3-Clause
"""Check a program's operators on the CPU against the kernels of the local ExecuTorch runtime."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from openneutron.errors import InvalidModelError
from openneutron.pytorch.backend.cpu_kernels import registered
from openneutron.pytorch.partition.delegation import Delegation, NodeOnCpu

NAMES_SHOWN = 4
"""The number of operators that a message names."""


def check_kernels(program: Any, delegation: Delegation, name: str) -> None:
    """Look up each operator that an emitted program (``executorch.exir.schema.Program``) calls outside its delegates.

    Raises InvalidModelError where ExecuTorch's runtime here has no kernel for an operator and would refuse to load the
    program. The message names the operators as the user wrote them.
    """
    lacking = sorted(set(_operators(program)) - registered())
    if not lacking:
        return
    shown = [_in_words(operator, delegation) for operator in lacking[:NAMES_SHOWN]]
    more = f" and {len(lacking) - NAMES_SHOWN} more" if len(lacking) > NAMES_SHOWN else ""
    raise InvalidModelError(
        f"'{name}': ExecuTorch's runtime has no kernel for {', '.join(shown)}{more}, on the CPU, and would not load the "
        "program. Write that part of the model with other operators; or pass "
        "DelegationOptions(any_runtime=True) (--any-runtime) for a .pte that runs where these kernels are."
    )


def _operators(program: Any) -> Iterator[str]:
    for plan in program.execution_plan:
        for operator in plan.operators:
            yield f"{operator.name}.{operator.overload}" if operator.overload else operator.name


def _in_words(operator: str, delegation: Delegation) -> str:
    """Return ``aten.sort ('head')`` for ``aten::sort.values``; the kernel's name where no remaining node has the
    operator."""
    packet = operator.partition(".")[0].replace("::", ".")
    node: NodeOnCpu | None = next((item for item in delegation.on_cpu if item.overload.startswith(f"{packet}.")), None)
    return operator if node is None else f"{packet} ('{node.name}')"
