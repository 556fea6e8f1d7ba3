# SPDX-License-Identifier: BSD-3-Clause
"""Read causal language models of transformers as quantized decoders."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from openneutron.errors import InvalidModelError, InvalidOptionError
from openneutron.language.decoder import Cross, Decoder, Floats, Layer, Matrix, Norm, Place, Rotary
from openneutron.language.quantization import (
    BITS,
    Doubles,
    GroupedWeights,
    check_weights,
    grouped_matrix,
    input_scales,
    powers,
    quantize,
)
from openneutron.language.repair import Judged, repaired
from openneutron.pytorch.language.calibration import check_texts, judged, opened, read_texts, second_moments
from openneutron.pytorch.language.families import Config, CrossNames, Family, activation_of, family_of, rotaries
from openneutron.pytorch.language.tensors import (
    Folder,
    RandomTensors,
    Shape,
    StateDict,
    Tensors,
    Weights,
    missing_package,
)

JUDGED = 4
"""One of so many texts of a calibration judges a repair, and the others round weights."""

MOST_NAMES = 4
"""The most tensor names that a message lists."""


@dataclass(frozen=True, slots=True)
class Form:
    """The form of quantized weights: bits and group of the layers, and the bits of the embedding and the head."""

    bits: int
    group: int
    head_bits: int

    def __post_init__(self) -> None:
        for name in ("bits", "head_bits"):
            if getattr(self, name) not in BITS:
                raise InvalidOptionError(f"{name}: {getattr(self, name)}; weights have 4 or 8 bits.")


def decoder_of(
    model: torch.nn.Module | str | Path | Mapping[str, torch.Tensor] | None,
    *,
    context: int,
    config: Any = None,
    bits: int = 8,
    group: int = 32,
    head_bits: int = 8,
    calibration: Sequence[Sequence[int]] | None = None,
    gptq: bool = True,
    awq: bool = True,
    repair: float | None = None,
    seed: int = 0,
    name: str | None = None,
) -> Decoder:
    """Return a causal language model as a decoder with weights of 8 bits by row, or of 4 bits in groups.

    ``model`` is a module of transformers, a folder with config.json and safetensors files, a ``.gguf`` file, a state
    dict with its ``config``, or None for random weights of a ``config``, which depend on ``seed``. ``config`` is a
    configuration of transformers, or a dict with ``model_type``. The cache has ``context`` positions. ``head_bits``
    is for the embedding and the head.

    ``calibration`` has texts, as lists of tokens. It is for a module or a folder. With it, ``awq`` scales the input
    channels of layers, and divides the norm or the gated layer that computes the input by the same scales. ``gptq``
    then rounds the layers as GPTQ does.

    ``repair`` is the largest allowed KL divergence from the float model, in nats per token. Until it is reached,
    layers of 4 bits get 8 bits, those that cost the most first. Every fourth text is used only to measure the
    divergence.

    Raises InvalidModelError for an unknown family, missing or extra tensors and wrong shapes, and InvalidOptionError
    for options that do not fit the model, before weights are quantized. Raises MissingToolError where transformers,
    safetensors or gguf is not installed.
    """
    form = Form(bits, group, head_bits)
    if repair is not None:
        _check_repair(repair, bits, calibration)
    if isinstance(model, (str, Path)) and Path(model).suffix == ".gguf":
        from openneutron.pytorch.language.gguf import gguf_decoder

        if calibration is not None:
            opened(model)

        return gguf_decoder(Path(model), context=context, form=form, name=name)
    with ExitStack() as stack:
        found, tensors, ends = _opened(model, config, seed, stack)
        plan = Plan(found, family_of(found), context, form, tensors)
        if calibration is not None:
            plan.check()
            plan.gptq, plan.awq = gptq, awq
        texts = plan.calibrate(model, calibration, is_judged=repair is not None) if calibration is not None else []
        result = replace(plan.decoder(name or found.model_type), end_tokens=ends)
    return result if repair is None else repaired(result, plan.eight or {}, texts, repair)


def _check_repair(repair: float, bits: int, calibration: Sequence[Sequence[int]] | None) -> None:
    if bits != 4:
        raise InvalidOptionError(f"repair: layers of {bits} bits; it gives 8 bits to some of the layers of bits=4.")
    if not repair > 0:
        raise InvalidOptionError(f"repair: {repair} nats a token; the most KL divergence is above 0, such as 0.03.")
    if calibration is None or len(calibration) < JUDGED:
        raise InvalidOptionError(
            f"repair: {len(calibration or ())} texts of calibration; it judges every fourth one, so that at least {JUDGED} are needed."
        )


def config_of(config: Any) -> Config:
    """Return a configuration of transformers: ``config`` itself, or the one that transformers makes of a dict with
    ``model_type``. Raises InvalidModelError for a dict of which it makes none."""
    if not isinstance(config, Mapping):
        return config
    try:
        from transformers import AutoConfig
    except ImportError as error:
        raise missing_package("A language model", error) from None
    values = dict(config)
    kind = values.pop("model_type", None)
    try:
        return AutoConfig.for_model(kind, **values)
    except Exception as error:
        text = str(error).splitlines()[0]
        raise InvalidModelError(f"config: transformers makes no configuration from it: {text}") from None


def config_in(folder: Path, kind: str) -> dict[str, Any]:
    """Return the values in the config.json of a folder. ``kind`` says in messages what the folder has, such as "a
    language model". Raises InvalidModelError where there is no such folder or file, and where the file is no JSON
    object."""
    if not folder.is_dir():
        raise InvalidModelError(
            f"{folder}: there is no such folder. Nothing is downloaded: give the folder that has the model's config.json, safetensors files "
            "and tokenizer.json."
        )
    path = folder / "config.json"
    if not path.is_file():
        raise InvalidModelError(f"{folder}: it has no config.json; a folder of {kind} has one.")
    return _json(path)


def _opened(model: Any, config: Any, seed: int, stack: ExitStack) -> tuple[Config, Tensors, tuple[int, ...]]:
    """Return the configuration of a model, its tensors, and the tokens that end a text."""
    if isinstance(model, torch.nn.Module):
        if getattr(model, "config", None) is None:
            raise InvalidModelError(
                f"model: a module {type(model).__name__} without a config; a causal language model of transformers has one. A state dict "
                "can be given with a config."
            )
        return (
            model.config,
            StateDict(model.state_dict()),
            _ends(model.config, getattr(model, "generation_config", None)),
        )
    if isinstance(model, (str, Path)):
        folder = Path(model)
        found = config_of(config_in(folder, "a language model"))
        generation = folder / "generation_config.json"
        ends = _ends(found, _json(generation) if generation.is_file() else None)
        return found, Folder.opened(folder, stack), ends
    if config is None:
        raise InvalidOptionError(
            "config: it is missing; a state dict, or random weights, need a configuration of transformers."
        )
    found = config_of(config)
    if model is not None:
        return found, StateDict(model), _ends(found, None)
    deviation = float(getattr(found, "initializer_range", 0.02))
    return found, RandomTensors(seed, deviation, family_of(found).from_one), _ends(found, None)


def _json(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text())
    except ValueError as error:
        raise InvalidModelError(f"{path}: it is no JSON: {error}.") from None
    if not isinstance(values, dict):
        raise InvalidModelError(f"{path}: it is no JSON object.")
    return values


def _ends(config: Config, generation: Any) -> tuple[int, ...]:
    key = "eos_token_id"
    found = generation.get(key) if isinstance(generation, dict) else getattr(generation, key, None)
    if found is None:
        found = getattr(config, "eos_token_id", None)
    return () if found is None else tuple(found) if isinstance(found, (list, tuple)) else (int(found),)


@dataclass(frozen=True, slots=True)
class Part:
    """A tensor of a model, with the shape that the configuration gives it. ``is_linear``: the weights of a linear layer."""

    name: str
    shape: Shape
    is_linear: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Linear:
    """A linear layer before quantization: the weights of its modules, whose rows follow each other, and the second moments of its input."""

    modules: tuple[str, ...]
    parts: tuple[Weights, ...] = field(repr=False)
    bias: Floats | None = field(repr=False)
    moments: Doubles | None = field(repr=False)

    @property
    def weights(self) -> Floats:
        floats = [each.floats if isinstance(each, GroupedWeights) else each for each in self.parts]
        return floats[0] if len(floats) == 1 else np.concatenate(floats)

    def with_columns(self, scales: Floats) -> Linear:
        """Return this layer for inputs that are divided by scales."""
        moments = None if self.moments is None else self.moments / np.outer(scales, scales)
        return replace(self, parts=(self.weights * scales,), moments=moments)

    def with_rows(self, scales: Floats) -> Linear:
        """Return this layer with its outputs times scales."""
        bias = None if self.bias is None else self.bias * scales
        return replace(self, parts=(self.weights * scales[:, None],), bias=bias)


@dataclass(slots=True)
class Plan:
    """A decoder in the making: the parts that its configuration names, and the tensors that are read for them."""

    config: Config
    family: Family
    context: int
    form: Form
    tensors: Tensors
    interleaved: bool = False
    divisors: Floats | None = None
    """Numbers that divide the rotary frequencies, where a file has them."""
    moments: Mapping[str, Doubles] | None = None
    """The second moments of the inputs of linear modules; None: no calibration."""
    gptq: bool = False
    awq: bool = False
    eight: dict[Place, Matrix] | None = None
    """With a repair, the matrices of layers in 8 bits."""
    noise: dict[str, tuple[float, float]] = field(init=False, default_factory=dict)
    """The signal and the noise, as sums of squares, of weights that were quantized already in another form, by that form."""
    prefix_missing: bool = field(init=False, default=False)

    @property
    def width(self) -> int:
        return int(self.config.hidden_size)

    @property
    def heads(self) -> int:
        return int(self.config.num_attention_heads)

    @property
    def groups(self) -> int:
        return int(getattr(self.config, "num_key_value_heads", None) or self.heads)

    @property
    def head_size(self) -> int:
        return int(getattr(self.config, "head_dim", None) or self.width // self.heads)

    @property
    def hidden(self) -> int:
        found = getattr(self.config, "intermediate_size", None) or getattr(self.config, "n_inner", None)
        return int(found or 4 * self.width)

    @property
    def tied(self) -> bool:
        return bool(self.config.tie_word_embeddings)

    def decoder(self, name: str) -> Decoder:
        """Check the model and read it."""
        config, family = self.config, self.family
        self.check()
        angles: list[Rotary | None] = [None] * config.num_hidden_layers
        if family.has_rotary:
            angles = [
                replace(each, interleaved=self.interleaved) for each in rotaries(config, self.context, self.divisors)
            ]
            shared = {id(each.table): each for each in angles if each is not None}
            angles = [each and shared[id(each.table)] for each in angles]
        embedding = self._matrix((family.embedding,), (self.config.vocab_size,), self.width, self.form.head_bits)
        result = Decoder(
            name=name,
            layers=tuple(self._layer(number, rotary) for number, rotary in enumerate(angles)),
            embedding=embedding,
            head=embedding if self.tied else self._head(),
            final_norm=self._norm(family.final_norm),
            heads=self.heads,
            groups=self.groups,
            head_size=self.head_size,
            context=self.context,
            activation=activation_of(config),
            epsilon=float(_first(config, "rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon")),
            score_scale=self._score_scale(),
            is_gated=family.is_gated,
            centred=family.centred,
            embedding_multiplier=float(self.width**0.5) if family.scaled_embedding else 1.0,
            positions=self._positions(),
            score_cap=float(getattr(config, "attn_logit_softcapping", None) or 0),
            logit_cap=float(getattr(config, "final_logit_softcapping", None) or 0),
            begin_token=getattr(config, "bos_token_id", None),
            source_positions=0 if family.cross is None else int(config.max_source_positions),
        )
        result.verify()
        return result

    def calibrate(self, model: Any, texts: Sequence[Sequence[int]], *, is_judged: bool) -> list[Judged]:
        """Collect the second moments of texts, and return those that judge a repair, with the module's logits."""
        module = opened(model)
        check_texts(texts, module.config.max_position_embeddings, module.config.vocab_size)
        found: list[Judged] = []
        if is_judged:
            self.eight = {}
            found = judged(module, [text[: self.context] for text in texts[JUDGED - 1 :: JUDGED]])
            texts = [text for number, text in enumerate(texts) if number % JUDGED != JUDGED - 1]
        self.moments = second_moments(module, read_texts(texts))
        return found

    def check(self) -> None:
        """Raise an error for what can be known before weights are read."""
        config = self.config
        if not isinstance(self.context, int) or not 1 <= self.context <= config.max_position_embeddings:
            raise InvalidOptionError(
                f"context: {self.context} positions; this model has 1 to {config.max_position_embeddings}."
            )
        for attribute, reason in REFUSED.items():
            if getattr(config, attribute, None):
                raise InvalidModelError(f"model: its configuration has {attribute}; {reason}.")
        activation_of(config)
        parts = list(self._parts())
        for part in parts:
            if part.is_linear:
                is_head = part.name in (f"{self.family.embedding}.weight", f"{self.family.head}.weight")
                columns = part.shape[0] if self._is_transposed(part.name) else part.shape[1]
                bits = self.form.head_bits if is_head else self.form.bits
                check_weights(part.name.removesuffix(".weight"), columns, bits, self.form.group)
        self._check_tensors(parts)

    def _check_tensors(self, parts: list[Part]) -> None:
        shapes = self.tensors.shapes()
        if shapes is None:
            return
        self.prefix_missing = not any(name.startswith(self.family.prefix) for name in shapes)
        wanted = {self._stored(part.name): part.shape for part in parts}
        missing = [name for name in wanted if name not in shapes]
        unread = (*self.family.unread, *((f"{self.family.head}.weight",) if self.tied else ()))
        extra = [name for name in shapes if name not in wanted and not name.endswith(unread)]
        if missing:
            also = f" It has {_listed(extra)}, which the model does not read." if extra else ""
            raise InvalidModelError(
                f"model: {_listed(missing)} {'is' if len(missing) == 1 else 'are'} missing; its configuration ('{self.config.model_type}', "
                f"{self.config.num_hidden_layers} layers) asks for {'it' if len(missing) == 1 else 'them'}.{also}"
            )
        if extra:
            raise InvalidModelError(
                f"model: a '{self.config.model_type}' of {self.config.num_hidden_layers} layers does not read {_listed(extra)}. Give the "
                "configuration that belongs to these weights."
            )
        for name, shape in wanted.items():
            if tuple(shapes[name]) != shape:
                raise InvalidModelError(
                    f"model: {name} has the shape {list(shapes[name])}; its configuration makes it {list(shape)}. Give the configuration "
                    "that belongs to these weights."
                )

    def _parts(self) -> Iterator[Part]:
        """Yield the name and shape of each parameter (weight or bias) that the model has by its configuration."""
        family, config = self.family, self.config
        yield Part(f"{family.embedding}.weight", (config.vocab_size, self.width), is_linear=True)
        if family.positions:
            yield Part(f"{family.positions}.weight", (config.max_position_embeddings, self.width))
        for number in range(config.num_hidden_layers):
            at = family.layer.format(number)
            for module, rows, columns in self._linear():
                weights = (columns, rows) if family.transposed else (rows, columns)
                yield Part(f"{at}{module}.weight", weights, is_linear=True)
                if family.has_bias(module, config):
                    yield Part(f"{at}{module}.bias", (rows,))
            cross = () if family.cross is None else (family.cross.norm,)
            for norm in (family.attention_norm, family.mlp_norm, family.after_attention, family.after_mlp, *cross):
                if norm:
                    yield from self._norm_parts(at + norm, self.width)
            for norm in (family.query_norm, family.key_norm):
                if norm:
                    yield Part(f"{at}{norm}.weight", (self.head_size,))
        yield from self._norm_parts(family.final_norm, self.width)
        if not self.tied:
            yield Part(f"{family.head}.weight", (config.vocab_size, self.width), is_linear=True)
            if family.has_bias(family.head, config):
                yield Part(f"{family.head}.bias", (config.vocab_size,))

    def _linear(self) -> Iterator[tuple[str, int, int]]:
        """Yield the linear modules of a layer, each with its rows and columns."""
        family, inner = self.family, self.heads * self.head_size
        yield from zip(family.qkv, self._qkv_rows(), [self.width] * 3, strict=False)
        yield family.output, self.width, inner
        yield from zip(family.up, self._up_rows(), [self.width] * 2, strict=False)
        yield family.down, self.width, self.hidden
        if family.cross is not None:
            keys = self.groups * self.head_size
            yield family.cross.query, inner, self.width
            yield from ((name, keys, self.width) for name in family.cross.source)
            yield family.cross.output, self.width, inner

    def _qkv_rows(self) -> tuple[int, ...]:
        keys = self.groups * self.head_size
        rows = self.heads * self.head_size, keys, keys
        return rows if len(self.family.qkv) == 3 else (sum(rows),)

    def _up_rows(self) -> tuple[int, ...]:
        count = 1 + self.family.is_gated
        return (self.hidden,) * count if len(self.family.up) == count else (self.hidden * count,)

    def _norm_parts(self, name: str, size: int) -> Iterator[Part]:
        yield Part(f"{name}.weight", (size,))
        if self.family.centred:
            yield Part(f"{name}.bias", (size,))

    def _is_transposed(self, name: str) -> bool:
        return self.family.transposed and not name.startswith((self.family.embedding, self.family.head))

    def _stored(self, name: str) -> str:
        return name.removeprefix(self.family.prefix) if self.prefix_missing else name

    def _read(self, name: str, shape: Shape) -> Weights:
        return self.tensors.read(self._stored(name), shape)

    def _floats(self, name: str, shape: Shape) -> Floats:
        found = self._read(name, shape)
        return found.floats if isinstance(found, GroupedWeights) else found

    def _matrix(self, modules: tuple[str, ...], rows: tuple[int, ...], columns: int, bits: int) -> Matrix:
        return self._quantized(self._linear_layer(modules, rows, columns), bits)

    def _linear_layer(self, modules: tuple[str, ...], rows: tuple[int, ...], columns: int) -> Linear:
        """Read the rows of all modules as one linear layer."""
        parts: list[Weights] = []
        biases = []
        for module, count in zip(modules, rows, strict=True):
            name = f"{module}.weight"
            transposed = self._is_transposed(name)
            found = self._read(name, (columns, count) if transposed else (count, columns))
            parts.append(np.ascontiguousarray(found.T) if transposed and isinstance(found, np.ndarray) else found)
            if self.family.has_bias(self._in_layer(module), self.config):
                biases.append(self._floats(f"{module}.bias", (count,)))
            else:
                biases.append(np.zeros(count, np.float32))
        moments = None if self.moments is None else self.moments.get(self._stored(modules[0]))
        has_bias = any(self.family.has_bias(self._in_layer(module), self.config) for module in modules)
        return Linear(modules, tuple(parts), np.concatenate(biases) if has_bias else None, moments)

    def _quantized(self, linear: Linear, bits: int) -> Matrix:
        grouped = [each for each in linear.parts if isinstance(each, GroupedWeights) and each.group == self.form.group]
        if bits == 4 and len(grouped) == len(linear.parts):
            return grouped_matrix(GroupedWeights.joined(grouped), linear.bias)
        whole, modules = linear.weights, linear.modules
        result = quantize(
            whole,
            bits=bits,
            group=self.form.group,
            bias=linear.bias,
            hessian=linear.moments if self.gptq else None,
            name=" and ".join(modules),
        )
        kinds = sorted({self.tensors.kind(self._stored(f"{module}.weight")) for module in modules} - {""})
        if kinds:
            signal, noise = self.noise.get(" and ".join(kinds), (0.0, 0.0))
            more, added = powers(whole, result)
            self.noise[" and ".join(kinds)] = signal + more, noise + added
        return result

    def _scaled(self, norm: Norm, *layers: Linear) -> tuple[Norm, list[Linear]]:
        """Return the norm and the layers that read it, scaled as in AWQ. The input channels of the layers are
        multiplied by the scales that minimize the quantization error, and the norm is divided by them. Nothing
        changes without ``awq``, without calibration, or if no scales lower the error."""
        moments = layers[0].moments
        if not self.awq or moments is None:
            return norm, list(layers)
        weights = np.concatenate([each.weights for each in layers])
        scales, _ = input_scales(weights, moments, bits=self.form.bits, group=self.form.group)
        bias = None if norm.bias is None else norm.bias / scales
        return Norm(norm.scale / scales, bias), [each.with_columns(scales) for each in layers]

    def _scaled_after(self, up: Linear, down: Linear) -> tuple[Linear, Linear]:
        """Return both layers, scaled as in AWQ. The input channels of ``down`` are multiplied by the scales that
        minimize the quantization error. The rows of ``up`` behind the gate's rows are divided by the same scales.
        Nothing changes without ``awq``, calibration or a gate, or if no scales lower the error."""
        if not self.awq or down.moments is None or not self.family.is_gated:
            return up, down
        scales, _ = input_scales(down.weights, down.moments, bits=self.form.bits, group=self.form.group)
        rows = np.concatenate([np.ones_like(scales), 1 / scales])
        return up.with_rows(rows), down.with_columns(scales)

    def _in_layer(self, module: str) -> str:
        """Return a module's name without that of its layer; the whole name for a module outside of the layers."""
        first, _, _ = self.family.layer.partition("{}")
        return module.removeprefix(first).partition(".")[2] if module.startswith(first) else module

    def _norm(self, name: str) -> Norm:
        scale = self._floats(f"{name}.weight", (self.width,))
        bias = self._floats(f"{name}.bias", (self.width,)) if self.family.centred else None
        return Norm(self._from_zero(scale), bias)

    def _norm_or_none(self, at: str, name: str) -> Norm | None:
        return self._norm(at + name) if name else None

    def _head_norm(self, at: str, name: str) -> Floats | None:
        return self._from_zero(self._floats(f"{at}{name}.weight", (self.head_size,))) if name else None

    def _from_zero(self, scale: Floats) -> Floats:
        return scale + np.float32(1) if self.family.from_one else scale

    def _layer(self, number: int, rotary: Rotary | None) -> Layer:
        family, at, bits = self.family, self.family.layer.format(number), self.form.bits
        attention_norm, mlp_norm = self._norm(at + family.attention_norm), self._norm_or_none(at, family.mlp_norm)
        qkv = self._linear_layer(tuple(at + name for name in family.qkv), self._qkv_rows(), self.width)
        up = self._linear_layer(tuple(at + name for name in family.up), self._up_rows(), self.width)
        down = self._linear_layer((at + family.down,), (self.width,), self.hidden)
        up, down = self._scaled_after(up, down)
        if mlp_norm is None:
            attention_norm, (qkv, up) = self._scaled(attention_norm, qkv, up)
        else:
            attention_norm, (qkv,) = self._scaled(attention_norm, qkv)
            mlp_norm, (up,) = self._scaled(mlp_norm, up)
        output = self._linear_layer((at + family.output,), (self.width,), self.heads * self.head_size)
        matrices = {"qkv": qkv, "output": output, "up": up, "down": down}
        if self.eight is not None:
            self.eight |= {(number, name): self._quantized(each, 8) for name, each in matrices.items()}
        return Layer(
            attention_norm=attention_norm,
            **{name: self._quantized(each, bits) for name, each in matrices.items()},
            mlp_norm=mlp_norm,
            rotary=rotary,
            window=self._window(number),
            is_parallel=not family.mlp_norm,
            after_attention=self._norm_or_none(at, family.after_attention),
            after_mlp=self._norm_or_none(at, family.after_mlp),
            query_norm=self._head_norm(at, family.query_norm),
            key_norm=self._head_norm(at, family.key_norm),
            cross=None if family.cross is None else self._cross(at, family.cross),
        )

    def _cross(self, at: str, names: CrossNames) -> Cross:
        bits, inner, keys = self.form.bits, self.heads * self.head_size, self.groups * self.head_size
        query = self._linear_layer((at + names.query,), (inner,), self.width)
        norm, (query,) = self._scaled(self._norm(at + names.norm), query)
        return Cross(
            norm,
            self._quantized(query, bits),
            self._matrix(tuple(at + name for name in names.source), (keys, keys), self.width, bits),
            self._matrix((at + names.output,), (self.width,), inner, bits),
        )

    def _head(self) -> Matrix:
        return self._matrix((self.family.head,), (self.config.vocab_size,), self.width, self.form.head_bits)

    def _positions(self) -> Floats | None:
        if not self.family.positions:
            return None
        shape = self.config.max_position_embeddings, self.width
        return self._floats(f"{self.family.positions}.weight", shape)[: self.context].copy()

    def _window(self, number: int) -> int:
        """Return the window of a layer, or 0 if it sees every position of the context."""
        size = getattr(self.config, self.family.window, None) if self.family.window else None
        types = getattr(self.config, "layer_types", None)
        if not size or (types and types[number] != "sliding_attention"):
            return 0
        return 0 if size >= self.context else int(size)

    def _score_scale(self) -> float:
        if not getattr(self.config, "scale_attn_weights", True):
            return 1.0
        return float((getattr(self.config, "query_pre_attn_scalar", None) or self.head_size) ** -0.5)


REFUSED = {
    "use_bidirectional_attention": "a decoder's tokens see only those before them",
    "qk_layernorm": "heads are normalized by RMSNorm alone",
    "scale_attn_by_inverse_layer_idx": "the scale of scores is the same in all layers",
    "add_cross_attention": "a decoder reads no encoder",
}
"""The attributes of configurations that no decoder represents, each with the reason."""


def _first(config: Config, *names: str) -> Any:
    return next(value for name in names if (value := getattr(config, name, None)) is not None)


def _listed(names: list[str]) -> str:
    more = len(names) - MOST_NAMES
    return ", ".join(names[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
