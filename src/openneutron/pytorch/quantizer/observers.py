# SPDX-License-Identifier: BSD-3-Clause
"""Observers, which determine the scales of tensors in calibration.

The activation observer keeps a histogram. Its range is the one with the least mean squared error: the error of clipping the values outside,
plus step**2 / 12 for each value inside (the noise of uniform rounding; Widrow and Kollár, "Quantization Noise", 2008, chapter 4). Prefix
sums over the histogram give this error for all ranges at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torchao.quantization.pt2e import (
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    PerChannelMinMaxObserver,
)
from torchao.quantization.pt2e.observer import UniformQuantizationObserverBase

from openneutron.ops import BY_NAME
from openneutron.ops.reductions import LEAST_SCALE
from openneutron.options import OBSERVERS
from openneutron.pytorch.operators.annotations import LARGEST_VALUE, MASKED

BINS = 2048
CANDIDATES = 128
"""The number of lower ends of a range that are tried, and of upper ends."""

MOST_COUNTED = 1 << 18
"""The limit on values of each tensor that are counted, besides the smallest and the largest value.

A quarter of a million values give the same ranges as all values, even for long-tailed distributions; 65,536 do not.
"""

LEAST_ACTIVATION_SCALE = 2.0**-16
"""The smallest scale of an activation. It limits requantization multipliers and int32 biases for a tensor whose values hardly differ.

ExecuTorch's NXP quantizer uses 2**-12, which leaves only 16 steps for a tensor with values below 0.004. Products with probabilities over
1024 values have such values.
"""

LEAST_REACHED_SCALE = 2.0**-20
"""``LEAST_ACTIVATION_SCALE`` for results in [0, 1] or [-1, 1]. Such results may be probabilities of rare events."""

LEAST_WIDE_SCALE = 2.0**-24
"""``LEAST_ACTIVATION_SCALE`` for int16, which has 2**8 times as many steps."""

LEAST_CHANNEL_RATIO = 2.0**-12
"""The smallest weight scale of an output channel, divided by the largest one of the layer.

