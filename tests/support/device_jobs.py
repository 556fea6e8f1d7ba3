# SPDX-License-Identifier: BSD-3-Clause
"""Whole products through jobs of the device model: padded, packed, split, and their parts added up."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from openneutron.device import neutron_jobs as jobs
from openneutron.device.device_model import Buffer, DeviceModel

LINE = 64


@dataclass
class Carver:
    """Places arrays one after another in a buffer, each on cache lines of its own."""

    buffer: Buffer
    end: int = LINE

    def put(self, array: NDArray[np.generic]) -> int:
        """Write an array's bytes and return their offset."""
        start = self.take(array.nbytes)
        self.buffer.bytes[start : start + array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        return start

    def take(self, size_bytes: int) -> int:
        start = self.end
        self.end = -(-(start + size_bytes) // LINE) * LINE
        return start


@dataclass(frozen=True, slots=True)
class Form:
    """How a product becomes jobs."""

    packed: bool = True
    release: jobs.Release = jobs.NEWEST
    result_bytes: int = 4
    zero_point: int = 0


EXACT = Form()


def product(
    model: DeviceModel,
    a: NDArray[np.generic],
    weights: NDArray[np.int8] | jobs.Int4Weights,
    bias: NDArray[np.int32],
    form: Form = EXACT,
    factors: NDArray[np.uint32] | None = None,
) -> NDArray[np.generic]:
    """Return the results [M, N] of the device model for A [M, K] and weights [N, K]; int32, or bytes of A's type. K of int4 weights is whole
    groups.

    K and M are split as ``neutron_jobs`` splits them; only the first part of K has the bias.
    """
    group = weights.group if isinstance(weights, jobs.Int4Weights) else None
    parts = jobs.split_k(a.shape[1], group=group) if form.result_bytes == 4 else (jobs.padded_k(a.shape[1]),)
    total: NDArray[np.generic] | None = None
    start = 0
    for part in parts:
        end = min(start + part, a.shape[1])
        added = bias if total is None else np.zeros_like(bias)
        here = weights.columns(start, start + part) if isinstance(weights, jobs.Int4Weights) else weights[:, start:end]
        blocks = []
        first = 0
        for rows in jobs.split_rows(len(a)):
            blocks.append(_job(model, a[first : first + rows, start:end], here, added, part, form, factors))
            first += rows
        result = np.concatenate(blocks)
        total = result if total is None else total + result
        start = end
    assert total is not None
    return total


def _job(
    model: DeviceModel,
    a: NDArray[np.generic],
    weights: NDArray[np.int8] | jobs.Int4Weights,
    bias: NDArray[np.int32],
    k: int,
    form: Form,
    factors: NDArray[np.uint32] | None,
) -> NDArray[np.generic]:
    (m, given_k), n = a.shape, len(bias)
    columns = (0, k - given_k)
    arrays: dict[str, NDArray[np.generic]] = {}
    group = None
    if isinstance(weights, jobs.Int4Weights):
        group = weights.group
        block = form.release.block(k, group)
        all_n = -(-n // block) * block
        arrays = weights.of_channels(all_n).packed(form.release.int4_interleaved)
        arrays["lengths"] = np.full(all_n // block, block * k // 2, np.int32)
        arrays["ones"] = np.ones(16, np.uint8)
    else:
        all_n = jobs.padded_n(n, k, packed=form.packed)
        wide = np.pad(weights, ((0, all_n - n), columns))
        arrays["weights"] = jobs.pack_int8(wide) if form.packed else wide
    all_factors = np.full(all_n, jobs.ONE, np.uint32)
    if factors is not None:
        all_factors[:n] = factors
    size = m * k + all_n * (2 * k + 8 + m * form.result_bytes) + 16 * LINE
    buffer = model.allocate(size)
    carver = Carver(buffer)
    result = carver.take(m * all_n * form.result_bytes)
    job = jobs.Job(
        m=m, k=k, n=all_n,
        a=carver.put(np.pad(a, ((0, 0), columns))),
        **{name: carver.put(array) for name, array in arrays.items()},
        bias=carver.put(np.pad(bias, (0, all_n - n))),
        factors=carver.put(all_factors),
        result=result,
        signed=a.dtype == np.int8,
        packed=form.packed,
        zero_point=form.zero_point,
        result_bytes=form.result_bytes,
        group=group,
    )  # fmt: skip
    model.clean(buffer)
    model.matmul(buffer, 0, jobs.header(job, form.release))
    bytes_of = buffer.bytes[result : result + m * all_n * form.result_bytes]
    dtype = np.int32 if form.result_bytes == 4 else a.dtype
    found: NDArray[np.generic] = bytes_of.view(dtype).reshape(m, all_n)[:, :n].copy()
    model.release(buffer)
    return found


def int4_product(
    model: DeviceModel,
    a: NDArray[np.uint8],
    nibbles: NDArray[np.uint8],
    scales: NDArray[np.float32],
    group: int,
    release: jobs.Release,
) -> tuple[NDArray[np.int32], dict[str, NDArray[np.generic]]]:
    """Return the int32 results [M, padded N] of an int4 job with factors of 1.0, and the packed arrays."""
    arrays = jobs.pack_int4(nibbles, scales, group, release.int4_interleaved)
    m, k = a.shape
    n = arrays["bias"].size
    channels, cores, _ = jobs.tiling(k, group)
    blocks = n // (channels * cores)
    lengths = np.full(blocks, channels * cores * k // 2, np.int32)
    buffer = model.allocate(
        sum(array.nbytes for array in arrays.values()) + a.nbytes + lengths.nbytes + 4 * m * n + 20 * LINE
    )
    carver = Carver(buffer)
    result = carver.take(4 * m * n)
    job = jobs.Job(
        m=m, k=k, n=n,
        a=carver.put(a),
        weights=carver.put(arrays["weights"]),
        bias=carver.put(arrays["bias"]),
        factors=carver.put(np.full(n, jobs.ONE, np.uint32)),
        result=result,
        signed=False,
        group=group,
        decode_scales=carver.put(arrays["decode_scales"]),
        decode_biases=carver.put(arrays["decode_biases"]),
        ones=carver.put(np.ones(16, np.uint8)),
        lengths=carver.put(lengths),
    )  # fmt: skip
    model.clean(buffer)
    model.matmul(buffer, 0, jobs.header(job, release))
    found = buffer.bytes[result : result + 4 * m * n].view(np.int32).reshape(m, n).copy()
    model.release(buffer)
    return found, arrays


def variant(**changes: object) -> Form:
    """Return the exact form with changes."""
    return replace(EXACT, **changes)  # type: ignore[arg-type]
