# SPDX-License-Identifier: BSD-3-Clause
"""Represent a decoder-only language model with quantized weights, whatever family or file it comes from.

docs/explanation/language-models.md states the arithmetic of each part.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

import numpy as np
import numpy.typing as npt

from openneutron.device.neutron_jobs import Int4Weights
from openneutron.errors import InvalidModelError

Floats = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.int8]

MOST_INPUTS = 131_072
"""The most columns of a matrix. Sums of so many products of 8-bit integers are below 2^31."""

MOST_HEAD_SIZE = 512
"""The most values of a head. Sums of so many products of 16-bit and 8-bit integers are below 2^31."""


@dataclass(frozen=True, slots=True, eq=False)
class Matrix:
    """Quantized weights of a linear layer or of an embedding: int8 ``values`` [N, K], and a float32 scale for each row.

    ``int4`` has 4-bit weights in groups along a row; the NPU decodes them to ``values``. It is None if the weights have 8 bits. ``bias`` is
    float32 [N]; None stands for 0.
    """

    values: Bytes = field(repr=False)
    scales: Floats = field(repr=False)
    int4: Int4Weights | None = field(default=None, repr=False)
    bias: Floats | None = field(default=None, repr=False)

    @property
    def rows(self) -> int:
        return int(self.values.shape[0])

    @property
    def columns(self) -> int:
        return int(self.values.shape[1])

    @property
    def bits(self) -> int:
        return 8 if self.int4 is None else 4

    @property
    def group(self) -> int:
        """Return the number of columns in a group of int4 weights, which share a decode scale; 0 for weights of 8 bits."""
        return 0 if self.int4 is None else self.int4.group

    def __str__(self) -> str:
        kind = "int8" if self.int4 is None else f"int4 in groups of {self.group}"
        return f"[{self.rows}, {self.columns}] {kind}" + ("" if self.bias is None else " with bias")


@dataclass(frozen=True, slots=True, eq=False)
class Norm:
    """The float32 coefficients [C] of RMSNorm; with a ``bias``, those of LayerNorm.

    Some models store coefficients as offsets from 1. Here 1 is added to them.
    """

    scale: Floats = field(repr=False)
    bias: Floats | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class Rotary:
    """The table of a rotary position embedding: float32 [positions, rotated].

    A row has the cosines of ``rotated`` / 2 angles and then their sines. If ``interleaved``, values 2 i and 2 i + 1 form a pair; otherwise
    values i and i + ``rotated`` / 2 do.
    """

    table: Floats = field(repr=False)
    interleaved: bool = False

    @property
    def rotated(self) -> int:
        return int(self.table.shape[1])


def rotary_angles(frequencies: npt.ArrayLike, positions: int, factor: float = 1.0) -> Floats:
    """Return the table of ``Rotary``: cosines and sines of position * frequency, each multiplied by ``factor``. Computed in float64."""
    angles = np.outer(np.arange(positions), np.asarray(frequencies, np.float64))
    return (np.concatenate([np.cos(angles), np.sin(angles)], axis=1) * factor).astype(np.float32)


class Activation(Enum):
    """The activation functions of a feed-forward block. The value is the parameter ``kind`` of the kernel activation_f32."""

    SILU = 0
    GELU_TANH = 1
    GELU = 2
    RELU = 3


@dataclass(frozen=True, slots=True, eq=False)
class Cross:
    """The cross attention of a layer. It is computed after self attention and before the feed-forward block.

    ``query`` [H D, C] multiplies the result of ``norm``. ``source`` [2 G D, width of the source] multiplies the encoder's result: its first G D
    rows give the keys, the others the values. ``output`` is [C, H D]. H is the number of query heads, G that of key heads, and D the size of a
    head.
    """

    norm: Norm
    query: Matrix
    source: Matrix
    output: Matrix


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """A decoder layer of width C, with H query heads, G key heads of size D, and F hidden values.

    * ``attention_norm`` normalizes the input of ``qkv`` [(H + 2 G) D, C], whose rows give queries, keys and values. ``output`` is [C, H D].
    * ``up`` is [F, C], or [2 F, C] with the gate's rows first. ``down`` is [C, F].
    * ``query_norm`` and ``key_norm``: D coefficients of a norm over each head, or None.
    * ``after_attention`` and ``after_mlp``: norms at the end of a block, in models that have them.
    * ``mlp_norm`` normalizes the input of the feed-forward block. If it is None, the feed-forward block reads the result of ``attention_norm``,
      and not the result of attention (parallel blocks).
    * ``is_parallel``: the feed-forward block reads the layer's input through ``mlp_norm``, and not the result of attention.
    * ``window``: the number of positions that a token attends to; 0 stands for all.
    * ``rotary``: None for a layer without rotary embedding.
    * ``cross``: None for a layer without cross attention. A layer with cross attention has no parallel blocks, and no ``after_attention``.
    """

    attention_norm: Norm
    qkv: Matrix
    output: Matrix
    up: Matrix
    down: Matrix
    mlp_norm: Norm | None = None
    query_norm: Floats | None = None
    key_norm: Floats | None = None
    after_attention: Norm | None = None
    after_mlp: Norm | None = None
    rotary: Rotary | None = None
    window: int = 0
    is_parallel: bool = False
    cross: Cross | None = None


Place = tuple[int, str]
"""A matrix of a decoder: the index of its layer, and its name ``qkv``, ``output``, ``up`` or ``down``."""


@dataclass(frozen=True, slots=True)
class Repair:
    """The result of a repair, which replaces 4-bit matrices by 8-bit ones until a bound on the divergence holds or
    all are replaced. The first to be replaced are those that save most divergence for each additional byte.

    ``places`` are the replaced matrices. ``before`` and ``after`` are the mean KL divergences of the next token from
    the float model's, in nats per token, without and with the replacement. ``most`` is the requested bound.
    """

    places: tuple[Place, ...]
    before: float
    after: float
    most: float

    def __str__(self) -> str:
        if not self.places:
            return f"KL divergence {self.before:.3g} nats a token, at most {self.most:g} asked for: all layers keep their bits."
        names = ", ".join(f"layer {number} {name}" for number, name in sorted(self.places))
        reached = (
            "" if self.after <= self.most else f" More than the {self.most:g} asked for: int8 weights do not reach it."
        )
        return f"KL divergence {self.before:.3g} nats a token, {self.after:.3g} with 8 bits for {names}.{reached}"


@dataclass(frozen=True, slots=True, eq=False)
class Decoder:
    """A decoder-only language model; or, if its layers have cross attention, the decoder of an encoder-decoder model.

    * ``embedding`` and ``head``, both [vocabulary, C]. They are the same object if the weights are tied. Embedded values are multiplied by
      ``embedding_multiplier``. ``positions`` is float32 [context, C] of learned positions, or None.
    * ``heads``: the number of query heads; ``groups``: of key heads and of value heads; ``head_size``: the values of a head.
    * ``context``: the number of positions in the cache; ``source_positions``: of the encoder's result, 0 without an encoder.
    * ``centred``: norms are LayerNorm instead of RMSNorm.
    * ``is_gated``: the first half of the rows of each layer's ``up`` is the gate.
    * ``score_scale`` multiplies attention scores. ``score_cap`` and ``logit_cap`` bound scores and logits softly; 0 stands for no bound.
    * ``end_tokens``: the tokens that end a text; ``begin_token``: the token that begins a text, or None.
    * ``repair``: the result of a repair of int4 weights, or None.
    """

    name: str
    layers: tuple[Layer, ...] = field(repr=False)
    embedding: Matrix
    head: Matrix
    final_norm: Norm = field(repr=False)
    heads: int
    groups: int
    head_size: int
    context: int
    activation: Activation
    epsilon: float
    score_scale: float
    is_gated: bool = True
    centred: bool = False
    embedding_multiplier: float = 1.0
    positions: Floats | None = field(default=None, repr=False)
    score_cap: float = 0.0
    logit_cap: float = 0.0
    begin_token: int | None = None
    end_tokens: tuple[int, ...] = ()
    repair: Repair | None = None
    source_positions: int = 0

    @property
    def source_width(self) -> int:
        """Return the number of values in a row of the encoder's result; 0 without an encoder."""
        return next((layer.cross.source.columns for layer in self.layers if layer.cross is not None), 0)

    @property
    def width(self) -> int:
        return self.embedding.columns

    @property
    def vocabulary(self) -> int:
        return self.embedding.rows

    @property
    def cache_bytes(self) -> int:
        """Return the size of the keys and values of all layers, in bytes."""
        crosses = sum(layer.cross is not None for layer in self.layers)
        positions = len(self.layers) * self.context + crosses * self.source_positions
        return positions * self.bytes_of_position

    @property
    def bytes_of_position(self) -> int:
        """Return the size of the keys, the values and their scales of one position in one layer, in bytes."""
        return 2 * self.groups * (self.head_size + 4)

    def verify(self) -> None:
        """Raise InvalidModelError if the parts of the model do not fit together."""
        for name, fact in (
            *self._mistakes(),
            *(each for i, layer in enumerate(self.layers) for each in self._of(i, layer)),
        ):
            raise InvalidModelError(f"'{self.name}', {name}: {fact}.")

    def _mistakes(self) -> Iterator[tuple[str, str]]:
        """Yield the name of each part outside the layers whose shape does not fit the model, with the reason."""
        if self.groups < 1 or self.heads % self.groups:
            yield "attention", f"{self.heads} heads of queries can't share {self.groups} heads of keys"
        if not 1 <= self.head_size <= MOST_HEAD_SIZE:
            yield "attention", f"a head has {self.head_size} values; 1 to {MOST_HEAD_SIZE} are possible"
        if self.context < 1:
            yield "context", f"{self.context} positions; at least 1 is needed"
        yield from _shape("head", (self.head.rows, self.head.columns), (self.vocabulary, self.width))
        yield from _norm("final norm", self.final_norm, self.width)
        if (self.source_positions > 0) != any(layer.cross is not None for layer in self.layers):
            yield (
                "source",
                f"it has {self.source_positions} positions; a model with cross attention has some, and another one 0",
            )
        if self.positions is not None:
            yield from _shape("positions", self.positions.shape, (self.context, self.width))

    def _of(self, number: int, layer: Layer) -> Iterator[tuple[str, str]]:
        """Yield the name of each part of a layer whose shape does not fit the model, with the reason."""
        inner, hidden, size = self.heads * self.head_size, layer.down.columns, self.head_size
        for name, matrix, rows, columns in (
            ("qkv", layer.qkv, inner + 2 * self.groups * size, self.width),
            ("output", layer.output, self.width, inner),
            ("up", layer.up, hidden * (1 + self.is_gated), self.width),
            ("down", layer.down, self.width, hidden),
            *self._of_cross(layer),
        ):
            yield from _shape(f"layer {number}, {name}", (matrix.rows, matrix.columns), (rows, columns))
            if columns > MOST_INPUTS:
                yield f"layer {number}, {name}", f"it has {columns} columns; at most {MOST_INPUTS} are possible"
        if layer.cross is not None:
            yield from _norm(f"layer {number}, cross norm", layer.cross.norm, self.width)
            if layer.is_parallel or layer.mlp_norm is None or layer.after_attention is not None:
                yield (
                    f"layer {number}",
                    "it has cross attention, and its blocks do not follow each other without a norm behind them",
                )
        for name in ("attention_norm", "mlp_norm", "after_attention", "after_mlp"):
            yield from _norm(f"layer {number}, {name}", getattr(layer, name), self.width)
        if (layer.query_norm is None) != (layer.key_norm is None):
            yield f"layer {number}", "it normalizes the heads of queries or of keys alone; both or none are possible"
        for name in ("query_norm", "key_norm"):
            array = getattr(layer, name)
            if array is not None:
                yield from _shape(f"layer {number}, {name}", array.shape, (size,))
        if layer.rotary is not None:
            rotated, rows = layer.rotary.rotated, len(layer.rotary.table)
            if rows < self.context or rotated % 2 or rotated > size:
                fact = f"its table is [{rows}, {rotated}] for {self.context} positions and heads of {size}"
                yield f"layer {number}, rotary", fact

    def _of_cross(self, layer: Layer) -> Iterator[tuple[str, Matrix, int, int]]:
        """Yield the matrices of a layer's cross attention: name, matrix, and the rows and columns that it must have."""
        inner, cross = self.heads * self.head_size, layer.cross
        if cross is not None:
            yield "cross query", cross.query, inner, self.width
            yield "cross source", cross.source, 2 * self.groups * self.head_size, self.source_width
            yield "cross output", cross.output, self.width, inner


def _shape(name: str, shape: tuple[int, ...], wanted: tuple[int, ...]) -> Iterator[tuple[str, str]]:
    if shape != wanted:
        yield name, f"its shape is {list(shape)}; the model makes it {list(wanted)}"


def _norm(name: str, norm: Norm | None, width: int) -> Iterator[tuple[str, str]]:
    for array in () if norm is None else (norm.scale, norm.bias):
        if array is not None:
            yield from _shape(name, array.shape, (width,))
