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
    """Quantized weights of a linear layer, or of an embedding: int8 ``values`` [N, K] with a float32 scale for each row.

    ``int4`` has the 4-bit weights in groups that the NPU decodes to ``values``; None: the weights have 8 bits. ``bias`` is float32 [N]; None: 0.
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
        """Return the columns that share a decode scale; 0 for weights of 8 bits."""
        return 0 if self.int4 is None else self.int4.group

    def __str__(self) -> str:
        kind = "int8" if self.int4 is None else f"int4 in groups of {self.group}"
        return f"[{self.rows}, {self.columns}] {kind}" + ("" if self.bias is None else " with bias")


@dataclass(frozen=True, slots=True, eq=False)
class Norm:
    """The coefficients of RMSNorm, or with a ``bias`` of LayerNorm: float32 [C]. A model whose coefficients are offsets from 1 has 1 added here."""

    scale: Floats = field(repr=False)
    bias: Floats | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class Rotary:
    """The angles of rotary embeddings. ``table`` is float32 [positions, rotated]: the cosines of rotated / 2 angles, then their sines.

    ``interleaved``: neighbouring values are pairs; otherwise value i and value i + rotated / 2.
    """

    table: Floats = field(repr=False)
    interleaved: bool = False

    @property
    def rotated(self) -> int:
        return int(self.table.shape[1])


def rotary_angles(frequencies: npt.ArrayLike, positions: int, factor: float = 1.0) -> Floats:
    """Return the table of ``Rotary``: the cosines and sines of position * frequency, times ``factor``, computed in float64."""
    angles = np.outer(np.arange(positions), np.asarray(frequencies, np.float64))
    return (np.concatenate([np.cos(angles), np.sin(angles)], axis=1) * factor).astype(np.float32)


class Activation(Enum):
    """The functions of the feed-forward block; the value is the parameter ``kind`` of activation_f32."""

    SILU = 0
    GELU_TANH = 1
    GELU = 2
    RELU = 3


@dataclass(frozen=True, slots=True, eq=False)
class Cross:
    """The cross attention of a layer, between its attention and its feed-forward block.

    ``query`` [H D, C] reads the result of ``norm``; ``source`` [2 G D, width of the source] has the rows of keys, then those of values;
    ``output`` is [C, H D].
    """

    norm: Norm
    query: Matrix
    source: Matrix
    output: Matrix


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """A decoder layer of width C.

    ``attention_norm`` comes before ``qkv`` [(H + 2 G) D, C], the queries, keys and values; ``output`` is [C, H D]. ``up`` is [F, C], or
    [2 F, C] with the gate first, and ``down`` [C, F]. ``query_norm`` and ``key_norm`` are scales of D values for heads that are normalized.
    A model whose blocks end with a norm has ``after_attention`` and ``after_mlp``. Without ``mlp_norm`` both blocks read the result of
    ``attention_norm``; the feed-forward block then does not read the attention's result (parallel blocks). With ``is_parallel`` and an
    ``mlp_norm``, it reads the layer's input through that norm. ``window`` is the number of positions that a token sees; 0: all.
    ``rotary`` is None for a layer without rotary embedding. ``cross`` is None for a layer without cross attention; with it, blocks follow
    each other, and none ends with a norm.
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
"""The number of a layer and the name of its matrix: ``qkv``, ``output``, ``up`` or ``down``."""


@dataclass(frozen=True, slots=True)
class Repair:
    """The result of a repair, which gives 8 bits to the matrices whose 4 bits cost the most.

    ``places`` are these matrices. ``before`` and ``after`` are the mean KL divergences of the next token from the float model's, in nats a
    token, without and with their 8 bits; ``most`` is the bound that was asked for.
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
    """A decoder-only language model, or with cross attention in its layers the decoder behind an encoder.

    * ``embedding`` [vocabulary, C] and ``head`` [vocabulary, C]; the same object if they are tied. ``embedding_multiplier`` multiplies
      each embedded value; ``positions`` is float32 [context, C] of learned positions, or None.
    * ``heads`` of queries, ``groups`` heads of keys and of values, ``head_size`` values in each head.
    * ``context``: the positions of the cache; ``source_positions``: those of the encoder's result, 0 without an encoder.
    * ``centred``: norms are LayerNorm instead of RMSNorm.
    * ``is_gated``: ``up`` of each layer has the gate's rows first.
    * ``score_scale``, ``score_cap`` (0: none) and ``logit_cap`` (0: none).
    * ``end_tokens``: the tokens that end a text; ``begin_token``: the token that begins one, or None.
    * ``repair``: what a repair of int4 weights did, or None.
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
        """Return the values of a row of the encoder's result; 0 without an encoder."""
        return next((layer.cross.source.columns for layer in self.layers if layer.cross is not None), 0)

    @property
    def width(self) -> int:
        return self.embedding.columns

    @property
    def vocabulary(self) -> int:
        return self.embedding.rows

    @property
    def cache_bytes(self) -> int:
        """Return the bytes of the keys and values of all layers."""
        crosses = sum(layer.cross is not None for layer in self.layers)
        positions = len(self.layers) * self.context + crosses * self.source_positions
        return positions * self.bytes_of_position

    @property
    def bytes_of_position(self) -> int:
        """Return the bytes of the keys and values of a position in a layer, with their scales."""
        return 2 * self.groups * (self.head_size + 4)

    def verify(self) -> None:
        """Raise InvalidModelError if the parts of the model do not fit together."""
        for name, fact in (
            *self._mistakes(),
            *(each for i, layer in enumerate(self.layers) for each in self._of(i, layer)),
        ):
            raise InvalidModelError(f"'{self.name}', {name}: {fact}.")

    def _mistakes(self) -> Iterator[tuple[str, str]]:
        """Yield the parts outside the layers that do not fit, each with the fact."""
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
        """Yield the parts of a layer that do not fit, each with the fact."""
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
        """Yield the matrices of a layer's cross attention, each with the rows and columns that it has to have."""
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
