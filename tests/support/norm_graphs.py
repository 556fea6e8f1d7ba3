# SPDX-License-Identifier: BSD-3-Clause
"""Random graphs around a group norm."""

from __future__ import annotations

import numpy as np

from openneutron.ir import Graph, per_tensor
from tests.support.random_builder import Builder
from tests.support.random_images import convolution


def stem(
    seed: int, shape: tuple[int, int, int], filters: int, groups: int, kernel: tuple[int, int], logistic: bool = True
) -> Graph:
    """Return a convolution of an image or a signal of [rows, columns, channels], a group norm, with ``logistic`` a logistic, and a strided pool;
    ``kernel``: of the convolution, which keeps rows and columns."""
    b = Builder(seed)
    x = b.input((1, *shape))
    made = convolution(b, x, filters, kernel)
    gain, bias = (b.const(b.random.normal(middle, 0.3, filters).astype(np.float32)) for middle in (1, 0))
    normal = b.new(made.shape, b.quant(0.03))
    b.node("group_norm", [made, gain, bias], normal, epsilon=1e-5, groups=groups)
    active = b.node("logistic", [normal], b.new(made.shape, per_tensor(1 / 256, -128))) if logistic else normal
    window = [min(3, extent) for extent in shape[:2]]
    half = [(extent - size) // 2 + 1 for extent, size in zip(shape[:2], window, strict=True)]
    sizes = {"kernel_h": window[0], "kernel_w": window[1], "stride_h": 2, "stride_w": 2}
    pooled = b.new((1, *half, filters), active.quant)
    b.node("max_pool_2d", [active], pooled, padding="VALID", activation="NONE", **sizes)
    return b.graph([pooled])
