# SPDX-License-Identifier: BSD-3-Clause
"""Constants as the kernels read them, the last thing that happens to them: one function for each packing of the rows.

Channels beyond the last are 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from openneutron.compiler.select.calls import Array, Constant, KernelCall, Maps
from openneutron.isa.kernels.row import Packing
from openneutron.isa.rows import LANES


def _little_endian(array: Array) -> bytes:
    return array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()


def _padded_to_lanes(array: Array, axis: int) -> Array:
    missing = -array.shape[axis] % LANES
    if not missing:
        return array
    widths = [(0, 0)] * array.ndim
    widths[axis] = (0, missing)
    return np.pad(array, widths)


def _weight_blocks(weights: npt.NDArray[np.int8]) -> bytes:
    padded = _padded_to_lanes(_padded_to_lanes(weights, 0), 3)
    outputs, height, width, inputs = padded.shape
    blocks = padded.reshape(outputs // LANES, LANES, height, width, inputs // LANES, LANES)
    return blocks.transpose(0, 2, 3, 4, 1, 5).tobytes()


def _channel_blocks(weights: npt.NDArray[np.int8]) -> bytes:
    padded = _padded_to_lanes(weights, 0)
    outputs, height, width, _ = padded.shape
    return padded.reshape(outputs // LANES, LANES, height, width).transpose(0, 2, 3, 1).tobytes()


def _requantization(table: npt.NDArray[np.int32]) -> bytes:
    lanes = -(-table.shape[1] // LANES)
    return _little_endian(_padded_to_lanes(table, 1).reshape(len(table), lanes, LANES).transpose(1, 0, 2))


def _maps(maps: Maps) -> bytes:
    return _little_endian(maps.rows) + _little_endian(maps.cols)


PACKERS: Mapping[Packing, Callable[[Any], bytes]] = {
    Packing.AS_IT_IS: _little_endian,
    Packing.WEIGHT_BLOCKS: _weight_blocks,
    Packing.CHANNEL_BLOCKS: _channel_blocks,
    Packing.REQUANTIZATION: _requantization,
    Packing.WIDE_REQUANTIZATION: _requantization,
    Packing.MAPS: _maps,
}


Packed = dict[tuple[int, Packing], bytes]
"""The bytes of constants that are packed already, by the constant's identity."""


def packed(call: KernelCall, known: Packed | None = None) -> dict[str, bytes]:
    """Return the bytes of a call's constants. ``known`` gets those that it does not hold; its constants live as long."""
    return {key: packed_constant(call.packing(key), constant, known) for key, constant in call.constants.items()}


def packed_constant(packing: Packing, constant: Constant, known: Packed | None) -> bytes:
    """Return the bytes of a constant; see ``packed``."""
    if known is None:
        return PACKERS[packing](constant)
    key = id(constant), packing
    if key not in known:
        known[key] = PACKERS[packing](constant)
    return known[key]
