# SPDX-License-Identifier: BSD-3-Clause
"""The multiplier of fully connected layers rounds as LiteRT's double-precision product does."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openneutron.compiler.rounding import STEPS, nearest_multipliers, scaled
from openneutron.errors import InvalidModelError


def round_half_away(value: float) -> int:
    exact = Fraction(value)
    return int(abs(exact) + Fraction(1, 2)) * (1 if exact >= 0 else -1)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    st.one_of(st.floats(1e-9, 100.0), st.integers(-30, 6).map(lambda e: 2.0**e)),
    st.lists(st.integers(0, STEPS * 2), min_size=1, max_size=20),
)
def test_every_accumulator_rounds_alike(scale: float, halves: list[int]) -> None:
    multipliers, bits = nearest_multipliers([scale])
    for half in halves:
        for accumulator in (int(half / 2 / scale), int(half / 2 / scale) + 1):
            wanted = round_half_away(accumulator * scale)
            if wanted < STEPS and accumulator < 2**31:
                assert scaled(np.array(accumulator), multipliers, bits)[0] == wanted, (scale, accumulator)


def test_many_scales_at_once() -> None:
    scales = np.random.default_rng(0).uniform(1e-4, 0.1, 1000)
    multipliers, bits = nearest_multipliers(scales)
    np.testing.assert_allclose(np.ldexp(multipliers.astype(float), -bits), scales, rtol=1e-13)


@pytest.mark.parametrize("scale", [float("inf"), float("nan"), -1.0])
def test_scales_that_are_none(scale: float) -> None:
    with pytest.raises(InvalidModelError):
        nearest_multipliers([0.5, scale])


def test_a_scale_that_is_too_large() -> None:
    with pytest.raises(InvalidModelError) as caught:
        nearest_multipliers([2.0**30])
    assert str(caught.value) == (
        "quantization: a rescaling factor is 1.07374e+09; it must be below 2^27. "
        "Quantize the model again with an output scale that fits its values."
    )
