# SPDX-License-Identifier: BSD-3-Clause
"""Random matrix products on the device model: ``python -m tests.fuzz.jobs FIRST END [4]`` goes through the seeds from FIRST up to END, with
weights of 8 bits or of 4.

A product has M 1 to 300, K 1 to 6,000 and N 1 to 700. It is padded, packed and split into jobs. The exact results of 4 bytes, rescaled as
LiteRT does, are compared with LiteRT's reference FULLY_CONNECTED byte by byte; products of uint8 and of weights that are not packed are
compared with Python's integers. Cache maintenance is checked too. Half of the products of 4 bits have one scale for all groups, whose
decoded weights are the 4-bit weights; the others have random scales of groups, also negative ones and zeros.
"""

from __future__ import annotations

import sys

import numpy as np
from numpy.typing import NDArray

from openneutron.device import neutron_jobs as jobs
from openneutron.device.device_model import DeviceModel
from openneutron.ir import Node, constant, per_tensor
from openneutron.ops.rescaling import convolution_scales
from tests.support import oracle
from tests.support.device_jobs import EXACT, product, variant

MOST = (300, 6000, 700)
"""The largest M, K and N."""

ATTRIBUTES = {"activation": "NONE", "keep_num_dims": False, "weights_format": "DEFAULT"}


def sizes_of(seed: int) -> tuple[int, int, int]:
    """Return M, K and N of a seed: small sizes as often as large ones, and a tenth of all at multiples of 16 and beside them."""
    random = np.random.default_rng((seed, 1))
    drawn = [int(np.exp(random.uniform(0, np.log(most))) + 0.5) for most in MOST]
    if random.random() < 0.1:
        drawn = [value // 16 * 16 + int(random.integers(-1, 2)) for value in drawn]
    m, k, n = (min(max(value, 1), most) for value, most in zip(drawn, MOST, strict=True))
    return m, k, n


def int4_of(random: np.random.Generator, n: int, k: int) -> jobs.Int4Weights:
    """Return random 4-bit weights whose columns beyond K, up to whole groups, are zeros."""
    group = int(random.choice(jobs.GROUPS))
    weights = random.integers(-8, 8, (n, k), np.int8)
    if random.random() < 0.5:
        return jobs.Int4Weights.exact(weights, group)
    stored = np.pad(weights + np.int8(8), ((0, 0), (0, jobs.padded_k(k, group) - k)), constant_values=8).astype(
        np.uint8
    )
    scales = random.standard_normal((n, stored.shape[1] // group)) * 10.0 ** random.uniform(-4, 0, (n, 1))
    scales[random.random(scales.shape) < 0.05] = 0
    return jobs.int4_weights(stored[:, 0::2] | stored[:, 1::2] << 4, scales.astype(np.float32), group)[0]


def check(model: DeviceModel, m: int, k: int, n: int, seed: int, bits: int = 8) -> None:
    """Compare one product of random bytes. Raises AssertionError for any difference and for a violation of cache maintenance."""
    random = np.random.default_rng(seed)
    int4 = int4_of(random, n, k) if bits == 4 else None
    k = k if int4 is None else int4.codes.shape[1]
    a = random.integers(-128, 128, (m, k), np.int8)
    weights = random.integers(-127, 128, (n, k), np.int8) if int4 is None else int4.values
    given = random.integers(-(10 ** random.integers(1, 7)), 10**6, n).astype(np.int32)
    zero_points = int(random.integers(-128, 128)), int(random.integers(-128, 128))
    bias = (given - zero_points[0] * weights.sum(1, dtype=np.int64)).astype(np.int32)
    form = EXACT if random.random() < 0.7 or int4 is not None else variant(packed=False)
    sums = product(model, a, weights if int4 is None else int4, bias, form)
    wide = 0.01 * float(random.uniform(0.5, 200)) * np.sqrt(k)
    np.testing.assert_array_equal(
        rescaled(sums, float(convolution_scales(0.01, 0.02, wide)), zero_points[1]),
        fully_connected(a, weights, given, zero_points, wide),
        f"M {m}, K {k}, N {n}, seed {seed}",
    )
    unsigned = random.integers(0, 256, (m, k), np.uint8)
    np.testing.assert_array_equal(
        product(model, unsigned, weights if int4 is None else int4, given, form),
        unsigned.astype(np.float64) @ weights.T.astype(np.float64) + given,
    )
    assert model.counts().violations == 0, model.violation()


def fully_connected(
    a: NDArray[np.int8], weights: NDArray[np.int8], bias: NDArray[np.int32], zero_points: tuple[int, int], scale: float
) -> np.ndarray:
    """Return the results of LiteRT's reference kernel: scales 0.01 of A, 0.02 of the weights, and ``scale`` of the result."""
    x = oracle.activation("x", a.shape, 0.01, zero_points[0])
    y = oracle.activation("y", (len(a), len(weights)), scale, zero_points[1])
    constants = [constant("w", weights, per_tensor(0.02, 0)), constant("b", bias, per_tensor(0.01 * 0.02, 0))]
    graph = oracle.graph_of([x], [Node("fully_connected", ("x", "w", "b"), ("y",), ATTRIBUTES)], [*constants, y], ["y"])
    return oracle.reference_outputs(graph, [a])[0]


def rescaled(sums: np.ndarray, factor: float, zero_point: int) -> np.ndarray:
    """Return int32 sums as int8 as LiteRT's reference FULLY_CONNECTED: times a double, halves away from zero."""
    products = sums * factor
    magnitudes = np.floor(np.abs(products))
    magnitudes += np.abs(products) - magnitudes >= 0.5
    return np.clip(np.copysign(magnitudes, products) + zero_point, -128, 127).astype(np.int8)


def main(first: int, end: int, bits: int = 8) -> int:
    """Check the products of seeds [first, end), print each failure and the sum. Return 1 where anything failed."""
    failed = 0
    with DeviceModel() as model:
        for seed in range(first, end):
            try:
                check(model, *sizes_of(seed), seed, bits)
            except AssertionError as error:
                failed += 1
                print(f"seed {seed}: {error}")
        count = model.counts().jobs
    print(f"{end - first} products of {bits} bits in {count} jobs: {failed} differ")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
