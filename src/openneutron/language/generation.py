# SPDX-License-Identifier: BSD-3-Clause
"""Text of a language model: tokens by a tokenizer.json, chat templates, and generation (the prompt in chunks, then one token at a time)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from openneutron.device.files import content, existing
from openneutron.errors import InvalidModelError, InvalidOptionError, MissingToolError
from openneutron.language.model import Floats, Interface, LanguageModel
from openneutron.language.sound import Encoder

TOKENIZER = "tokenizer.json"

UNFINISHED = "\ufffd"
"""The character in place of a character whose last bytes are in the tokens to come."""


def identity(path: Path) -> int:
    """Return the identity of a tokenizer: a number of 62 bits, computed from its model and its added tokens.

    Two tokenizer.json files with the same model and added tokens have the same identity, even if their bytes differ.

    Raises InvalidModelError if the file is not a tokenizer.json.
    """
    text = content(existing(str(path)))
    try:
        document = json.loads(text)
        added = [(each["id"], each["content"]) for each in document.get("added_tokens", ())]
        parts = json.dumps([document["model"], sorted(added)], sort_keys=True)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidModelError(
            f"'{path}' is no tokenizer that can be read: {error}. Give the tokenizer.json of the model."
        ) from error
    return int.from_bytes(hashlib.sha256(parts.encode()).digest()[:8], "little") >> 2


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """A tokenizer.json, opened with the package tokenizers. ``vocabulary`` is the largest token plus 1."""

    path: Path
    vocabulary: int
    _words: Any = field(repr=False)

    @classmethod
    def read(cls, path: Path) -> Tokenizer:
        """Return the tokenizer of a file.

        Raises InvalidModelError if the file does not exist or is not a tokenizer, and MissingToolError without the package tokenizers.
        """
        try:
            import tokenizers
        except ImportError as error:
            raise MissingToolError(
                "tokenizers: the package is not installed, and it reads a tokenizer.json: pip install 'openneutron[language]'."
            ) from error
        text = content(existing(str(path)))
        try:
            words = tokenizers.Tokenizer.from_str(text.decode())
        except Exception as error:  # the package raises no other type
            raise InvalidModelError(
                f"'{path}' is no tokenizer that can be read: {error}. Give the tokenizer.json of the model."
            ) from error
        return cls(path, max(words.get_vocab(with_added_tokens=True).values(), default=-1) + 1, words)

    def check(self, model: str, vocabulary: int, known: int | None = None) -> None:
        """Raise InvalidModelError if the tokenizer does not fit a model.

        ``vocabulary`` is the model's number of tokens: the tokenizer must not have more. ``known`` is the identity of the model's own tokenizer,
        which this one must have; None if it is not known.
        """
        if self.vocabulary > vocabulary:
            raise InvalidModelError(
                f"'{self.path}' has the tokens 0 to {self.vocabulary - 1}; the vocabulary of '{model}' has {vocabulary} tokens. "
                "Give the tokenizer of this model."
            )
        if known is not None and identity(self.path) != known:
            raise InvalidModelError(
                f"'{self.path}' is another tokenizer than the one with which '{model}' was exported: its tokens or merges differ. "
                "Give the tokenizer of this model."
            )

    def encode(self, text: str, with_special_tokens: bool = True) -> list[int]:
        """Return the tokens of a text. ``with_special_tokens`` includes the special tokens that the tokenizer adds before and after."""
        return list(self._words.encode(text, add_special_tokens=with_special_tokens).ids)

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens, without special tokens."""
        return str(self._words.decode(list(tokens), skip_special_tokens=True))


class TextStream:
    """Converts tokens to text, one token at a time.

    Text that may be the beginning of a stop word is held back, as is a character whose last bytes are in later tokens. The text ends before a
    stop word; ``is_stopped`` is then True.
    """

    def __init__(self, words: Tokenizer, stop: Sequence[str] = ()) -> None:
        self._words = words
        self._stop = [word for word in stop if word]
        self._tokens: list[int] = []
        self._shown = 0
        """The tokens before this one are text already."""
        self._start = 0
        """The first token of those that are decoded together, so that a space between two tokens is kept."""
        self._held = ""
        self.is_stopped = False

    def add(self, token: int) -> str:
        """Return the text that is final after this token. It may be empty."""
        self._tokens.append(token)
        new = self._new()
        return "" if new.endswith(UNFINISHED) else self._certain(self._taken(new))

    def rest(self) -> str:
        """Return the text that is still held back. Call it after the last token."""
        text = self._certain(self._taken(self._new()))
        if self.is_stopped:
            return text
        held, self._held = self._held, ""
        return text + held

    def _new(self) -> str:
        """Return the text of the tokens that have not been returned yet."""
        before = self._words.decode(self._tokens[self._start : self._shown])
        return self._words.decode(self._tokens[self._start :])[len(before) :]

    def _taken(self, new: str) -> str:
        self._start, self._shown = self._shown, len(self._tokens)
        return new

    def _certain(self, new: str) -> str:
        if self.is_stopped:
            return ""
        text = self._held + new
        found = [place for place in (text.find(word) for word in self._stop) if place >= 0]
        if found:
            self.is_stopped, self._held = True, ""
            return text[: min(found)]
        held = max((_overlap(text, word) for word in self._stop), default=0)
        self._held = text[len(text) - held :]
        return text[: len(text) - held]


def _overlap(text: str, word: str) -> int:
    """Return the length of the longest suffix of ``text`` that is a prefix of ``word``."""
    longest = min(len(text), len(word) - 1)
    return next((size for size in range(longest, 0, -1) if text.endswith(word[:size])), 0)


