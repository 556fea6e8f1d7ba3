# SPDX-License-Identifier: BSD-3-Clause
"""The stages of speech networks of transformers, each as a module with fixed lengths, with random weights and inputs.

A stage is the part of a network between two steps that the application does: the choice of the next word, and the repetition of each
phoneme's features for as many frames as it lasts. Widths are those of the published networks. ``layers`` gives fewer layers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from openneutron.options import DRIVER, INT8, INT16, OPEN

SEED = 2026
SAMPLES = 4
"""Random inputs of a stage. The last one is measured; the others calibrate."""

WINDOWS = (32, 40, 48)
"""The frames of a window of the small vocoder, whose programs take less than 512 KiB."""

WHISPER_HERTZ = 16000
WHISPER_HOP = 160
SPEECH_HERTZ = 22050
SPEECH_HOP = 256
"""Sample rate and hop of espnet/fastspeech2_conformer, which the vocoder's upsampling of 8 * 8 * 2 * 2 repeats."""

PHONEMES = 60
FRAMES = 200
TOKENS = 64
VOCABULARY = 51865
"""The value in the configuration of openai/whisper-tiny."""

Inputs = tuple[Tensor, ...]

Way = tuple[str, str, str, int | None]
"""Target, converter, type of activations, and SRAM budget in bytes or None."""

INT8_ON_I_MX_95: tuple[Way, ...] = (("imx95", OPEN, INT8, None), ("imx95", DRIVER, INT8, None))
ON_I_MX_95: tuple[Way, ...] = (*INT8_ON_I_MX_95, ("imx95", OPEN, INT16, None))
ON_I_MX_RT700: Way = ("imxrt700", OPEN, INT8, None)
WITHIN_512_KIB: Way = ("imxrt700", OPEN, INT8, 512 * 1024)


@dataclass(frozen=True, slots=True)
class Stage:
    """make: a module, and its random inputs in the order of calibration; seconds: the length of the sound; title: for the table;
    ways: the targets and options that it is compiled for."""

    title: str
    seconds: float
    make: Callable[[], tuple[nn.Module, list[Inputs]]]
    ways: tuple[Way, ...]


def _random() -> torch.Generator:
    return torch.Generator().manual_seed(SEED)


