# SPDX-License-Identifier: BSD-3-Clause
"""The sampler of transposed convolutions for random_graphs.py: dilated, grouped and enlarged kernels among them."""

from __future__ import annotations

import numpy as np

from openneutron.ir import Tensor, per_channel, per_tensor
from tests.support.random_builder import Builder


def weights_with_zeros(random: np.random.Generator, shape: tuple[int, int, int, int]) -> np.ndarray:
    """Weights [output, height, width, input], sometimes 0 in whole rows, columns or groups."""
    data = random.integers(-127, 128, shape).astype(np.int8)
    outputs, height, width, inputs = shape
    if random.random() < 0.3:
        data[:, random.random(height) < 0.5] = 0
        data[:, :, random.random(width) < 0.5] = 0
    most = int(np.gcd(outputs, inputs))
    if random.random() < 0.4:
        groups = int(random.choice([count for count in range(1, most + 1) if most % count == 0]))
        own = np.arange(outputs)[:, None] // (outputs // groups) == np.arange(inputs) // (inputs // groups)
        data *= own[:, None, None, :]
    return data


def transpose_conv(b: Builder, source: Tensor) -> Tensor | None:
    if len(source.shape) != 4:
        return None
    random = b.random
    batches, height, width, inputs = source.shape
    outputs = inputs * b.up_to(2) if random.random() < 0.3 else b.up_to(12)
    kernel, stride = (b.up_to(5), b.up_to(5)), (b.up_to(4), b.up_to(4))
    padding = str(b.choice("SAME", "VALID"))
    extents = []
    for extent, taps, step in zip((height, width), kernel, stride, strict=True):
        extents.append((extent - 1) * step + (taps if padding == "VALID" else 1) + int(random.integers(step)))
    assert source.quant is not None
    size = 0.5 / np.sqrt(inputs * kernel[0] * kernel[1]) / 64
    quant = per_tensor(float(size), 0)
    if random.random() < 0.7:
        quant = per_channel(size * random.uniform(0.2, 2.0, outputs), 0)
    operands: list[Tensor | None] = [
        b.integers(batches, *extents, outputs),
        b.const(weights_with_zeros(random, (outputs, *kernel, inputs)), quant),
        source,
    ]
    if random.random() < 0.8:
        scales = np.array(quant.scales) * source.quant.scale
        bias_quant = per_channel(scales, 0) if len(scales) > 1 else per_tensor(float(scales[0]), 0)
        operands.append(b.const(random.integers(-3000, 3000, outputs).astype(np.int32), bias_quant))
    output = b.new((batches, *extents, outputs))
    activation = b.choice("NONE", "RELU", "RELU_N1_TO_1", "RELU6")
    attrs = {"padding": padding, "stride_h": stride[0], "stride_w": stride[1], "activation": activation}
    return b.node("transpose_conv", operands, output, **attrs)
