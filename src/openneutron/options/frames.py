# SPDX-License-Identifier: BSD-3-Clause
"""The options of programs that take a camera's frames."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from openneutron.errors import InvalidOptionError
from openneutron.options.flags import did_you_mean, split_names

FRAME_WORDS = {"dtype": ("uint8",), "layout": ("nhwc", "nchw"), "color": ("rgb", "bgr")}
"""The words of a frame's format. The first one of each kind is the default."""


@dataclass(frozen=True, slots=True)
class FrameFormat:
    """The format of a camera's frames: the type of the values, the order of the axes, and the order of the colors.

    >>> FrameFormat.parse("uint8,nhwc,bgr").color
    'bgr'
    """

    dtype: str
    layout: str
    color: str

    @classmethod
    def parse(cls, text: str, option: str = "input_format") -> Self:
        """Return the format in a text. Raises InvalidOptionError for an unknown word, and for two words of one kind."""
        found: dict[str, str] = {}
        known = {word: kind for kind, words in FRAME_WORDS.items() for word in words}
        for word in split_names(text):
            if word not in known:
                raise InvalidOptionError(
                    f"{option}: '{word}' is unknown; there are {', '.join(known)}.{did_you_mean(word, known)}"
                )
            if found.setdefault(known[word], word) != word:
                raise InvalidOptionError(
                    f"{option}: '{word}' and '{found[known[word]]}' exclude each other. Leave one out."
                )
        return cls(**{kind: found.get(kind, words[0]) for kind, words in FRAME_WORDS.items()})

    @property
    def is_last(self) -> bool:
        """Return whether the channels are innermost."""
        return self.layout == "nhwc"


@dataclass(frozen=True, slots=True, kw_only=True)
class InputOptions:
    """The form in which a camera delivers the input of a PyTorch model. The compiled program takes this form.

    Raises InvalidOptionError for an unusable value.

    >>> InputOptions(format="uint8,nhwc,bgr", normalize="mean=0.5,std=0.25").format
    'uint8,nhwc,bgr'
    """

    format: str | None = None
    """The format of the frames: ``uint8``, ``nhwc`` or ``nchw``, ``rgb`` or ``bgr``. None: the model's own input, or
    ``uint8,nhwc,rgb`` with ``normalize``."""

    normalize: str | None = None
    """The steps from a byte to the value that the model takes: ``scale`` (1/255 if it is absent), ``mean`` and ``std``, as in
    ``DataOptions.preprocess``. None: the model takes the bytes as numbers from 0 to 255."""

    def __post_init__(self) -> None:
        for name, value in (("input_format", self.format), ("normalize", self.normalize)):
            if value is not None and not isinstance(value, str):
                raise InvalidOptionError(f"{name}: it is {value!r}; it is a text.")
        FrameFormat.parse(self.format or "")

    @property
    def given(self) -> list[str]:
        """Return the names of the options that are given, as the command line has them."""
        values = {"input_format": self.format, "normalize": self.normalize}
        return [name for name, value in values.items() if value is not None]
