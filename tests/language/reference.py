# SPDX-License-Identifier: BSD-3-Clause
"""Compute a decoder's logits in numpy, each step as docs/explanation/language-models.md states it.

Every array of floats is float32, and each operation on it is one IEEE 754 operation. Sums of integers are exact: products are computed in
float64, whose 53 bits hold them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np
import numpy.typing as npt

from openneutron.language.decoder import Activation, Cross, Decoder, Floats, Layer, Matrix, Norm, Rotary

LANES = 16
"""The partial sums of a sum."""

EXPONENTIAL = (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
"""The coefficients of exp behind the first."""

f32 = np.float32


def summed(x: Floats) -> Floats:
    """Return the sums of the last axis, in 16 partial sums."""
    missing = -x.shape[-1] % LANES
    # A partial sum is never -0, so that the zeros at the end change none.
    blocks = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, missing)]).reshape(*x.shape[:-1], -1, LANES)
    partial = np.zeros((*x.shape[:-1], LANES), f32)
    for i in range(blocks.shape[-2]):
        partial = partial + blocks[..., i, :]
    for lanes in (8, 4, 2, 1):
        partial = partial[..., :lanes] + partial[..., lanes:]
    return partial[..., 0]


def exp(x: Floats) -> Floats:
    """Return the exponential function, of Cephes."""
    limited = np.minimum(x, f32(88))
    n = np.rint(np.maximum(limited, f32(-87)) * f32(1.44269504))
    r = (limited - n * f32(0.693359375)) - n * f32(-2.12194440e-4)
    p = np.full_like(r, 1.9875691500e-4)
    for c in EXPONENTIAL:
        p = p * r + f32(c)
    power = np.ldexp(np.ones_like(n), n.astype(np.int32))
    return np.where(x < f32(-87), f32(0), ((p * (r * r) + r) + f32(1)) * power)


def tanh(x: Floats) -> Floats:
    """Return the hyperbolic tangent, by ``exp``."""
    return f32(1) - f32(2) / (exp(f32(2) * x) + f32(1))


def erf(v: Floats) -> Floats:
    """Return the error function: Abramowitz and Stegun, 7.1.26."""
    z = np.abs(v)
    t = f32(1) / (f32(1) + f32(0.3275911) * z)
    p = f32(1.061405429) * t - f32(1.453152027)
    p = p * t + f32(1.421413741)
    p = p * t - f32(0.284496736)
    p = (p * t + f32(0.254829592)) * t
    magnitude = f32(1) - p * exp(-(z * z))
    return np.where(v < 0, -magnitude, magnitude)


def quantized(x: Floats, limit: int) -> tuple[npt.NDArray[np.float64], Floats]:
    """Return the last axis as integers from -limit to limit, held as float64, and the float32 scale of each row."""
    largest = np.fmax.reduce(np.abs(x), axis=-1, initial=f32(0))
    small = largest < f32(2.0**-100)
    safe = np.where(small, f32(1), largest)
    scaled = x * (f32(limit) / safe)[..., None]
    integers = np.clip(np.rint(np.where(np.isnan(scaled), f32(0), scaled)), f32(-limit), f32(limit))
    return (
        np.where(small[..., None], f32(0), integers).astype(np.float64),
        np.where(small, f32(0), safe / f32(limit)),
    )


def silu(x: Floats) -> Floats:
    return x / (f32(1) + exp(-x))


def gelu_tanh(x: Floats) -> Floats:
    u = f32(0.7978845608) * (x + f32(0.044715) * ((x * x) * x))
    return (f32(0.5) * x) * (f32(1) + tanh(u))


def gelu(x: Floats) -> Floats:
    return (f32(0.5) * x) * (f32(1) + erf(x * f32(0.7071067812)))


def relu(x: Floats) -> Floats:
    return np.maximum(x, f32(0))


FUNCTIONS: dict[Activation, Callable[[Floats], Floats]] = {
    Activation.SILU: silu,
    Activation.GELU_TANH: gelu_tanh,
    Activation.GELU: gelu,
    Activation.RELU: relu,
}


def normed(x: Floats, norm: Norm, epsilon: float, centred: bool) -> Floats:
    """Return the norm of each row: LayerNorm if ``centred``, else RMSNorm."""
    count = f32(x.shape[-1])
    if centred:
        x = x - (summed(x) / count)[..., None]
    inverse = f32(1) / np.sqrt(summed(x * x) / count + f32(epsilon))
    y = (x * inverse[..., None]) * norm.scale
    if not centred:
        return y
    return y + (np.zeros_like(norm.scale) if norm.bias is None else norm.bias)


def linear(x: Floats, matrix: Matrix) -> Floats:
    """Return the linear layer of each row."""
    q, scale = quantized(x, 127)
    sums = (q @ matrix.values.T.astype(np.float64)).astype(f32)
    bias = np.zeros(matrix.rows, f32) if matrix.bias is None else matrix.bias
    return (sums * scale[..., None]) * matrix.scales + bias


def rotated(x: Floats, rotary: Rotary, positions: npt.NDArray[np.int64]) -> Floats:
    """Return heads [token, head, D] with rotary embedding of the tokens' positions."""
    pairs = rotary.rotated // 2
    cos, sin = (part[:, None] for part in np.split(rotary.table[positions], 2, axis=1))
    first, second = slice(0, pairs), slice(pairs, 2 * pairs)
    if rotary.interleaved:
        first, second = slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2)
    a, b = x[..., first], x[..., second]
    y = x.copy()
    y[..., first] = a * cos - b * sin
    y[..., second] = b * cos + a * sin
    return y


