# SPDX-License-Identifier: BSD-3-Clause
"""Text to tokens and back: a tokenizer.json, text as its tokens come, stop words and chat templates."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from openneutron.device.files import content, existing
from openneutron.errors import InvalidModelError, MissingToolError

TOKENIZER = "tokenizer.json"

UNFINISHED = "\ufffd"
"""The character in place of a character whose last bytes are in the tokens to come."""


def identity(path: Path) -> int:
    """Return a number of 62 bits that tokenizers share which have the same model and the same added tokens, however their files are written.

    Raises InvalidModelError where the file is no tokenizer.json.
    """
    try:
        document = json.loads(content(existing(str(path))))
        added = [(each["id"], each["content"]) for each in document.get("added_tokens", ())]
        parts = json.dumps([document["model"], sorted(added)], sort_keys=True)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidModelError(
            f"'{path}' is no tokenizer that can be read: {error}. Give the tokenizer.json of the model."
        ) from error
    return int.from_bytes(hashlib.sha256(parts.encode()).digest()[:8], "little") >> 2


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """A tokenizer.json, read by the package tokenizers. ``vocabulary`` is the largest token plus 1."""

    path: Path
    vocabulary: int
    _words: Any = field(repr=False)

    @classmethod
    def read(cls, path: Path) -> Tokenizer:
        """Return the tokenizer of a file.

        Raises InvalidModelError where there is no such file or it is no tokenizer, and MissingToolError without the package tokenizers.
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
        """Raise InvalidModelError where the tokenizer has tokens that the model does not have, or has another identity than the ``known`` one."""
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
        """Return the tokens of a text, with those that the tokenizer puts around it."""
        return list(self._words.encode(text, add_special_tokens=with_special_tokens).ids)

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens, without special tokens."""
        return str(self._words.decode(list(tokens), skip_special_tokens=True))


class TextStream:
    """Turns tokens to text as they come.

    Text is held back while it may be the beginning of a stop word, or of a character whose last bytes are missing. At a stop word the text
    ends, and ``is_stopped`` is True.
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
        """Return the text that is certain after this token; it may be empty."""
        self._tokens.append(token)
        new = self._new()
        return "" if new.endswith(UNFINISHED) else self._certain(self._taken(new))

    def rest(self) -> str:
        """Return the text that was held back, at the end of all tokens."""
        text = self._certain(self._taken(self._new()))
        if self.is_stopped:
            return text
        held, self._held = self._held, ""
        return text + held

    def _new(self) -> str:
        """Return the text of the tokens that are not yet shown."""
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
    """Return the length of the longest end of ``text`` with which ``word`` begins."""
    longest = min(len(text), len(word) - 1)
    return next((size for size in range(longest, 0, -1) if text.endswith(word[:size])), 0)


CONFIGURATION, TEMPLATE = "tokenizer_config.json", "chat_template.jinja"


def chat(tokenizer: Path, prompt: str, system: str | None = None) -> str:
    """Return the text of a conversation whose last message is the user's prompt, by the chat template beside a tokenizer.json.

    The template is that of chat_template.jinja, or of tokenizer_config.json, which also has the special tokens. ``system`` is a message
    before the prompt.

    Raises InvalidModelError where there is no template or it refuses the messages, and MissingToolError without the package transformers.
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
    """Return the template of a configuration, which may have several with names: the one named default."""
    if isinstance(value, list):
        named = {item.get("name"): item.get("template") for item in value if isinstance(item, dict)}
        value = named.get("default")
    return value if isinstance(value, str) else None


def _token(value: Any) -> str:
    """Return the text of a special token, which is a text or a record with one."""
    return str(value.get("content", "")) if isinstance(value, dict) else "" if value is None else str(value)
