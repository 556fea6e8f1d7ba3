# SPDX-License-Identifier: BSD-3-Clause
"""Whisper: from a module of transformers to a ``.pte`` whose encoder, logits and texts are those of the reference and of ExecuTorch."""

from __future__ import annotations

import json
import re
import wave
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from openneutron import speech, targets
from openneutron.cli import main
from openneutron.device.simulator import Simulator
from openneutron.errors import InvalidModelError, InvalidOptionError
from openneutron.features.report.page.language import language_facts
from openneutron.language.generation import Tokenizer, heard, tokens
from openneutron.language.model import LanguageModel
from openneutron.language.model import found as found_in
from openneutron.language.program import Plan, compiled, never
from openneutron.language.sound import Encoder, Floats, log_mel, read_wav
from openneutron.language.times import Attention, Product, Share, phase
from openneutron.pytorch.language import whisper
from openneutron.pytorch.language.decoder import Form
from openneutron.pytorch.run import delegate
from scripts.json_schema import schema
from tests.language.reference import Reference
from tests.language.text_models import tokenizer
from tests.support.json_schema import violations

VOCABULARY, WIDTH, POSITIONS, BANDS, CHUNK = 200, 32, 24, 16, 4
FRAMES = 2 * POSITIONS
CONFIG: dict[str, Any] = {
    "model_type": "whisper", "vocab_size": VOCABULARY, "d_model": WIDTH, "encoder_layers": 1, "decoder_layers": 2,
    "encoder_attention_heads": 2, "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 64,
    "num_mel_bins": BANDS, "max_source_positions": POSITIONS, "max_target_positions": 40, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2, "decoder_start_token_id": 3, "begin_suppress_tokens": [4], "suppress_tokens": [5],
}  # fmt: skip


def module(seed: int = 0) -> torch.nn.Module:
    """Return a Whisper model with random weights, norms and biases."""
    made = whisper.opened(None, CONFIG, 0)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            base, spread = (0.0, 0.2) if parameter.dim() > 1 or name.endswith("bias") else (1.0, 0.3)
            parameter.copy_(base + torch.randn(parameter.shape, generator=generator) * spread)
    return made


@pytest.fixture(scope="module")
def exported() -> speech.Exported:
    return speech.export(module(), context=32, chunk=CHUNK)


@pytest.fixture(scope="module")
def sound() -> Floats:
    """Return a sound of two and a half parts."""
    samples: Floats = np.concatenate(speech.examples(FRAMES, 7, 3))[: FRAMES * 400]
    return samples


def test_the_encoder_is_that_of_executorch(exported: speech.Exported, sound: Floats) -> None:
    features = log_mel(sound[: FRAMES * 160], BANDS, FRAMES)
    with Encoder(exported.pte) as encoder:
        found = encoder.run(features)
    (wanted,) = exported.encoder.run(torch.from_numpy(features)[None])
    assert found.shape == (POSITIONS, WIDTH) and found.tobytes() == wanted[0].numpy().tobytes()


def test_methods_run_in_executorch(exported: speech.Exported, sound: Floats) -> None:
    """The method of the encoder, and that of the decoder with the encoder's result in the first run alone."""
    delegate.load()
    from executorch.runtime import Runtime

    program = Runtime.get().load_program(exported.pte)
    encoder, decoder = program.load_method("encoder"), program.load_method("text_decoder")
    reference = Reference(exported.decoder)
    (encoded,) = encoder.execute([torch.from_numpy(log_mel(sound[:3000], BANDS, FRAMES))[None]])
    reference.read(encoded[0].numpy())
    for text, position, count in (([3, 9], 0, POSITIONS), ([11], 2, 0)):
        given = torch.tensor([text]), torch.tensor([position]), encoded, torch.tensor([0, count])
        (logits,) = decoder.execute(list(given))
        assert logits[0].numpy().tobytes() == reference.run(text, position).tobytes()