The products of a channel with smaller weights are below one step of the int8 output in any case. A smaller scale could make the int32 bias
overflow, because its scale is (input scale * weight scale).
"""


LARGEST_SIGNAL = 1e30
"""The largest magnitude that counts as a value of the model. Larger ones are fill values of masks, such as torch.finfo(torch.float32).min,
or results of arithmetic with them."""


def stride_of(count: int) -> int:
    """Return the stride at which an observer samples the flattened values of a tensor of ``count`` values.

    The stride has no common factor with ``count``, so that values of every channel, row and column are sampled.
    """
    stride = -(-count // MOST_COUNTED)
    while math.gcd(stride, count) > 1:
        stride += 1
    return stride


class HistogramRangeObserver(UniformQuantizationObserverBase):
    """Observes a float tensor, and gives the affine int8 parameters with the least mean squared error.

    The range always includes zero. Values that are exactly zero have no error in any range and are not counted.
    Values beyond ``LARGEST_SIGNAL``, infinities and NaN are not counted either. Of a large tensor, the observer
    counts a sample and the smallest and largest value.

    reach: the |x| beyond which values make no difference, as at the input of a sigmoid. A value further away counts
    as a value at that distance. If all values have one sign, the distance is measured from the value nearest to 0
    instead of from 0, because small results may get a finer scale (``ReachedRangeObserver``).
    """

    def __init__(self, reach: float = math.inf, **kwargs: Any) -> None:
        kwargs.setdefault("eps", LEAST_ACTIVATION_SCALE)
        super().__init__(**kwargs)
        self.reach = reach
        self.register_buffer("histogram", torch.zeros(BINS, dtype=torch.float64))
        self.register_buffer("min_val", torch.tensor(float("inf")))
        self.register_buffer("max_val", torch.tensor(float("-inf")))
        self._chosen: tuple[torch.Tensor, torch.Tensor] | None = None

    def forward(self, x_orig: torch.Tensor) -> torch.Tensor:
        x = x_orig.detach()
        if x.numel() == 0 or not x.is_floating_point():
            return x_orig
        low, high = (float(v) for v in torch.aminmax(x))
        if not max(abs(low), abs(high)) <= LARGEST_SIGNAL:
            x = x[x.abs() <= LARGEST_SIGNAL]
            if x.numel() == 0:
                return x_orig
            low, high = (float(v) for v in torch.aminmax(x))
        self._chosen = None
        here_low, here_high = low, high
        low, high = min(low, float(self.min_val)), max(high, float(self.max_val))
        if high <= low:
            # All values so far are equal. Their count moves to its bin once there is a range.
            self.min_val.fill_(low)
            self.max_val.fill_(high)
            self.histogram[0] += torch.count_nonzero(x)
            return x_orig
        if (low, high) != (float(self.min_val), float(self.max_val)):
            if self.histogram.any():
                self.histogram.copy_(torch.from_numpy(self._stretched(low, high)))
            self.min_val.fill_(low)
            self.max_val.fill_(high)
        stride = stride_of(x.numel())
        if x.dim() == 4 and not x.is_contiguous():
            # Read a channels-last image in the order of its memory, without a copy.
            x = x.permute(0, 2, 3, 1)
        some = x.reshape(-1)[::stride].float()
        counts = torch.histc(some, BINS, float(self.min_val), float(self.max_val)).double()
        counts[self._bin_of(0.0)] -= some.numel() - int(np.count_nonzero(some.numpy()))
        if stride > 1:
            counts *= stride
            for extreme in (here_low, here_high):
                counts[self._bin_of(extreme)] += 1
        self.histogram += counts
        return x_orig

    def _bin_of(self, value: float) -> int:
        low, high = float(self.min_val), float(self.max_val)
        return min(BINS - 1, max(0, int((value - low) / (high - low) * BINS)))

    def _stretched(self, low: float, high: float) -> np.ndarray:
        """Return the histogram so far in the bins of the wider range from ``low`` to ``high``."""
        old = self.histogram.numpy()
        before, after = float(self.min_val), float(self.max_val)
        centres = before + (np.arange(BINS) + 0.5) * ((after - before) / BINS)
        places = np.clip(((centres - low) / (high - low) * BINS).astype(int), 0, BINS - 1)
        return np.bincount(places, weights=old, minlength=BINS)

    def best_range(self) -> tuple[float, float]:
        """Return the range with the least mean squared error among the ranges that end at bin edges. The error is that of the range
        extended to 0."""
        low, high = float(self.min_val), float(self.max_val)
        if not high > low:
            return low, high
        counts = np.maximum(self.histogram.numpy(), 0.0)
        if self.reach < math.inf:
            bottom_bin, top_bin = self._bin_of(min(high, 0.0) - self.reach), self._bin_of(max(low, 0.0) + self.reach)
            counts = np.bincount(np.arange(BINS).clip(bottom_bin, top_bin), counts, BINS)
        width = (high - low) / BINS
        centres = low + (np.arange(BINS) + 0.5) * width
        edges = low + np.arange(BINS + 1) * width
        mass, first, second = (np.concatenate(([0.0], np.cumsum(counts * centres**power))) for power in (0, 1, 2))
        below = second - 2 * edges * first + edges**2 * mass
        above = (second[-1] - second) - 2 * edges * (first[-1] - first) + edges**2 * (mass[-1] - mass)
        zero = int(np.clip(np.searchsorted(edges, 0.0, side="right") - 1, 0, BINS))
        lows = np.unique(np.linspace(0, zero, CANDIDATES).astype(int))
        highs = np.unique(np.linspace(min(zero + 1, BINS), BINS, CANDIDATES).astype(int))
        bottom, top = np.minimum(edges[lows], 0.0), np.maximum(edges[highs], 0.0)
        step = (top[None, :] - bottom[:, None]) / (self.quant_max - self.quant_min)
        inside = mass[highs][None, :] - mass[lows][:, None]
        error = below[lows][:, None] + above[highs][None, :] + inside * step**2 / 12
        row, column = np.unravel_index(int(np.argmin(error)), error.shape)
        return float(edges[lows[row]]), float(edges[highs[column]])

    def calculate_qparams(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (scale, zero point) for all values that were seen so far."""
        if self._chosen is None:
            low, high = self.best_range()
            if not np.isfinite([low, high]).all():
                low = high = 0.0
            self._chosen = self._calculate_qparams(torch.tensor(low), torch.tensor(high))
        return self._chosen

    def extra_repr(self) -> str:
        return f"min_val={float(self.min_val)}, max_val={float(self.max_val)}"


