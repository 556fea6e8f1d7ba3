# SPDX-License-Identifier: BSD-3-Clause
"""Diagonals, and distances between points, run on the NPU as slices and as norms of differences."""

from __future__ import annotations

import torch

from tests.pytorch.side_by_side import assert_delegated


def test_diagonals_and_distances() -> None:
    assert_delegated(
        {
            "of a matrix": lambda m, x: x[0, 0].diagonal(),
            "above the middle": lambda m, x: x.diagonal(2, 1, 2),
            "below the middle": lambda m, x: x.diagonal(-3, -2, -1),
            "of swapped dimensions": lambda m, x: x.diagonal(1, 3, 1),
            "euclidean distances": lambda m, x: torch.cdist(x[0, :, 0], x[0, :, 1]),
            "sums of differences": lambda m, x: torch.cdist(x[0, :2], x[0, 2:4], p=1.0),
        }
    )
