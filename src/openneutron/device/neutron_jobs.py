# SPDX-License-Identifier: BSD-3-Clause
"""Matrix products as jobs of NXP's driver for i.MX 95: the header of a job, the order of packed weights and the factors.

The facts come from NXP's published sources: nxp-imx/onnxruntime-imx, ``onnxruntime/core/providers/neutron/ops`` and
``tools`` (MIT), and the sizes that are known to work from open-ep/llama-neutron (MIT). A job computes
``result[m, n] = factor[n] * (bias[n] + sum over k of a[m, k] * weights[n, k])``, where A is int8 or uint8 and weights are
int8 or 4-bit integers in groups along K.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, isfinite
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from openneutron.errors import InvalidOptionError
from openneutron.targets.target import release_named

T = TypeVar("T", bound=np.generic)

MACS = 16
"""The rows and the columns of a core's array of multipliers."""

CORES = 4

TCM_BYTES = 1024 * 1024
TCM_BANK_BYTES = TCM_BYTES // 16

STEP_BYTES = MACS * MACS
"""The bytes of int8 weights that the stream takes from a core's run before it takes the next core's."""

INT4_STEP_BYTES = STEP_BYTES // 2

DECODE_STEP_BYTES = 8 * 1024
"""The bytes of decode scales, or of decode biases, that the stream takes from a core's run in turn."""

GROUPS = (32, 64, 128)

MOST_ROWS = 2048
"""The largest M of one job (llama-neutron: the row limit of firmware 3.1.1)."""

MOST_CHANNELS = 64 * 1024 - MACS
"""The largest N of one job: qgemm.cc asks for N * 16 < 1 MiB and N a multiple of 16."""

HEADER_BYTES = 64
HEADER_WORDS = 16

MANY_CHANNELS_FLAG = 1 << 18
"""The bit that matmul_nbits.cc sets beside N in word 4 of an int4 job of the third release."""

LARGEST_SHIFT = 63


def tiling(k: int, group: int | None = None) -> tuple[int, int, int]:
    """Return the channels per core, the cores and the divisions of K for weights of K columns. The divisions are
    always 1.

    ``group`` is None for int8 weights, else the group size along K of int4 weights. The rule is the first search of
    TilingSolver in NXP's common.cc: two buffers of a block's weights, one row of A and one row of the result must fit
    into the tightly coupled memory; 32 channels per core are tried before 16, then one buffer, then one core. If
    nothing fits, the result is 16 channels on one core.

    Raises InvalidOptionError for a K below 1, a group size that is not published, or a K that is no multiple of the
    group size.
    """
    if k < 1:
        raise InvalidOptionError(f"K: {k} columns; a product has at least 1.")
    if group is not None:
        _check_group(k, group)
    for cores in (CORES, 1):
        for channels, buffers in ((2 * MACS, 2), (MACS, 2), (MACS, 1)):
            block = _block_bytes(k, channels * cores, cores, group)
            if _banks(k) + buffers * block + channels * cores * 4 <= TCM_BYTES:
                return channels, cores, 1
    return MACS, 1, 1


