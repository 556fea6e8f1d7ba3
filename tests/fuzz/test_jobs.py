# SPDX-License-Identifier: BSD-3-Clause
"""A short run of the fuzzer of jobs; ``make soak`` runs a long one."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from openneutron.device.device_model import DeviceModel
from tests.fuzz import jobs


@settings(max_examples=30)
@given(
    st.integers(1, 60), st.integers(1, 1500), st.integers(1, 200), st.integers(0, 2**32 - 1), st.sampled_from([8, 4])
)
def test_random_products_equal_litert(m: int, k: int, n: int, seed: int, bits: int) -> None:
    with DeviceModel() as model:
        jobs.check(model, m, k, n, seed, bits)


def test_the_drawn_sizes_reach_the_bounds() -> None:
    drawn = [jobs.sizes_of(seed) for seed in range(2000)]
    for sizes, most in zip(zip(*drawn, strict=True), jobs.MOST, strict=True):
        assert min(sizes) == 1
        assert max(sizes) > 0.97 * most
