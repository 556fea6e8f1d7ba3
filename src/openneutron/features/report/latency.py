# SPDX-License-Identifier: BSD-3-Clause
"""The modelled latency of one inference: its sum, its parts, and the operators on the host core."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from openneutron.compiler.cost.estimate import (
    NO_WORK,
    TERMS,
    Estimate,
    Term,
    Work,
    estimate,
    together,
    total,
    work_of_host,
    work_of_start,
)
from openneutron.compiler.cost.host import HostKind, HostOperator, host_cycles, kind_of
from openneutron.device import pte
from openneutron.features.report.table import plural, range_text
from openneutron.ir import Graph, Node
from openneutron.ops.shape import VIEWS
from openneutron.targets import Target

CPU_CALLS = "CPU calls"
"""The words for the kernel calls of a program that the host core makes."""


def host_operators(data: bytes) -> tuple[HostOperator, ...]:
    """Return the operators of a ``.pte`` that run on the host core. The field ``values`` of each is the number of elements of its first tensor."""
    return tuple(operator for method in pte.methods(data) for operator in _of(method))


def host_operators_of_graph(graph: Graph, nodes: Iterable[Node]) -> tuple[HostOperator, ...]:
    """Return those of ``nodes``, which are nodes of a ``.tflite``, that compute on the host core. Views are left out,
    since they compute nothing. The field ``values`` of each is the number of elements of its first output."""
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
    """Return the quantized type to or from which a call converts an input or output of the method. Return an empty
    string for a call that does no such conversion.

    The call must be the only reader of the input, or the only writer of the output.
    """
    if kind_of(call.operator) is not HostKind.CONVERSION or len(tensors) < 2:
        return ""
    read, written = tensors[0], tensors[-1]
    if read in method.inputs and uses[read] == 1:
        return method.tensor(written).dtype
    return method.tensor(read).dtype if written in method.outputs and uses[written] == 1 else ""


PART_OF = {
    Term.CORE: CPU_CALLS,
    Term.WEIGHTS: "copies",
    Term.TENSORS: "copies",
    Term.OPERATORS: "host",
    Term.SOFTMAX: "host",
    Term.CONVERSIONS: "host",
}
"""The part of a latency that contains each term. Terms that are not listed belong to the NPU, or to the CPU if the target has no NPU."""


@dataclass(frozen=True, slots=True)
class Latency:
    """The modelled latency of one inference, in cycles of the NPU. It is the sum of four parts that do not overlap.

    * ``npu_cycles``: the NPU works or is dispatched.
    * ``copy_cycles``: the NPU waits for copies.
    * ``cpu_call_cycles``: the host core computes kernel calls of the programs.
    * ``host_cycles``: the operators of ``host`` run on the CPU, outside of all programs. An operator whose time is not modelled counts as 0.

    ``own`` has the cycles of the programs by term of the cost model. ``kernels`` has the estimated times of operators
    on the CPU that have no time in ``host``, by the name of their kernels. ``estimate`` includes them, ``cycles``
    does not. ``estimated`` is the number of these operators that are in ``host``.
    """

    target: Target
    npu_cycles: int
    copy_cycles: int = 0
    host: tuple[HostOperator, ...] = field(default=(), repr=False)
    cpu_call_cycles: int = 0
    own: Work = field(default=NO_WORK, repr=False)
    kernels: Mapping[str, Estimate] = field(default_factory=dict, repr=False)
    estimated: int = 0

    @property
    def host_cycles(self) -> int:
        """Return the modelled time of the operators on the CPU outside of all programs, in cycles of the NPU.
        Operators whose time is not modelled count as 0."""
        return host_cycles(self.host, self.target)

    @property
    def cycles(self) -> int:
        """Return the modelled latency in cycles: the sum of the four parts."""
        return self.npu_cycles + self.cpu_call_cycles + self.copy_cycles + self.host_cycles

    @property
    def milliseconds(self) -> float:
        """Return the estimate of the latency of one inference in milliseconds; see ``compiler.cost.estimate``."""
        return self.estimate.milliseconds

    @property
    def work(self) -> Work:
        """Return the cycles of each term of the latency."""
        parts = [self.own, work_of_host(self.host, self.target)]
        return total((*parts, work_of_start(self.target)) if any(map(any, parts)) else parts)

    @property
    def estimate(self) -> Estimate:
        """Return the estimate of the latency with its range."""
        return together((estimate(self.work, self.target), *self.kernels.values()))

    @property
    def band(self) -> tuple[float, float]:
        """Return the lowest and the highest latency that is expected on the chip, in milliseconds."""
        return self.estimate.expected

    def parts(self) -> dict[str, Estimate]:
        """Return the estimated time of each part of the latency, by name: the NPU (the CPU for a target without one),
        CPU calls, copies, host, and ExecuTorch's kernels for the CPU. Parts that take no time are absent. The
        milliseconds of the parts add up to those of the whole; their ranges do not."""
        names = [PART_OF.get(term, self.target.place.split()[-1]) for term in TERMS]

        def part(name: str) -> Estimate:
            own = (cycles if item == name else 0.0 for cycles, item in zip(self.work, names, strict=True))
            return estimate(tuple(own), self.target)

        found = {name: part(name) for name in dict.fromkeys(names)}
        return {name: item for name, item in (found | dict(self.kernels)).items() if item.milliseconds}

    @property
    def operators_not_modelled(self) -> int:
        """Return the number of operators on the CPU whose time neither ``host_cycles`` nor ``kernels`` contains."""
        return max(0, sum(item.kind is HostKind.OTHER for item in self.host) - self.estimated)

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


def modelled_text(milliseconds: float, operators_not_modelled: int, expected: Sequence[float]) -> str:
    """Return an estimated latency with its range as text, such as ``21.8 ms (19 to 27)``. ``expected`` is the range in milliseconds. The
    text begins with "at least" if the time of some operators on the CPU is not modelled."""
    text = range_text(milliseconds, *expected)
    return f"at least {text}" if operators_not_modelled else text


def latency_text(latency: Latency) -> str:
    """Return the latency with its range, in words."""
    whole = modelled_text(latency.estimate.milliseconds, latency.operators_not_modelled, latency.band)
    return f"{whole} at {latency.target.clock.value:g} MHz, estimated"


def parts_text(latency: Latency) -> str:
    """Return the times of NPU, CPU calls, copies and host with their ranges, in words, and the number of operators whose time is not
    modelled."""
    words = [f"{name} {range_text(item.milliseconds, *item.expected)}" for name, item in latency.parts().items()]
    others = latency.operators_not_modelled
    words += [f"not modelled: {plural(others, 'operator')} on the CPU"] if others else []
    return ", ".join(words)