class _Encoder(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.encoder = model.model.encoder

    def forward(self, mel: Tensor) -> Tensor:
        return self.encoder(mel, return_dict=False)[0]


class _Decoder(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.decoder, self.head = model.model.decoder, model.proj_out

    def forward(self, tokens: Tensor, encoded: Tensor) -> Tensor:
        found = self.decoder(input_ids=tokens, encoder_hidden_states=encoded, use_cache=False, return_dict=False)
        return self.head(found[0])


def whisper(frames: int, layers: int, vocabulary: int = VOCABULARY) -> nn.Module:
    """Return a Whisper model of whisper-tiny's shape over ``frames`` of 10 ms, with random weights."""
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    torch.manual_seed(SEED)
    sizes = {f"{part}_{name}": value for part in ("encoder", "decoder") for name, value in _WHISPER_TINY.items()}
    sizes |= {"encoder_layers": layers, "decoder_layers": layers}
    words: dict[str, Any] = dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"), 0)
    config = WhisperConfig(
        d_model=384,
        vocab_size=vocabulary,
        max_source_positions=frames // 2,
        attn_implementation="sdpa",
        **sizes,
        **words,
    )
    return WhisperForConditionalGeneration(config).eval()


_WHISPER_TINY = {"attention_heads": 6, "ffn_dim": 1536}
"""config.json of openai/whisper-tiny (Apache-2.0); the other values are those of WhisperConfig."""


def _mels(count: int, frames: int) -> list[Tensor]:
    random = _random()
    return [torch.randn(1, 80, frames, generator=random) for _ in range(count)]


def whisper_encoder(frames: int, layers: int = 4) -> Stage:
    """Return Whisper-tiny's encoder over ``frames`` of 10 ms."""

    def make() -> tuple[nn.Module, list[Inputs]]:
        return _Encoder(whisper(frames, layers)).eval(), [(mel,) for mel in _mels(SAMPLES, frames)]

    seconds = frames * WHISPER_HOP / WHISPER_HERTZ
    return Stage(f"Whisper-tiny encoder, {seconds:.0f} s", seconds, make, INT8_ON_I_MX_95)


def whisper_decoder(frames: int, tokens: int = TOKENS, layers: int = 4, vocabulary: int = VOCABULARY) -> Stage:
    """Return Whisper-tiny's decoder over ``tokens`` words, which attends to an encoded sound of ``frames`` of 10 ms."""

    def make() -> tuple[nn.Module, list[Inputs]]:
        model = whisper(frames, layers, vocabulary)
        random, encoder = _random(), _Encoder(model)
        with torch.no_grad():
            encoded = [encoder(mel) for mel in _mels(SAMPLES, frames)]
        words = [torch.randint(0, vocabulary, (1, tokens), generator=random) for _ in encoded]
        return _Decoder(model).eval(), list(zip(words, encoded, strict=True))

    seconds = frames * WHISPER_HOP / WHISPER_HERTZ
    return Stage(f"Whisper-tiny decoder, {tokens} tokens, {seconds:.0f} s", seconds, make, ON_I_MX_95)


class _Phonemes(nn.Module):
    """FastSpeech2Conformer up to the length regulator: features of phonemes, and the logarithms of their durations in frames plus 1."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, phonemes: Tensor) -> tuple[Tensor, Tensor]:
        model = self.model
        found = model.encoder(phonemes, None, output_hidden_states=False, output_attentions=False, return_dict=False)[0]
        pitch, energy = model.pitch_predictor(found), model.energy_predictor(found)
        durations = found.transpose(1, -1)
        for layer in model.duration_predictor.conv_layers:
            durations = layer(durations)
        durations = model.duration_predictor.linear(durations.transpose(1, -1)).squeeze(-1)
        return found + model.energy_embed(energy) + model.pitch_embed(pitch), durations


class _Frames(nn.Module):
    """FastSpeech2Conformer from the length regulator on: ``places`` has the phoneme of each frame."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.decoder, self.postnet = model.decoder, model.speech_decoder_postnet

    def forward(self, features: Tensor, places: Tensor) -> Tensor:
        frames = features.index_select(1, places)
        found = self.decoder(frames, None, output_hidden_states=False, output_attentions=False, return_dict=False)[0]
        return self.postnet(found)[1]


def _fastspeech(layers: int) -> nn.Module:
    from transformers import FastSpeech2ConformerConfig, FastSpeech2ConformerModel

    torch.manual_seed(SEED)
    return FastSpeech2ConformerModel(FastSpeech2ConformerConfig(encoder_layers=layers, decoder_layers=layers)).eval()


def fastspeech_phonemes(layers: int = 4) -> Stage:
    """Return the first stage of FastSpeech2Conformer, for 60 phonemes."""

    def make() -> tuple[nn.Module, list[Inputs]]:
        model, random = _fastspeech(layers), _random()
        size = model.config.vocab_size
        return _Phonemes(model).eval(), [
            (torch.randint(0, size, (1, PHONEMES), generator=random),) for _ in range(SAMPLES)
        ]

    return Stage(f"FastSpeech2Conformer, {PHONEMES} phonemes", FRAMES * SPEECH_HOP / SPEECH_HERTZ, make, ON_I_MX_95)


def fastspeech_frames(layers: int = 4) -> Stage:
    """Return the second stage of FastSpeech2Conformer, for 200 frames: the length regulator, the decoder and the postnet."""

    def make() -> tuple[nn.Module, list[Inputs]]:
        model, random = _fastspeech(layers), _random()
        first, given = fastspeech_phonemes(layers).make()
        with torch.no_grad():
            features = [first(*each)[0] for each in given]
        places = [torch.randint(0, PHONEMES, (FRAMES,), generator=random).sort().values for _ in features]
        return _Frames(model).eval(), list(zip(features, places, strict=True))

    return Stage(f"FastSpeech2Conformer, {FRAMES} frames", FRAMES * SPEECH_HOP / SPEECH_HERTZ, make, ON_I_MX_95)


class _Text(nn.Module):
    """VITS' text encoder: features, means and logarithms of variances of each character."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, words: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        whole = torch.ones(*words.shape, 1)
        return self.encoder(words, whole, return_dict=False)[:3]


def vits_text(layers: int = 6) -> Stage:
    """Return VITS' text encoder for 60 characters."""

    def make() -> tuple[nn.Module, list[Inputs]]:
        from transformers import VitsConfig
        from transformers.models.vits.modeling_vits import VitsTextEncoder

        torch.manual_seed(SEED)
        config, random = VitsConfig(num_hidden_layers=layers), _random()
        size = config.vocab_size
        given: list[Inputs] = [(torch.randint(0, size, (1, PHONEMES), generator=random),) for _ in range(SAMPLES)]
        return _Text(spread(VitsTextEncoder(config))).eval(), given

    return Stage(f"VITS text encoder, {PHONEMES} characters", FRAMES * SPEECH_HOP / SPEECH_HERTZ, make, ON_I_MX_95)


def vocoder(channels: int, frames: int, ways: tuple[Way, ...]) -> Stage:
    """Return the HiFi-GAN vocoder of FastSpeech2Conformer with ``channels`` before its first upsampling: 512 in the published one."""

    def make() -> tuple[nn.Module, list[Inputs]]:
        from transformers import FastSpeech2ConformerHifiGan, FastSpeech2ConformerHifiGanConfig

        random = _random()
        model = FastSpeech2ConformerHifiGan(FastSpeech2ConformerHifiGanConfig(upsample_initial_channel=channels))
        return spread(model).eval(), [(torch.randn(1, frames, 80, generator=random),) for _ in range(SAMPLES)]

    return Stage(f"HiFi-GAN, {channels} channels, {frames} frames", frames * SPEECH_HOP / SPEECH_HERTZ, make, ways)


def spread(model: nn.Module) -> nn.Module:
    """Return the model with random weights that keep the size of values from layer to layer.

    transformers draws the weights of these convolutions with a standard deviation of 0.01, so that a vocoder's output would be 1e-8.
    """
    random = _random()
    with torch.no_grad():
        for layer in model.modules():
            if isinstance(layer, nn.Conv1d | nn.ConvTranspose1d | nn.Linear):
                layer.weight.copy_(torch.randn(layer.weight.shape, generator=random) / math.sqrt(_inputs_of(layer)))
                if layer.bias is not None:
                    layer.bias.copy_(0.1 * torch.randn(layer.bias.shape, generator=random))
    return model


def _inputs_of(layer: nn.Conv1d | nn.ConvTranspose1d | nn.Linear) -> float:
    """Return the number of input values that an output value is a sum over."""
    if isinstance(layer, nn.ConvTranspose1d):
        return layer.weight.shape[0] * layer.weight.shape[2] / layer.stride[0]
    return layer.weight[0].numel()


STAGES: Sequence[Stage] = (
    whisper_encoder(3000),
    whisper_encoder(1000),
    whisper_decoder(3000),
    fastspeech_phonemes(),
    fastspeech_frames(),
    vits_text(),
    vocoder(512, FRAMES, (*ON_I_MX_95, ON_I_MX_RT700)),
    vocoder(128, FRAMES, (*ON_I_MX_95, ON_I_MX_RT700)),
    *(vocoder(128, frames, (WITHIN_512_KIB,)) for frames in WINDOWS),
)