@dataclass(frozen=True, slots=True, eq=False)
class Cache:
    """The keys and values of a layer, [G, T, D] integers in float64, and their float32 scales [G, T]."""

    keys: npt.NDArray[np.float64]
    values: npt.NDArray[np.float64]
    key_scales: Floats
    value_scales: Floats

    @classmethod
    def of(cls, decoder: Decoder, positions: int) -> Cache:
        """Return an empty cache."""
        shape = decoder.groups, positions, decoder.head_size
        return cls(np.zeros(shape), np.zeros(shape), np.zeros(shape[:2], f32), np.zeros(shape[:2], f32))

    def content(self) -> bytes:
        """Return the bytes of the state that holds this cache in a program."""
        integers = self.keys.astype(np.int8).tobytes() + self.values.astype(np.int8).tobytes()
        return integers + self.key_scales.tobytes() + self.value_scales.tobytes()


def _store(cache: Cache, keys: Floats, values: Floats, positions: npt.NDArray[np.int64]) -> None:
    """Store heads of keys and values [position, G, D] at positions of a cache."""
    for x, stored, scales in ((keys, cache.keys, cache.key_scales), (values, cache.values, cache.value_scales)):
        integers, found = quantized(x, 127)
        stored[:, positions] = integers.swapaxes(0, 1)
        scales[:, positions] = found.T


