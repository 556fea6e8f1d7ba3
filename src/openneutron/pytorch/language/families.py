# SPDX-License-Identifier: BSD-3-Clause
"""The families of causal language models: the names of their tensors and what sets each apart.

The names and facts are those of the modules of transformers, ``models/<model type>/modeling_<model type>.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from openneutron.errors import InvalidModelError
from openneutron.language.decoder import Activation, Floats, Rotary, rotary_angles

Config = Any
"""A configuration of transformers, an instance of a subclass of PreTrainedConfig."""


@dataclass(frozen=True, slots=True)
class CrossNames:
    """Names of the modules of cross attention, after that of their layer. ``source`` has the keys, then the values."""

    norm: str
    query: str
    source: tuple[str, str]
    output: str


@dataclass(frozen=True, slots=True)
class Family:
    """The names of the modules of a family of language models, and other facts about it.

    A module of a layer has the name ``layer``, with the layer's number in it, and then the name here. ``qkv`` has one
    or three modules. ``up`` has two modules (gate and up) or one. If a family with one module ``is_gated``, the rows
    of this module begin with the gate's. ``query_norm``, ``key_norm``, ``after_attention`` and ``after_mlp`` are
    empty where the family has no such norm. ``mlp_norm`` is empty where attention and MLP read the same norm.

    ``biases`` has pairs of a module and True, or of a module and the attribute of the configuration that tells
    whether it has a bias. ``prefix`` begins the names of the base model's modules. Files that have only the base
    model leave it out.
    """

    prefix: str = "model."
    embedding: str = "model.embed_tokens"
    positions: str = ""
    layer: str = "model.layers.{}."
    final_norm: str = "model.norm"
    head: str = "lm_head"
    attention_norm: str = "input_layernorm"
    qkv: tuple[str, ...] = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
    output: str = "self_attn.o_proj"
    mlp_norm: str = "post_attention_layernorm"
    up: tuple[str, ...] = ("mlp.gate_proj", "mlp.up_proj")
    down: str = "mlp.down_proj"
    query_norm: str = ""
    key_norm: str = ""
    after_attention: str = ""
    after_mlp: str = ""
    cross: CrossNames | None = None
    biases: tuple[tuple[str, bool | str], ...] = ()
    is_gated: bool = True
    centred: bool = False
    from_one: bool = False
    """The coefficients of norms are offsets from 1."""
    transposed: bool = False
    """Weights of linear layers are [K, N] (Conv1D)."""
    scaled_embedding: bool = False
    """Embedded values are multiplied by the square root of the width."""
    has_rotary: bool = True
    window: str = "sliding_window"
    """The configuration's attribute for the window of layers; empty: no layer has a window."""
    unread: tuple[str, ...] = ("rotary_emb.inv_freq",)
    """Ends of the names of tensors that older files have and that no computation reads."""

    def has_bias(self, module: str, config: Config) -> bool:
        fact = dict(self.biases).get(module, False)
        return bool(getattr(config, fact, False)) if isinstance(fact, str) else fact


def _biases(attention: bool | str, mlp: bool | str) -> tuple[tuple[str, bool | str], ...]:
    return (
        *((name, attention) for name in (*_LLAMA.qkv, _LLAMA.output)),
        *((name, mlp) for name in (*_LLAMA.up, _LLAMA.down)),
    )


_LLAMA = Family(window="")
_GEMMA = replace(_LLAMA, from_one=True, scaled_embedding=True, biases=_biases("attention_bias", False))
_GEMMA_2 = replace(
    _GEMMA,
    window="sliding_window",
    mlp_norm="pre_feedforward_layernorm",
    after_attention="post_attention_layernorm",
    after_mlp="post_feedforward_layernorm",
)

