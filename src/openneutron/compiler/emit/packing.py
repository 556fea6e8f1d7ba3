# SPDX-License-Identifier: BSD-3-Clause
"""Pack constants in the layouts that kernels read, and join them into the weights blob.

There is a function for each packing. Channels that only fill up the last vector are 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from openneutron.compiler.select.calls import Array, Constant, JobWeights, KernelCall, Maps, Storages
from openneutron.device import neutron_jobs as jobs
from openneutron.ir import State
from openneutron.isa import Record, aligned, record
from openneutron.isa.kernels.row import Packing
from openneutron.isa.rows import LANES, NO_SOURCE, STATE


@dataclass(slots=True)
class Weights:
    """The weights blob: constants one after the other. Equal constants are stored once."""

    blob: bytearray = field(default_factory=bytearray)
    known: dict[bytes, int] = field(default_factory=dict)

    def add(self, content: bytes) -> int:
        if content not in self.known:
            self.known[content] = len(self.blob)
            self.blob += content
            self.blob += bytes(aligned(len(content)) - len(content))
        return self.known[content]


def state_record(state: State, storages: Storages, weights: Weights) -> Record:
    """Return the microcode's record of a state: its place, and its first value as one repeated byte or as bytes among
    the constants."""
    storage = storages.storages[state.tensor]
    first = bytes(storage.size_bytes) if state.initial is None else state.initial.tobytes()
    fill = first[0] if first else 0
    is_filled = first.count(fill) == len(first)
    source = NO_SOURCE if is_filled else weights.add(first)
    return record(
        STATE, offset=storage.state or 0, size=storage.size_bytes, source=source, fill=fill if is_filled else 0
    )


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


def _job_weights(weights: JobWeights) -> bytes:
    outputs, inputs = weights.values.shape
    form = jobs.release(weights.release)
    ends = np.cumsum(weights.parts).tolist()
    if weights.int4 is not None:
        wide = weights.int4.of_channels(weights.channels)
        return b"".join(_int4(wide.columns(end - k, end), form) for k, end in zip(weights.parts, ends, strict=True))
    padded = np.pad(weights.values, ((0, weights.channels - outputs), (0, weights.inputs - inputs)))
    parts = np.split(padded, ends[:-1], axis=1)
    return b"".join((jobs.pack_int8(part) if form.int8_packed else part).tobytes() for part in parts)


def _int4(weights: jobs.Int4Weights, form: jobs.Release) -> bytes:
    """Return the int4 weights of a job, with the length of each of its raw blocks behind them."""
    channels, k = weights.codes.shape
    block = form.block(k, weights.group)
    arrays = weights.packed(form.int4_interleaved)
    lengths = np.full(channels // block, block * k // 2, np.int32)
    made = b"".join(_little_endian(arrays[name]) for name in ("weights", "decode_scales", "decode_biases"))
    return (made + _little_endian(lengths)).ljust(jobs.int4_bytes(channels, k, weights.group), b"\0")


PACKERS: Mapping[Packing, Callable[[Any], bytes]] = {
    Packing.AS_IT_IS: _little_endian,
    Packing.WEIGHT_BLOCKS: _weight_blocks,
    Packing.CHANNEL_BLOCKS: _channel_blocks,
    Packing.REQUANTIZATION: _requantization,
    Packing.WIDE_REQUANTIZATION: _requantization,
    Packing.JOB_WEIGHTS: _job_weights,
    Packing.MAPS: _maps,
}


Packed = dict[tuple[int, Packing], bytes]
"""The packed bytes of constants, by the identity of the constant and the packing."""


def packed(call: KernelCall, known: Packed | None = None) -> dict[str, bytes]:
    """Return the packed bytes of each constant of a call, by name.

    Newly packed constants are added to ``known``. The constants must stay alive as long as ``known``, which knows
    them by identity.
    """
    return {key: packed_constant(call.packing(key), constant, known) for key, constant in call.constants.items()}


def packed_constant(packing: Packing, constant: Constant, known: Packed | None) -> bytes:
    """Return the packed bytes of a constant, from ``known`` if they are there; else pack them and add them to
    ``known``."""
    if known is None:
        return PACKERS[packing](constant)
    key = id(constant), packing
    if key not in known:
        known[key] = PACKERS[packing](constant)
    return known[key]
