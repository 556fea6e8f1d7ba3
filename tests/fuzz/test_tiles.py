# SPDX-License-Identifier: BSD-3-Clause
"""A short run of the fuzzer of tiles; ``make soak`` runs a long one."""

from __future__ import annotations

import pytest

from tests.fuzz import tiles


# 38: rows that no call reads in a cascade; 44 and 191: memories that are no multiple of the alignment; 211: an
# order of the calls that is faster and moves more bytes than the one that fits a smaller memory; 535: an
# order whose program takes more cycles than the search estimates.
@pytest.mark.parametrize("seed", [1, 5, 38, 44, 191, 211, 535])
def test_random_graphs_in_tiles(seed: int) -> None:
    assert tiles.check(seed) > 0