CONFIGURATION, TEMPLATE = "tokenizer_config.json", "chat_template.jinja"


def chat(tokenizer: Path, prompt: str, system: str | None = None) -> str:
    """Return the text that asks a chat model for an answer to ``prompt``. The chat template beside a tokenizer.json
    makes it: ``system`` as the first message if it is given, then the user's prompt, then the template's text at the
    start of an answer.

    The template is chat_template.jinja, or the one in tokenizer_config.json, which also has the special tokens.

    Raises InvalidModelError if there is no template or the template refuses the messages, and MissingToolError
    without the package transformers.
    """
    try:
        from transformers.utils.chat_template_utils import render_jinja_template
    except ImportError as error:
        raise MissingToolError(
            "transformers: the package is not installed, and it reads chat templates: pip install 'openneutron[language]'."
        ) from error
    path, own = tokenizer.with_name(CONFIGURATION), tokenizer.with_name(TEMPLATE)
    configuration = _configuration(path)
    template = content(own).decode() if own.exists() else _template(configuration.get("chat_template"))
    if template is None:
        raise InvalidModelError(
            f"'{path}' has no chat template, and there is no '{own.name}' beside it. Leave out --chat, and write the prompt in the "
            "form that the model was trained with."
        )
    special: dict[str, Any] = {name: _token(value) for name, value in configuration.items() if name.endswith("_token")}
    messages = [] if system is None else [{"role": "system", "content": system}]
    messages.append({"role": "user", "content": prompt})
    try:
        made: Any = render_jinja_template(
            conversations=[messages], chat_template=template, add_generation_prompt=True, **special
        )
    except Exception as error:  # jinja2's errors, and those that the template raises
        raise InvalidModelError(f"the chat template of '{tokenizer}' refuses the messages: {error}.") from error
    return str(made[0][0])


def _configuration(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        found = json.loads(content(path))
    except ValueError as error:
        raise InvalidModelError(f"'{path}' is no JSON: {error}.") from error
    return found if isinstance(found, dict) else {}


def _template(value: Any) -> str | None:
    """Return the chat template in a value of tokenizer_config.json: a text, or the one named default in a list; None if there is none."""
    if isinstance(value, list):
        named = {item.get("name"): item.get("template") for item in value if isinstance(item, dict)}
        value = named.get("default")
    return value if isinstance(value, str) else None


def _token(value: Any) -> str:
    """Return the text of a special token, given as a text or as a record with ``content``; empty for None."""
    return str(value.get("content", "")) if isinstance(value, dict) else "" if value is None else str(value)


class Runs(Protocol):
    """The methods that generation needs of a model. ``LanguageModel`` has them."""

    name: str
    interface: Interface

    def run(self, tokens: Sequence[int], position: int) -> Floats: ...


@dataclass(frozen=True, slots=True)
class Sampling:
    """The rule by which the next token is chosen from logits.

    * ``temperature``: 0 chooses the most likely token, and the first of equally likely ones. Otherwise logits are divided by it before softmax.
    * ``top_p``: draw only from the most likely tokens whose probabilities add up to at least this number.
    * ``seed``: of the random numbers. The same seed gives the same text.

    Raises InvalidOptionError for a value outside its range.
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
        """Return the token that is chosen from logits [vocabulary]. Probabilities are computed in float64."""
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
    """Raise InvalidOptionError if a prompt is empty, leaves no position of the model's context for a new token, or
    has a token that the model does not have."""
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
    """Yield the tokens that continue a prompt, until an end token, a full cache, or ``most`` tokens.

    An end token is yielded too. The cache is full after context - len(prompt) tokens, as in ExecuTorch's ``TextLLMRunner``.

    Raises InvalidOptionError before the first run if the prompt or ``most`` does not fit, and InvalidModelError if logits are not finite.
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
    """Yield the tokens of the text that is spoken in a sound: float32 ``samples`` at 16 kHz.

    A sound that is longer than the encoder's input is divided into parts. The tokens of each part continue ``prompt``
    anew, until an end token or a full cache. At most ``most`` tokens are yielded for all parts together.

    Raises InvalidOptionError before the first run if the prompt or ``most`` does not fit, or the sound is empty, and
    InvalidModelError if logits are not finite.
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
    """Return an iterator over the pieces of the text with which a ``.pte`` continues a prompt, computed on the
    simulated NPU.

    ``tokenizer`` is a tokenizer.json; None stands for the one beside the file. The text ends before the first of the
    words in ``stop``. ``temperature``, ``top_p`` and ``seed`` are those of ``Sampling``, ``max_tokens`` is ``most``
    of ``tokens``, and ``threads`` is that of ``LanguageModel``.

    Raises InvalidProgramError if the file is damaged, InvalidModelError or InvalidOptionError before the first run if
    model, tokenizer, prompt and options do not fit together, and MissingToolError without the package tokenizers.
    """
    path = existing(str(file))
    words = Tokenizer.read(Path(tokenizer) if tokenizer is not None else path.with_name(TOKENIZER))
    sampling = Sampling(temperature, top_p, seed)
    model = LanguageModel(content(path), path.name, threads)
    words.check(model.name, model.interface.vocabulary, model.interface.tokenizer)
    found = tokens(model, words.encode(prompt), max_tokens, sampling)
    return pieces(found, TextStream(words, stop), model.interface.end_tokens)


def pieces(found: Iterator[int], stream: TextStream, end_tokens: Sequence[int]) -> Iterator[str]:
    """Yield the text of tokens, piece by piece, until a stop word."""
    for token in found:
        if token not in end_tokens and (text := stream.add(token)):
            yield text
        if stream.is_stopped:
            return
    if text := stream.rest():
        yield text
