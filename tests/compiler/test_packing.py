# SPDX-License-Identifier: BSD-3-Clause
"""Packed constants hold what they are made from, where the kernels look for it, in as many bytes as the formula says."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from openneutron.compiler.emit.emit import PACKERS
from openneutron.compiler.select.calls import Constant, Maps, packed_bytes, requantization
from openneutron.isa.kernels.row import Packing
from openneutron.ops import rescaling


def packed_as(packing: Packing, constant: Constant) -> bytes:
    """Return the bytes, of which there are as many as the formula says."""
    blob = PACKERS[packing](constant)
    assert len(blob) == packed_bytes(packing, constant)
    return blob


PROPERTY = settings(max_examples=60, derandomize=True, deadline=None, database=None)
extents = st.integers(1, 20)


@PROPERTY
@given(extents, st.integers(1, 4), st.integers(1, 4), extents)
def test_convolution_weights_come_back(outputs: int, height: int, width: int, inputs: int) -> None:
    weights = np.random.default_rng(0).integers(-128, 128, (outputs, height, width, inputs), np.int8)
    blob = packed_as(Packing.WEIGHT_BLOCKS, weights)
    blocks = np.frombuffer(blob, np.int8).reshape(-(-outputs // 8), height, width, -(-inputs // 8), 8, 8)
    for k, i, j, c in np.ndindex(weights.shape):
        assert blocks[k // 8, i, j, c // 8, k % 8, c % 8] == weights[k, i, j, c]
    assert np.count_nonzero(blocks) == np.count_nonzero(weights)


@PROPERTY
@given(extents, st.integers(1, 4), st.integers(1, 4))
def test_depthwise_weights_come_back(outputs: int, height: int, width: int) -> None:
    weights = np.random.default_rng(0).integers(-128, 128, (outputs, height, width, 1), np.int8)
    blob = packed_as(Packing.CHANNEL_BLOCKS, weights)
    blocks = np.frombuffer(blob, np.int8).reshape(-(-outputs // 8), height, width, 8)
    for k, i, j, _ in np.ndindex(weights.shape):
        assert blocks[k // 8, i, j, k % 8] == weights[k, i, j, 0]
    assert np.count_nonzero(blocks) == np.count_nonzero(weights)


@PROPERTY
@given(st.integers(1, 30), st.integers(-128, 127), st.booleans())
def test_requantization_folds_the_zero_point_into_the_bias(channels: int, zero_point: int, biased: bool) -> None:
    generator = np.random.default_rng(1)
    bias = generator.integers(-(2**31), 2**31, channels).astype(np.int32) if biased else None
    sums = generator.integers(-(2**28), 2**28, channels)
    multipliers = generator.integers(2**30, 2**31, channels).astype(np.int32)
    shifts = generator.integers(-31, 31, channels).astype(np.int32)
    blob = packed_as(Packing.REQUANTIZATION, requantization(bias, sums, zero_point, multipliers, shifts))
    table = np.frombuffer(blob, np.int32).reshape(-(-channels // 8), 3, 8)
    for k in range(channels):
        folded = (int(bias[k]) if bias is not None else 0) - zero_point * int(sums[k])
        assert (folded - int(table[k // 8, 0, k % 8])) % 2**32 == 0
        assert table[k // 8, 1, k % 8] == multipliers[k]
        assert table[k // 8, 2, k % 8] == shifts[k]
    assert not table.transpose(1, 0, 2).reshape(3, -1)[:, channels:].any()


def test_one_multiplier_stands_for_all_channels() -> None:
    one = np.array([2**30 + 5], np.int32), np.array([-3], np.int32)
    table = requantization(None, np.zeros(11, np.int64), 0, *one)
    assert table.tolist() == [[0] * 11, [2**30 + 5] * 11, [-3] * 11]


def test_tables_stay_as_they_are_and_maps_are_rows_then_columns() -> None:
    assert packed_as(Packing.AS_IT_IS, np.arange(3, dtype=">i4")) == np.arange(3, dtype="<i4").tobytes()
    maps = Maps(np.array([[1, 2], [3, 4]], np.int32), np.array([[5], [6]], np.int32))
    assert packed_as(Packing.MAPS, maps) == np.arange(1, 7, dtype="<i4").tobytes()


def test_every_packing_is_known() -> None:
    assert set(PACKERS) == set(Packing)


# -- requantize --------------------------------------------------------------------------------------------------------


@PROPERTY
@given(st.floats(2.0**-31, 2.0**29.9))
def test_multiplier_and_shift_stand_for_the_real_number(real: float) -> None:
    multiplier, shift = rescaling.quantize_multiplier(real)
    assert 2**30 <= multiplier < 2**31
    assert abs(multiplier * 2.0 ** (shift - 31) - real) <= real * 2.0**-31


def test_multipliers_at_the_edges() -> None:
    assert rescaling.quantize_multiplier(0.0) == (0, 0)
    assert rescaling.quantize_multiplier(1.0) == (2**30, 1)
    assert rescaling.quantize_multiplier(0.5) == (2**30, 0)
    assert rescaling.quantize_multiplier(1 - 2.0**-40) == (2**30, 1)  # rounds up to the next power of two
    assert rescaling.quantize_multiplier(2.0**-32) == (2**30, -31)
    assert rescaling.quantize_multiplier(2.0**-33) == (0, 0)
    assert rescaling.quantize_multiplier(-0.5) == (-(2**30), 0)


def fitted(scales: list[float], low: int, high: int) -> rescaling.Multipliers:
    found = rescaling.fit_multipliers(scales, low, high)
    assert found is not None
    return found


def _rounded_once(accumulator: int, multiplier: int, word: int) -> int:
    """As the kernels do with single_rounding."""
    shift, low = (word & 0xFF ^ 0x80) - 0x80, word >> 8
    return (accumulator * multiplier + (accumulator * low >> 20) + (1 << (30 - shift))) >> (31 - shift)


def _rounded_away(product: float) -> int:
    whole = math.floor(abs(product))
    return int(math.copysign(whole + (abs(product) - whole >= 0.5), product))


@PROPERTY
@given(
    st.one_of(st.floats(2.0**-24, 4.0), st.integers(1, 999).map(lambda n: n * 2.0**-20)),
    st.integers(-128, 127),
)
@example(0.7, 0)  # 5 x 0.7 is 3.5 as a double, and 45 x 0.7 is less than 31.5
def test_fitted_multipliers_round_every_accumulator_as_a_double_does(scale: float, zero_point: int) -> None:
    low, high = -128 - zero_point, 127 - zero_point
    # Around every step, and at the ends.
    near = np.arange(low - 2, high + 3)[:, None] + np.array([-0.5, 0.5])
    accumulators = np.unique(np.clip(np.round(near / scale)[..., None] + np.arange(-2, 3), -(2**31), 2**31 - 1))
    wanted = {int(each): min(max(_rounded_away(int(each) * scale), low), high) for each in accumulators}
    found = rescaling.fit_multipliers([scale], low, high)
    if found is None:
        assert _multiplier_that_rounds(wanted, scale, low, high) is None
        return
    (multiplier,), (word,) = (array.tolist() for array in found)
    for accumulator, want in wanted.items():
        got = _rounded_once(accumulator, multiplier, word)
        assert min(max(got, low), high) == want, accumulator


def _multiplier_that_rounds(wanted: dict[int, int], scale: float, low: int, high: int) -> Fraction | None:
    """Return a multiplier of 51 bits whose products, with halves rounded up, are as wanted within the bounds; or None."""
    above: set[tuple[Fraction, bool]] = set()
    below: set[tuple[Fraction, bool]] = set()
    for accumulator, want in wanted.items():
        if accumulator and want > low:
            (above if accumulator > 0 else below).add((Fraction(2 * want - 1, 2 * accumulator), True))
        if accumulator and want < high:
            (below if accumulator > 0 else above).add((Fraction(2 * want + 1, 2 * accumulator), False))
    step = Fraction(2) ** (math.frexp(scale)[1] - 51)
    least = max((-(-bound // step) if closed else bound // step + 1 for bound, closed in above), default=0)
    most = min((bound // step if closed else -(-bound // step) - 1 for bound, closed in below), default=2**51)
    return least * step if least <= most else None


def test_halves_are_rounded_away_from_zero_by_fitted_multipliers() -> None:
    (multiplier,), (word,) = (array.tolist() for array in fitted([0.5], -128, 127))
    assert [_rounded_once(a, multiplier, word) for a in (-3, -1, 1, 3)] == [-2, -1, 1, 2]


def test_fitted_multipliers_of_many_channels_are_each_their_own() -> None:
    scales = [0.001, 0.0, 2.0**-40, 0.25, 1 - 2.0**-52]
    many = fitted(scales, -128, 127)
    for i, scale in enumerate(scales):
        one = fitted([scale], -128, 127)
        assert (one[0][0], one[1][0]) == (many[0][i], many[1][i])
    assert (many[0][1], many[0][2]) == (0, 0)


@pytest.mark.parametrize(
    ("activation", "scale", "zero_point", "bounds"),
    [
        ("NONE", 0.1, 5, (-128, 127)),
        ("RELU", 0.1, 5, (5, 127)),
        ("RELU6", 0.1, 5, (5, 65)),
        ("RELU6", 6 / 255, -128, (-128, 127)),
        ("RELU_N1_TO_1", 0.1, 5, (-5, 15)),
        ("RELU_N1_TO_1", 0.4, 0, (-3, 3)),  # 2.5 rounds away from 0
        ("RELU6", 1e-6, 0, (0, 127)),
    ],
)
def test_activation_bounds(activation: str, scale: float, zero_point: int, bounds: tuple[int, int]) -> None:
    assert rescaling.activation_range(activation, scale, zero_point) == bounds
