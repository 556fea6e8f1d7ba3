# SPDX-License-Identifier: BSD-3-Clause
"""Continue a text with a language model: the prompt in chunks, then token by token."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from openneutron.device.files import content, existing
from openneutron.errors import InvalidModelError, InvalidOptionError
from openneutron.language.model import Floats, Interface, LanguageModel
from openneutron.language.sound import Encoder
from openneutron.language.text import TOKENIZER, TextStream, Tokenizer


class Runs(Protocol):
    """The methods that generation needs of a model. ``LanguageModel`` has them."""

    name: str
    interface: Interface

    def run(self, tokens: Sequence[int], position: int) -> Floats: ...


@dataclass(frozen=True, slots=True)
class Sampling:
    """The choice of a token.

    * ``temperature``: 0 takes the most likely token, the first of equal ones. Otherwise logits are divided by it before softmax.
    * ``top_p``: only the most likely tokens whose probabilities together reach this number are drawn.
    * ``seed``: of the random numbers. The same seed gives the same text.

    Raises InvalidOptionError for a value outside of its range.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < float("inf"):
            raise InvalidOptionError(f"temperature: it is {self.temperature:g}; it is 0 or a positive number.")
        if not 0 < self.top_p <= 1:
            raise InvalidOptionError(f"top-p: it is {self.top_p:g}; it is a number above 0, and at most 1.")
        if self.seed < 0:
            raise InvalidOptionError(f"seed: it is {self.seed}; it is 0 or a positive number.")

    def choose(self, logits: Floats, random: np.random.Generator) -> int:
        """Return a token. The probabilities are computed in float64."""
        if self.temperature == 0:
            return int(np.argmax(logits))
        scores = logits.astype(np.float64) / self.temperature
        weights = np.exp(scores - scores.max())
        weights /= weights.sum()
        order = np.argsort(-weights, kind="stable")
        sums = np.cumsum(weights[order])
        count = min(int(np.searchsorted(sums, self.top_p)) + 1, len(order))
        place = np.searchsorted(sums[:count], random.random() * sums[count - 1], side="right")
        return int(order[min(int(place), count - 1)])


def check_prompt(model: Runs, prompt: Sequence[int]) -> None:
    """Raise InvalidOptionError where the model can't continue a prompt of these tokens."""
    facts = model.interface
    if not prompt:
        raise InvalidOptionError("prompt: it has no tokens. Give a text to continue.")
    if len(prompt) >= facts.context:
        raise InvalidOptionError(
            f"prompt: it has {len(prompt)} tokens; the cache of '{model.name}' has {facts.context} positions, one of which a new "
            "token needs. Shorten the prompt, or export the model with a larger context."
        )
    wrong = [token for token in prompt if not 0 <= token < facts.vocabulary]
    if wrong:
        raise InvalidOptionError(
            f"prompt: it has the token {wrong[0]}; the vocabulary of '{model.name}' has the tokens 0 to {facts.vocabulary - 1}. "
            "Use the tokenizer of this model."
        )


def tokens(
    model: Runs, prompt: Sequence[int], most: int | None = None, sampling: Sampling = Sampling()
) -> Iterator[int]:
    """Yield the tokens that continue a prompt, until a token ends the text, the cache is full, or there are ``most``.

    A token that ends the text is the last one that is yielded. The cache is full after context - len(prompt) tokens, as for ExecuTorch's
    ``TextLLMRunner``.

    Raises InvalidOptionError before the first run where the prompt or ``most`` does not fit, and InvalidModelError where logits are no
    numbers.
    """
    check_prompt(model, prompt)
    if most is not None and most < 1:
        raise InvalidOptionError(f"max-tokens: it is {most}; it is 1 or more.")
    return _tokens(model, prompt, most, sampling)


def _tokens(model: Runs, prompt: Sequence[int], most: int | None, sampling: Sampling) -> Iterator[int]:
    facts, random = model.interface, np.random.default_rng(sampling.seed)
    for position in range(0, len(prompt), facts.rows):
        logits = model.run(prompt[position : position + facts.rows], position)
    end = facts.context if most is None else min(facts.context, len(prompt) + most)
    for position in range(len(prompt), end):
        if not np.isfinite(logits).all():
            raise InvalidModelError(
                f"'{model.name}': its logits at position {position - 1} are no finite numbers. Check the weights it was made of."
            )
        never = facts.suppressed + (facts.suppressed_first if position == len(prompt) else ())
        if never:
            logits = logits.copy()
            logits[list(never)] = -np.inf
        token = sampling.choose(logits, random)
        yield token
        if token in facts.end_tokens:
            return
        if position + 1 < end:
            logits = model.run([token], position)


def heard(
    model: LanguageModel,
    encoder: Encoder,
    samples: Floats,
    prompt: Sequence[int],
    most: int | None = None,
    sampling: Sampling = Sampling(),
) -> Iterator[int]:
    """Yield the tokens of a sound at 16 kHz, of which an encoder hears as much as its frames have at a time.

    Each part of a longer sound is a text of its own behind the prompt, up to the token that ends it; there are at most ``most`` tokens in all.

    Raises InvalidOptionError before the first run where the prompt or ``most`` does not fit, or the sound is empty.
    """
    check_prompt(model, prompt)
    if most is not None and most < 1:
        raise InvalidOptionError(f"max-tokens: it is {most}; it is 1 or more.")
    if not len(samples):
        raise InvalidOptionError("audio: it has no samples. Give a sound with speech.")
    return _heard(model, encoder, samples, prompt, most, sampling)


def _heard(
    model: LanguageModel,
    encoder: Encoder,
    samples: Floats,
    prompt: Sequence[int],
    most: int | None,
    sampling: Sampling,
) -> Iterator[int]:
    count = 0
    for first in range(0, len(samples), encoder.samples):
        model.listen(encoder.hear(samples[first : first + encoder.samples]))
        for token in _tokens(model, prompt, None if most is None else most - count, sampling):
            yield token
            count += 1
        if count == most:
            return


def generate(
    file: str | Path,
    prompt: str,
    tokenizer: str | Path | None = None,
    *,
    max_tokens: int | None = None,
    temperature: float = 0.0,
    top_p: float = 1.0,
    seed: int = 0,
    stop: Sequence[str] = (),
    threads: int | None = None,
) -> Iterator[str]:
    """Return an iterator of the text with which a ``.pte`` continues a prompt, piece by piece, on the simulated NPU.

    ``tokenizer`` is a tokenizer.json; None: the one beside the file. The text ends before the first of the words ``stop``. The other
    parameters are those of ``Sampling`` and ``tokens``.

    Raises InvalidModelError or InvalidOptionError before the first run where model, tokenizer, prompt and options do not fit together,
    and MissingToolError without the package tokenizers.
    """
    path = existing(str(file))
    words = Tokenizer.read(Path(tokenizer) if tokenizer is not None else path.with_name(TOKENIZER))
    sampling = Sampling(temperature, top_p, seed)
    model = LanguageModel(content(path), path.name, threads)
    words.check(model.name, model.interface.vocabulary, model.interface.tokenizer)
    found = tokens(model, words.encode(prompt), max_tokens, sampling)
    return pieces(found, TextStream(words, stop), model.interface.end_tokens)


def pieces(found: Iterator[int], stream: TextStream, end_tokens: Sequence[int]) -> Iterator[str]:
    """Yield the text of tokens as they come, up to a stop word."""
    for token in found:
        if token not in end_tokens and (text := stream.add(token)):
            yield text
        if stream.is_stopped:
            return
    if text := stream.rest():
        yield text
