# SPDX-License-Identifier: BSD-3-Clause
"""Pads that a reshape keeps apart from the window that could take them."""

from __future__ import annotations

import numpy as np
import pytest

from openneutron.compiler.legalize.legalize import legalize
from openneutron.ir import Tensor, per_tensor
from tests.support import oracle
from tests.support.random_builder import Builder


def _conv(b: Builder, source: Tensor) -> Tensor:
    """A convolution of one row, 3 columns, dilation 2."""
    assert source.quant is not None
    weights = b.const(b.random.integers(-127, 128, (4, 1, 3, source.shape[3])).astype(np.int8), per_tensor(0.002, 0))
    bias = b.const(b.random.integers(-500, 500, 4).astype(np.int32), per_tensor(0.002 * source.quant.scale, 0))
    attrs = {"stride_h": 1, "stride_w": 1, "dilation_h": 1, "dilation_w": 2, "activation": "NONE", "padding": "VALID"}
    shape = (source.shape[0], source.shape[1], source.shape[2] - 4, 4)
    return b.node("conv_2d", [source, weights, bias], b.new(shape), **attrs)


def _padded(b: Builder, source: Tensor, amounts: list[tuple[int, int]]) -> Tensor:
    shape = tuple(extent + before + after for extent, (before, after) in zip(source.shape, amounts, strict=True))
    return b.node("pad", [source, b.const(np.array(amounts, np.int32))], b.new(shape, source.quant))


def _viewed(b: Builder, source: Tensor, shape: tuple[int, ...]) -> Tensor:
    return b.node("reshape", [source, b.integers(*shape)], b.new(shape, source.quant), new_shape=shape)


def _ops(graph: object) -> list[str]:
    return [node.op for node in legalize(graph).nodes]  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(8))
def test_a_padded_line_is_padded_by_its_convolution(seed: int) -> None:
    b = Builder(seed)
    batches, length, channels = b.up_to(2), b.up_to(6), b.up_to(5)
    source = b.input((batches, length, channels))
    line = _padded(b, source, [(0, 0), (int(b.random.integers(5)), 4), (0, 0)])
    graph = b.graph([_conv(b, _viewed(b, line, (batches, 1, *line.shape[1:])))])
    assert _ops(graph) == ["reshape", "conv_2d"]
    oracle.assert_bit_exact(graph, seeds=(seed,))


def test_a_line_that_is_read_elsewhere_stays() -> None:
    b = Builder(1)
    line = _padded(b, b.input((1, 4, 3)), [(0, 0), (4, 0), (0, 0)])
    graph = b.graph([_conv(b, _viewed(b, line, (1, 1, 8, 3))), line])
    assert _ops(graph) == ["pad", "reshape", "conv_2d"]
    oracle.assert_bit_exact(graph, seeds=(0,))


def test_a_reshape_that_mixes_axes_stays() -> None:
    b = Builder(2)
    line = _padded(b, b.input((1, 5, 6)), [(0, 0), (1, 2), (0, 0)])
    graph = b.graph([_conv(b, _viewed(b, line, (1, 1, 16, 3)))])
    assert _ops(graph) == ["pad", "reshape", "conv_2d"]
    oracle.assert_bit_exact(graph, seeds=(0,))


def test_channels_that_are_padded_stay() -> None:
    b = Builder(3)
    line = _padded(b, b.input((1, 6, 2)), [(0, 0), (1, 2), (0, 2)])
    graph = b.graph([_conv(b, _viewed(b, line, (1, 1, 9, 4)))])
    assert _ops(graph) == ["reshape", "pad", "conv_2d"]
    oracle.assert_bit_exact(graph, seeds=(0,))