FAMILIES: dict[str, Family] = {
    "llama": replace(_LLAMA, biases=_biases("attention_bias", "mlp_bias")),
    "mistral": Family(),
    "qwen2": Family(biases=tuple((name, True) for name in _LLAMA.qkv)),
    "qwen3": Family(
        biases=_biases("attention_bias", False), query_norm="self_attn.q_norm", key_norm="self_attn.k_norm"
    ),
    "gemma": _GEMMA,
    "gemma2": _GEMMA_2,
    "gemma3_text": replace(_GEMMA_2, query_norm="self_attn.q_norm", key_norm="self_attn.k_norm"),
    "phi": Family(
        final_norm="model.final_layernorm",
        output="self_attn.dense",
        mlp_norm="",
        up=("mlp.fc1",),
        down="mlp.fc2",
        biases=tuple((name, True) for name in (*_LLAMA.qkv, "self_attn.dense", "mlp.fc1", "mlp.fc2", "lm_head")),
        is_gated=False,
        centred=True,
        window="",
    ),
    "phi3": Family(qkv=("self_attn.qkv_proj",), up=("mlp.gate_up_proj",)),
    "gpt2": Family(
        prefix="transformer.",
        embedding="transformer.wte",
        positions="transformer.wpe",
        layer="transformer.h.{}.",
        final_norm="transformer.ln_f",
        attention_norm="ln_1",
        qkv=("attn.c_attn",),
        output="attn.c_proj",
        mlp_norm="ln_2",
        up=("mlp.c_fc",),
        down="mlp.c_proj",
        biases=tuple((name, True) for name in ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj")),
        is_gated=False,
        centred=True,
        transposed=True,
        has_rotary=False,
        window="",
        unread=(".attn.bias", ".attn.masked_bias"),
    ),
}
"""The families by the model type of their configurations. SmolLM has the model type llama."""

ACTIVATIONS = {
    "silu": Activation.SILU,
    "swish": Activation.SILU,
    "gelu_new": Activation.GELU_TANH,
    "gelu_pytorch_tanh": Activation.GELU_TANH,
    "gelu": Activation.GELU,
    "relu": Activation.RELU,
}
"""The activations by their names in configurations (transformers, activations.py)."""


def family_of(config: Config) -> Family:
    """Return the family of a configuration. Raises InvalidModelError for an unknown one."""
    family = FAMILIES.get(config.model_type)
    if family is None:
        raise InvalidModelError(
            f"model: its model type is '{config.model_type}'; known are {', '.join(FAMILIES)}. A model of another type that computes the same "
            "can be given as a state dict with a configuration of a known type."
        )
    return family


def activation_of(config: Config) -> Activation:
    """Return the activation of a configuration's feed-forward block. Raises InvalidModelError for an unknown one."""
    name = next(
        value
        for each in ("hidden_activation", "activation_function", "hidden_act")
        if (value := getattr(config, each, None)) is not None
    )
    if name not in ACTIVATIONS:
        raise InvalidModelError(f"model: its activation is '{name}'; known are {', '.join(ACTIVATIONS)}.")
    return ACTIVATIONS[name]


FIXED = ("default", "linear", "llama3", "yarn")
"""The types of rotary embedding whose frequencies do not depend on the length of a text."""


def rotaries(config: Config, context: int, divisors: Floats | None = None) -> list[Rotary]:
    """Return the rotary embedding of each layer; layers of one type share one object.

    ``divisors`` divide the frequencies of an embedding without scaling. Raises InvalidModelError for a type of
    scaling whose angles depend on the length of a text.
    """

    @cache
    def of(layer_type: str | None) -> Rotary:
        parameters = config.rope_parameters if layer_type is None else config.rope_parameters[layer_type]
        return Rotary(_table(config, parameters, layer_type, context, divisors))

    by_type = any(isinstance(value, dict) for value in config.rope_parameters.values())
    types = config.layer_types if by_type else [None] * config.num_hidden_layers
    return [of(each) for each in types]


def _table(
    config: Config, parameters: dict[str, Any], layer_type: str | None, context: int, divisors: Floats | None
) -> Floats:
    kind = parameters.get("rope_type", "default")
    if kind not in FIXED:
        raise InvalidModelError(
            f"model: its rotary embedding has the scaling '{kind}', whose angles change with the length of a text; the angles of a program "
            f"are a table. Known are {', '.join(FIXED)}."
        )
    if kind != "default":
        from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

        frequencies, factor = ROPE_INIT_FUNCTIONS[kind](config, "cpu", layer_type=layer_type)
        return rotary_angles(frequencies.numpy(), context, factor)
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    rotated = int(size * parameters.get("partial_rotary_factor", 1.0))
    exponents = np.arange(0, rotated, 2, dtype=np.float32) / np.float32(rotated)
    frequencies = 1 / np.float32(parameters["rope_theta"]) ** exponents
    return rotary_angles(frequencies if divisors is None else frequencies / divisors, context)