def test_texts_are_those_of_the_reference(exported: speech.Exported, sound: Floats) -> None:
    """Each part of a long sound is a text of its own, up to the end of the cache."""
    with Encoder(exported.pte) as encoder, LanguageModel(exported.pte) as model:
        facts = model.interface
        assert (facts.source, facts.prompt, facts.suppressed, facts.suppressed_first) == ((24, 32), (3,), (5,), (4,))
        found = list(heard(model, encoder, sound, facts.prompt))
        wanted = []
        for first in range(0, len(sound), encoder.samples):
            reference = Reference(exported.decoder)
            reference.read(encoder.hear(sound[first : first + encoder.samples]))

            class Runs:
                name, interface, run = "reference", facts, reference.run

            wanted += list(tokens(Runs(), facts.prompt))
        assert found == wanted and len(found) > 40
        assert list(heard(model, encoder, sound, facts.prompt, 35)) == found[:35]


@pytest.mark.parametrize(("seed", "bits"), [(0, 8), (1, 4), (2, 8)])
def test_programs_give_the_logits_and_caches_of_the_reference(seed: int, bits: int) -> None:
    """The source is computed in two runs; the programs of a CPU, and with jobs for products of two tokens or more."""
    decoder = whisper.decoder_of(module(seed), 32, Form(bits, 32, 8), "whisper")
    random = np.random.default_rng(seed)
    source, text = random.standard_normal((POSITIONS, WIDTH)).astype(np.float32), random.integers(0, VOCABULARY, 30)
    imx95 = targets.host_with_jobs(targets.described("imx95"))
    for target, plan in (
        (targets.described("cortex-a55"), Plan(8, never)),
        (imx95, Plan(8, lambda _matrix, _block, most, _is_last: Share(2, most), 16)),
    ):
        made, reference = compiled(decoder, target, plan), Reference(decoder)
        with Simulator(made.program) as simulator:
            at, spans = 0, [(0, 24), (0, 0), (0, 0)]
            for count, span in zip((8, 1, 6), spans, strict=True):
                given = np.full(8, -1, np.int64)
                given[:count] = text[at : at + count]
                (found,) = simulator.run((given, np.array([at, count]), source, np.array(span)))
                if span[1]:
                    reference.read(source)
                assert found.tobytes() == reference.run(text[at : at + count], at).tobytes()
                source = np.zeros_like(source)
                at += count
            states = b"".join(
                cache.content() for pair in zip(reference.caches, reference.sources, strict=True) for cache in pair
            )
            assert simulator._state[: len(states)].tobytes() == states
        source = random.standard_normal((POSITIONS, WIDTH)).astype(np.float32)


def test_float_logits_are_those_of_transformers() -> None:
    """Weights of 8 bits, and the inputs of products."""
    model = module()
    source = torch.randn(1, POSITIONS, WIDTH, generator=torch.Generator().manual_seed(1))
    text = [3, *range(20, 40)]
    with torch.no_grad():
        wanted = (
            model(encoder_outputs=(source,), decoder_input_ids=torch.tensor([text]), use_cache=False).logits[0].numpy()
        )
    reference = Reference(whisper.decoder_of(model, 32, Form(8, 32, 8), "whisper"))
    reference.read(source[0].numpy())
    found = np.stack([reference.run([token], position) for position, token in enumerate(text)])
    assert 10 * np.log10((wanted**2).sum() / ((wanted - found) ** 2).sum()) > 30


def test_the_work_of_a_source_is_that_of_the_first_run(exported: speech.Exported) -> None:
    with LanguageModel(exported.pte) as model:
        work = model.work
    sources = [each for each in work if isinstance(each, Product) and each.source]
    assert [each.name for each in sources] == ["layers.0.cross_source", "layers.1.cross_source"]
    assert {each.source for each in work if isinstance(each, Attention)} == {0, POSITIONS}
    names = [{part.name for part in phase(work, 1, at, CHUNK).parts if part.products} for at in (0, 1)]
    assert names[0] - names[1] == {"cross_source"}


