# SPDX-License-Identifier: BSD-3-Clause
"""Model the cycles of operators that run on the host core."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path

from openneutron import targets
from openneutron.ir.graph import OnCpu
from openneutron.targets import Target

EXECUTORCH = Path(__file__).parent / "executorch_kernels.json"
"""The file with the instructions of ExecuTorch's kernels on a Cortex-A55, per multiply-accumulate or per value, by kind
of operator. ``python -m bench.cpu_kernels count`` counts them in QEMU."""

PORTABLE = "portable"

FACTORS = {"Cortex-A": 2.0, "Cortex-M": 4.0}
"""The factor by which the time of an operator on a core may be longer or shorter than modelled (assumed).

The instructions are counted, and the cycles of an instruction are assumed. For a Cortex-M, whose kernels are another
build, the counts of the Cortex-A are used, though some of these kernels use vectors.
"""


class HostKind(Enum):
    """The kinds of operators on the host. Each modelled kind has a constant of the target for its cycles per value."""

    CONVERSION = "QUANTIZE and DEQUANTIZE, and joins of dequantized parts"
    SOFTMAX = "SOFTMAX"
    OTHER = "operators whose time is not modelled"


@dataclass(frozen=True, slots=True)
class HostOperator:
    """An operator on the host. ``values`` is the number of elements of its result.

    ``io_type`` is set for an operator that only converts an input or output of the program. It is the type that this
    input or output would have without the operator. It is empty for other operators.
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


@cache
def _instructions() -> Mapping[str, Mapping[str, float]]:
    found: Mapping[str, Mapping[str, float]] = json.loads(EXECUTORCH.read_text())["instructions"]
    return found


def cpu_milliseconds(item: OnCpu, target: Target) -> float | None:
    """Return the modelled time of an operator of a PyTorch model on the CPU, in milliseconds. Return None where the
    time is not modelled.

    An operator that computes nothing takes no time. The time of a conversion around the operator is not included. A
    softmax or a join in the kernels of ExecuTorch's runtime takes the target's cycles for its ``HostKind``.
    """
    if not item.computes:
        return 0.0
    core = target.host.core.lower()
    known = _instructions().get(item.kind)
    if known is None or core not in targets.CPUS:
        return None
    cpu = targets.described(core).cpu
    assert cpu is not None
    own = {"softmax": target.host.softmax_cycles, "join": target.host.conversion_cycles}
    if item.kind in own and not item.kernels:
        each = own[item.kind].value
    else:
        each = known.get(item.kernels, known[PORTABLE]) * cpu.instruction_cycles.value
    return (target.host.operator_cycles.value + item.amount * each) / (target.host.clock.value * 1000)


def cpu_factor(target: Target) -> float:
    """Return the factor by which the time of an operator on the target's host core may be longer or shorter than
    modelled (``FACTORS``)."""
    return next(
        (factor for name, factor in FACTORS.items() if target.host.core.startswith(name)), max(FACTORS.values())
    )
