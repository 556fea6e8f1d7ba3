# SPDX-License-Identifier: BSD-3-Clause
"""Whisper models of transformers: the decoder with quantized weights, and the module of the encoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from openneutron.errors import InvalidModelError, InvalidOptionError
from openneutron.language.decoder import Decoder, Floats
from openneutron.language.quantization import Doubles
from openneutron.pytorch.language.calibration import check_texts, second_moments
from openneutron.pytorch.language.decoder import Form, Plan, config_in, config_of
from openneutron.pytorch.language.families import CrossNames, Family
from openneutron.pytorch.language.tensors import StateDict, missing_package

EPSILON = 1e-5
"""That of torch.nn.LayerNorm, which Whisper's norms have."""

_NAMES = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")

FAMILY = Family(
    prefix="model.decoder.",
    embedding="model.decoder.embed_tokens",
    positions="model.decoder.embed_positions",
    layer="model.decoder.layers.{}.",
    final_norm="model.decoder.layer_norm",
    head="proj_out",
    attention_norm="self_attn_layer_norm",
    qkv=_NAMES,
    output="self_attn.out_proj",
    mlp_norm="final_layer_norm",
    up=("fc1",),
    down="fc2",
    cross=CrossNames(
        norm="encoder_attn_layer_norm",
        query="encoder_attn.q_proj",
        source=("encoder_attn.k_proj", "encoder_attn.v_proj"),
        output="encoder_attn.out_proj",
    ),
    biases=tuple(
        (name, True)
        for name in (
            *(_NAMES[0], _NAMES[2], "self_attn.out_proj", "fc1", "fc2"),
            *("encoder_attn.q_proj", "encoder_attn.v_proj", "encoder_attn.out_proj"),
        )
    ),
    is_gated=False,
    centred=True,
    has_rotary=False,
    window="",
)
"""The decoder of WhisperForConditionalGeneration (transformers, models/whisper/modeling_whisper.py)."""


class Encoder(torch.nn.Module):
    """The encoder of a Whisper model: from log-mel bands [1, bands, frames] to [1, frames / 2, width]."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.encoder = model.model.encoder

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Return the last hidden states."""
        found: torch.Tensor = self.encoder(features, return_dict=False)[0]
        return found


@dataclass(frozen=True, slots=True)
class Words:
    """The special tokens of a Whisper model's texts.

    prompt: the tokens in front of each text. ends: the tokens that end a text. suppressed: the tokens that are never
    chosen. suppressed_first: the tokens that are not chosen as the first token of a text.
    """

    prompt: tuple[int, ...]
    ends: tuple[int, ...]
    suppressed: tuple[int, ...]
    suppressed_first: tuple[int, ...]


def opened(model: Any, config: Any, seed: int) -> Any:
    """Return a Whisper module in evaluation mode, made of a module, a folder, or a configuration. Without a model,
    the module has the configuration ``config`` and random weights, which depend on ``seed``.

    Raises InvalidModelError for a model or a configuration of another kind, InvalidOptionError if both are missing,
    and MissingToolError without transformers.
    """
    try:
        from transformers import WhisperForConditionalGeneration
    except ImportError as error:
        raise missing_package("A Whisper model", error) from None
    if isinstance(model, (str, Path)):
        _check_kind(str(config_in(Path(model), "a Whisper model").get("model_type")))
        model = WhisperForConditionalGeneration.from_pretrained(
            str(model), dtype=torch.float32, local_files_only=True, attn_implementation="sdpa"
        )
    if model is None:
        if config is None:
            raise InvalidOptionError("config: it is missing; random weights need a configuration of transformers.")
        found = config_of(config)
        if found.model_type == "whisper":
            with torch.random.fork_rng():
                torch.manual_seed(seed)
                model = WhisperForConditionalGeneration(found)
    kind = getattr(getattr(model, "config", config), "model_type", type(model).__name__)
    _check_kind(kind, isinstance(model, WhisperForConditionalGeneration))
    made: torch.nn.Module = model
    return made.eval()


def _check_kind(kind: str, known: bool | None = None) -> None:
    if not (kind == "whisper" if known is None else known):
        raise InvalidModelError(f"model: its type is '{kind}'; known is 'whisper', a WhisperForConditionalGeneration.")


def batches(features: Sequence[Floats]) -> list[tuple[torch.Tensor]]:
    """Return log-mel bands as inputs of the encoder."""
    return [(torch.from_numpy(each)[None],) for each in features]


