# SPDX-License-Identifier: BSD-3-Clause
"""The arithmetic of docs/explanation/language-models.md in NumPy, one float32 operation after another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.int8]
F = np.float32


def total(x: Floats) -> np.float32:
    """Return the sum of values: 16 partial sums, then their halves."""
    parts = np.zeros(16, F)
    for first in range(0, len(x), 16):
        some = x[first : first + 16]
        parts[: len(some)] += some
    for half in (8, 4, 2, 1):
        parts = parts[:half] + parts[half : 2 * half]
    return F(parts[0])


def exp(x: Floats) -> Floats:
    x = np.asarray(x, F)
    bounded = np.minimum(x, F(88))
    n = np.rint(bounded * F(1.44269504))
    r = (bounded - n * F(0.693359375)) - n * F(-2.12194440e-4)
    p = np.full_like(bounded, 1.9875691500e-4)
    for c in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1):
        p = p * r + F(c)
    power = np.ldexp(F(1), np.maximum(n, -126).astype(np.int32)).astype(F)
    result: Floats = np.where(x < F(-87), F(0), ((p * (r * r) + r) + F(1)) * power)
    return result


def tanh(x: Floats) -> Floats:
    return F(1) - F(2) / (exp(F(2) * x) + F(1))


def capped(x: Floats, cap: float) -> Floats:
    return x if cap == 0 else F(cap) * tanh(x / F(cap))


def quantized(x: Floats, limit: int) -> tuple[npt.NDArray[np.int64], np.float32]:
    """Return a row as integers, and its scale."""
    most = np.abs(x).max()
    if most < F(2.0**-100):
        return np.zeros(len(x), np.int64), F(0)
    scaled = np.clip(x * (F(limit) / most), F(-limit), F(limit))
    return np.rint(scaled).astype(np.int64), F(most / F(limit))


def rms(x: Floats, scale: Floats, epsilon: float) -> Floats:
    inverse = F(1) / np.sqrt(total(x * x) / F(len(x)) + F(epsilon))
    return (x * inverse) * scale


def layer_norm(x: Floats, scale: Floats, bias: Floats, epsilon: float) -> Floats:
    away = x - total(x) / F(len(x))
    inverse = F(1) / np.sqrt(total(away * away) / F(len(x)) + F(epsilon))
    return (away * inverse) * scale + bias


def linear(x: Floats, values: Bytes, scales: Floats, bias: Floats, cap: float = 0.0) -> Floats:
    """Return a linear layer of a row."""
    integers, scale = quantized(x, 127)
    sums = values.astype(np.int64) @ integers
    return capped((sums.astype(F) * scale) * scales + bias, cap)


def _gelu(x: Floats) -> Floats:
    v = x * F(0.7071067812)
    z = np.abs(v)
    t = F(1) / (F(1) + F(0.3275911) * z)
    p = F(1.061405429) * t - F(1.453152027)
    for c in (1.421413741, -0.284496736, 0.254829592):
        p = p * t + F(c)
    error = F(1) - (p * t) * exp(-(z * z))
    return (F(0.5) * x) * (F(1) + np.where(v < 0, -error, error))


def _gelu_tanh(x: Floats) -> Floats:
    u = F(0.7978845608) * (x + F(0.044715) * ((x * x) * x))
    return (F(0.5) * x) * (F(1) + tanh(u))


ACTIVATIONS: tuple[Callable[[Floats], Floats], ...] = (
    lambda x: x / (F(1) + exp(-x)),
    _gelu_tanh,
    _gelu,
    lambda x: np.maximum(x, F(0)),
)
"""By the parameter ``kind`` of activation_f32."""


@dataclass(frozen=True, slots=True, eq=False)
class Heads:
    """The facts of an attention; ``table`` is that of rotary embedding, or None."""

    heads: int
    groups: int
    size: int
    scale: float
    window: int = 0
    cap: float = 0.0
    epsilon: float = 1e-6
    table: Floats | None = None
    interleaved: bool = False
    query_norm: Floats | None = None
    key_norm: Floats | None = None


class Cache:
    """The keys and values of the tokens so far; ``attend`` appends a token's, and returns its results."""

    def __init__(self, facts: Heads) -> None:
        self.facts = facts
        self.keys: list[list[tuple[npt.NDArray[np.int64], np.float32]]] = []
        self.values: list[list[tuple[npt.NDArray[np.int64], np.float32]]] = []

    def _turned(self, x: Floats, norm: Floats | None, position: int) -> Floats:
        facts = self.facts
        x = x.copy() if norm is None else rms(x, norm, facts.epsilon)
        if facts.table is None:
            return x
        half = facts.table.shape[1] // 2
        cosines, sines = facts.table[position, :half], facts.table[position, half:]
        first, second = (
            (slice(0, 2 * half, 2), slice(1, 2 * half, 2))
            if facts.interleaved
            else (slice(0, half), slice(half, 2 * half))
        )
        a, b = x[first].copy(), x[second].copy()
        x[first] = a * cosines - b * sines
        x[second] = b * cosines + a * sines
        return x

    def attend(self, token: Floats, position: int) -> Floats:
        facts = self.facts
        rows = token.reshape(-1, facts.size)
        queries, keys, values = np.split(rows, [facts.heads, facts.heads + facts.groups])
        del self.keys[position:], self.values[position:]
        self.append(np.concatenate([keys, values]), position)
        first = max(0, position - facts.window + 1) if facts.window else 0
        return np.concatenate([self._head(h, query, first, position) for h, query in enumerate(queries)])

    def append(self, rows: Floats, position: int) -> None:
        """Append the heads of keys and of values of a token."""
        keys, values = np.split(rows, 2)
        self.keys.append([quantized(self._turned(key, self.facts.key_norm, position), 127) for key in keys])
        self.values.append([quantized(value, 127) for value in values])

    def cross(self, token: Floats) -> Floats:
        """Return the results of the heads of queries, which see all positions."""
        queries, last = token.reshape(-1, self.facts.size), len(self.keys) - 1
        return np.concatenate([self._head(h, query, 0, last) for h, query in enumerate(queries)])

    def _head(self, h: int, query: Floats, first: int, position: int) -> Floats:
        facts = self.facts
        group = h * facts.groups // facts.heads
        q, s = quantized(self._turned(query, facts.query_norm, position), 32767)
        c = F(s * F(facts.scale))
        keys = [self.keys[j][group] for j in range(first, position + 1)]
        scores = np.array([(F(int(q @ key)) * scale) * c for key, scale in keys], F)
        scores = capped(scores, facts.cap)
        e = exp(scores - scores.max())
        y = np.zeros(facts.size, F)
        for j in range(first, position + 1):
            value, scale = self.values[j][group]
            y = y + (e[j - first] * scale) * value.astype(F)
        return y / total(e)
