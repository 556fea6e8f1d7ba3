# SPDX-License-Identifier: BSD-3-Clause
"""Speech to text: from a Whisper model of transformers to a ``.pte`` that generates text from sound.

Example:

```python
import openneutron.speech

openneutron.speech.export("whisper-tiny", target="imx95", language="en").save("whisper.pte")
```
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from openneutron.compiler import Compiled
from openneutron.device.files import write
from openneutron.device.third_party import needs_pytorch
from openneutron.errors import InvalidModelError
from openneutron.language.decoder import Decoder
from openneutron.language.model import Interface
from openneutron.language.program import Plan, check_chunk, compiled
from openneutron.language.sound import ENCODER, HERTZ, HOP, check_sounds, log_mel
from openneutron.language.times import chooser
from openneutron.options import DRIVER, INT8, CompileOptions, QuantizationOptions
from openneutron.targets import described, host_with_jobs

__all__ = ["Exported", "export"]

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Exported:
    """A speech model as a ``.pte``: the bytes of the file, the compiled encoder, the decoder with quantized weights, and the decoder's program."""

    pte: bytes = field(repr=False)
    encoder: Any = field(repr=False)
    decoder: Decoder
    compiled: Compiled = field(repr=False)

    def save(self, path: str | Path) -> None:
        """Write the ``.pte``."""
        write({Path(path): self.pte})


def _check_whole(encoder: Any, name: str) -> None:
    """Raise InvalidModelError for a compiled encoder of several programs, or with operators that stay on the CPU."""
    left = [each for each in encoder.delegation.on_cpu if each.computes]
    if len(encoder.parts) == 1 and not left:
        return
    raise InvalidModelError(
        f"'{name}': its encoder becomes {len(encoder.parts)} programs; a speech model has one. Use another target."
        if len(encoder.parts) != 1
        else f"'{name}': {len(left)} of its encoder's operators stay on the CPU, {left[0].operator} because {left[0].reason}; a speech "
        "model's encoder runs whole on the NPU. Use another target."
    )


def export(
    model: Any,
    *,
    target: str = "imx95",
    context: int | None = None,
    chunk: int = 16,
    bits: int = 8,
    group: int = 32,
    head_bits: int = 8,
    gptq: bool = True,
    awq: bool = True,
    activations: str = INT8,
    language: str | None = "en",
    task: str = "transcribe",
    calibration: Sequence[Floats] | None = None,
    transcripts: Sequence[Sequence[int]] | None = None,
    config: Any = None,
    seed: int = 0,
    name: str = "whisper",
    options: CompileOptions | None = None,
) -> Exported:
    """Return a Whisper model as a ``.pte`` with the methods ``encoder`` and ``text_decoder``, for ``openneutron generate --audio``.

    * ``model``: a WhisperForConditionalGeneration of transformers, its folder, or None for random weights of a ``config``.
    * ``context``: the number of positions in the decoder's cache; None stands for all that the model has. ``chunk``: the largest number of
      tokens in a run.
    * ``bits``: the bits of the decoder's weights, 8 or 4. With 4, each group of ``group`` columns has scales of its
      own. ``head_bits``: the same for embedding and head.
    * ``activations``: the type of the encoder's activations, "int8" or "int16".
    * ``calibration``: sounds at 16 kHz, each as float32 samples from -1 to 1. None stands for synthetic tones and noise, which calibrate only
      the encoder. With sounds, the decoder's weights are rounded as in GPTQ if ``gptq``, and scaled as in AWQ if ``awq``.
    * ``transcripts``: a list of tokens for each sound of ``calibration``; None stands for the texts that the float model writes.
    * ``language`` and ``task``: they determine the tokens before each text.
    * ``options``: the compile options of the encoder.

    Raises InvalidTargetError for a wrong target, MissingToolError if a package is not installed, InvalidOptionError for a
    wrong option, and InvalidModelError if the model is no Whisper model, or if its encoder is several programs or
    leaves operators on the CPU. Only the target, the packages and the kind of a model in a folder are checked before
    weights are read.
    """
    chip = described(target)
    if options is None:
        options = CompileOptions(target=target) if chip.cpu else CompileOptions(target=target, converter=DRIVER)
    if chip.cpu is None:
        chip = host_with_jobs(chip)
    with needs_pytorch("A speech model"):
        from openneutron.api.compile import compile as compile_model
        from openneutron.pytorch.language import package, whisper
        from openneutron.pytorch.language.decoder import Form
    module = whisper.opened(model, config, seed)
    facts = module.config
    context = facts.max_target_positions if context is None else context
    check_chunk(chunk, context)
    words = whisper.words_of(module, language, task)
    if transcripts is not None:
        whisper.check_transcripts(transcripts, len(calibration or ()), context - len(words.prompt), facts.vocab_size)
    frames = 2 * facts.max_source_positions
    if calibration is not None:
        check_sounds(calibration)
    sounds = examples(frames, seed) if calibration is None else calibration
    features = whisper.batches([log_mel(each, facts.num_mel_bins, frames) for each in sounds])
    moments = None
    if calibration is not None and (gptq or awq):
        moments = whisper.moments_of(module, features, words, context, transcripts)
    decoder = whisper.decoder_of(
        module, context, Form(bits, group, head_bits), name, moments=moments, gptq=gptq, awq=awq
    )
    chosen = chooser(chip, max(chunk, decoder.source_positions))
    made = compiled(decoder, chip, Plan(chunk, chosen), CompileOptions(target=chip.name))
    encoder = compile_model(
        whisper.Encoder(module).eval(),
        features[0],
        calibration=features,
        options=options,
        quantization=QuantizationOptions(activations=activations),
        name=f"{name} encoder",
    )
    _check_whole(encoder, name)
    interface = Interface(
        chunk,
        context,
        decoder.vocabulary,
        decoder.begin_token,
        decoder.end_tokens,
        (decoder.source_positions, decoder.source_width),
        words.prompt,
        words.suppressed,
        words.suppressed_first,
    )
    joined = package.with_method(encoder.buffer, ENCODER, package.packaged(made.program, interface))
    return Exported(joined, encoder, decoder, made)


def examples(frames: int, seed: int, count: int = 4) -> list[Floats]:
    """Return ``count`` synthetic sounds for calibration: tones that begin and end, with noise, at different levels. Each has ``frames`` frames."""
    random, samples = np.random.default_rng((seed, 30)), frames * HOP
    place = np.arange(samples) / HERTZ
    found = []
    for number in range(count):
        sound = np.zeros(samples)
        for _ in range(12):
            begin, end = np.sort(random.integers(0, samples, 2))
            pitch = 80 * 2 ** random.uniform(0, 5)
            for harmonic in range(1, 6):
                sound[begin:end] += np.sin(2 * np.pi * harmonic * pitch * place[begin:end]) / harmonic
        noise = random.standard_normal(samples) * 10.0 ** -random.uniform(0.5, 3)
        found.append(((sound / 12 + noise) * 10.0 ** (-number / 2)).clip(-1, 1).astype(np.float32))
    return found
