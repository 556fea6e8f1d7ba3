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

from openneutron.compiler.cost.cycles import Cost
from openneutron.compiler.cost.host import HostKind, HostOperator
from openneutron.compiler.select.calls import KernelCall
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


TERMS = tuple(Term)

FACTS: Mapping[Term, str] = {
    Term.DISPATCH: "costs.issue_cycles",
    Term.PRODUCTS: "npu.clock",
    Term.FILL: "costs.fill_cycles",
    Term.DRAIN: "npu.accumulators",
    Term.DEPTHWISE: "costs.depthwise_macs",
    Term.OTHERS: "costs.elementwise_bytes",
    Term.WEIGHTS: "copy_engine.rate",
    Term.TENSORS: "copy_engine.rate",
    Term.OPERATORS: "host.operator_cycles",
    Term.SOFTMAX: "host.softmax_cycles",
    Term.CONVERSIONS: "host.conversion_cycles",
    Term.START: "costs.issue_cycles",
}
"""The fact of the chip that a term depends on most."""

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
    if call.is_transfer:
        return work(tensors=compute)
    if not cost.macs:
        return work(dispatch=dispatch, others=compute)
    if not cost.inputs:
        return work(dispatch=dispatch, depthwise=compute)
    steps = compute - cost.stall_cycles
    of_one = math.ceil(cost.macs / math.prod(call.views["output"].extents) / target.macs)
    return work(dispatch=dispatch, products=steps, fill=float(cost.stall_cycles), drain=steps / max(1, of_one))


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


def work_of_start(target: Target) -> Work:
    """Return the work of the start of an inference. On a chip without a controller in the NPU the dispatch of the first call contains it."""
    return work(start=target.clock.value) if target.subsystem else NO_WORK


@dataclass(frozen=True, slots=True)
class Calibration:
    """The factors of the terms for a class of chips, and their uncertainty.

    ``covariance`` is that of the factors' logarithms, ``scatter`` the standard deviation of the logarithm of what remains, ``layer_scatter``
    that of a single layer. ``width`` is the half-width of a range in standard deviations. ``chips`` are those with published latencies. For
    other chips the target's ``costs.error`` widens the range.
    """

    factors: tuple[float, ...]
    covariance: tuple[tuple[float, ...], ...]
    scatter: float
    layer_scatter: float
    width: float
    chips: tuple[str, ...] = ()

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


UNKNOWN = Calibration((1.0,) * len(TERMS), (NO_WORK,) * len(TERMS), 0.0, 0.0, NORMAL_80)
"""The calibration of a class of chips without published latencies."""


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
        )
        for name, entry in document["classes"].items()
    }


@cache
def _calibrations() -> Mapping[str, Calibration]:
    return read_calibrations(resources.files("openneutron.targets").joinpath("estimates.json").read_text())


def calibration(target: Target) -> Calibration:
    """Return the calibration for the class of the target."""
    return _calibrations().get(target.family, UNKNOWN)


def chip_deviation(target: Target, found: Calibration) -> float:
    """Return the standard deviation that ``costs.error`` adds to the estimates of a chip without published latencies; 0 for others."""
    return 0.0 if target.name in found.chips else math.log1p(target.costs.error.value / 100) / NORMAL_80


@dataclass(frozen=True, slots=True)
class Estimate:
    """A latency on the chip with the range that is expected to hold it in 80% of cases, in milliseconds. ``term`` is the one that the
    latency hangs on most: its share, times the uncertainty of its factor, is the largest."""

    milliseconds: float
    least: float
    most: float
    term: Term

    @property
    def range(self) -> tuple[float, float]:
        """Return the lowest and the highest latency that is expected, in milliseconds."""
        return self.least, self.most

    @property
    def fact(self) -> str:
        """Return the place of the chip's fact that the term depends on, such as ``costs.issue_cycles``."""
        return FACTS[self.term]


def estimate(parts: Work, target: Target, is_layer: bool = False) -> Estimate:
    """Return the estimate of a latency. ``parts`` is the work of an inference, or of one layer with ``is_layer``."""
    found = calibration(target)
    if not any(parts):
        return Estimate(0.0, 0.0, 0.0, Term.DISPATCH)
    shares = found.shares(parts)
    time = target.milliseconds(float(np.dot(parts, found.factors)))
    wide = math.exp(found.width * found.deviation(shares, chip_deviation(target, found), is_layer))
    return Estimate(time, time / wide, time * wide, _most_uncertain(shares, found))


def _most_uncertain(shares: np.ndarray, found: Calibration) -> Term:
    deviations = np.sqrt(np.diag(found.covariance))
    weights = np.multiply(shares, deviations) if deviations.any() else shares
    return TERMS[int(np.argmax(weights))]