def _block_bytes(k: int, channels: int, cores: int, group: int | None) -> int:
    """Return the bytes of memory, in whole banks, that a block's weights and its factors and biases take."""
    plain = channels * k + channels * 8
    if group is None:
        return _banks(plain)
    return _banks(plain + 3 * channels * k // group + 16 * 1024 * cores)


def _banks(size_bytes: int) -> int:
    return ceil(size_bytes / TCM_BANK_BYTES) * TCM_BANK_BYTES


def tool_channels(k: int) -> int:
    """Return the channels per core of int4 weights in the first release: the rule of NXP's Python packing tool."""
    block = _banks(2 * MACS * CORES * k)
    return 2 * MACS if _banks(k) + 2 * block + 2 * MACS * CORES * 4 <= TCM_BYTES else MACS


def factor(value: float) -> int:
    """Return a float32 as a job's factor: a 16-bit mantissa in bits 0 to 15 and a right shift in bits 16 to 21.

    The mantissa is truncated. Values below 2**-48 keep the largest shift, 63, as in NXP's ScaleToNeutron. Zero and
    subnormal values have the mantissa 0. Raises InvalidOptionError for a value that is negative, not finite, or at
    least 65536, since no factor stands for it.
    """
    number = np.float32(value)
    if not isfinite(number) or number < 0 or number >= 65536:
        raise InvalidOptionError(f"factor: {float(number):g} has no form; a job's factor is from 0 to below 65536.")
    return int(_factors(np.array([number], np.float32))[0])


def _factors(values: NDArray[np.float32]) -> NDArray[np.uint32]:
    """Return non-negative float32 values below 65536 as factors."""
    bits = values.view(np.uint32)
    exponent = (bits >> 23 & 0xFF).astype(np.int64)
    mantissa = np.where(exponent == 0, 0, bits >> 8 & 0x7FFF | 0x8000)
    shift = np.minimum(142 - exponent, LARGEST_SHIFT)
    return (shift << 16 | mantissa).astype(np.uint32)


def has_factors(values: NDArray[np.float64]) -> bool:
    """Return whether all values have a factor of 16 bits: they are at least 2**-48 and less than 65535."""
    return bool(((values >= 2.0**-48) & (values < 65535)).all())


def nearest_factors(values: NDArray[np.float64]) -> NDArray[np.uint32]:
    """Return values for which ``has_factors`` holds as factors. The mantissas are rounded to the nearest."""
    fractions, exponents = np.frexp(values)
    mantissas = np.rint(fractions * 2**16).astype(np.int64)
    carried = mantissas == 2**16
    mantissas = np.where(carried, 2**15, mantissas)
    factors: NDArray[np.uint32] = (16 - exponents - carried << 16 | mantissas).astype(np.uint32)
    return factors


ONE = 0x000F8000
"""The factor 1.0, with which a result of 4 bytes is the exact accumulator."""


def padded_k(k: int, group: int | None = None) -> int:
    """Return K rounded up to whole steps of the array (16 columns), or to whole groups of int4 weights."""
    step = group or MACS
    return ceil(k / step) * step


def padded_n(n: int, k: int, group: int | None = None, packed: bool = True) -> int:
    """Return N rounded up to whole blocks of packed weights, or to 16 channels of weights that are not packed."""
    if not packed:
        return ceil(n / MACS) * MACS
    channels, cores, _ = tiling(padded_k(k, group), group)
    return ceil(n / (channels * cores)) * channels * cores


def int4_bytes(n: int, k: int, group: int) -> int:
    """Return the bytes of a job's int4 weights in a program: nibbles, decode scales, decode biases and the lengths of blocks."""
    return n * k // 2 + 3 * (n * k // group) + ceil(n // MACS * 4 / MACS) * MACS


def padded(weights: ArrayLike) -> NDArray[np.int8]:
    """Return int8 weights [N, K] with zeros up to the N and K of whole blocks."""
    array = _matrix(weights, np.int8, "weights")
    n, k = array.shape
    return np.pad(array, ((0, padded_n(n, k) - n), (0, padded_k(k) - k)))


def pack_int8(weights: ArrayLike) -> NDArray[np.int8]:
    """Return int8 weights [N, K], row-major, in the order that the NPU reads, as bytes [padded N * padded K].

    The weights are divided into blocks of ``channels`` rows for each core (``tiling``). In a block, the rows of one
    core follow those of another. The result takes 256 bytes of the first core's rows, then 256 of the second core's,
    and so on in turn. N and K are padded with zeros to whole blocks. Raises InvalidOptionError for another dtype or
    rank.
    """
    array = padded(weights)
    k = array.shape[1]
    channels, cores, _ = tiling(k)
    runs = array.reshape(-1, cores, channels * k // STEP_BYTES, STEP_BYTES)
    return np.ascontiguousarray(runs.swapaxes(1, 2)).reshape(-1)


def unpack_int8(packed: ArrayLike, n: int, k: int) -> NDArray[np.int8]:
    """Return packed int8 weights as [N, K], row-major: the inverse of ``pack_int8``."""
    k_all = padded_k(k)
    channels, cores, _ = tiling(k_all)
    runs = np.asarray(packed, np.int8).reshape(-1, channels * k_all // STEP_BYTES, cores, STEP_BYTES)
    return np.ascontiguousarray(runs.swapaxes(1, 2).reshape(-1, k_all)[:n, :k])


def pack_int4(
    nibbles: ArrayLike, scales: ArrayLike, group: int, interleaved: bool = True
) -> dict[str, NDArray[np.generic]]:
    """Return int4 weights, with a scale for each group of ``group`` columns, as the arrays of a job, by name.

    ``nibbles`` is uint8 [N, K / 2]. A byte has the weight + 8 of an even column in the low half, and that of the next
    column in the high half. ``scales`` is float32 [N, K / group], and may be negative or zero. With ``interleaved``
    the arrays have the order of the second and third releases, in which steps of the cores' rows take turns. Without
    it they have the order of the first release, in which whole blocks follow each other. N is padded to whole blocks
    with zero weights. The arrays:

    * ``weights``, int8 [N * K / 2], the dtype of NXP's tool. A block has K in steps of 16 columns. A step has 16
      nibbles of each row, the low half of a byte first
    * ``decode_scales``, int16 [N * K / group], a mantissa of 10 bits and a right shift in the upper 6 bits. NXP's
      code writes only whole steps of 8 KiB of each core's scales. So a large K loses the scales after the last whole
      step: see ``INT4_MOST_K``
    * ``decode_biases``, int8 [N * K / group], 1 where the scale is negative
    * ``bias``, int32 [N], for A as uint8 with zero point 128
    * ``factors``, uint32 [N], of the channel scales

    Raises InvalidOptionError for shapes that do not match, an unpublished group size, a K that is no multiple of it,
    and scales that are not finite or have a magnitude of 2**20 or more.
    """
    k = _matrix(nibbles, np.uint8, "nibbles").shape[1] * 2
    _check_group(k, group)
    channels, cores, _ = _int4_tiling(k, group, interleaved)
    weights, channel_scales = int4_weights(nibbles, scales, group, interleaved, channels * cores)
    return {
        **weights.packed(interleaved),
        "bias": (-128 * weights.values.sum(axis=1, dtype=np.int64)).astype(np.int32),
        "factors": np.where(channel_scales == 0, np.uint32(ONE), _factors(channel_scales)).astype(np.uint32),
    }


ONE_DECODE_SCALE = 1 << 10 | 2
"""The decode scale 1.0 as ``_decode_scales`` gives it: the mantissa 2 and a right shift of 1."""


@dataclass(frozen=True, slots=True, eq=False)
class Int4Weights:
    """4-bit weights in groups along K, as the NPU decodes them.

    ``codes`` is int8 [N, K] with values from -8 to 7; ``decode_scales`` int16 [N, K / group], a mantissa of 10 bits and a right shift in the
    upper 6 bits; ``decode_biases`` int8 [N, K / group], which are added to the codes: 1 where the scale was negative.
    """

    codes: NDArray[np.int8]
    decode_scales: NDArray[np.int16]
    decode_biases: NDArray[np.int8]
    group: int

    @classmethod
    def exact(cls, values: NDArray[np.int8], group: int) -> Int4Weights:
        """Return 4-bit weights that the NPU decodes to exactly ``values``: int8 [N, K], each from -8 to 7. All decode
        scales are 1.0 and all decode biases 0. K is padded with zeros to whole groups."""
        n, k = values.shape
        codes = np.pad(values, ((0, 0), (0, padded_k(k, group) - k)))
        sizes = n, codes.shape[1] // group
        return cls(codes, np.full(sizes, ONE_DECODE_SCALE, np.int16), np.zeros(sizes, np.int8), group)

    @property
    def values(self) -> NDArray[np.int8]:
        """Return the int8 weights [N, K] to which the NPU decodes these: the product with the scale, rounded half up and saturated."""
        stored = self.decode_scales.view(np.uint16).astype(np.int64)
        weights = self.codes + np.repeat(self.decode_biases, self.group, axis=1)
        return decoded_weights(weights, np.ldexp((stored & 1023).astype(np.float64), -(stored >> 10)), self.group)

    def of_channels(self, n: int) -> Int4Weights:
        """Return these weights with rows of zeros up to ``n`` rows."""
        rows = (0, n - len(self.codes)), (0, 0)
        scales = np.pad(self.decode_scales, rows, constant_values=ONE_DECODE_SCALE)
        return Int4Weights(np.pad(self.codes, rows), scales, np.pad(self.decode_biases, rows), self.group)

    def columns(self, first: int, end: int) -> Int4Weights:
        """Return the columns [first, end), which are whole groups."""
        groups = slice(first // self.group, end // self.group)
        scales, biases = self.decode_scales[:, groups], self.decode_biases[:, groups]
        return Int4Weights(self.codes[:, first:end], scales, biases, self.group)

    def packed(self, interleaved: bool = True) -> dict[str, NDArray[np.generic]]:
        """Return ``weights``, ``decode_scales`` and ``decode_biases`` in a job's order, as ``pack_int4`` does. N is whole blocks."""
        turns = _Turns(*_int4_tiling(self.codes.shape[1], self.group, interleaved))
        return {
            "weights": turns.weights(self.codes),
            "decode_biases": turns.decode_data(self.decode_biases),
            "decode_scales": turns.decode_data(self.decode_scales),
        }


def int4_weights(
    nibbles: ArrayLike, scales: ArrayLike, group: int, interleaved: bool = True, rows: int = 1
) -> tuple[Int4Weights, NDArray[np.float32]]:
    """Return 4-bit weights with a float scale for each group in the form that the NPU decodes to int8, and for each
    channel the float32 scale of these int8 weights.

    ``nibbles`` and ``scales`` are those of ``pack_int4``. N is padded to a multiple of ``rows`` with zeros and scales
    of 0. Raises InvalidOptionError as ``pack_int4`` does.
    """
    packed_nibbles = _matrix(nibbles, np.uint8, "nibbles")
    group_scales = _matrix(scales, np.float32, "scales")
    n, k = packed_nibbles.shape[0], packed_nibbles.shape[1] * 2
    _check_group(k, group)
    if group_scales.shape != (n, k // group):
        raise InvalidOptionError(
            f"scales: shape {list(group_scales.shape)}; {n} rows of {k} int4 weights in groups of {group} have "
            f"[{n}, {k // group}]."
        )
    missing = -n % rows
    weights = np.zeros((n + missing, k), np.int8)
    weights[:n, 0::2] = (packed_nibbles & 15).astype(np.int8) - 8
    weights[:n, 1::2] = (packed_nibbles >> 4).astype(np.int8) - 8
    group_scales = np.pad(group_scales, ((0, missing), (0, 0)))
    channel_scales = _channel_scales(group_scales, interleaved)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.where(channel_scales[:, None] == 0, np.float32(0), group_scales / channel_scales[:, None])
    mantissas, shifts = _decode_scales(np.abs(ratios), zero_shift=1 if interleaved else LARGEST_SHIFT)
    negative = ratios < 0
    codes = np.where(np.repeat(negative, group, axis=1), -weights - 1, weights)
    decode_scales = (shifts << 10 | mantissas).astype(np.uint16).view(np.int16)
    return Int4Weights(codes, decode_scales, negative.astype(np.int8), group), channel_scales


def int4_of(values: NDArray[np.int8], group: int) -> Int4Weights | None:
    """Return 4-bit weights in groups that the NPU decodes to these int8 weights [N, K], or None if no such weights
    are found. K is padded with zeros.

    The function finds the weights that ``int4_weights`` makes. It tries the decode scales 16, 1 (for values of 4
    bits), and those of 10 bits between 1 and 16.
    """
    found = Int4Weights.exact(values, group)
    wide = np.pad(values, ((0, 0), (0, found.codes.shape[1] - values.shape[1])))
    groups = wide.astype(np.float32).reshape(-1, group)
    first = found.decode_scales.shape[1]
    scales = weights = None
    # Most int8 weights fail in the first row.
    for rows in (groups[:first], groups):
        solved = _decoded_groups(rows)
        if solved is None:
            return None
        scales, weights = solved
    assert scales is not None and weights is not None
    biases = (weights.max(axis=1) > 7).astype(np.int8)
    mantissas, shifts = _decode_scales(scales, zero_shift=1)
    shape = found.decode_scales.shape
    codes = (weights - biases[:, None]).astype(np.int8).reshape(found.codes.shape)
    stored = (shifts << 10 | mantissas).astype(np.int16).reshape(shape)
    return Int4Weights(codes, stored, biases.reshape(shape), group)


def _decoded_groups(groups: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]] | None:
    """Return the decode scale of each group, and its weights from -8 to 8, for int8 values [group, value]: the NPU
    decodes the weights to these values. Return None if this is impossible for some group."""
    if ((np.diff(np.sort(groups, axis=1), axis=1) != 0).sum(axis=1) > 15).any():
        return None
    scales, weights = np.zeros(len(groups), np.float32), np.zeros_like(groups)
    left = np.arange(len(groups))
    for tried in _candidates(np.abs(groups).max(axis=1)):
        at = left[tried[left] > 0]
        scale = tried[at, None]
        made = np.clip(np.rint(groups[at] / scale), -8, 8)
        right = (np.clip(np.floor(made * scale + 0.5), -128, 127) == groups[at]).all(axis=1)
        right &= made.max(axis=1) - made.min(axis=1) < 16
        scales[at[right]], weights[at[right]] = tried[at[right]], made[right]
        left = left[scales[left] == 0]
        if not left.size:
            return scales, weights
    return None


def _candidates(largest: NDArray[np.float32]) -> Iterator[NDArray[np.float32]]:
    """Yield decode scales to try for groups with these largest magnitudes; 0: none for this group."""
    yield np.ones_like(largest)
    yield np.full_like(largest, 16)
    for weight in range(8, 0, -1):
        least, most = (largest - 0.5) / weight, (largest + 0.5) / weight
        units = np.exp2(np.frexp(np.maximum(least, 1))[1] - 10.0)
        place = np.ceil(least / units)
        while (place * units <= most).any():
            scale = place * units
            fits = (scale <= most) & (scale >= 1) & (scale < 16)
            fits &= np.ldexp(scale, 10 - np.frexp(scale)[1]) % 1 == 0
            yield np.where(fits, scale, 0).astype(np.float32)
            place += 1


def _int4_tiling(k: int, group: int, interleaved: bool) -> tuple[int, int, int]:
    return tiling(k, group) if interleaved else (tool_channels(k), 1, 1)


def decoded_weights(weights: NDArray[np.int8], scales: NDArray[np.float64], group: int) -> NDArray[np.int8]:
    """Return the int8 weights [N, K] to which the NPU decodes 4-bit weights [N, K] with decode scales [N, K / group]."""
    products = weights * np.repeat(scales, group, axis=1)
    result: NDArray[np.int8] = np.clip(np.floor(products + 0.5), -128, 127).astype(np.int8)
    return result


def _channel_scales(scales: NDArray[np.float32], interleaved: bool) -> NDArray[np.float32]:
    """Return the scale of each channel, a sixteenth of its largest group scale, in float32 steps as the sources have them."""
    largest = np.abs(scales).max(axis=1, initial=np.float32(0))
    if not (largest < 2.0**20).all():
        raise InvalidOptionError("scales: a scale is not finite or is 2**20 or more; int4 scales are below that.")
    result: NDArray[np.float32] = largest / np.float32(128) * np.float32(8) if interleaved else largest / np.float32(16)
    return result


def _decode_scales(ratios: NDArray[np.float32], zero_shift: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return non-negative ratios as mantissas and right shifts, rounded down.

    A ratio of at least 1 keeps 10 bits. A smaller ratio keeps the 6 bits after its leading zeros. Zero bits at the
    end of a mantissa are dropped, but an integer keeps one fraction bit.
    """
    values = np.minimum(ratios.astype(np.float64), 1023.0)
    exponents = np.frexp(values)[1].astype(np.int64)
    bits = np.where(exponents > 0, 10 - exponents, np.minimum(6 - exponents, LARGEST_SHIFT))
    mantissas = np.floor(np.ldexp(values, bits)).astype(np.int64)
    least = np.where(exponents > 0, np.minimum(bits, 1), 1)
    for _ in range(10):
        droppable = (mantissas & 1 == 0) & (bits > least)
        mantissas, bits = np.where(droppable, mantissas >> 1, mantissas), np.where(droppable, bits - 1, bits)
    return mantissas, np.where(mantissas == 0, zero_shift, bits)


@dataclass(frozen=True, slots=True)
class _Turns:
    """The order in which the cores' runs of an int4 product lie in memory."""

    channels: int
    cores: int
    divisions: int

    def weights(self, codes: NDArray[np.int8]) -> NDArray[np.int8]:
        """Return 4-bit weights [N, K] as packed bytes."""
        k = codes.shape[1]
        steps = (
            codes.reshape(-1, self.channels, k // MACS, MACS).swapaxes(1, 2).reshape(-1, self.cores, self.channels * k)
        )
        nibbles = steps.astype(np.uint8) & 15
        packed = (nibbles[..., 0::2] | nibbles[..., 1::2] << 4).view(np.int8)
        return self._in_turn(packed, INT4_STEP_BYTES)

    def decode_data(self, data: NDArray[T]) -> NDArray[T]:
        """Return decode scales or biases [N, K / group]: per core and division group by group, one value a row."""
        groups = data.shape[1] // self.divisions
        split = data.reshape(-1, self.cores, self.channels, self.divisions, groups).transpose(0, 3, 1, 4, 2)
        run = self.channels * groups
        step = min(run, DECODE_STEP_BYTES // data.itemsize)
        return self._in_turn(split.reshape(-1, self.cores, run), step)

    def _in_turn(self, runs: NDArray[T], step: int) -> NDArray[T]:
        """Return runs [blocks, cores, values] as a stream that takes ``step`` values of each core in turn.

        Values beyond the last whole step stay 0, as NXP's code leaves them.
        """
        blocks, cores, length = runs.shape
        whole = length // step * step
        turns = runs[:, :, :whole].reshape(blocks, cores, whole // step, step).swapaxes(1, 2).reshape(blocks, -1)
        return np.pad(turns, ((0, 0), (0, cores * (length - whole)))).reshape(-1)


def _check_group(k: int, group: int) -> None:
    if group not in GROUPS:
        raise InvalidOptionError(f"group: {group} weights; NXP's sources have groups of 32, 64 and 128.")
    if k % group:
        raise InvalidOptionError(
            f"group: {k} columns are no multiple of {group}. Pad K with zeros to {padded_k(k, group)}."
        )


def _matrix(array: ArrayLike, dtype: type[T], name: str) -> NDArray[T]:
    result = np.asarray(array)
    if result.ndim != 2 or result.dtype != dtype or 0 in result.shape:
        raise InvalidOptionError(
            f"{name}: {result.dtype} of shape {list(result.shape)}; a matrix of {np.dtype(dtype)} with at least one row and "
            "column is needed."
        )
    return result


@dataclass(frozen=True, slots=True)
class Release:
    """The form of jobs in one release of NXP's driver and firmware."""

    name: str
    source: str
    kind_in_header: bool
    """Word 0 of an int8 job, or word 10 of an int4 job, has the kind. Without it, weights are not packed and A is uint8."""
    int8_packed: bool
    int4_interleaved: bool
    int4_lengths: bool
    """Word 0 of an int4 job is the offset of a list with the bytes of each block, and word 4 has bit 18 set."""
    int4_channels: int = MACS
    """N of an int4 job is a multiple of this number."""

    def block(self, k: int, group: int | None = None) -> int:
        """Return the channels of which N is a multiple in a job of K columns of int8 weights, or of int4 weights in groups."""
        if group is None:
            return padded_n(1, k, packed=self.int8_packed)
        channels, cores, _ = _int4_tiling(k, group, self.int4_interleaved)
        return max(channels * cores, self.int4_channels)


RELEASES = (
    Release(
        "first", "qlinear_matmul.cc and matmul_integer_to_float.cc of 2025, convert_ort_models_to_neutron.py",
        kind_in_header=False, int8_packed=False, int4_interleaved=False, int4_lengths=False,
    ),
    Release(
        "second", "matmul_nbits.cc at 63ba87b8",
        kind_in_header=False, int8_packed=False, int4_interleaved=True, int4_lengths=False, int4_channels=128,
    ),
    Release(
        "third", "qgemm.cc at 2ef0bb77 and later; llama-neutron",
        kind_in_header=True, int8_packed=True, int4_interleaved=True, int4_lengths=True,
    ),
)  # fmt: skip
NEWEST = RELEASES[-1]


def release(version: str) -> Release:
    """Return the release of a name or of a firmware's version, as ``release_named`` of the targets does."""
    name = release_named(version)
    return next(row for row in RELEASES if row.name == name)


@dataclass(frozen=True, slots=True)
class Job:
    """One matrix product of A [M, K] and the weights of N channels. Offsets are in bytes from the address of the
    job's header, and may be negative.

    Each element of A is one byte. Weights are int8, or 4-bit weights in groups if ``group`` is set. An element of the
    result has ``result_bytes`` bytes, 4 or 1.
    """

    m: int
    k: int
    n: int
    a: int
    weights: int
    bias: int
    factors: int
    result: int
    signed: bool = True
    packed: bool = True
    zero_point: int = 0
    result_bytes: int = 4
    group: int | None = None
    decode_scales: int = 0
    decode_biases: int = 0
    ones: int = 0
    lengths: int = 0


def kind(signed: bool, packed: bool) -> int:
    """Return the kind of a product: 2 or 1 for packed weights, -2 or -1 for weights as they are; 2 and -2 for a signed A."""
    return (2 if signed else 1) * (1 if packed else -1)


def header(job: Job, form: Release = NEWEST) -> NDArray[np.int32]:
    """Return a job's header: 16 words, int32.

    Raises InvalidOptionError for what the release cannot express or NXP's sources refuse. These are an N that is no
    multiple of 16 or above the largest, a K that is no multiple of 16 or of the group size, an M below 1 or above
    2048, and an unpublished group size. A result has 4 bytes, or 1 byte if the weights are int8. Packed int8 weights
    and a signed A need a release whose header states the kind of the product.
    """
    _check(job, form)
    own_kind = kind(job.signed, job.packed) if form.kind_in_header else 0
    int4 = job.group is not None
    words = (
        (job.lengths if form.int4_lengths else 0) if int4 else own_kind,
        job.decode_biases if int4 else 0,
        job.m,
        job.k,
        job.n | (MANY_CHANNELS_FLAG if int4 and form.int4_lengths else 0),
        job.a,
        job.weights,
        job.bias,
        job.factors,
        job.result,
        own_kind if int4 else job.zero_point,
        job.result_bytes,
        4 if int4 else 8,
        -1 if job.group is None else job.group,
        job.decode_scales if int4 else 0,
        job.ones if int4 else 0,
    )
    return np.array(words, np.int32)


def _check(job: Job, form: Release) -> None:
    """Raise InvalidOptionError for a job that the release refuses."""
    if not 1 <= job.m <= MOST_ROWS:
        raise InvalidOptionError(f"job: M is {job.m}; one job has 1 to {MOST_ROWS} rows. Split the rows.")
    if job.k < MACS or job.k % MACS:
        raise InvalidOptionError(f"job: K is {job.k}; it must be a multiple of {MACS}. Pad K with zeros.")
    if not MACS <= job.n <= MOST_CHANNELS or job.n % MACS:
        raise InvalidOptionError(
            f"job: N is {job.n}; it must be a multiple of {MACS} from {MACS} to {MOST_CHANNELS}. Pad or split the channels."
        )
    if job.result_bytes not in (1, 4):
        raise InvalidOptionError(f"job: a result has {job.result_bytes} bytes; 1 and 4 are possible.")
    if job.group is None and job.packed != form.int8_packed and not form.kind_in_header:
        raise InvalidOptionError(f"job: the {form.name} release has int8 weights row by row, not packed.")
    if job.signed and not form.kind_in_header:
        raise InvalidOptionError(f"job: the {form.name} release has no word for a signed A; give A as uint8.")
    if job.group is not None:
        _check_group(job.k, job.group)
        if job.result_bytes != 4:
            raise InvalidOptionError("job: int4 weights have results of 4 bytes.")


@dataclass(frozen=True, slots=True)
class KnownSizes:
    """The values of K (the depth of a matrix product) for which a firmware is known to compute ``right`` and
    ``wrong`` results. An untested multiple of 16 is assumed to be right up to ``assumed_up_to``."""

    right: frozenset[int]
    wrong: frozenset[int]
    assumed_up_to: int = 1024


FIRMWARE_3_1_1 = KnownSizes(
    right=frozenset(
        (128, 256, 384, 512, 640, 768, 896, 1024, 2048, 2560, 2624, 4096, 4864, 5120, 8192, 9216, 9728, 10240, 10752)
    ),
    wrong=frozenset((1152, 5632, 6912, 7168, 11008, 13824)),
)
"""What llama-neutron found on firmware 3.1.1 with int4 weights and M from 1 to 2048. Nobody has published int8 sizes."""


INT4_MOST_K = 5120
"""The largest K of an int4 job that ``split_k`` gives. Above it NXP's sources disagree on the divisions of K, and the longer
runs of decode scales are not written whole."""


def split_k(k: int, sizes: KnownSizes = FIRMWARE_3_1_1, group: int | None = None) -> tuple[int, ...]:
    """Return the numbers of columns (K) of the jobs whose results add up to a product of ``k`` columns. All jobs have
    the same K, but the last one may be smaller.

    The numbers add up to K padded to a multiple of 16, or of the group size of int4 weights. A job's K is one that is
    known to be right, or one of at most ``sizes.assumed_up_to`` that is not known to be wrong. Of the known sizes,
    int4 weights use those up to ``INT4_MOST_K``.
    """
    step, columns = group or MACS, padded_k(k, group)
    most = INT4_MOST_K if group else max(sizes.right)
    known = {size for size in sizes.right if size % step == 0 and size <= most}
    assumed = set(range(step, sizes.assumed_up_to + 1, step))
    usable = (known | assumed) - sizes.wrong
    first = max(size for size in usable if size <= columns and (columns % size == 0 or columns % size in usable))
    return (first,) * (columns // first) + ((columns % first,) if columns % first else ())


def split_rows(m: int, most: int = MOST_ROWS) -> tuple[int, ...]:
    """Return the rows of the jobs that compute M rows, none above ``most``."""
    return (most,) * (m // most) + ((m % most,) if m % most else ())
