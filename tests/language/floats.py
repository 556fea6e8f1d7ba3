# SPDX-License-Identifier: BSD-3-Clause
"""Compute a decoder in float64, with its weights as numbers and with no rounding between the steps."""

from __future__ import annotations

from math import erf

import numpy as np
import numpy.typing as npt

from openneutron.language.decoder import Activation, Decoder, Layer, Matrix, Norm

Doubles = npt.NDArray[np.float64]


def logits(decoder: Decoder, tokens: npt.ArrayLike) -> Doubles:
    """Return the logits [token, vocabulary] of a text that begins at position 0."""
    ids = np.asarray(tokens, np.int64)
    x = _weights(decoder.embedding)[ids] * decoder.embedding_multiplier
    if decoder.positions is not None:
        x = x + decoder.positions[: len(ids)]
    for layer in decoder.layers:
        x = _layer(decoder, layer, x)
    return _capped(_linear(_norm(decoder, decoder.final_norm, x), decoder.head), decoder.logit_cap)


def _weights(matrix: Matrix) -> Doubles:
    weights: Doubles = matrix.values * matrix.scales[:, None].astype(np.float64)
    return weights


def _linear(x: Doubles, matrix: Matrix) -> Doubles:
    y: Doubles = x @ _weights(matrix).T
    return y if matrix.bias is None else y + matrix.bias


def _capped(x: Doubles, cap: float) -> Doubles:
    return cap * np.tanh(x / cap) if cap else x


def _root(x: Doubles, scale: npt.NDArray[np.float32], epsilon: float) -> Doubles:
    y: Doubles = x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + epsilon) * scale
    return y


def _norm(decoder: Decoder, norm: Norm, x: Doubles) -> Doubles:
    y = _root(x - x.mean(axis=-1, keepdims=True) if decoder.centred else x, norm.scale, decoder.epsilon)
    return y if norm.bias is None else y + norm.bias


def _activation(kind: Activation, x: Doubles) -> Doubles:
    match kind:
        case Activation.SILU:
            return x / (1 + np.exp(-x))
        case Activation.GELU_TANH:
            return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
        case Activation.GELU:
            return 0.5 * x * (1 + np.vectorize(erf)(x / np.sqrt(2)))
        case Activation.RELU:
            return np.maximum(x, 0)


def _layer(d: Decoder, layer: Layer, x: Doubles) -> Doubles:
    first = _norm(d, layer.attention_norm, x)
    attended = _linear(_attention(d, layer, _linear(first, layer.qkv)), layer.output)
    if layer.after_attention is not None:
        attended = _norm(d, layer.after_attention, attended)
    source = first
    if layer.mlp_norm is not None:
        source = _norm(d, layer.mlp_norm, x if layer.is_parallel else x + attended)
    up = _linear(source, layer.up)
    if d.is_gated:
        gate, up = np.split(up, 2, axis=1)
        inner = _activation(d.activation, gate) * up
    else:
        inner = _activation(d.activation, up)
    down = _linear(inner, layer.down)
    if layer.after_mlp is not None:
        down = _norm(d, layer.after_mlp, down)
    return x + attended + down


def _attention(d: Decoder, layer: Layer, qkv: Doubles) -> Doubles:
    count = len(qkv)
    queries, keys, values = np.split(qkv.reshape(count, -1, d.head_size), [d.heads, d.heads + d.groups], axis=1)
    if layer.query_norm is not None and layer.key_norm is not None:
        queries, keys = _root(queries, layer.query_norm, d.epsilon), _root(keys, layer.key_norm, d.epsilon)
    if layer.rotary is not None:
        queries, keys = (_rotated(layer, each) for each in (queries, keys))
    keys, values = (np.repeat(each, d.heads // d.groups, axis=1) for each in (keys, values))
    scores = _capped(np.einsum("ihd,jhd->hij", queries, keys) * d.score_scale, d.score_cap)
    age = np.arange(count)[:, None] - np.arange(count)
    hidden = (age < 0) | (age >= layer.window if layer.window else False)
    scores = np.where(hidden, -np.inf, scores)
    shares = np.exp(scores - scores.max(axis=2, keepdims=True))
    shares = shares / shares.sum(axis=2, keepdims=True)
    attended: Doubles = np.einsum("hij,jhd->ihd", shares, values).reshape(count, -1)
    return attended


def _rotated(layer: Layer, x: Doubles) -> Doubles:
    """Return each pair of values as a complex number times that of its angle."""
    assert layer.rotary is not None
    cos, sin = np.split(layer.rotary.table[: len(x)].astype(np.float64), 2, axis=1)
    turned = (cos + 1j * sin)[:, None]
    pairs = x[..., : layer.rotary.rotated].reshape(*x.shape[:2], *((-1, 2) if layer.rotary.interleaved else (2, -1)))
    axis = -1 if layer.rotary.interleaved else -2
    a, b = pairs.take(0, axis=axis), pairs.take(1, axis=axis)
    product = (a + 1j * b) * turned
    found = np.stack([product.real, product.imag], axis=axis).reshape(*x.shape[:2], -1)
    return np.concatenate([found, x[..., layer.rotary.rotated :]], axis=2)