LEFT_OUT = 0.0001
"""The fraction of values that PercentileObserver clips, half of it at each end."""

BINS_OF_ENTROPY = 128
"""The number of levels in which EntropyObserver quantizes one side of a distribution (Migacz, "8-bit Inference with TensorRT", GTC 2017).
"""

BINS_BETWEEN = 16
"""The distance between the ends of ranges that EntropyObserver tries, in bins."""

MISSING_COST = 20
"""The cost in nats of a value to which the quantized distribution gives the probability 0: the divergence is infinite there."""


class PercentileObserver(HistogramRangeObserver):
    """An observer whose range clips the smallest and the largest values, the fraction ``LEFT_OUT`` of all values."""

    def best_range(self) -> tuple[float, float]:
        """Return the range that remains after clipping a share of LEFT_OUT / 2 of the values at each end, extended to
        0. If all values are equal, or none is counted, return the smallest and the largest value."""
        low, high = float(self.min_val), float(self.max_val)
        counts = np.maximum(self.histogram.numpy(), 0)
        if not high > low or not counts.any():
            return low, high
        share = np.cumsum(counts) / counts.sum()
        edges = np.linspace(low, high, len(counts) + 1)
        first, last = (int(np.searchsorted(share, part)) for part in (LEFT_OUT / 2, 1 - LEFT_OUT / 2))
        return min(0.0, float(edges[first])), max(0.0, float(edges[min(last + 1, len(counts))]))


class EntropyObserver(HistogramRangeObserver):
    """An observer whose symmetric range minimizes the Kullback-Leibler divergence between the distribution and its int8 form."""

    def best_range(self) -> tuple[float, float]:
        """Return the symmetric range, clipped to the smallest and the largest observed value."""
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
    """Return the Kullback-Leibler divergence in nats between a histogram that is clipped to its first ``end`` bins
    and the same histogram reduced to ``BINS_OF_ENTROPY`` levels.

    The last bin of the clipped histogram also counts all values above it.
    """
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
"""The class of each observer by its name in the options. None means the default observer of
``specs.activation_spec``."""


FAR_INSIDE = 0.8
"""The limit on a result's own scale as a fraction of LiteRT's fixed scale for the operator. Such a scale saves at least 2 dB of rounding
noise.

If the scale would be larger, LiteRT's operator computes the result with its fixed scale.
"""


