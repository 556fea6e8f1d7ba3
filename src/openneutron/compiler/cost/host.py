# SPDX-License-Identifier: BSD-3-Clause
"""Model the cycles of operators that run on the host core."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from openneutron.targets import Target


class HostKind(Enum):
    """The kinds of operators on the host. Each modelled kind has a constant of the target for its cycles per value."""

    CONVERSION = "QUANTIZE and DEQUANTIZE, and joins of dequantized parts"
    SOFTMAX = "SOFTMAX"
    OTHER = "operators whose time is not modelled"


@dataclass(frozen=True, slots=True)
class HostOperator:
    """An operator on the host. ``values`` is the number of elements of its result.

    ``io_type`` is for an operator that only converts an input or output of the program: the type that this input or output would
    have without the operator. It is empty for other operators.
    """

    kind: HostKind
    values: int
    io_type: str = ""


def kind_of(operator: str) -> HostKind:
    """Return the kind of an operator of LiteRT (``DEQUANTIZE``) or of an ExecuTorch program.

    >>> kind_of("quantized_decomposed::quantize_per_tensor.out").value
    'QUANTIZE and DEQUANTIZE, and joins of dequantized parts'

    A copy of float values (``aten::cat``) counts as a conversion of them, which takes at least as long.
    """
    name = operator.rpartition("::")[2].partition(".")[0].lower().lstrip("_")
    if name.startswith(("quantize", "dequantize")) or name == "cat":
        return HostKind.CONVERSION
    return HostKind.SOFTMAX if name == "softmax" else HostKind.OTHER


def host_cycles(operators: Iterable[HostOperator], target: Target) -> int:
    """Return the host's time for these operators in cycles of the NPU; operators that are not modelled count as 0."""
    host = target.host
    each = {HostKind.CONVERSION: host.conversion_cycles.value, HostKind.SOFTMAX: host.softmax_cycles.value}
    spent = sum(host.operator_cycles.value + item.values * each[item.kind] for item in operators if item.kind in each)
    return math.ceil(spent * target.clock.value / host.clock.value)