def moments_of(
    model: Any,
    features: Sequence[tuple[torch.Tensor]],
    words: Words,
    most: int,
    transcripts: Sequence[Sequence[int]] | None,
) -> dict[str, Doubles]:
    """Return the second moments (``second_moments``) of the inputs of the decoder's linear modules while the model
    reads sounds, float64 [K, K], by the module's name.

    The decoder reads a text for each sound: the tokens of ``words.prompt``, and then the sound's transcript. Without
    transcripts, the float model writes the text, with the most likely token at each position. A text has at most
    ``most`` tokens, including the prompt.
    """
    given = []
    with torch.no_grad():
        for number, (each,) in enumerate(features):
            hidden = model.get_encoder()(each)
            text = (
                _written(model, hidden, words, most) if transcripts is None else [*words.prompt, *transcripts[number]]
            )
            given.append({"encoder_outputs": hidden, "decoder_input_ids": torch.tensor([text[:most]])})
    return second_moments(model, given)


def _written(model: Any, hidden: Any, words: Words, most: int) -> list[int]:
    """Return the text that a module writes for an encoder's result ``hidden``, the prompt included. It ends with an
    end token, or at ``most`` tokens."""
    tokens, cache, new = list(words.prompt), None, list(words.prompt)
    while len(tokens) < most and tokens[-1] not in words.ends:
        found = model(
            encoder_outputs=hidden, decoder_input_ids=torch.tensor([new]), past_key_values=cache, use_cache=True
        )
        cache, new = found.past_key_values, [int(found.logits[0, -1].argmax())]
        tokens += new
    return tokens


def check_transcripts(transcripts: Sequence[Sequence[int]], sounds: int, most: int, vocabulary: int) -> None:
    """Raise InvalidOptionError for transcripts that do not belong to the sounds of a calibration, or that a model cannot read."""
    if len(transcripts) != sounds:
        raise InvalidOptionError(
            f"transcripts: {len(transcripts)} texts for {sounds} sounds of calibration; each sound has one."
        )
    check_texts(transcripts, most, vocabulary, "transcripts")


def decoder_of(
    model: Any,
    context: int,
    form: Form,
    name: str,
    *,
    moments: Mapping[str, Doubles] | None = None,
    gptq: bool = True,
    awq: bool = True,
) -> Decoder:
    """Return the decoder of a Whisper module. ``moments`` are those of ``moments_of``, which ``gptq`` and ``awq`` use; None: plain rounding.

    Raises InvalidModelError and InvalidOptionError as that of a causal language model.
    """
    config = model.config
    view = SimpleNamespace(
        model_type="whisper",
        hidden_size=config.d_model,
        num_hidden_layers=config.decoder_layers,
        num_attention_heads=config.decoder_attention_heads,
        intermediate_size=config.decoder_ffn_dim,
        max_position_embeddings=config.max_target_positions,
        max_source_positions=config.max_source_positions,
        vocab_size=config.vocab_size,
        tie_word_embeddings=config.tie_word_embeddings,
        activation_function=config.activation_function,
        layer_norm_eps=EPSILON,
        bos_token_id=config.decoder_start_token_id,
    )
    state = {key: value for key, value in model.state_dict().items() if not key.startswith("model.encoder.")}
    family = replace(FAMILY, scaled_embedding=config.scale_embedding)
    plan = Plan(view, family, context, form, StateDict(state), moments=moments, gptq=gptq, awq=awq)
    return replace(plan.decoder(name), end_tokens=words_of(model, None, "").ends)


def words_of(model: Any, language: str | None, task: str) -> Words:
    """Return the special tokens of a model's texts.

    language: a language such as ``en``, or None for a prompt without tokens of a language and a task. task:
    ``transcribe`` or ``translate``. A model for English alone has no such tokens, and ignores both.

    Raises InvalidOptionError for a language or a task that a model of several languages does not have.
    """
    config, generation = model.config, getattr(model, "generation_config", None)
    prompt = [config.decoder_start_token_id]
    languages, tasks = (getattr(generation, key, None) or {} for key in ("lang_to_id", "task_to_id"))
    if languages and language is not None:
        for option, value, known in (("language", f"<|{language}|>", languages), ("task", task, tasks)):
            if value not in known:
                some = ", ".join(each.strip("<|>") for each in sorted(known))
                raise InvalidOptionError(f"{option}: '{value.strip('<|>')}'; this model has {some}.")
            prompt.append(known[value])
    plain = getattr(generation, "no_timestamps_token_id", None)
    prompt += [] if plain is None else [plain]
    ends = _listed(generation, config, "eos_token_id")
    return Words(
        tuple(prompt),
        ends,
        _listed(generation, config, "suppress_tokens"),
        _listed(generation, config, "begin_suppress_tokens"),
    )


def _listed(generation: Any, config: Any, key: str) -> tuple[int, ...]:
    found = getattr(generation, key, None)
    found = getattr(config, key, None) if found is None else found
    every = () if found is None else tuple(found) if isinstance(found, (list, tuple)) else (int(found),)
    return tuple(token for token in every if 0 <= token < config.vocab_size)