def test_log_mel_bands_are_those_of_transformers(sound: Floats) -> None:
    from transformers import WhisperFeatureExtractor

    extractor = WhisperFeatureExtractor(feature_size=80, chunk_length=1)
    for samples in (sound[:9000], sound[:7000] * np.float32(1e-4)):
        wanted = extractor(samples, sampling_rate=16000, return_tensors="np")["input_features"][0]
        assert np.abs(log_mel(samples, 80, 100) - wanted).max() < 2e-4


@pytest.fixture
def wav(tmp_path: Path) -> Callable[..., Path]:
    def write(samples: Floats, rate: int = 16000, channels: int = 1, width: int = 2) -> Path:
        path = tmp_path / "sound.wav"
        with wave.open(str(path), "wb") as file:
            file.setparams((channels, width, rate, 0, "NONE", ""))
            file.writeframes(np.rint(samples * 32767).astype("<i2").tobytes())
        return path

    return write


def test_the_command_writes_down_a_sound(
    exported: speech.Exported,
    sound: Floats,
    wav: Callable[..., Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    model = tmp_path / "model.pte"
    exported.save(model)
    tokenizer(tmp_path / "tokenizer.json")
    words = Tokenizer.read(tmp_path / "tokenizer.json")
    path = wav(sound)
    samples = read_wav(path)
    with Encoder(exported.pte) as encoder, LanguageModel(exported.pte) as opened:
        wanted = list(heard(opened, encoder, samples, [3], 12))
    arguments = ["generate", str(model), "--audio", str(path), "--max-tokens", "12"]
    assert main([*arguments, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert list(violations(data, schema())) == []
    assert (data["tokens"], data["prompt_tokens"], data["sound_seconds"]) == (wanted, 1, len(sound) / 16000)
    assert main([*arguments, "--prompt", "of"]) == 0
    assert capsys.readouterr().err.startswith(f"{len(words.encode('of'))} tokens of prompt, 12 tokens")
    for given, message in (
        ([str(model)], "--audio: it is missing; 'model.pte' writes down a sound. Give a WAV file."),
        (
            [str(model), "--audio", str(wav(sound, rate=8000))],
            f"'{path}' has 16-bit samples at 8000 Hz; the model takes 16 bits at 16000 Hz. Convert it, for example with "
            "ffmpeg -i sound.wav -ar 16000 -c:a pcm_s16le out.wav.",
        ),
    ):
        assert main(["generate", *given]) == 2
        assert capsys.readouterr() == ("", f"error: {message}\n")


def test_the_report_counts_layers_and_names_cross_attention(exported: speech.Exported) -> None:
    facts = language_facts(*found_in(exported.pte, "m.pte"), len(exported.pte))
    assert facts.layers == 2
    names = {part.name for phase in facts.phases for part in phase.parts}
    assert {"cross attention", "keys, values of the encoder"} < names and not any("_" in name for name in names)
    whys = {part.why for phase in facts.phases for part in phase.parts if part.shape}
    assert whys == {"the CPU alone is faster for every product of this program"}


def test_wrong_options_and_models_are_refused(exported: speech.Exported, tmp_path: Path) -> None:
    with pytest.raises(
        InvalidOptionError,
        match=r"^chunk: 50 tokens; a run takes 1 to 40, the positions of the cache\. Give chunk=40 or less\.$",
    ):
        speech.export(None, config=CONFIG, chunk=50)
    with pytest.raises(InvalidOptionError, match=r"^context: 0 positions; this model has 1 to 40\.$"):
        speech.export(None, config=CONFIG, context=0)
    for sounds, message in (
        ([], "calibration: it has no sound; give a few with speech."),
        *(
            (
                [speech.examples(FRAMES, 0, 1)[0], wrong],
                "calibration: sound 1 is no row of float32 samples from -1 to 1. openneutron.language.sound.read_wav reads a WAV file.",
            )
            for wrong in ("speech.wav", np.zeros(9, np.int16), np.zeros((2, 9), np.float32))
        ),
    ):
        with pytest.raises(InvalidOptionError, match=f"^{re.escape(message)}$"):
            speech.export(None, config=CONFIG, calibration=sounds)
    llama = {"model_type": "llama", "vocab_size": 10}
    message = "model: its type is 'llama'; known is 'whisper', a WhisperForConditionalGeneration."
    with pytest.raises(InvalidModelError, match=f"^{re.escape(message)}$"):
        whisper.opened(None, whisper.config_of(llama), 0)
    (tmp_path / "config.json").write_text(json.dumps(llama))
    with pytest.raises(InvalidModelError, match=f"^{re.escape(message)}$"):
        whisper.opened(tmp_path, None, 0)
    with LanguageModel(exported.pte, "m.pte") as model:
        message = "'m.pte': a run without a source; give it the encoder's result first."
        with pytest.raises(InvalidOptionError, match=f"^{re.escape(message)}$"):
            model.run([1], 0)
        message = "'m.pte': a source of [3, 32]; the model takes [24, 32]."
        with pytest.raises(InvalidOptionError, match=f"^{re.escape(message)}$"):
            model.listen(np.zeros((3, WIDTH), np.float32))


def test_transcripts_round_the_decoder_by_what_it_hears() -> None:
    """Weights of 4 bits, rounded for texts behind sounds, come nearer to the float model at another sound than those rounded alone."""
    model, sounds = module(), speech.examples(FRAMES, 3, 8)
    random = np.random.default_rng(0)
    texts = [random.integers(6, VOCABULARY, 30).tolist() for _ in sounds]
    features = torch.from_numpy(log_mel(speech.examples(FRAMES, 9, 1)[0], BANDS, FRAMES))[None]
    text = random.integers(6, VOCABULARY, 20).tolist()
    with torch.no_grad():
        source = model.get_encoder()(features)[0]  # type: ignore[operator]
        wanted = model(encoder_outputs=(source,), decoder_input_ids=torch.tensor([text])).logits[0].numpy()

    def noise(**options: Any) -> float:
        made = speech.export(model, context=32, bits=4, **options)
        with LanguageModel(made.pte) as opened:
            opened.listen(source[0].numpy())
            found = [opened.run([token], place) for place, token in enumerate(text)]
        return float(np.square(np.stack(found) - wanted).sum())

    plain = noise(calibration=sounds, gptq=False, awq=False)
    assert noise(calibration=sounds, transcripts=texts) < 0.7 * plain
    assert noise(calibration=sounds) != plain


@pytest.mark.parametrize(
    ("programs", "left", "message"),
    [
        (2, (), "its encoder becomes 2 programs; a speech model has one. Use another target."),
        (1, ("is slow",), "1 of its encoder's operators stay on the CPU, erf because it is slow; a speech model's encoder runs whole on the NPU."),
    ],
)  # fmt: skip
def test_an_encoder_in_several_programs_is_refused(
    monkeypatch: pytest.MonkeyPatch, programs: int, left: tuple[str, ...], message: str
) -> None:
    stays = [SimpleNamespace(computes=True, operator="erf", reason=f"it {reason}") for reason in left]
    made = SimpleNamespace(parts=[None] * programs, delegation=SimpleNamespace(on_cpu=stays))
    monkeypatch.setattr("openneutron.api.compile.compile", lambda *_, **__: made)
    with pytest.raises(InvalidModelError, match=re.escape(message)):
        speech.export(module(), context=32, chunk=CHUNK)


@pytest.mark.parametrize(
    ("transcripts", "message"),
    [
        ([[6]], "transcripts: 1 texts for 2 sounds of calibration; each sound has one."),
        ([[6], [6] * 40], "transcripts: text 1 has 40 tokens; this model reads 1 to 31."),
        ([[6], [200]], "transcripts: text 1 has the token 200; the model's vocabulary has 0 to 199. Use the model's tokenizer."),
    ],
)  # fmt: skip
def test_wrong_transcripts(transcripts: list[list[int]], message: str) -> None:
    with pytest.raises(InvalidOptionError, match=re.escape(message)):
        speech.export(module(), context=32, calibration=speech.examples(FRAMES, 3, 2), transcripts=transcripts)