class Reference:
    """A decoder with its own cache. ``steps`` has the result of each step of the last run, by the name of its call in a program."""

    def __init__(self, decoder: Decoder) -> None:
        decoder.verify()
        self.decoder = decoder
        self.caches = [Cache.of(decoder, decoder.context) for _ in decoder.layers]
        self.sources = [Cache.of(decoder, decoder.source_positions) for layer in decoder.layers if layer.cross]
        self.steps: dict[str, Floats] = {}

    def states(self) -> list[Cache]:
        """Return the caches in the order of a program's states: those of each layer's attention and cross attention."""
        pairs = zip_longest(self.caches, self.sources)
        return [cache for pair in pairs for cache in pair if cache is not None]

    def read(self, source: Floats) -> None:
        """Compute the keys and values of cross attention from the rows of a source."""
        d = self.decoder
        for cache, layer in zip(self.sources, d.layers, strict=True):
            assert layer.cross is not None
            keys, values = np.split(linear(source, layer.cross.source).reshape(len(source), -1, d.head_size), 2, axis=1)
            _store(cache, keys, values, np.arange(len(source)))

    def run(self, tokens: npt.ArrayLike, position: int) -> Floats:
        """Return the logits, float32 [vocabulary], of the last of these tokens, the first of which is at ``position``."""
        d = self.decoder
        ids = np.asarray(tokens, np.int64)
        positions = position + np.arange(len(ids))
        self.steps = {}
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            x = self._keep("embedding", self._embedded(ids, positions))
            for number, layer in enumerate(d.layers):
                x = self._layer(number, layer, x, positions)
            x = self._keep("final_norm", normed(x, d.final_norm, d.epsilon, d.centred))
            logits = linear(x[-1:], d.head)
            if d.logit_cap:
                logits = f32(d.logit_cap) * tanh(logits / f32(d.logit_cap))
        return self._keep("logits", logits)[0]

    def _keep(self, name: str, x: Floats) -> Floats:
        assert x.dtype == f32, name
        self.steps[name] = x
        return x

    def _embedded(self, ids: npt.NDArray[np.int64], positions: npt.NDArray[np.int64]) -> Floats:
        matrix = self.decoder.embedding
        x = matrix.values[ids].astype(f32) * matrix.scales[ids, None] * f32(self.decoder.embedding_multiplier)
        learned = self.decoder.positions
        return x if learned is None else x + learned[positions]

    def _layer(self, number: int, layer: Layer, x: Floats, positions: npt.NDArray[np.int64]) -> Floats:
        d, name = self.decoder, f"layers.{number}"
        first = self._keep(f"{name}.attention_norm", normed(x, layer.attention_norm, d.epsilon, d.centred))
        qkv = self._keep(f"{name}.qkv", linear(first, layer.qkv))
        attended = self._keep(f"{name}.attention", self._attention(layer, self.caches[number], qkv, positions))
        after = self._block(
            f"{name}.output", f"{name}.after_attention", attended, layer.output, layer.after_attention, x
        )
        if layer.cross is not None:
            after = self._cross(name, layer.cross, self.sources[number], after)
        source = first
        if layer.mlp_norm is not None:
            read = x if layer.is_parallel else after
            source = self._keep(f"{name}.mlp_norm", normed(read, layer.mlp_norm, d.epsilon, d.centred))
        up = self._keep(f"{name}.mlp.up", linear(source, layer.up))
        function = FUNCTIONS[d.activation]
        if d.is_gated:
            gate, up = np.split(up, 2, axis=1)
            inner = function(gate) * up
        else:
            inner = function(up)
        inner = self._keep(f"{name}.mlp.activation", inner)
        return self._block(f"{name}.mlp.down", f"{name}.after_mlp", inner, layer.down, layer.after_mlp, after)

    def _block(
        self, linear_name: str, norm_name: str, x: Floats, matrix: Matrix, norm: Norm | None, residual: Floats
    ) -> Floats:
        """Return the residual plus the linear layer at the end of a block, or plus the norm behind it."""
        y = linear(x, matrix)
        if norm is None:
            return self._keep(linear_name, residual + y)
        self._keep(linear_name, y)
        return self._keep(norm_name, residual + normed(y, norm, self.decoder.epsilon, self.decoder.centred))

    def _attention(self, layer: Layer, cache: Cache, qkv: Floats, positions: npt.NDArray[np.int64]) -> Floats:
        d = self.decoder
        heads = qkv.reshape(len(qkv), -1, d.head_size)
        queries, keys, values = np.split(heads, [d.heads, d.heads + d.groups], axis=1)
        if layer.query_norm is not None and layer.key_norm is not None:
            queries = normed(queries, Norm(layer.query_norm), d.epsilon, False)
            keys = normed(keys, Norm(layer.key_norm), d.epsilon, False)
        if layer.rotary is not None:
            queries, keys = (rotated(x, layer.rotary, positions) for x in (queries, keys))
        _store(cache, keys, values, positions)
        firsts = np.maximum(0, positions - layer.window + 1) if layer.window else np.zeros_like(positions)
        seen = [slice(first, own + 1) for first, own in zip(firsts.tolist(), positions.tolist(), strict=True)]
        return np.stack([self._attended(cache, *row) for row in zip(queries, seen, strict=True)])

    def _cross(self, name: str, cross: Cross, cache: Cache, x: Floats) -> Floats:
        """Return the residual plus the attention to all positions of a source."""
        d = self.decoder
        first = self._keep(f"{name}.cross_norm", normed(x, cross.norm, d.epsilon, d.centred))
        queries = self._keep(f"{name}.cross_query", linear(first, cross.query)).reshape(len(x), d.heads, d.head_size)
        rows = np.stack([self._attended(cache, each, slice(0, d.source_positions)) for each in queries])
        attended = self._keep(f"{name}.cross_attention", rows)
        return self._keep(f"{name}.cross_output", x + linear(attended, cross.output))

    def _attended(self, cache: Cache, queries: Floats, seen: slice) -> Floats:
        """Return the attention [H D] of the queries' heads [H, D] to the positions ``seen``."""
        d = self.decoder
        group = np.arange(d.heads) * d.groups // d.heads
        q, scale = quantized(queries, 32767)
        c = scale * f32(d.score_scale)
        sums = (cache.keys[group, seen] @ q[:, :, None])[..., 0].astype(f32)
        scores = (sums * cache.key_scales[group, seen]) * c[:, None]
        if d.score_cap:
            scores = f32(d.score_cap) * tanh(scores / f32(d.score_cap))
        e = exp(scores - scores.max(axis=1, keepdims=True))
        weights = e * cache.value_scales[group, seen]
        values = cache.values[group, seen].astype(f32)
        y = np.zeros((d.heads, d.head_size), f32)
        for j in range(e.shape[1]):
            y = y + weights[:, j, None] * values[:, j]
        return (y / summed(e)[:, None]).reshape(-1)
