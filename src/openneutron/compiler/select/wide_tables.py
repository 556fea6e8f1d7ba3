# SPDX-License-Identifier: BSD-3-Clause
"""The tables of int16 functions, as LiteRT's reference kernels fill them.

Between two entries of a table the kernels draw a straight line. LiteRT lowers each entry by half of the line's error in the middle, so
that the error is as large at the entries as between them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from openneutron.compiler.select.tables import exp_in_float, gelu_in_float, log_in_float, rounded_away
from openneutron.ir import QuantParams

Int16s = npt.NDArray[np.int16]
Reals = npt.NDArray[np.floating[Any]]
Transform = Callable[[Reals], Reals]

_STEPS = 512
_LOW, _HIGH = -(2**15), 2**15 - 1


def table_of(
    transform: Transform,
    source_scale: float,
    result_scale: float,
    source_zero_point: int = 0,
    real: type[np.floating[Any]] = np.float32,
) -> Int16s:
    """Return the 513 entries of LUTPopulate in LiteRT's internal/common.h, in float32 or float64 arithmetic."""
    source, result, half = real(source_scale), real(result_scale), real(2)
    lowest, highest = (source * real(stored - source_zero_point) for stored in (_LOW, _HIGH))
    step = (highest - lowest) / real(_STEPS)
    inverse = real(2**16) / (result * real(_HIGH) - result * real(_LOW))
    places = np.arange(_STEPS + 1).astype(real) * step + lowest
    values = transform(places)
    middles = rounded_away(transform(places[:-1] + step / half) * inverse)
    entries = rounded_away(values[:-1] * inverse)
    between = rounded_away((values[1:] * inverse + entries) / half)
    entries = entries - rounded_away((between - middles) / half)
    last = rounded_away(transform(np.array([highest], real)) * inverse)
    return np.asarray(np.clip(np.concatenate([entries, last]), _LOW, _HIGH), np.int16)


def _rsqrt(result: QuantParams) -> Transform:
    """GenericPrepare of elementwise.cc for RSQRT. LiteRT refuses values below 0; they get what 0 gets."""
    largest = np.float32(_HIGH) * np.float32(result.scale)

    def inverse_root(values: Reals) -> Reals:
        positive = values > 0
        root = np.sqrt(np.where(positive, values, np.float32(1)))
        return np.where(positive, np.float32(1) / root, largest).astype(np.float32)

    return inverse_root


def _log(result: QuantParams) -> Transform:
    """LogLUTPrepare of elementwise.cc: what has no logarithm becomes the lowest output."""
    return log_in_float(np.float32(_LOW) * np.float32(result.scale))


_TRANSFORMS: Mapping[str, Callable[[QuantParams, Mapping[str, Any]], Transform]] = {
    "exp": lambda result, attrs: exp_in_float,
    "log": lambda result, attrs: _log(result),
    "rsqrt": lambda result, attrs: _rsqrt(result),
    "gelu": lambda result, attrs: gelu_in_float(bool(attrs["approximate"])),
}
"""The functions that LiteRT computes with a table on int16."""


def function_table(op: str, source: QuantParams, result: QuantParams, attrs: Mapping[str, Any]) -> Int16s:
    """Return the table of an operator for these scales."""
    with np.errstate(over="ignore", under="ignore"):
        return table_of(_TRANSFORMS[op](result, attrs), source.scale, result.scale)


INTERPOLATED = tuple(_TRANSFORMS)


@cache
def sigmoid_table() -> npt.NDArray[np.uint16]:
    """Return LiteRT's sigmoid of 0, 1/24 ... 255/24 with 16 fractional bits, raised by half of the line's error in the middle.

    The last entry is that of everything behind it.
    """
    places = np.arange(256.0)
    values, middles, after = (_sigmoid((places + offset) / 24) * 2**16 for offset in (0, 0.5, 1))
    raised = np.floor(values - ((values + after) / 2 - middles) / 2 + 0.5)
    raised[-1] = 2**16 - 1
    return raised.astype(np.uint16)


def _sigmoid(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return 1 / (1 + np.array([math.exp(-value) for value in values]))


@cache
def softmax_tables() -> tuple[Int16s, Int16s]:
    """Return the exponentials from -10 to 0 and 1 / (1 + x) from 0 to 1, with 15 fractional bits (SoftmaxPrepare of activations.cc)."""
    steps = float(_HIGH - _LOW)

    def exponential(values: Reals) -> Reals:
        return np.array([math.exp(value) for value in values])

    exponentials = table_of(exponential, 10.0 / steps, 2.0 / steps, _HIGH, np.float64)
    reciprocals = table_of(lambda values: 1.0 / (1.0 + values), 1.0 / steps, 2.0 / steps, _LOW, np.float64)
    return exponentials, reciprocals
