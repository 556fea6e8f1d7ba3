# SPDX-License-Identifier: BSD-3-Clause
"""The operators of a ``.pte`` that run on the host core."""

from __future__ import annotations

import math
from collections.abc import Iterator

from openneutron import pte
from openneutron.compiler.cost.host import HostOperator, kind_of


def host_operators(data: bytes) -> tuple[HostOperator, ...]:
    """Return the operators on the host core in a ``.pte``, with the values that each computes from its first tensor."""
    return tuple(operator for method in pte.methods(data) for operator in _of(method))


def _of(method: pte.Method) -> Iterator[HostOperator]:
    for call in method.instructions:
        if isinstance(call, pte.KernelCall):
            values = (method.values[index] for index in call.arguments)
            first = next((value for value in values if isinstance(value, pte.TensorValue)), None)
            yield HostOperator(kind_of(call.operator), math.prod(first.shape) if first is not None else 0)
