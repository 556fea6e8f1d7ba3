# SPDX-License-Identifier: BSD-3-Clause
"""The command ``generate``."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from openneutron.cli import output
from openneutron.device.files import content, existing
from openneutron.device.simulator import THREADS, shared_by
from openneutron.device.third_party import suppressed
from openneutron.errors import InvalidOptionError
from openneutron.features.report.table import number_text, plural
from openneutron.language.generation import TOKENIZER, Sampling, TextStream, Tokenizer, chat, heard, pieces, tokens
from openneutron.language.model import LanguageModel
from openneutron.language.model import found as interface_and_program
from openneutron.language.sound import HERTZ, Encoder, read_wav
from openneutron.language.times import modelled

Clock = Callable[[], float]


@dataclass(slots=True)
class Watched:
    """The tokens of a generation as they arrive, with the seconds until the first token and until the last one."""

    source: Iterator[int]
    clock: Clock = time.perf_counter
    found: list[int] = field(default_factory=list)
    first_seconds: float = 0.0
    seconds: float = 0.0

    def __iter__(self) -> Iterator[int]:
        begun = self.clock()
        for token in self.source:
            self.seconds = self.clock() - begun
            if not self.found:
                self.first_seconds = self.seconds
            self.found.append(token)
            yield token

    @property
    def tokens_per_second(self) -> float | None:
        """Return the rate of the tokens after the first one; None for fewer than two tokens."""
        later = self.seconds - self.first_seconds
        return (len(self.found) - 1) / later if len(self.found) > 1 and later > 0 else None

    def text(self, prompt: int) -> str:
        """Return the line about the time of the simulation on this computer. ``prompt`` is the number of tokens in the prompt."""
        rate = self.tokens_per_second
        after = "" if rate is None else f", {number_text(rate)} tokens/s after it"
        counts = f"{plural(prompt, 'token')} of prompt, {plural(len(self.found), 'token')}"
        return f"{counts}; simulated: {number_text(self.first_seconds)} s to the first token{after}"


def generate(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A language model's .pte.")],
    prompt: Annotated[
        str | None,
        typer.Option(
            "--prompt", "-p", metavar="TEXT", help="The text to continue; with --audio the tokens in front of the text."
        ),
    ] = None,
    audio: Annotated[
        Path | None,
        typer.Option(metavar="FILE.wav", help="The sound that a speech model writes down: 16-bit PCM at 16 kHz."),
    ] = None,
    tokenizer: Annotated[
        Path | None,
        typer.Option(metavar="tokenizer.json", help="The model's tokenizer; default: tokenizer.json beside FILE."),
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option(metavar="N", help="The most tokens; default: until the cache is full.")
    ] = None,
    temperature: Annotated[
        float, typer.Option(metavar="T", help="0 takes the most likely token; larger values draw less likely ones too.")
    ] = 0.0,
    top_p: Annotated[
        float,
        typer.Option(metavar="P", help="Draw among the most likely tokens, whose probabilities together reach P."),
    ] = 1.0,
    seed: Annotated[int, typer.Option(metavar="SEED", help="The seed of random numbers.")] = 0,
    stop: Annotated[
        list[str] | None, typer.Option(metavar="TEXT", help="End the text before this one; repeat it for several.")
    ] = None,
    as_chat: Annotated[
        bool,
        typer.Option(
            "--chat", help="The prompt is a user's message: write it by the chat template beside the tokenizer."
        ),
    ] = False,
    system: Annotated[
        str | None, typer.Option(metavar="TEXT", help="The system's message in front of the prompt, with --chat.")
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help=f"Threads that compute each kernel call together; the text does not depend on it. Default: {THREADS}, or 1.",
        ),
    ] = None,
    as_json: output.AsJson = False,
    quiet: output.Quiet = False,
) -> None:
    """Continue a prompt with a compiled language model, or write down what is said in a sound.

    It runs on the simulated NPU. The text is on standard output as it comes. The tokens and seconds of the simulation follow on standard error.
    """
    if system is not None and not as_chat:
        raise InvalidOptionError("--system: it is a part of a chat. Give --chat too.")
    if as_chat and (audio is not None or prompt is None):
        raise InvalidOptionError(
            "--chat: it writes a user's message for a language model. Give the message with --prompt, and no --audio."
        )
    path = existing(file)
    place = _beside(path) if tokenizer is None else tokenizer
    sampling = Sampling(temperature, top_p, seed)
    with suppressed():
        words = Tokenizer.read(place)
        if as_chat:
            asked = words.encode(chat(place, prompt or "", system), False)
        else:
            asked = [] if prompt is None else words.encode(prompt, audio is None)
    samples = None if audio is None else read_wav(audio)
    data = content(path)
    with shared_by(threads), LanguageModel(data, path.name) as model, ExitStack() as stack:
        words.check(model.name, model.interface.vocabulary, model.interface.tokenizer)
        _check_kind(model, samples is not None, prompt is not None)
        if samples is None:
            source = tokens(model, asked, max_tokens, sampling)
        else:
            asked = asked or list(model.interface.prompt)
            encoder = stack.enter_context(Encoder(data, path.name))
            source = heard(model, encoder, samples, asked, max_tokens, sampling)
        watched = Watched(source)
        stream = TextStream(words, stop or ())
        ends = model.interface.end_tokens
        words_about_chip = on_chip(model, len(asked))
        text: list[str] = []
        interrupt: KeyboardInterrupt | None = None
        try:
            _show(pieces(iter(watched), stream, ends), text, as_json)
        except KeyboardInterrupt as error:
            interrupt = error
            _show(iter([stream.rest()]), text, as_json)
    reason = _reason(watched.found, ends, stream, interrupt)
    if as_json:
        seconds = None if samples is None else len(samples) / HERTZ
        output.show("", "generate", _data(file, asked, watched, "".join(text), reason, seconds), True)
    else:
        sys.stdout.write("\n")
        if not quiet:
            output.detail(watched.text(len(asked)))
            if words_about_chip:
                output.detail(words_about_chip)
    if interrupt is not None:
        raise interrupt


def _beside(path: Path) -> Path:
    """Return the tokenizer beside a model. Raises InvalidOptionError where there is none, and InvalidModelError where the file is no
    language model, which needs none."""
    place = path.with_name(TOKENIZER)
    if not place.is_file():
        interface_and_program(content(path), path.name)
        raise InvalidOptionError(
            f"--tokenizer: there is no {TOKENIZER} beside '{path}'. Give the model's own with --tokenizer."
        )
    return place


def _check_kind(model: LanguageModel, has_sound: bool, has_prompt: bool) -> None:
    """Raise InvalidOptionError if a speech model is given no sound, or if a language model is given a sound or no prompt."""
    is_speech = model.interface.source is not None
    if is_speech and not has_sound:
        raise InvalidOptionError(f"--audio: it is missing; '{model.name}' writes down a sound. Give a WAV file.")
    if has_sound and not is_speech:
        raise InvalidOptionError(
            f"--audio: '{model.name}' is a language model, which takes no sound. Give a model of openneutron.speech.export."
        )
    if not is_speech and not has_prompt:
        raise InvalidOptionError("--prompt: it is missing; a language model continues a text. Give one.")


def on_chip(model: LanguageModel, prompt: int) -> str:
    """Return the line about the modelled time on the chip, with ranges; empty if the chip's time is not modelled. ``prompt`` is the number of
    tokens in the prompt."""
    rows = model.interface.rows
    found = prompt > 0 and modelled(model.microcode, prompt, 0, rows)
    after = modelled(model.microcode, 1, prompt, rows)
    if not found or not after:
        return ""
    (chip, first), (_, later) = found, after
    return (
        f"modelled on {chip}: {number_text(first.seconds)} s to the first token "
        f"({number_text(first.low)} to {number_text(first.high)}), {number_text(later.tokens_per_second)} tokens/s after it "
        f"({number_text(1 / later.high)} to {number_text(1 / later.low)})"
    )


def _show(source: Iterator[str], text: list[str], as_json: bool) -> None:
    """Append the pieces of a text to ``text``, and print each piece as soon as it arrives. With ``as_json`` nothing is printed."""
    for piece in source:
        text.append(piece)
        if not as_json:
            sys.stdout.write(piece)
            sys.stdout.flush()


def _reason(found: Sequence[int], ends: Sequence[int], stream: TextStream, interrupt: KeyboardInterrupt | None) -> str:
    if interrupt is not None:
        return "interrupted"
    if stream.is_stopped:
        return "stop"
    return "end" if found and found[-1] in ends else "length"


def _data(
    file: str, asked: Sequence[int], watched: Watched, text: str, reason: str, seconds: float | None
) -> dict[str, Any]:
    return {
        "file": file,
        "text": text,
        "ended_by": reason,
        "prompt_tokens": len(asked),
        "tokens": watched.found,
        "sound_seconds": seconds,
        "simulated": {
            "first_token_seconds": watched.first_seconds,
            "tokens_per_second": watched.tokens_per_second,
        },
    }