class ReachedRangeObserver(HistogramRangeObserver):
    """Observes the result of an operator for which LiteRT fixes the quantization, such as sigmoid.

    The observer gives the fixed parameters, unless the scale of the observed range is less than ``FAR_INSIDE`` times
    the fixed scale. Then it gives those of the observed range. An example is a sigmoid for rare events, whose values
    are far below 1.

    scale, zero_point: the fixed parameters.
    """

    def __init__(self, scale: float = 1.0, zero_point: int = 0, **kwargs: Any) -> None:
        kwargs.setdefault("eps", LEAST_REACHED_SCALE)
        super().__init__(**kwargs)
        self.fixed = scale, zero_point

    def calculate_qparams(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (scale, zero point)."""
        reached = super().calculate_qparams()
        if bool(self.histogram.any()) and float(reached[0]) < self.fixed[0] * FAR_INSIDE:
            return reached
        return torch.tensor([self.fixed[0]]), torch.tensor([self.fixed[1]], dtype=torch.int64)


HEADROOM = 2.0
"""The largest magnitude that int16 represents, divided by the largest observed magnitude.

A value that saturates makes far more noise than steps of twice the size: the built-in speech_enhancement on noise has 81 dB, and 53 dB
without headroom.
"""


ROOT_HEADROOM = 1.25
"""``HEADROOM`` for sums of powers whose root or logarithm is taken. It is smaller because an int16 table has 513 entries over the whole
range and roots are steep at its lower end."""


class _WithHeadroom(UniformQuantizationObserverBase):
    """Mixin of an observer: its range is ``headroom`` times as wide as the observed range."""

    headroom = HEADROOM
    min_val: torch.Tensor
    max_val: torch.Tensor

    def calculate_qparams(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (scale, zero point)."""
        return self._calculate_qparams(self.min_val * self.headroom, self.max_val * self.headroom)


class MovingRangeObserver(_WithHeadroom, MovingAverageMinMaxObserver):
    """Observes a moving average of the smallest value and one of the largest value, for training with int16
    activations. The quantized range is ``HEADROOM`` times the range between them."""


class WholeRangeObserver(_WithHeadroom, MinMaxObserver):
    """Observes the smallest and the largest value of a float tensor for int16, which has steps enough for all values between them.

    Values beyond ``LARGEST_SIGNAL``, infinities and NaN are ignored.
    """

    def forward(self, x_orig: torch.Tensor) -> torch.Tensor:
        x = x_orig.detach()
        if x.numel() and x.is_floating_point():
            low, high = (float(v) for v in torch.aminmax(x))
            if not max(abs(low), abs(high)) <= LARGEST_SIGNAL:
                x = x[x.abs() <= LARGEST_SIGNAL]
            if x.numel():
                super().forward(x)
        return x_orig


class RootRangeObserver(WholeRangeObserver):
    """Observes the range of a sum of powers whose root or logarithm is taken."""

    headroom = ROOT_HEADROOM


class LatestWeightObserver(MovingAveragePerChannelMinMaxObserver):
    """Gives the scales of ``PerChannelWeightObserver`` for the weights that it observed last, because training changes weights."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(averaging_constant=1.0, **kwargs)

    def calculate_qparams(self) -> tuple[torch.Tensor, torch.Tensor]:
        scale, zero_point = super().calculate_qparams()
        return torch.maximum(scale, scale.max() * LEAST_CHANNEL_RATIO), zero_point


class _SeesOnce:
    """Mixin of an observer of a constant: it observes the constant once, not for each sample."""

    _seen: tuple[int, int] | None = None

    def forward(self, x_orig: torch.Tensor) -> torch.Tensor:
        key = (x_orig.data_ptr(), x_orig._version)
        if key != self._seen:
            self._seen = key
            super().forward(x_orig)  # type: ignore[misc]
        return x_orig


class WeightObserver(_SeesOnce, MinMaxObserver):
    """Gives one symmetric scale, from the largest magnitude of all weights."""


class PerChannelWeightObserver(_SeesOnce, PerChannelMinMaxObserver):
    """Gives a symmetric scale for each output channel, from the largest magnitude of the channel's weights.

    A channel with tiny weights gets a larger scale, so that its bias fits in int32 (``LEAST_CHANNEL_RATIO``).
    """

    def calculate_qparams(self) -> tuple[torch.Tensor, torch.Tensor]:
        scale, zero_point = super().calculate_qparams()
        return torch.maximum(scale, scale.max() * LEAST_CHANNEL_RATIO), zero_point


LARGEST_FLAT = 1 / 4
"""The largest observed probability for which a softmax gets a scale of its own, at least 4 times as fine as 1/256.

Above it the scale 1/256 has at least 64 steps for the largest value, and LiteRT's plain int8 SOFTMAX computes the
result.
"""


class ProbabilityObserver(MinMaxObserver):
    """Observes probabilities. Gives LiteRT's fixed scale 1/256 if the largest probability is above ``LARGEST_FLAT``,
    else the scale whose highest integer is the largest probability. The zero point is -128 in either case."""

    def calculate_qparams(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (scale, zero point)."""
        scale, zero_point = fixed_parameters("softmax")
        largest = float(self.max_val)
        if 0 < largest <= LARGEST_FLAT:
            scale = max(largest / (self.quant_max - self.quant_min), LEAST_SCALE)
        return torch.tensor([scale]), torch.tensor([zero_point], dtype=torch.int64)


class LogProbabilityObserver(MinMaxObserver):
    """Observes logarithms of probabilities. The zero point is 127.

    The scale is LiteRT's 1/16 if it represents the lowest value. Otherwise it is the scale at which the lowest integer is the lowest value.
    """

    def calculate_qparams(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (scale, zero point)."""
        scale, zero_point = fixed_parameters("log_softmax")
        lowest = float(self.min_val)
        if math.isfinite(lowest):
            scale = max(scale, -lowest / (self.quant_max - self.quant_min))
        return torch.tensor([scale]), torch.tensor([zero_point], dtype=torch.int64)


def fixed_parameters(op: str) -> tuple[float, int]:
    """Return scale and zero point that LiteRT fixes for the int8 result of an operator."""
    fixed = BY_NAME[op].fixed_output
    assert fixed is not None
    return fixed


REACH = 9.0
"""The distance below the maximum of a row beyond which a value does not matter to a softmax: e**-9 is 1/8103, 1/32 of a step of the result.
"""


class RowRangeObserver(MinMaxObserver):
    """Observes the input of a softmax over the dimension ``dim``.

    A value more than ``REACH`` below the largest value of its row counts as a value at that distance, so that it does
    not widen the range. Most such values are masked. Rows whose values are all masked, and values beyond
    ``LARGEST_SIGNAL``, are not counted. No other value is clipped, because the few largest values matter most.
    """

    def __init__(self, dim: int = -1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.dim = dim

    def forward(self, x_orig: torch.Tensor) -> torch.Tensor:
        x = x_orig.detach()
        if x.numel() and x.is_floating_point():
            x = torch.nan_to_num(x)
            largest = x.amax(self.dim, keepdim=True)
            reached = torch.maximum(x, largest - REACH)
            # Nobody uses the probabilities of a row whose values are all masked.
            is_hidden = (largest < MASKED / 2) & (largest < largest.max() + MASKED / 2)
            reached = reached[(reached.abs() <= LARGEST_SIGNAL) & ~is_hidden]
            if reached.numel():
                super().forward(reached)
        return x_orig


class ReachableRangeObserver(MinMaxObserver):
    """Observes the result of ``masked_fill``.

    Fill values beyond ``LARGEST_VALUE``, such as infinity, are not counted. They saturate, which is enough to exclude the values that they
    replace.
    """

    def forward(self, x_orig: torch.Tensor) -> torch.Tensor:
        x = x_orig.detach()
        reachable = x[x.abs() <= LARGEST_VALUE]
        if reachable.numel():
            super().forward(reachable)
        return x_orig


class MaskRangeObserver(MinMaxObserver):
    """Observes a mask that is added to scores. Values below ``MASKED``, such as -infinity, count as ``MASKED``."""

    def forward(self, x_orig: torch.Tensor) -> torch.Tensor:
        x = x_orig.detach()
        if x.numel() and x.is_floating_point():
            super().forward(x.clamp(min=MASKED))
        return x_orig


LARGEST_LOSS_DB = 6.0
"""The limit on the loss of signal-to-noise ratio of a part that shares its scale with others: one bit."""

ENOUGH_DB = 35.0
"""The signal-to-noise ratio from which on a part may share a scale with others, whatever it loses by that."""

STEPS = 255
"""The steps of an int8 range."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The observed range of a part's values, extended to 0, with the sum of their squares and their number."""

    low: float = 0.0
    high: float = 0.0
    square: float = 0.0
    count: int = 0

    @classmethod
    def of(cls, tensors: Iterable[torch.Tensor]) -> Seen:
        """Return the range of all finite values of these tensors, extended to include 0, with the sum of their
        squares and their number."""
        seen = cls()
        for tensor in tensors:
            seen = seen.with_values(tensor)
        return seen

    def with_values(self, tensor: torch.Tensor) -> Seen:
        """Return the range extended by the finite values of a tensor."""
        finite = tensor[tensor.isfinite()].double()
        if not finite.numel():
            return self
        return Seen(
            min(self.low, float(finite.min())),
            max(self.high, float(finite.max())),
            self.square + float(finite.square().sum()),
            self.count + finite.numel(),
        )


def is_alike(parts: Sequence[Seen]) -> bool:
    """Return whether one int8 scale represents all parts well enough (``LARGEST_LOSS_DB``, ``ENOUGH_DB``)."""
    step = (max(part.high for part in parts) - min(part.low for part in parts)) / STEPS
    for part in parts:
        if not part.square:
            continue
        loss = 20 * math.log10(step / ((part.high - part.low) / STEPS))
        ratio = 10 * math.log10(12 * part.square / part.count / step**2)
        if loss > LARGEST_LOSS_DB and ratio < ENOUGH_DB:
            return False
    return True
