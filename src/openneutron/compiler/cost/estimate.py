# SPDX-License-Identifier: BSD-3-Clause
"""Estimate the latency on the chip, with a range, from the modelled cycles.

The cost model (``cycles``) is the objective of the compiler's search. Its cycles are divided into terms here, such as those of dispatches and
of depthwise convolutions. A calibration multiplies each term by a factor that is fitted to published latencies (``python -m bench
estimates``). The factors are uncertain, and the rest of the difference to a published latency is scatter. Both make the range. The search
does not use the calibration, so a new calibration changes no program.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib import resources
from typing import Any

import numpy as np

from openneutron.compiler.cost.cycles import Cost, host_of, issue_cycles
from openneutron.compiler.cost.host import HostKind, HostOperator
from openneutron.compiler.select.calls import KernelCall
from openneutron.isa.kernels.row import CostClass, Row
from openneutron.targets import Target


class Term(StrEnum):
    """A part of a latency. Its value names the part in reports."""

    DISPATCH = "the dispatch of a call"
    PRODUCTS = "the multiplications of all multipliers"
    FILL = "the waits of multipliers for operands"
    DRAIN = "the results that leave the pipelines"
    DEPTHWISE = "the multipliers that work in a depthwise convolution"
    OTHERS = "the calls that do not multiply"
    WEIGHTS = "the copies of weights"
    TENSORS = "the copies of tensors"
    OPERATORS = "the start of an operator on the host"
    SOFTMAX = "SOFTMAX on the host"
    CONVERSIONS = "QUANTIZE and DEQUANTIZE on the host"
    START = "the start of an inference"
    CORE = "the calls that the host core makes"


TERMS = tuple(Term)

FACTS: Mapping[Term, str] = {
    Term.DISPATCH: "costs.issue_cycles",
    Term.PRODUCTS: "npu.clock",
    Term.FILL: "costs.fill_cycles",
    Term.DRAIN: "npu.accumulators",
    Term.DEPTHWISE: "costs.depthwise_macs",
    Term.OTHERS: "costs.elementwise_bytes",
    Term.OPERATORS: "host.operator_cycles",
    Term.SOFTMAX: "host.softmax_cycles",
    Term.CONVERSIONS: "host.conversion_cycles",
    Term.START: "costs.issue_cycles",
    Term.CORE: "host.clock",
}


def fact_of(term: Term, target: Target) -> str:
    """Return the place of the target's fact that a term depends on most, such as ``costs.issue_cycles``."""
    if term in (Term.WEIGHTS, Term.TENSORS):
        return f"copies by {target.copy_engine.name}: rate"
    if target.cpu is not None:
        return "cpu.call_instructions" if term is Term.DISPATCH else "cpu.instruction_cycles"
    if term is Term.FILL and target.step_cycles > 1:
        return f"memory {target.arena_memory.name}: bandwidth"
    return FACTS[term]


Work = tuple[float, ...]
"""The cycles of each term, in the order of ``TERMS``, as the cost model has them. Two terms are absent from the cost model: the results that
leave the pipelines count one cycle for each step of all pipelines, and the start of an inference one microsecond."""

NO_WORK: Work = (0.0,) * len(TERMS)

NORMAL_80 = 1.2816
"""The half-width of the middle 80% of a normal distribution, in standard deviations."""


def work(**cycles: float) -> Work:
    """Return the work with these cycles, by the names of ``Term``'s members in lower case.

    >>> work(dispatch=200.0)[:2]
    (200.0, 0.0)
    """
    return tuple(cycles.get(term.name.lower(), 0.0) for term in TERMS)


def total(parts: Iterable[Work]) -> Work:
    """Return the sum of works, term by term."""
    return tuple(map(sum, zip(*parts, NO_WORK, strict=True)))


