# SPDX-License-Identifier: BSD-3-Clause
"""Name the measurements on a board that would narrow the ranges of a chip's estimates most.

A measurement is a latency of a network in which one term dominates. It updates the covariance of the factors as a Kalman filter does. The
gain is the narrower range of the networks with published latencies. The second measurement is chosen after the first, and so on.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from openneutron.compiler.cost.estimate import TERMS, Calibration, Term, calibration, chip_deviation
from openneutron.targets import Target

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
"""The share of the dominant term in the latency of such a network; the dispatch of its calls has the rest (assumed)."""

PLAIN = (Term.DISPATCH, Term.PRODUCTS, Term.DEPTHWISE, Term.OTHERS)
"""The terms of a network on a chip whose class has no published latencies; each has an equal share (assumed)."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """A measurement that would help: the network to measure, its dominant term, and the half-widths of the ranges of networks before
    and after it, as shares of the latency: 0.2 for a range from 1 / 1.2 to 1.2 times."""

    network: str
    term: str
    before: float
    after: float


def what_would_help(target: Target, count: int = 3) -> tuple[Measurement, ...]:
    """Return the measurements that would narrow the ranges most, the first of them first."""
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
    """Return the covariance of the factors, and of the chip's own deviation behind them: float64 [terms + 1, terms + 1].

    Without published latencies of the class, the factors are independent, and as uncertain as the chip is together.
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
    """Return the covariance after a measurement with these shares."""
    gain = covariance @ shares
    updated: np.ndarray = covariance - np.outer(gain, gain) / (shares @ gain + noise)
    return updated


def _half_width(known: Iterable[np.ndarray], covariance: np.ndarray, found: Calibration) -> float:
    """Return the mean half-width of the ranges of networks."""
    deviations = [math.sqrt(max(0.0, float(shares @ covariance @ shares)) + found.scatter**2) for shares in known]
    return math.expm1(found.width * sum(deviations) / len(deviations))
