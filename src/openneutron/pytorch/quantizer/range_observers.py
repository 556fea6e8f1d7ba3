# SPDX-License-Identifier: BSD-3-Clause
"""The observers of activations by the names that ``QuantizationOptions.observer`` has."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from torchao.quantization.pt2e import MinMaxObserver

from openneutron.options import OBSERVERS
from openneutron.pytorch.quantizer.observers import HistogramRangeObserver

LEFT_OUT = 0.0001
"""The share of values that PercentileObserver leaves out, half of it at each end."""

BINS_OF_ENTROPY = 128
"""Values that one side of a distribution is reduced to (Migacz, "8-bit Inference with TensorRT", GTC 2017)."""

BINS_BETWEEN = 16
"""The distance between the ends that EntropyObserver tries, in bins."""

MISSING_COST = 20
"""The cost of a value that the reduced distribution lacks, in nats: the divergence itself is infinite there."""


class PercentileObserver(HistogramRangeObserver):
    """Leaves out the largest and the smallest values: LEFT_OUT of all."""

    def best_range(self) -> tuple[float, float]:
        """Return the range of the other values, zero inside."""
        low, high = float(self.min_val), float(self.max_val)
        counts = np.maximum(self.histogram.numpy(), 0)
        if not high > low or not counts.any():
            return low, high
        share = np.cumsum(counts) / counts.sum()
        edges = np.linspace(low, high, len(counts) + 1)
        first, last = (int(np.searchsorted(share, part)) for part in (LEFT_OUT / 2, 1 - LEFT_OUT / 2))
        return min(0.0, float(edges[first])), max(0.0, float(edges[min(last + 1, len(counts))]))


class EntropyObserver(HistogramRangeObserver):
    """Takes the symmetric range whose distribution, reduced to int8, has the smallest Kullback-Leibler divergence."""

    def best_range(self) -> tuple[float, float]:
        """Return this range, not beyond the values that were seen."""
        low, high = float(self.min_val), float(self.max_val)
        counts = np.maximum(self.histogram.numpy(), 0)
        if not high > low or not counts.any():
            return low, high
        centres = low + (np.arange(len(counts)) + 0.5) * (high - low) / len(counts)
        top = max(-low, high)
        sizes, _ = np.histogram(np.abs(centres), len(counts), (0, top), weights=counts)
        ends = range(BINS_OF_ENTROPY, len(sizes) + 1, BINS_BETWEEN)
        limit = top * min(ends, key=lambda end: _divergence(sizes, end)) / len(sizes)
        return max(low, -limit), min(high, limit)


def _divergence(sizes: np.ndarray, end: int) -> float:
    """Return the divergence of the first ``end`` bins, the last with all values above it, from the same in
    ``BINS_OF_ENTROPY`` steps."""
    kept = sizes[:end].copy()
    kept[-1] += sizes[end:].sum()
    groups = np.arange(end) * BINS_OF_ENTROPY // end
    full = sizes[:end] > 0
    totals = np.bincount(groups, sizes[:end], BINS_OF_ENTROPY)
    filled = np.bincount(groups, full, BINS_OF_ENTROPY)
    reduced = np.where(full, totals[groups] / np.maximum(filled[groups], 1), 0)
    if not reduced.any():
        return math.inf
    wanted, got = kept / kept.sum(), reduced / reduced.sum()
    both = (wanted > 0) & (got > 0)
    missing = float(wanted[(wanted > 0) & (got == 0)].sum())
    return float((wanted[both] * np.log(wanted[both] / got[both])).sum()) + missing * MISSING_COST


OBSERVER: dict[str, Any] = dict(
    zip(OBSERVERS, (None, MinMaxObserver, PercentileObserver, EntropyObserver), strict=True)
)
"""The class of each observer by its name; None stands for the usual one, ``specs.activation_spec`` has it."""
