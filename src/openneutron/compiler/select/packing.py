# SPDX-License-Identifier: BSD-3-Clause
"""Constants as the convolution kernels read them: weights in blocks of 8 output by 8 input channels, requantization tables.

The layouts are those of the rows conv_2d_s8, conv_2d_1x1_s8 and depthwise_conv_2d_s8 in isa/kernel_rows.py. Channels beyond
the last are 0.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from openneutron.isa.rows import LANES


def _padded_to_lanes(array: npt.NDArray[np.generic], axis: int) -> npt.NDArray[np.generic]:
    missing = -array.shape[axis] % LANES
    if not missing:
        return array
    widths = [(0, 0)] * array.ndim
    widths[axis] = (0, missing)
    return np.pad(array, widths)


def pack_convolution_weights(weights: npt.NDArray[np.int8]) -> bytes:
    """Weights [output, height, width, group input] as [k/8][height][width][input/8][8 k][8 inputs].

    With height and width 1 this is the layout of conv_2d_1x1_s8.
    """
    assert weights.ndim == 4 and weights.dtype == np.int8
    padded = _padded_to_lanes(_padded_to_lanes(weights, 0), 3)
    outputs, height, width, inputs = padded.shape
    blocks = padded.reshape(outputs // LANES, LANES, height, width, inputs // LANES, LANES)
    return blocks.transpose(0, 2, 3, 4, 1, 5).tobytes()


def pack_fully_connected_weights(weights: npt.NDArray[np.int8]) -> bytes:
    """Weights [output, input] as [k/8][input/8][8 k][8 inputs], the layout of conv_2d_1x1_s8."""
    assert weights.ndim == 2
    return pack_convolution_weights(weights[:, None, None, :])


def pack_depthwise_weights(weights: npt.NDArray[np.int8]) -> bytes:
    """Weights [1, height, width, output] as [k/8][height][width][8 k]."""
    assert weights.ndim == 4 and weights.shape[0] == 1 and weights.dtype == np.int8
    padded = _padded_to_lanes(weights[0], 2)
    height, width, outputs = padded.shape
    return padded.reshape(height, width, outputs // LANES, LANES).transpose(2, 0, 1, 3).tobytes()


def sums_of_weights(weights: npt.NDArray[np.int8], channel_axis: int) -> npt.NDArray[np.int64]:
    """The sum of each output channel's weights."""
    others = tuple(axis for axis in range(weights.ndim) if axis != channel_axis)
    return np.asarray(weights.sum(axis=others, dtype=np.int64))


def requantization_table(
    bias: npt.NDArray[np.int32] | None,
    weight_sums: npt.NDArray[np.int64],
    input_zero_point: int,
    multipliers: npt.NDArray[np.int32],
    shifts: npt.NDArray[np.int32],
) -> bytes:
    """For each 8 output channels int32 bias[8], multiplier[8], shift[8].

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
    padded = _padded_to_lanes(rows, 1)
    return padded.reshape(3, -1, LANES).transpose(1, 0, 2).astype("<u4").tobytes()
