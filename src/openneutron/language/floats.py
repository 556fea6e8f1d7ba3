# SPDX-License-Identifier: BSD-3-Clause
"""Compute whole texts by a decoder in floats of numpy, to judge its quantized weights without a program.

The order of additions is numpy's, so that results are near those of docs/explanation/language-models.md, not equal to them.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import erf
from typing import Any

import numpy as np
import numpy.typing as npt

from openneutron.language.decoder import Activation, Decoder, Floats, Layer, Matrix, Norm, Rotary

Array = npt.NDArray[Any]


def logits(
    decoder: Decoder, tokens: npt.ArrayLike, *, rounds: bool = True, dtype: type[np.floating[Any]] = np.float32
) -> Array:
    """Return the logits [token, vocabulary] of a text that begins at position 0, at most ``decoder.context`` tokens long.

    ``rounds``: inputs of products, keys and values are rounded to int8, as in a program; otherwise only weights are.
    """
    ids = np.asarray(tokens, np.int64)
    return _Text(decoder, len(ids), rounds, dtype).logits(ids)


@dataclass(frozen=True, slots=True)
class _Text:
    """The computation of a text of ``count`` tokens."""

    decoder: Decoder
    count: int
    rounds: bool
    dtype: type[np.floating[Any]]

    def logits(self, ids: npt.NDArray[np.int64]) -> Array:
        decoder = self.decoder
        rows, scales = decoder.embedding.values[ids], decoder.embedding.scales[ids]
        x = rows * scales[:, None].astype(self.dtype) * self.dtype(decoder.embedding_multiplier)
        if decoder.positions is not None:
            x = x + decoder.positions[: self.count]
        for layer in decoder.layers:
            x = self._layer(layer, x)
        return _capped(self._linear(self._norm(decoder.final_norm, x), decoder.head), decoder.logit_cap)

    def _rounded(self, x: Array) -> Array:
        """Return rows of the last axis as int8 integers with one scale, as floats; or as they are."""
        if not self.rounds:
            return x
        scale = np.maximum(np.abs(x).max(axis=-1, keepdims=True), 2.0**-100) / 127
        result: Array = (np.rint(x / scale) * scale).astype(self.dtype)
        return result

    def _linear(self, x: Array, matrix: Matrix) -> Array:
        weights = matrix.values * matrix.scales[:, None].astype(self.dtype)
        y: Array = self._rounded(x) @ weights.T
        return y if matrix.bias is None else y + matrix.bias

    def _root(self, x: Array, scale: Floats) -> Array:
        mean = (x * x).mean(axis=-1, keepdims=True)
        y: Array = x / np.sqrt(mean + self.dtype(self.decoder.epsilon)) * scale
        return y

    def _norm(self, norm: Norm, x: Array) -> Array:
        y = self._root(x - x.mean(axis=-1, keepdims=True) if self.decoder.centred else x, norm.scale)
        return y if norm.bias is None else y + norm.bias

    def _layer(self, layer: Layer, x: Array) -> Array:
        first = self._norm(layer.attention_norm, x)
        attended = self._linear(self._attention(layer, self._linear(first, layer.qkv)), layer.output)
        if layer.after_attention is not None:
            attended = self._norm(layer.after_attention, attended)
        source = first
        if layer.mlp_norm is not None:
            source = self._norm(layer.mlp_norm, x if layer.is_parallel else x + attended)
        up = self._linear(source, layer.up)
        if self.decoder.is_gated:
            gate, up = np.split(up, 2, axis=1)
            inner = _activation(self.decoder.activation, gate) * up
        else:
            inner = _activation(self.decoder.activation, up)
        down = self._linear(inner, layer.down)
        if layer.after_mlp is not None:
            down = self._norm(layer.after_mlp, down)
        return x + attended + down

    def _attention(self, layer: Layer, qkv: Array) -> Array:
        d, count = self.decoder, self.count
        queries, keys, values = np.split(qkv.reshape(count, -1, d.head_size), [d.heads, d.heads + d.groups], axis=1)
        if layer.query_norm is not None and layer.key_norm is not None:
            queries, keys = self._root(queries, layer.query_norm), self._root(keys, layer.key_norm)
        if layer.rotary is not None:
            queries, keys = (_rotated(layer.rotary, each) for each in (queries, keys))
        # [head, token, value]
        queries = queries.transpose(1, 0, 2)
        keys, values = (
            np.repeat(self._rounded(each).transpose(1, 0, 2), d.heads // d.groups, axis=0) for each in (keys, values)
        )
        scores = _capped(queries @ keys.transpose(0, 2, 1) * self.dtype(d.score_scale), d.score_cap)
        age = np.arange(count)[:, None] - np.arange(count)
        hidden = (age < 0) | (age >= layer.window if layer.window else False)
        scores = np.where(hidden, self.dtype(-np.inf), scores)
        shares = np.exp(scores - scores.max(axis=2, keepdims=True))
        shares = shares / shares.sum(axis=2, keepdims=True)
        attended: Array = (shares @ values).transpose(1, 0, 2).reshape(count, -1)
        return attended


def _capped(x: Array, cap: float) -> Array:
    return cap * np.tanh(x / cap) if cap else x


def _activation(kind: Activation, x: Array) -> Array:
    y: Array
    match kind:
        case Activation.SILU:
            y = x / (1 + np.exp(-x))
        case Activation.GELU_TANH:
            y = 0.5 * x * (1 + np.tanh(np.sqrt(x.dtype.type(2 / np.pi)) * (x + 0.044715 * x**3)))
        case Activation.GELU:
            y = 0.5 * x * (1 + np.vectorize(erf, otypes=[x.dtype])(x / np.sqrt(x.dtype.type(2))))
        case Activation.RELU:
            y = np.maximum(x, 0)
    return y


def _rotated(rotary: Rotary, x: Array) -> Array:
    """Return each pair of values as a complex number times that of its angle; x is [token, head, value]."""
    cos, sin = np.split(rotary.table[: len(x)].astype(x.dtype), 2, axis=1)
    turned = (cos + 1j * sin)[:, None]
    pairs = x[..., : rotary.rotated].reshape(*x.shape[:2], *((-1, 2) if rotary.interleaved else (2, -1)))
    axis = -1 if rotary.interleaved else -2
    product = (pairs.take(0, axis=axis) + 1j * pairs.take(1, axis=axis)) * turned
    found = np.stack([product.real, product.imag], axis=axis).reshape(*x.shape[:2], -1).astype(x.dtype)
    return np.concatenate([found, x[..., rotary.rotated :]], axis=2)
