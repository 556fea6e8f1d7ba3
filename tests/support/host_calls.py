# SPDX-License-Identifier: BSD-3-Clause
"""A network whose middle computes on int16, which the NPU of an MCX N can't."""

from __future__ import annotations

import numpy as np

from openneutron.ir import DType, Graph, Tensor, per_channel
from tests.support.random_wide import WideBuilder

CHIP = "mcxn94x"
REASON = "its activations are int16; mcxn94x computes on int8 activations"


def with_wide_middle(extent: int = 8, channels: int = 8) -> Graph:
    """Return a convolution on int8, one on int16 between two conversions, and one on int8."""
    b = WideBuilder(0)

    def conv(source: Tensor, name: str) -> Tensor:
        weights = b.random.integers(-127, 128, (channels, 3, 3, source.shape[3]), np.int8)
        scales = np.full(channels, 0.004, np.float32)
        bias = b.random.integers(-999, 999, channels).astype(np.int32)
        assert source.quant is not None
        with b.weights() if source.dtype is DType.INT16 else b.narrow():
            constants = [
                b.const(weights, per_channel(scales, 0)),
                b.const(bias, per_channel(scales * np.float32(source.quant.scale), 0)),
            ]
        result = Tensor(name, (1, extent, extent, channels), source.dtype, source.quant)
        b.tensors[name] = result
        attrs = {"padding": "SAME", "stride_h": 1, "stride_w": 1, "activation": "NONE"}
        return b.node("conv_2d", [source, *constants], result, **attrs)

    def converted(source: Tensor, name: str, narrow: bool) -> Tensor:
        made = Tensor(name, source.shape, *((DType.INT8, small) if narrow else (DType.INT16, wide)))
        b.tensors[name] = made
        return b.node("quantize", [source], made)

    with b.narrow():
        image = b.input((1, extent, extent, 3))
        small = b.quant(0.05)
    wide = b.quant(0.05 / 256)
    middle = conv(converted(conv(image, "first"), "to_int16", False), "middle")
    return b.graph([conv(converted(middle, "to_int8", True), "last")])
