# SPDX-License-Identifier: BSD-3-Clause
"""The modelled latency of one inference: its sum, its parts, and the operators on the host core."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from openneutron.compiler.cost.host import HostKind, HostOperator, host_cycles, kind_of
from openneutron.device import pte
from openneutron.features.report.units import duration_text, plural
from openneutron.ir import Graph, Node
from openneutron.ops.shape import VIEWS
from openneutron.targets import Target

CPU_CALLS = "CPU calls"
"""The words for the kernel calls of a program that the host core makes."""


def host_operators(data: bytes) -> tuple[HostOperator, ...]:
    """Return the operators of a ``.pte`` that run on the host core. The ``values`` of each are the number of elements
    of its first tensor."""
    return tuple(operator for method in pte.methods(data) for operator in _of(method))


def host_operators_of_graph(graph: Graph, nodes: Iterable[Node]) -> tuple[HostOperator, ...]:
    """Return the host operators among the nodes of a ``.tflite``; views compute nothing and are left out. The
    ``values`` of each are the number of elements of its first output."""
    return tuple(
        HostOperator(kind_of(node.op), graph[node.outputs[0]].elements if node.outputs else 0)
        for node in nodes
        if node.op not in VIEWS
    )


def _of(method: pte.Method) -> Iterator[HostOperator]:
    calls = [call for call in method.instructions if isinstance(call, (pte.KernelCall, pte.DelegateCall))]
    uses = Counter(index for call in calls for index in set(call.arguments))
    for call in calls:
        if isinstance(call, pte.KernelCall):
            tensors = [index for index in call.arguments if isinstance(method.values[index], pte.TensorValue)]
            shape = method.tensor(tensors[0]).shape if tensors else (0,)
            yield HostOperator(kind_of(call.operator), math.prod(shape), _io_type(method, call, tensors, uses))


def _io_type(method: pte.Method, call: pte.KernelCall, tensors: list[int], uses: Mapping[int, int]) -> str:
    """Return the quantized type of a call that converts an input or output of the method; an empty string for other
    calls. The call has to be the only reader of the input, or the only writer of the output."""
    if kind_of(call.operator) is not HostKind.CONVERSION or len(tensors) < 2:
        return ""
    read, written = tensors[0], tensors[-1]
    if read in method.inputs and uses[read] == 1:
        return method.tensor(written).dtype
    return method.tensor(read).dtype if written in method.outputs and uses[written] == 1 else ""


@dataclass(frozen=True, slots=True)
class Latency:
    """The modelled latency of one inference, in cycles of the NPU. It is the sum of four parts, which do not overlap.

    In ``npu_cycles`` the NPU works or is dispatched. In ``copy_cycles`` the NPU waits for copies. In ``host_cycles``
    the operators of ``host`` run on the CPU, outside of all programs; operators whose time is not modelled count as 0.
    In ``cpu_call_cycles`` the host core makes kernel calls of the programs.
    """

    target: Target
    npu_cycles: int
    copy_cycles: int = 0
    host: tuple[HostOperator, ...] = field(default=(), repr=False)
    cpu_call_cycles: int = 0

    @property
    def host_cycles(self) -> int:
        """Return the modelled time of the operators on the CPU, in cycles of the NPU."""
        return host_cycles(self.host, self.target)

    @property
    def cycles(self) -> int:
        """Return the modelled latency in cycles: the sum of the four parts."""
        return self.npu_cycles + self.cpu_call_cycles + self.copy_cycles + self.host_cycles

    @property
    def milliseconds(self) -> float:
        """Return the modelled latency of one inference in milliseconds: ``cycles`` at the clock of the NPU."""
        return self.target.milliseconds(self.cycles)

    @property
    def band(self) -> tuple[float, float]:
        """Return the lowest and the highest latency that is expected on the chip, in milliseconds; see ``Target.band``.
        Both are 0 for a latency of 0 cycles."""
        return self.target.band(self.cycles) if self.cycles else (0.0, 0.0)

    @property
    def operators_not_modelled(self) -> int:
        """Return the number of operators on the CPU that ``cycles`` does not contain."""
        return sum(item.kind is HostKind.OTHER for item in self.host)

    @property
    def io_type(self) -> str:
        """Return the quantized type of the inputs and outputs that the host converts; an empty string if it converts
        none."""
        return next((item.io_type for item in self.host if item.io_type), "")

    @property
    def without_conversions(self) -> Latency:
        """Return the latency of the same program without conversions of inputs and outputs on the host."""
        rest = tuple(item for item in self.host if not item.io_type)
        return replace(self, host=rest)


def weights_fit(target: Target, weights_bytes: int, sram_bytes: int, are_fetched: bool) -> bool:
    """Return whether an inference needs no copies of weights beyond those that the programs make. This is so in three
    cases: the chip's SRAM holds the weights beside the ``sram_bytes`` of a run, the programs fetch the weights
    (``are_fetched``), or the NPU reads the memory that has the weights."""
    fits = weights_bytes + sram_bytes <= int(target.sram.value * 1024)
    return are_fetched or target.reads_constants_in_place or fits


def modelled_text(milliseconds: float, operators_not_modelled: int) -> str:
    """Return a modelled latency as text. It begins with "at least" if the time of some operators on the CPU is not
    modelled."""
    return f"at least {duration_text(milliseconds)}" if operators_not_modelled else duration_text(milliseconds)


def latency_text(latency: Latency) -> str:
    """Return the latency in words. If all operators are modelled, the text has the range that is expected on the chip
    too."""
    whole = modelled_text(latency.milliseconds, latency.operators_not_modelled)
    whole += f" at {latency.target.clock.value:g} MHz, modelled"
    if latency.operators_not_modelled:
        return whole
    low, high = map(duration_text, latency.band)
    return f"{whole}; {low} to {high} expected on the chip"


def parts_text(latency: Latency) -> str:
    """Return the times of NPU, CPU calls, copies and host in words, and the number of operators whose time is not modelled."""
    kernels = latency.target.place.split()[-1]
    shares = [
        (kernels, latency.npu_cycles),
        (CPU_CALLS, latency.cpu_call_cycles),
        ("copies", latency.copy_cycles),
        ("host", latency.host_cycles),
    ]
    words = [f"{name} {duration_text(latency.target.milliseconds(cycles))}" for name, cycles in shares if cycles]
    others = latency.operators_not_modelled
    words += [f"not modelled: {plural(others, 'operator')} on the CPU"] if others else []
    return ", ".join(words)
