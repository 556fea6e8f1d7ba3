# SPDX-License-Identifier: BSD-3-Clause
"""Requantization tables of convolutions."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def sums_of_weights(weights: npt.NDArray[np.int8], channel_axis: int) -> npt.NDArray[np.int64]:
    """The sum of each output channel's weights."""
    others = tuple(axis for axis in range(weights.ndim) if axis != channel_axis)
    return np.asarray(weights.sum(axis=others, dtype=np.int64))


def requantization(
    bias: npt.NDArray[np.int32] | None,
    weight_sums: npt.NDArray[np.int64],
    input_zero_point: int,
    multipliers: npt.NDArray[np.int32],
    shifts: npt.NDArray[np.int32],
) -> npt.NDArray[np.int32]:
    """int32 [bias multiplier shift, output channel].

    The bias takes -input_zero_point * weight_sums in, modulo 2^32, so that kernels multiply stored activations as they
    are. One multiplier and shift stand for all channels.
    """
    channels = weight_sums.size
    folded = -np.int64(input_zero_point) * weight_sums.astype(np.int64)
    if bias is not None:
        assert bias.shape == (channels,)
        folded = folded + bias
    rows = np.zeros((3, channels), np.uint32)
    rows[0] = (folded & 0xFFFFFFFF).astype(np.uint32)
    rows[1] = multipliers.view(np.uint32)
    rows[2] = shifts.view(np.uint32)
    return rows.view(np.int32)
