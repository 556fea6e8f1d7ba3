# SPDX-License-Identifier: BSD-3-Clause
"""Normalizations in Python's integers, step by step as docs/quantization.md states them, and their samplers."""

from __future__ import annotations

import math

import numpy as np

from openneutron.ir import DType, Graph, Node, Tensor
from openneutron.ops.reductions import coefficients, scaled_epsilon
from tests.support.random_builder import Builder, Sampler

OPERATORS = frozenset(("layer_norm", "group_norm"))
"""Operators that LiteRT does not have, and whose reference is ``results``."""


def results(graph: Graph, node: Node, stored: np.ndarray) -> np.ndarray:
    """Return the stored values of a normalization's result for those of its input."""
    source, output = graph.given(node, 0), graph[node.outputs[0]]
    assert source.quant is not None
    own, ends = coefficients(graph, node), np.iinfo(output.dtype.numpy)
    bits = 8 if source.dtype is DType.INT8 else 0
    values = stored.astype(np.int64).reshape(source.shape) - source.quant.zero_point
    result = np.zeros(source.shape, output.dtype.numpy)
    for places in _places(node, source.shape):
        p = [int(value) for value in values[places].reshape(-1)]
        channels = np.broadcast_to(np.arange(source.shape[-1]), source.shape)[places].reshape(-1)
        count, centre = len(p), sum(p) if node.op == "group_norm" or node["centred"] else 0
        variance = (count * sum(value * value for value in p) - centre * centre) * 2**bits + scaled_epsilon(graph, node)
        root, right = _root(max(1, variance))
        right -= 20 + bits // 2
        normal = [((count * value - centre) * root + 2 ** (right - 1)) // 2**right for value in p]
        sums = [
            (value * int(own.factors[k]) + int(own.offsets[k])) // 2**own.shift
            for value, k in zip(normal, channels, strict=True)
        ]
        result[places] = np.clip(sums, ends.min, ends.max).reshape(result[places].shape)
    return result


def _places(node: Node, shape: tuple[int, ...]) -> list[tuple[slice | int, ...]]:
    """Return the index of each set of elements that share statistics."""
    if node.op == "layer_norm":
        return list(np.ndindex(*shape[:-1]))
    size = shape[-1] // node["groups"]
    every = slice(None)
    return [
        (batch, every, every, slice(first, first + size))
        for batch in range(shape[0])
        for first in range(0, shape[-1], size)
    ]


def _root(x: int) -> tuple[int, int]:
    """Return 1 / sqrt(x) as a number of 30 fractional bits, and how far it is shifted right beside that, in all."""
    pairs = -((32 - x.bit_length()) // 2)
    mantissa = x // 4**pairs if pairs >= 0 else x * 4**-pairs
    assert 2**30 <= mantissa < 2**32
    y = 0x88000000 - mantissa // 4 - mantissa // 32
    for _ in range(4):
        y = y * (3 * 2**30 - mantissa * (y * y // 2**30) // 2**32) // 2**31
    return y, 46 + pairs


def in_float(graph: Graph, node: Node, stored: np.ndarray) -> np.ndarray:
    """Return the float normalization of the dequantized input, in steps of the output."""
    source, output = graph.given(node, 0), graph[node.outputs[0]]
    assert source.quant is not None and output.quant is not None
    x = (stored.astype(np.float64) - source.quant.zero_point) * source.quant.scale
    normal = np.zeros_like(x)
    for places in _places(node, source.shape):
        mean = x[places].mean() if node.op == "group_norm" or node["centred"] else 0.0
        apart = x[places] - mean
        normal[places] = apart / math.sqrt((apart * apart).mean() + node["epsilon"])
    gain, bias = (graph.operand(node, place) for place in (1, 2))
    normal = normal * (1.0 if gain is None else np.asarray(gain.data, np.float64))
    normal = normal + (0.0 if bias is None else np.asarray(bias.data, np.float64))
    ends = np.iinfo(output.dtype.numpy)
    return np.clip(normal / output.quant.scale + output.quant.zero_point, ends.min, ends.max)


def sampler(op: str) -> Sampler:
    """Return the sampler of a normalization with or without gain and bias."""

    def sample(b: Builder, source: Tensor) -> Tensor | None:
        if source.dtype is not DType.INT8 or not source.shape or (op == "group_norm" and len(source.shape) != 4):
            return None
        channels = source.shape[-1]
        gain, bias = (
            b.const(b.random.normal(middle, 0.5, channels).astype(np.float32)) if b.random.random() < 0.7 else None
            for middle in (1, 0)
        )
        attrs: dict[str, float | int | bool] = {"epsilon": float(10 ** -b.random.uniform(0, 8))}
        if op == "layer_norm":
            attrs["centred"] = bool(b.choice(True, False))
        else:
            attrs["groups"] = int(b.random.choice([n for n in range(1, channels + 1) if channels % n == 0]))
        operands = [source, gain, bias] if bias is not None else [source, gain] if gain is not None else [source]
        return b.node(op, operands, b.new(source.shape, b.quant(float(b.random.uniform(0.01, 0.05)))), **attrs)

    return sample


SAMPLERS: dict[str, Sampler] = {op: sampler(op) for op in sorted(OPERATORS)}