def work_of_call(call: KernelCall, cost: Cost, target: Target) -> Work:
    """Return the work of a kernel call. ``cost`` is the sum over all stripes of the call."""
    dispatch, compute = float(cost.issue_cycles), float(cost.compute_cycles)
    if host_of(call.row, target) is not None:
        return work(core=dispatch + compute)
    if call.is_transfer:
        return work(tensors=compute)
    if not cost.macs:
        return work(dispatch=dispatch, others=compute)
    if not cost.inputs:
        return work(dispatch=dispatch, depthwise=compute)
    steps = compute - cost.stall_cycles
    of_one = math.ceil(cost.macs / math.prod(call.views["output"].extents) / target.macs)
    return work(dispatch=dispatch, products=steps, fill=float(cost.stall_cycles), drain=steps / max(1, of_one))


MULTIPLY = (
    *(CostClass.PRODUCTS, CostClass.MATRIX_PRODUCTS, CostClass.ATTENTION, CostClass.RECURRENT, CostClass.FILTERED),
    CostClass.PARTS,
)
"""The cost classes of kernels in which the multipliers of a pipeline share operands."""


def work_of_kernel(row: Row, calls: int, cycles: int, target: Target) -> Work:
    """Return the work of the ``calls`` of a kernel in a program, which take ``cycles`` together. Waits for operands and results that
    leave the pipelines are not told apart from multiplications."""
    if host_of(row, target) is not None:
        return work(core=float(cycles))
    if row.is_transfer:
        return work(tensors=float(cycles))
    dispatch = float(min(cycles, calls * issue_cycles(row, target)))
    kind, compute = row.traits.cost.kind, cycles - dispatch
    if kind is CostClass.CHANNEL_PRODUCTS:
        return work(dispatch=dispatch, depthwise=compute)
    return work(dispatch=dispatch, **{"products" if kind in MULTIPLY else "others": compute})


def work_of_host(operators: Iterable[HostOperator], target: Target) -> Work:
    """Return the work of operators on the host core, in cycles of the NPU. Operators that are not modelled count as 0."""
    host, scale = target.host, target.clock.value / target.host.clock.value
    shown = [item for item in operators if item.kind is not HostKind.OTHER]

    def values(kind: HostKind) -> float:
        return float(sum(item.values for item in shown if item.kind is kind))

    return work(
        operators=scale * host.operator_cycles.value * len(shown),
        softmax=scale * host.softmax_cycles.value * values(HostKind.SOFTMAX),
        conversions=scale * host.conversion_cycles.value * values(HostKind.CONVERSION),
    )


def work_of_copies(cycles: float, weights_bytes: float, tensors_bytes: float) -> Work:
    """Return the work of copies that take ``cycles``, divided between weights and tensors by their bytes."""
    whole = weights_bytes + tensors_bytes
    share = weights_bytes / whole if whole else 1.0
    return work(weights=cycles * share, tensors=cycles * (1 - share))


def work_of_start(target: Target) -> Work:
    """Return the work of the start of an inference. On a chip without a controller in the NPU the dispatch of the first call contains it."""
    return work(start=target.clock.value) if target.subsystem else NO_WORK


@dataclass(frozen=True, slots=True)
class Calibration:
    """The factors of the terms for a class of chips, and their uncertainty.

    ``covariance`` is that of the factors' logarithms, ``scatter`` the standard deviation of the logarithm of what remains, ``layer_scatter``
    that of a single layer. ``width`` is the half-width of a range in standard deviations. ``chips`` are those with published latencies,
    ``networks`` the shares of the terms in these latencies. For
    other chips the target's ``costs.error`` widens the range.
    """

    factors: tuple[float, ...]
    covariance: tuple[tuple[float, ...], ...]
    scatter: float
    layer_scatter: float
    width: float
    chips: tuple[str, ...] = ()
    networks: tuple[tuple[float, ...], ...] = ()

    def shares(self, parts: Work) -> np.ndarray:
        """Return the share of each term in a latency: float64 [terms]."""
        spent: np.ndarray = np.multiply(parts, self.factors)
        shares: np.ndarray = spent / spent.sum()
        return shares

    def deviation(self, shares: np.ndarray, more: float = 0.0, is_layer: bool = False) -> float:
        """Return the standard deviation of the logarithm of a latency with these ``shares``. ``more`` is that of a chip without
        published latencies."""
        scatter = self.layer_scatter if is_layer else self.scatter
        return math.sqrt(float(shares @ np.array(self.covariance) @ shares) + scatter**2 + more**2)


