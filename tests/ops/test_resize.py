# SPDX-License-Identifier: BSD-3-Clause
"""The input positions and weights of a bilinear resize are those of LiteRT, for every small pair of extents."""

from __future__ import annotations

import itertools
import math

import pytest

from openneutron.ops.indexed import bilinear_positions

WAYS = ((False, False), (True, False), (False, True))
"""align_corners, half_pixel_centers; LiteRT refuses both."""

EXTENTS = (*itertools.product(range(1, 13), range(1, 30)), (1, 2048), (3, 2048), (2, 2049), (4, 2049))
"""Small ones, and some whose step lies half-way between two multiples of 1/1024."""


def litert_positions(inputs: int, outputs: int, align_corners: bool, half_pixel_centers: bool) -> list[tuple[int, ...]]:
    """ResizeBilinearInteger and ComputeInterpolationValuesInteger, in C's division, which drops the fraction."""
    if align_corners and outputs > 1:
        scale = math.trunc((1024 * (inputs - 1) + math.trunc((outputs - 1) / 2)) / (outputs - 1))
    else:
        scale = math.trunc((1024 * inputs + math.trunc(outputs / 2)) / outputs)
    found = []
    for value in range(outputs):
        scaled = value * scale + (math.trunc(scale / 2) - 512 if half_pixel_centers else 0)
        lower = max(math.trunc(scaled / 1024), 0)
        upper = min(math.trunc((scaled + 1023) / 1024), inputs - 1)
        found.append((lower, upper, scaled - 1024 * lower))
    return found


@pytest.mark.parametrize(("align_corners", "half_pixel_centers"), WAYS)
def test_positions_and_weights(align_corners: bool, half_pixel_centers: bool) -> None:
    for inputs, outputs in EXTENTS:
        found = bilinear_positions(inputs, outputs, align_corners, half_pixel_centers)
        wanted = litert_positions(inputs, outputs, align_corners, half_pixel_centers)
        for got, want in zip(found, wanted, strict=True):
            assert got[:2] == want[:2], (inputs, outputs)
            assert got[2] == (0 if got[0] == got[1] else want[2]), (inputs, outputs)
