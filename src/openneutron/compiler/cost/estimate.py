# SPDX-License-Identifier: BSD-3-Clause
"""Estimate the latency on the chip, with a range, from the modelled cycles. Find bottlenecks of kernel calls, and
useful measurements.

The cost model (``cycles``) is the objective of the compiler's search. Here its cycles are divided into terms, such as
those of dispatches and of depthwise convolutions. A calibration multiplies each term by a factor that is fitted to
published latencies (``python -m bench estimates``). The range has two causes: the uncertainty of the factors, and the
scatter of published latencies around the fit. The search does not use the calibration, so that a new calibration
changes no program.

``what_would_help`` finds the measurements on a board that would narrow the ranges of a chip's estimates most. A
candidate measures the latency of a network in which one term dominates, and updates the covariance of the factors as a
Kalman filter does. Its gain is how much narrower the ranges of the networks with published latencies become. Candidates
are chosen one after the other.

``bottleneck`` and ``losses`` state what limits a kernel call, and why multipliers are idle while it runs.
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

from openneutron.compiler.cost.cycles import (
    Cost,
    call_cost,
    depthwise_macs,
    groups_of,
    host_of,
    issue_cycles,
    passes,
    product_of,
)
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
    """Return the path of the entry in the chip's file on which a term depends most, such as ``costs.issue_cycles``."""
    if term in (Term.WEIGHTS, Term.TENSORS):
        return f"copies by {target.copy_engine.name}: rate"
    if target.cpu is not None:
        return "cpu.call_instructions" if term is Term.DISPATCH else "cpu.instruction_cycles"
    if term is Term.FILL and target.step_cycles > 1:
        return f"memory {target.arena_memory.name}: bandwidth"
    return FACTS[term]


Work = tuple[float, ...]
"""The cycles of each term, in the order of ``TERMS``. The cost model lacks two of them: one cycle for each step of all
pipelines in which results leave the pipelines, and one microsecond for the start of an inference."""

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
    """Return the sum of several works, term by term."""
    return tuple(map(sum, zip(*parts, NO_WORK, strict=True)))


def work_of_call(call: KernelCall, cost: Cost, target: Target) -> Work:
    """Return the cycles of a kernel call by term. ``cost`` is the sum over all stripes of the call."""
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
    """Return the cycles by term that one kernel takes in a program. It has ``calls`` calls there, which take
    ``cycles`` in all.

    For a kernel that computes on the NPU, all cycles but those of dispatches count as computation. The waits for
    operands and the output of results are not known here, since they depend on the single calls. All cycles of a
    transfer are copies, and all cycles on the host core count as the term ``CORE``.
    """
    if host_of(row, target) is not None:
        return work(core=float(cycles))
    if row.is_transfer:
        return work(tensors=float(cycles))
    dispatch = float(min(cycles, calls * issue_cycles(row, target)))
    kind, compute = row.traits.cost.kind, cycles - dispatch
    if kind is CostClass.CHANNEL_PRODUCTS:
        return work(dispatch=dispatch, depthwise=compute)
    return work(dispatch=dispatch, **{"products" if kind in MULTIPLY else "others": compute})


def work_of_kernels(kernels: Iterable[tuple[Row, int, int]], copy_cycles: int, target: Target) -> Work:
    """Return the cycles by term of programs of which only the calls and the cycles of each kernel are known, with
    ``copy_cycles`` for copies of constants. The cycles of transfers are in these."""
    own = [work_of_kernel(row, calls, cycles, target) for row, calls, cycles in kernels if not row.is_transfer]
    return total((*own, work_of_copies(copy_cycles, 1.0, 0.0)))


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
    """Return the work of the start of an inference, which is one microsecond. Return ``NO_WORK`` for a chip without a
    controller in the NPU: there the dispatch of the first call includes the start."""
    return work(start=target.clock.value) if target.subsystem else NO_WORK