UNKNOWN = Calibration(
    tuple(0.0 if term in (Term.DRAIN, Term.START) else 1.0 for term in TERMS),
    (NO_WORK,) * len(TERMS),
    0.0,
    0.0,
    NORMAL_80,
)
"""The calibration of a class of chips without published latencies: the cycles of the cost model."""


def read_calibrations(text: str) -> Mapping[str, Calibration]:
    """Return the calibrations in a file by the class of the chip."""
    document: dict[str, Any] = json.loads(text)
    return {
        name: Calibration(
            tuple(entry["factors"][term.name.lower()] for term in TERMS),
            tuple(map(tuple, entry["covariance"])),
            entry["scatter"],
            entry["layer_scatter"],
            entry["width"],
            tuple(entry["chips"]),
            tuple(map(tuple, entry["networks"])),
        )
        for name, entry in document["classes"].items()
    }


@cache
def _calibrations() -> Mapping[str, Calibration]:
    return read_calibrations(resources.files("openneutron.targets").joinpath("estimates.json").read_text())


def calibration(target: Target) -> Calibration:
    """Return the calibration for the class of the target."""
    return _calibrations().get(target.family, UNKNOWN)


def releases(target: Target) -> str:
    """Return the releases of NXP's software that estimates for a target are for, in words; an empty text for a target without a fitted
    calibration. Releases before 2025 are a term of the fit alone: the dispatch of a call takes longer in them (``bench.estimates``)."""
    return "NXP's software since 2025" if calibration(target).chips else ""


def chip_deviation(target: Target, found: Calibration) -> float:
    """Return the standard deviation that ``costs.error`` adds to the estimates of a chip without published latencies; 0 for others."""
    return 0.0 if target.name in found.chips else math.log1p(target.costs.error.value / 100) / NORMAL_80


@dataclass(frozen=True, slots=True)
class Estimate:
    """A latency on the chip with the range that is expected to hold it in 80% of cases, in milliseconds. ``term`` is the one that the
    latency hangs on most: its share, times the uncertainty of its factor, is the largest. ``fact`` is the place of the target's fact behind it,
    such as ``costs.issue_cycles``."""

    milliseconds: float
    least: float
    most: float
    term: Term
    fact: str = ""

    @property
    def expected(self) -> tuple[float, float]:
        """Return the lowest and the highest latency that is expected, in milliseconds."""
        return self.least, self.most


NOTHING = Estimate(0.0, 0.0, 0.0, Term.DISPATCH)
"""The estimate of no work."""


def together(parts: Iterable[Estimate]) -> Estimate:
    """Return the sum of latencies whose errors are independent. The term and the fact are those of the latency with the widest range."""
    found = [part for part in parts if part.milliseconds]
    if len(found) < 2:
        return found[0] if found else NOTHING
    time = math.fsum(part.milliseconds for part in found)
    below = math.hypot(*(part.milliseconds - part.least for part in found))
    above = math.hypot(*(part.most - part.milliseconds for part in found))
    widest = max(found, key=lambda part: part.most - part.least)
    return Estimate(time, time - below, time + above, widest.term, widest.fact)


def estimate(parts: Work, target: Target, is_layer: bool = False) -> Estimate:
    """Return the estimate of a latency. ``parts`` is the work of an inference, or of one layer with ``is_layer``."""
    found = calibration(target)
    if not any(parts):
        return NOTHING
    shares = found.shares(parts)
    time = target.milliseconds(float(np.dot(parts, found.factors)))
    wide = math.exp(found.width * found.deviation(shares, chip_deviation(target, found), is_layer))
    term = _most_uncertain(shares, found)
    return Estimate(time, time / wide, time * wide, term, fact_of(term, target))


def _most_uncertain(shares: np.ndarray, found: Calibration) -> Term:
    deviations = np.sqrt(np.diag(found.covariance))
    weights = np.multiply(shares, deviations) if deviations.any() else shares
    return TERMS[int(np.argmax(weights))]
