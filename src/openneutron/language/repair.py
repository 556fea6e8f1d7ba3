# SPDX-License-Identifier: BSD-3-Clause
"""Give 8 bits to those layers of a decoder whose int4 weights cost the most accuracy for each byte."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from openneutron.language.decoder import Decoder, Matrix, Place, Repair
from openneutron.language.floats import logits

RANKING_TOKENS = 256
"""The most tokens with which matrices are ranked. Each matrix takes one computation of them."""

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """A text's tokens, and the logits [token, vocabulary] that the float model has for it."""

    tokens: Sequence[int]
    wanted: Array = field(repr=False)


def repaired(decoder: Decoder, eight: Mapping[Place, Matrix], texts: Sequence[Judged], most: float) -> Decoder:
    """Return the decoder, and its ``repair``, with matrices of ``eight`` where they are needed for a mean KL divergence of at most ``most`` nats a token.

    Matrices are taken in the order of what each alone gains for a byte, and the fewest that reach ``most`` on ``texts`` are kept.
    Where all together do not reach it, all are kept.
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
    """Return the mean KL divergence in nats a token of the decoder's next tokens from those of the float model."""
    total = sum(float(divergences(text.wanted, logits(decoder, text.tokens)).sum()) for text in texts)
    return total / sum(len(text.tokens) for text in texts)


def divergences(wanted: Array, found: Array) -> npt.NDArray[np.float64]:
    """Return the KL divergence in nats of each row of logits [token, vocabulary]."""
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
    """Return the first texts with at most so many tokens together, and the first tokens of the next one."""
    found: list[Judged] = []
    for text in texts:
        left = most - sum(len(each.tokens) for each in found)
        if left > 0:
            found.append(Judged(text.tokens[:left], text.wanted[:left]))
    return found