@dataclass(frozen=True, slots=True)
class Calibration:
    """The factors of the terms for a class of chips, and their uncertainty.

    ``covariance`` is the covariance matrix of the logarithms of ``factors``. ``scatter`` is the standard deviation of
    the logarithm of the residual of a network's latency, ``layer_scatter`` that of a single layer's. ``width`` is the
    half-width of a range in standard deviations. ``chips`` are the chips with published latencies, and ``networks`` has
    the share of each term in each of these latencies. For other chips the target's ``costs.error`` widens the range.
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
        """Return the standard deviation of the logarithm of a latency whose terms have these ``shares``. ``more`` is
        the additional deviation of a chip without published latencies."""
        scatter = self.layer_scatter if is_layer else self.scatter
        return math.sqrt(float(shares @ np.array(self.covariance) @ shares) + scatter**2 + more**2)


UNKNOWN = Calibration(
    tuple(0.0 if term in (Term.DRAIN, Term.START) else 1.0 for term in TERMS),
    (NO_WORK,) * len(TERMS),
    0.0,
    0.0,
    NORMAL_80,
)
"""The calibration of a class of chips without published latencies. Its estimates are the cycles of the cost model."""


def read_calibrations(text: str) -> Mapping[str, Calibration]:
    """Return the calibrations in the text of a JSON file, by the class of the chip."""
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
    """Return the calibration for the class of the target; ``UNKNOWN`` for a class without published latencies."""
    return _calibrations().get(target.family, UNKNOWN)


def releases(target: Target) -> str:
    """Return the releases of NXP's software for which the target's estimates hold, in words. Return an empty text if
    no calibration is fitted.

    In releases before 2025 a dispatch takes longer. The fit accounts for that (``bench.estimates``), but the
    estimates do not.
    """
    return "NXP's software since 2025" if calibration(target).chips else ""


def chip_deviation(target: Target, found: Calibration) -> float:
    """Return the standard deviation that ``costs.error`` adds to the estimates of a chip without published latencies; 0 for others."""
    return 0.0 if target.name in found.chips else math.log1p(target.costs.error.value / 100) / NORMAL_80


@dataclass(frozen=True, slots=True)
class Estimate:
    """A latency on the chip, and the range that is expected to hold it in 80% of cases, all in milliseconds.

    ``term`` contributes most to the uncertainty: its share in the latency, times the uncertainty of its factor, is
    the largest. For a class of chips without published latencies it is the term with the largest share. ``fact`` is
    the path of the entry in the chip's file on which that term depends, such as ``costs.issue_cycles``.
    """

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
    """Return the estimate of a sum of latencies with independent errors. Its term and fact are those of the latency
    with the widest range."""
    found = [part for part in parts if part.milliseconds]
    if len(found) < 2:
        return found[0] if found else NOTHING
    time = math.fsum(part.milliseconds for part in found)
    below = math.hypot(*(part.milliseconds - part.least for part in found))
    above = math.hypot(*(part.most - part.milliseconds for part in found))
    widest = max(found, key=lambda part: part.most - part.least)
    return Estimate(time, time - below, time + above, widest.term, widest.fact)


def estimate(parts: Work, target: Target, is_layer: bool = False) -> Estimate:
    """Return the estimate of a latency, given its cycles by term: those of an inference, or with ``is_layer`` of one
    layer."""
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


NETWORKS: Mapping[Term, str] = {
    Term.DISPATCH: "100 convolutions 1 x 1 of 8 channels on 1 x 1 pixels",
    Term.PRODUCTS: "20 convolutions 1 x 1 of 256 channels on 32 x 32 pixels",
    Term.FILL: "20 convolutions 5 x 5 of 16 channels on 32 x 32 pixels",
    Term.DRAIN: "20 convolutions 1 x 1 from 8 to 64 channels on 64 x 64 pixels",
    Term.DEPTHWISE: "20 depthwise convolutions 3 x 3 of 128 channels on 32 x 32 pixels",
    Term.OTHERS: "20 sums of two tensors of 64 channels on 64 x 64 pixels",
    Term.WEIGHTS: "5 fully connected layers of 2,048 inputs and outputs",
    Term.TENSORS: "5 convolutions 1 x 1 of 16 channels on 512 x 512 pixels",
    Term.OPERATORS: "a network with 20 QUANTIZE of one value on the host",
    Term.SOFTMAX: "SOFTMAX over 1,000 values on the host",
    Term.CONVERSIONS: "QUANTIZE of 150,528 values on the host",
    Term.START: "one convolution 1 x 1 of 8 channels on 1 x 1 pixels",
    Term.CORE: "20 calls that the host core makes beside the NPU",
}
"""A network for each term whose latency it dominates."""

DOMINANT = 0.8
"""The share of the dominant term in the latency of a network of ``NETWORKS``. The dispatch of its calls is the rest
(assumed)."""

PLAIN = (Term.DISPATCH, Term.PRODUCTS, Term.DEPTHWISE, Term.OTHERS)
"""The terms of a network on a chip whose class has no published latencies; each has an equal share (assumed)."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """A measurement that would narrow ranges: the network to measure, and its dominant term.

    ``before`` and ``after`` are the half-widths of the ranges before and after the measurement, as shares of the
    latency: 0.2 stands for a range from 1 / 1.2 to 1.2 times the estimate. The measurements ahead of it in
    ``what_would_help`` count as made already.
    """

    network: str
    term: str
    before: float
    after: float


def what_would_help(target: Target, count: int = 3) -> tuple[Measurement, ...]:
    """Return the ``count`` measurements that would narrow the ranges most, the best one first."""
    found = calibration(target)
    covariance = _covariance(found, target)
    known = [np.array([*shares, 1.0]) for shares in found.networks or (_shares(PLAIN),)]
    candidates = {
        term: np.array([*_dominated(term), 1.0]) for term in TERMS if any(shares[_place(term)] for shares in known)
    }
    noise = max(found.scatter, 0.02) ** 2
    chosen: list[Measurement] = []
    width = _half_width(known, covariance, found)
    for _ in range(min(count, len(candidates))):
        tried = {term: _updated(covariance, shares, noise) for term, shares in candidates.items()}
        best = min(tried, key=lambda term: _half_width(known, tried[term], found))
        covariance, before = tried[best], width
        width = _half_width(known, covariance, found)
        chosen.append(Measurement(NETWORKS[best], best.value, before, width))
        del candidates[best]
    return tuple(chosen)


def _place(term: Term) -> int:
    return TERMS.index(term)


def _shares(terms: Iterable[Term]) -> tuple[float, ...]:
    each = list(terms)
    return tuple(1 / len(each) if term in each else 0.0 for term in TERMS)


def _dominated(term: Term) -> tuple[float, ...]:
    """Return the shares of the terms in the latency of a network that a term dominates."""
    rest = 0.0 if term is Term.DISPATCH else 1 - DOMINANT
    return tuple(1 - rest if each is term else rest if each is Term.DISPATCH else 0.0 for each in TERMS)


def _covariance(found: Calibration, target: Target) -> np.ndarray:
    """Return the covariance of the logarithms of the factors, and of a last variable for the chip's own deviation:
    float64 [terms + 1, terms + 1].

    For a class without published latencies, the factors are independent, each as uncertain as the chip as a whole.
    """
    own = chip_deviation(target, found) ** 2
    factors = np.array(found.covariance)
    if not factors.any():
        factors = np.diag([own] * len(TERMS))
    covariance = np.zeros((len(TERMS) + 1, len(TERMS) + 1))
    covariance[:-1, :-1] = factors
    covariance[-1, -1] = own
    return covariance


def _updated(covariance: np.ndarray, shares: np.ndarray, noise: float) -> np.ndarray:
    """Return the covariance after the measurement of a latency whose terms have these ``shares``, with a variance of
    ``noise``."""
    gain = covariance @ shares
    updated: np.ndarray = covariance - np.outer(gain, gain) / (shares @ gain + noise)
    return updated


def _half_width(known: Iterable[np.ndarray], covariance: np.ndarray, found: Calibration) -> float:
    """Return the mean half-width of the ranges of networks whose terms have the shares ``known``."""
    deviations = [math.sqrt(max(0.0, float(shares @ covariance @ shares)) + found.scatter**2) for shares in known]
    return math.expm1(found.width * sum(deviations) / len(deviations))


DISPATCH, MEMORY, COMPUTE = "dispatch", "memory", "compute"

LITTLE = 0.5
"""The share of working multipliers below which a report names the reasons."""

WORTH_SAYING = 0.8
"""The largest factor of a loss that a report names: a loss with a larger one leaves more than this share of the
multipliers working."""


class Cause(StrEnum):
    """A cause of idle multipliers."""

    DISPATCH = "dispatch"
    REPETITION = "repetition"
    STALLS = "stalls"
    WIDE_ACTIVATIONS = "wide activations"
    DEPTHWISE = "depthwise"
    FEW_INPUTS = "few inputs"
    FEW_OUTPUTS = "few outputs"


@dataclass(frozen=True, slots=True)
class Loss:
    """A cause of idle multipliers. ``share`` is the share of multipliers that it leaves at work; ``text`` states it with numbers."""

    cause: Cause
    share: float
    text: str


def bottleneck(cost: Cost) -> str:
    """Return ``DISPATCH``, ``MEMORY`` or ``COMPUTE``: what limits the call.

    It is the dispatch if that has more cycles than the computation, memory if the call only moves bytes, and the
    computation otherwise.
    """
    if cost.issue_cycles > cost.compute_cycles:
        return DISPATCH
    return MEMORY if cost.parallel == "bytes" else COMPUTE


def notable_losses(call: KernelCall, cost: Cost, target: Target, stripes: int = 1) -> tuple[Loss, ...]:
    """Return the losses of a call, the largest first. A loss is a reason why multipliers are idle.

    The result is empty if at least half of the multipliers work on average, or if the call does not multiply. A loss
    is left out if it leaves more than ``WORTH_SAYING`` of the multipliers working.
    """
    if not cost.macs or cost.macs >= LITTLE * cost.cycles * target.macs_per_cycle:
        return ()
    found = sorted(losses(call, cost, target, stripes), key=lambda loss: (loss.share, loss.text))
    return tuple(loss for loss in found if loss.share <= WORTH_SAYING)


def losses(call: KernelCall, cost: Cost, target: Target, stripes: int = 1) -> list[Loss]:
    """Return all losses of a call that multiplies. The product of their shares is the utilisation of the multipliers.

    ``cost`` is the sum over all ``stripes`` of the call. The causes are the dispatch by the host, rows that are computed twice,
    multipliers that wait, activations of 16 bits, input channels that do not fill the multipliers of a pipeline, outputs that do not
    fill the pipelines, and the few multipliers that a depthwise convolution uses.
    """
    alone, count = call_cost(call, target), passes(call, target)
    subject = "its dispatch" if stripes == 1 else "the dispatch of its stripes"
    longer = "longer than computing" if bottleneck(cost) == DISPATCH else "a good part of its time"
    # In an output of one column, the pipelines share the rows.
    one_column = call.views["output"].extents[2] == 1
    again = "its stripes leave pipelines without rows" if one_column else "some of it is computed more than once"
    found = [
        Loss(Cause.DISPATCH, cost.compute_cycles / cost.cycles, f"{subject} takes {longer}"),
        Loss(Cause.REPETITION, alone.compute_cycles / cost.compute_cycles, again),
        Loss(Cause.STALLS, 1 - alone.stall_cycles / alone.compute_cycles, "multipliers wait for their operands"),
        Loss(Cause.WIDE_ACTIVATIONS, 1 / count, f"activations of 16 bits take {count} cycles"),
    ]
    if not cost.inputs:
        used = depthwise_macs(target)
        few = f"a depthwise convolution uses {used} multiplier{'s' * (used > 1)} of {target.macs} in each pipeline"
        taps = product_of(call, call.traits.cost.taps)
        share = taps / (groups_of(taps, used) * target.macs)
        return [*found, Loss(Cause.DEPTHWISE, share, few), _few_outputs(cost, target, "channels")]
    return [
        *found,
        _unfilled(Cause.FEW_INPUTS, cost.inputs, target.macs, _inputs(call), "multipliers"),
        _few_outputs(cost, target, cost.parallel),
    ]


def _inputs(call: KernelCall) -> str:
    """Return the name of the values that the multipliers of a pipeline share: input channels, or channels of several
    columns (``merge_columns``)."""
    view = call.views[call.traits.operands[0].name]
    channels = view.pitches[2] // view.element_bytes
    if not 0 < channels < view.extents[3]:
        return "input channels"
    return f"inputs ({view.extents[3] // channels} columns of {channels} channels)"


def _few_outputs(cost: Cost, target: Target, what: str) -> Loss:
    return _unfilled(Cause.FEW_OUTPUTS, cost.outputs, target.all_pipelines, what, "pipelines")


def _unfilled(cause: Cause, count: int, lanes: int, what: str, of: str) -> Loss:
    share = count / (-(-count // lanes) * lanes)
    name = what if count != 1 else what.removesuffix("s")
    return Loss(cause, share, f"{count} {name} fill{'s' if count == 1 else ''} {share:.0%} of the {of}")
