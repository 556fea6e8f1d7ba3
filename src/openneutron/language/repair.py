# SPDX-License-Identifier: BSD-3-Clause
"""Compute the logits of whole texts with numpy, and give 8 bits to the layers whose int4 weights cost the most accuracy for each byte."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import erf
from typing import Any

import numpy as np
import numpy.typing as npt

from openneutron.language.decoder import Activation, Decoder, Floats, Layer, Matrix, Norm, Place, Repair, Rotary

Array = npt.NDArray[Any]


def logits(
    decoder: Decoder, tokens: npt.ArrayLike, *, rounds: bool = True, dtype: type[np.floating[Any]] = np.float32
) -> Array:
    """Return the logits [token, vocabulary] of a text, computed with numpy. The text begins at position 0 and has at most ``decoder.context``
    tokens.

    With ``rounds``, inputs of linear layers, keys and values are rounded to int8, as a program does. Otherwise only the weights are quantized.
    """
    ids = np.asarray(tokens, np.int64)
    return _Text(decoder, len(ids), rounds, dtype).logits(ids)


@dataclass(frozen=True, slots=True)
class _Text:
    """The computation of a text with ``count`` tokens."""

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
        """Return ``x`` rounded to the int8 grid with a scale for each row of the last axis; unchanged if ``rounds`` is False."""
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
    """Return ``x`` [token, head, value] with the rotary embedding applied: each pair of values is rotated by its angle."""
    cos, sin = np.split(rotary.table[: len(x)].astype(x.dtype), 2, axis=1)
    turned = (cos + 1j * sin)[:, None]
    pairs = x[..., : rotary.rotated].reshape(*x.shape[:2], *((-1, 2) if rotary.interleaved else (2, -1)))
    axis = -1 if rotary.interleaved else -2
    product = (pairs.take(0, axis=axis) + 1j * pairs.take(1, axis=axis)) * turned
    found = np.stack([product.real, product.imag], axis=axis).reshape(*x.shape[:2], -1).astype(x.dtype)
    return np.concatenate([found, x[..., rotary.rotated :]], axis=2)


RANKING_TOKENS = 256
"""The number of tokens that are used to rank matrices. Each matrix takes one computation of these tokens."""


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """The tokens of a text, and the float model's logits [token, vocabulary] for it."""

    tokens: Sequence[int]
    wanted: Array = field(repr=False)


def repaired(decoder: Decoder, eight: Mapping[Place, Matrix], texts: Sequence[Judged], most: float) -> Decoder:
    """Return the decoder with some matrices replaced by their 8-bit versions in ``eight``, so that its mean KL divergence is at most ``most``
    nats per token.

    Matrices are ranked by the divergence that each alone saves for each additional byte. The first matrices of this order are replaced, the
    smallest number that reaches ``most`` on ``texts``. If all together do not reach it, all are replaced. The field ``repair`` of the result has
    the outcome.
    """
    before = divergence(decoder, texts)
    if before <= most or not eight:
        return replace(decoder, repair=Repair((), before, before, most))
    few = _first(texts, RANKING_TOKENS)
    base = divergence(decoder, few)

    def gain(place: Place) -> float:
        return (base - divergence(_with(decoder, eight, [place]), few)) / eight[place].values.size

    order = sorted(eight, key=gain, reverse=True)
    low, high = 0, len(order)  # `low` does not reach it, `high` does or is all
    after = divergence(_with(decoder, eight, order), texts)
    while high - low > 1 and after <= most:
        middle = (low + high) // 2
        found = divergence(_with(decoder, eight, order[:middle]), texts)
        if found <= most:
            high, after = middle, found
        else:
            low = middle
    kept = tuple(order[:high])
    return replace(_with(decoder, eight, kept), repair=Repair(kept, before, after, most))


def divergence(decoder: Decoder, texts: Sequence[Judged]) -> float:
    """Return the mean KL divergence of the decoder's next token from the float model's, in nats per token."""
    total = sum(float(divergences(text.wanted, logits(decoder, text.tokens)).sum()) for text in texts)
    return total / sum(len(text.tokens) for text in texts)


def divergences(wanted: Array, found: Array) -> npt.NDArray[np.float64]:
    """Return the KL divergence of each row of the logits ``found`` [token, vocabulary] from the same row of
    ``wanted``, in nats."""
    first, second = log_softmax(wanted), log_softmax(found)
    result: npt.NDArray[np.float64] = (np.exp(first) * (first - second)).sum(axis=-1, dtype=np.float64)
    return result


def log_softmax(x: Array) -> Array:
    shifted = x - x.max(axis=-1, keepdims=True)
    result: Array = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return result


def _with(decoder: Decoder, eight: Mapping[Place, Matrix], places: Sequence[Place]) -> Decoder:
    layers = list(decoder.layers)
    for number, name in places:
        matrix: Any = {name: eight[number, name]}
        layers[number] = replace(layers[number], **matrix)
    return replace(decoder, layers=tuple(layers))


def _first(texts: Sequence[Judged], most: int) -> list[Judged]:
    """Return the first ``most`` tokens of the texts: whole texts, and then the beginning of the next one."""
    found: list[Judged] = []
    for text in texts:
        left = most - sum(len(each.tokens) for each in found)
        if left > 0:
            found.append(Judged(text.tokens[:left], text.wanted[:left]))
    return found
