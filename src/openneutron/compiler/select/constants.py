# SPDX-License-Identifier: BSD-3-Clause
"""The logical constants of kernel calls: weights, requantization, maps; their channels, their equality, their sizes once packed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from openneutron.isa.kernels.row import Packing
from openneutron.isa.rows import LANES

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Maps:
    """int32 tables of the output's rows [table, row] and of its columns [table, column]."""

    rows: npt.NDArray[np.int32]
    cols: npt.NDArray[np.int32]


Constant = Array | Maps

CHANNEL_AXES: Mapping[Packing, int] = {
    Packing.WEIGHT_BLOCKS: 0,
    Packing.CHANNEL_BLOCKS: 0,
    Packing.REQUANTIZATION: 1,
    Packing.WIDE_REQUANTIZATION: 1,
}
"""The axis of output channels; constants without one are the same for all channels."""

_WINDOWS = (Packing.WEIGHT_BLOCKS, Packing.CHANNEL_BLOCKS)


def packed_bytes(packing: Packing, constant: Constant) -> int:
    """Return the bytes that the constant takes once it is packed."""
    if isinstance(constant, Maps):
        return 4 * (constant.rows.size + constant.cols.size)
    if packing not in CHANNEL_AXES:
        return constant.nbytes
    extents = list(constant.shape)
    lanes = (CHANNEL_AXES[packing], 3) if packing is Packing.WEIGHT_BLOCKS else (CHANNEL_AXES[packing],)
    for axis in lanes:
        extents[axis] += -extents[axis] % LANES
    return int(constant.itemsize * math.prod(extents))


def of_channels(packing: Packing, constant: Constant, first: int, end: int) -> Constant:
    """Return the constant of these output channels alone."""
    if isinstance(constant, Maps) or packing not in CHANNEL_AXES:
        return constant
    return constant[first:end] if CHANNEL_AXES[packing] == 0 else constant[:, first:end]


def exchanged(packing: Packing, constant: Constant) -> Constant:
    """Return the constant with rows for columns and columns for rows."""
    if isinstance(constant, Maps):
        return replace(constant, rows=constant.cols, cols=constant.rows)
    return constant.swapaxes(1, 2) if packing in _WINDOWS else constant


def are_equal(one: Constant, other: Constant) -> bool:
    """Return whether two constants have the same shape and values."""
    if isinstance(one, Maps) and isinstance(other, Maps):
        return np.array_equal(one.rows, other.rows) and np.array_equal(one.cols, other.cols)
    return not isinstance(one, Maps) and not isinstance(other, Maps) and np.array_equal(one, other)


def requantization(
    bias: npt.NDArray[np.int32] | None,
    weight_sums: npt.NDArray[np.int64],
    input_zero_point: int,
    multipliers: npt.NDArray[np.int32],
    shifts: npt.NDArray[np.int32],
) -> npt.NDArray[np.int32]:
    """Return int32 [bias multiplier shift, output channel].

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


def wide_requantization(
    bias: npt.NDArray[np.signedinteger] | None,
    channels: int,
    multipliers: npt.NDArray[np.int32],
    shifts: npt.NDArray[np.int32],
) -> npt.NDArray[np.int32]:
    """Return int32 [low high multiplier shift, output channel], with both words of each int64 bias.

    One multiplier and shift stand for all channels.
    """
    rows = np.zeros((4, channels), np.int32)
    if bias is not None:
        assert bias.shape == (channels,)
        rows[:2] = bias.astype("<i8").view("<i4").reshape(channels, 2).T
    rows[2] = multipliers
    rows[3] = shifts
    return rows
