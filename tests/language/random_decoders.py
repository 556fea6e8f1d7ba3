# SPDX-License-Identifier: BSD-3-Clause
"""Draw small random decoders of every form, each from its seed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from openneutron.device import neutron_jobs as jobs
from openneutron.language.decoder import Activation, Cross, Decoder, Floats, Layer, Matrix, Norm, Rotary, rotary_angles

WIDTHS = (16, 24, 32, 40, 48, 64, 72, 96)
HIDDEN = (16, 32, 56, 64, 96, 128)
WIDE = (1040, 1056, 2304, 5184, 5760)
"""Hidden sizes whose matrices are divided along K, for a job or for its decode scales."""

FIRST_WIDE = 10_000
"""The first seed from which about half of the layers have a hidden size of ``WIDE``."""

FIRST_CROSS = 20_000
"""The first seed from which all layers have cross attention."""

HEAD_SIZES = (8, 12, 16, 20, 24, 32)
HEADS = ((1, 1), (2, 2), (2, 1), (4, 2), (4, 1), (3, 3), (6, 2), (3, 1), (4, 4))
"""The heads of queries, and of keys and values: one each, multi-head, grouped-query and multi-query."""


def scaled(random: np.random.Generator, *shape: int, spread: float = 1.0) -> Floats:
    """Return normal values of this standard deviation."""
    return (random.standard_normal(shape) * spread).astype(np.float32)


def int8_matrix(weights: Floats, bias: Floats | None = None) -> Matrix:
    """Return weights [N, K] with 8 bits and a scale for each row."""
    scales = np.maximum(np.abs(weights).max(axis=1) / np.float32(127), np.float32(1e-6))
    return Matrix(np.rint(weights / scales[:, None]).astype(np.int8), scales, None, bias)


def int4_matrix(weights: Floats, group: int, bias: Floats | None = None) -> Matrix:
    """Return weights [N, K] with 4 bits and a scale for each group along K, which is negative for groups whose largest value is."""
    n, k = weights.shape
    groups = weights.reshape(n, k // group, group)
    largest = np.take_along_axis(groups, np.abs(groups).argmax(axis=2)[..., None], axis=2)[..., 0]
    scales = (largest / np.float32(-8)).astype(np.float32)
    codes = np.clip(np.rint(groups / np.where(scales == 0, np.float32(1), scales)[..., None]), -8, 7)
    stored = (codes.reshape(n, k) + 8).astype(np.uint8)
    int4, channels = jobs.int4_weights(stored[:, 0::2] | stored[:, 1::2] << 4, scales, group)
    return Matrix(int4.values, channels, int4, bias)


@dataclass(frozen=True, slots=True)
class Drawing:
    """The random numbers of a decoder, and the form that its layers share."""

    random: np.random.Generator
    width: int
    heads: int
    groups: int
    size: int
    context: int
    bits: int
    centred: bool
    is_gated: bool
    has_bias: bool
    is_parallel: bool
    has_own_norm: bool
    has_head_norms: bool
    has_after_norms: bool
    rotary: Rotary | None
    hidden: tuple[int, ...] = HIDDEN

    def chance(self, share: float) -> bool:
        return bool(self.random.random() < share)

    def matrix(self, rows: int, columns: int) -> Matrix:
        """Return a linear layer that keeps the spread of its input: int4 where the model has it and whole groups divide K."""
        weights = scaled(self.random, rows, columns, spread=columns**-0.5)
        bias = scaled(self.random, rows, spread=0.2) if self.has_bias else None
        fitting = [group for group in jobs.GROUPS if columns % group == 0]
        if self.bits == 4 and fitting:
            return int4_matrix(weights, int(self.random.choice(fitting)), bias)
        return int8_matrix(weights, bias)

    def norm(self, channels: int) -> Norm:
        bias = scaled(self.random, channels, spread=0.2) if self.centred and self.chance(0.8) else None
        return Norm(1 + scaled(self.random, channels, spread=0.2), bias)

    def layer(self) -> Layer:
        hidden, inner = int(self.random.choice(self.hidden)), self.heads * self.size
        return Layer(
            attention_norm=self.norm(self.width),
            qkv=self.matrix(inner + 2 * self.groups * self.size, self.width),
            output=self.matrix(self.width, inner),
            up=self.matrix(hidden * (1 + self.is_gated), self.width),
            down=self.matrix(self.width, hidden),
            mlp_norm=self.norm(self.width) if self.has_own_norm else None,
            query_norm=self.norm(self.size).scale if self.has_head_norms else None,
            key_norm=self.norm(self.size).scale if self.has_head_norms else None,
            after_attention=self.norm(self.width) if self.has_after_norms else None,
            after_mlp=self.norm(self.width) if self.has_after_norms else None,
            rotary=None if self.chance(0.1) else self.rotary,
            window=int(self.random.integers(1, self.context + 2)) if self.chance(0.3) else 0,
            is_parallel=self.is_parallel,
        )


def rotary_of(random: np.random.Generator, size: int, context: int) -> Rotary | None:
    """Return a rotary embedding of all or some values of a head; None for a fifth of the seeds."""
    if random.random() < 0.2:
        return None
    rotated = size if random.random() < 0.6 else 2 * int(random.integers(1, size // 2 + 1))
    frequencies = 10000.0 ** (-np.arange(0, rotated, 2) / rotated)
    rows = context + int(random.integers(0, 5))
    return Rotary(rotary_angles(frequencies, rows, float(random.choice((1.0, 1.2)))), bool(random.random() < 0.4))


def llama_drawing(
    random: np.random.Generator, width: int, heads: int, groups: int, size: int, context: int, bits: int, **more: Any
) -> Drawing:
    """Return the drawing of layers in the form of Llama; ``more`` are further fields of ``Drawing``."""
    return Drawing(
        random=random,
        width=width,
        heads=heads,
        groups=groups,
        size=size,
        context=context,
        bits=bits,
        centred=False,
        is_gated=True,
        has_bias=False,
        is_parallel=False,
        has_own_norm=True,
        has_head_norms=False,
        has_after_norms=False,
        rotary=Rotary(rotary_angles(10000.0 ** (-np.arange(0, size, 2) / size), context)),
        **more,
    )


def random_decoder(seed: int) -> Decoder:
    """Return the decoder of a seed, with a context of 8 to 64 tokens and a vocabulary of 17 to 300."""
    random = np.random.default_rng((seed, 39))
    heads, groups = HEADS[random.integers(len(HEADS))]
    width, size, context = int(random.choice(WIDTHS)), int(random.choice(HEAD_SIZES)), int(random.integers(8, 65))
    centred, is_gated, has_bias, has_head_norms, has_after_norms = (
        random.random(5) < (0.4, 0.6, 0.4, 0.3, 0.25)
    ).tolist()
    block = random.choice(("sequential", "parallel", "shared norm"), p=(0.6, 0.2, 0.2))
    if seed >= FIRST_CROSS:
        block, has_after_norms = "sequential", False
    rotary = rotary_of(random, size, context)
    drawing = Drawing(
        random=random,
        width=width,
        heads=heads,
        groups=groups,
        size=size,
        context=context,
        bits=int(random.choice((4, 8))),
        centred=centred,
        is_gated=is_gated,
        has_bias=has_bias,
        is_parallel=bool(block == "parallel"),
        has_own_norm=bool(block != "shared norm"),
        has_head_norms=has_head_norms,
        has_after_norms=has_after_norms,
        rotary=rotary,
        hidden=(*HIDDEN, *(WIDE if FIRST_WIDE <= seed < FIRST_CROSS else ())),
    )
    found = _of(seed, drawing)
    return with_cross(found, drawing) if seed >= FIRST_CROSS else found


def with_cross(decoder: Decoder, drawing: Drawing) -> Decoder:
    """Return the decoder behind an encoder, whose result has 1 to 40 positions and any of the widths."""
    inner, width = drawing.heads * drawing.size, int(drawing.random.choice(WIDTHS))

    def cross() -> Cross:
        norm, query = drawing.norm(drawing.width), drawing.matrix(inner, drawing.width)
        source = drawing.matrix(2 * drawing.groups * drawing.size, width)
        return Cross(norm, query, source, drawing.matrix(drawing.width, inner))

    layers = tuple(replace(layer, cross=cross()) for layer in decoder.layers)
    return replace(decoder, layers=layers, source_positions=int(drawing.random.integers(1, 41)))


def _of(seed: int, drawing: Drawing) -> Decoder:
    """Return the decoder of this form."""
    random, vocabulary = drawing.random, int(drawing.random.integers(17, 301))
    embedding = int8_matrix(scaled(random, vocabulary, drawing.width))
    is_tied = drawing.chance(0.5)
    learned = drawing.rotary is None or drawing.chance(0.1)
    return Decoder(
        name=f"random {seed}",
        layers=tuple(drawing.layer() for _ in range(int(random.integers(1, 4)))),
        embedding=embedding,
        head=embedding if is_tied else drawing.matrix(vocabulary, drawing.width),
        final_norm=drawing.norm(drawing.width),
        heads=drawing.heads,
        groups=drawing.groups,
        head_size=drawing.size,
        context=drawing.context,
        activation=list(Activation)[random.integers(4)],
        epsilon=float(random.choice((1e-5, 1e-6))),
        score_scale=float(random.choice((drawing.size**-0.5, 0.1))),
        is_gated=drawing.is_gated,
        centred=drawing.centred,
        embedding_multiplier=float(drawing.width**0.5) if drawing.chance(0.3) else 1.0,
        positions=scaled(random, drawing.context, drawing.width, spread=0.5) if learned else None,
        score_cap=float(random.choice((5.0, 50.0))) if drawing.chance(0.2) else 0.0,
        logit_cap=30.0 if drawing.chance(0.2) else 0.0,
    )
