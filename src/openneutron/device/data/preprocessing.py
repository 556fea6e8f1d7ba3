# SPDX-License-Identifier: BSD-3-Clause
"""The steps between a picture or a sound and a model's input, as a text such as ``resize=256,crop=224,mean=0.5,std=0.5``."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from fractions import Fraction

from openneutron.errors import InvalidOptionError

INTERPOLATIONS = ("bilinear", "bicubic", "nearest", "box", "hamming", "lanczos")
"""Pillow's filters. All but ``nearest`` average over the source's pixels where a picture becomes smaller."""

COLORS = ("rgb", "bgr", "gray")

FOR_PICTURES = ("resize", "crop", "interpolation", "color")
FOR_SOUNDS = ("sample_rate", "length")

EXAMPLE = "resize=256,crop=224,mean=0.485:0.456:0.406,std=0.229:0.224:0.225"


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a picture in pixels. ``width`` is None where one number is given: a shorter side, or a square."""

    height: int
    width: int | None = None

    def __str__(self) -> str:
        return str(self.height) if self.width is None else f"{self.height}x{self.width}"


@dataclass(frozen=True, slots=True)
class Preprocess:
    """The steps in their order; a step that is None is left out.

    For pictures, as torchvision's ``Resize``, ``CenterCrop``, ``ToTensor`` and ``Normalize`` do them on Pillow's pictures:

    1. The picture is converted to ``color``: ``rgb``, ``bgr``, or ``gray`` (``(299 R + 587 G + 114 B) / 1000``). By default it
       is that of the model's channels: gray for 1, RGB for 3, RGBA for 4.
    2. ``resize=256`` makes the shorter side 256 pixels; the longer one keeps the ratio, rounded down. ``resize=240x320`` is a
       height and a width. ``interpolation`` is Pillow's filter.
    3. ``crop=224`` or ``crop=224x288`` takes the centre; an odd pixel is rounded to the even place.

    For sounds: ``sample_rate=16000`` resamples to a rate in Hz with SciPy's ``resample_poly``; then ``length=16000`` cuts a longer
    sound at its end and fills a shorter one with zeros.

    For both, in float32: the value times ``scale``, minus ``mean``, divided by ``std``. ``mean`` and ``std`` have one number,
    or one for each channel. The values of a picture are 0 to 255 and its default scale is 1/255; those of a sound are
    -1 to 1 and its default scale is 1.

    >>> str(Preprocess.parse("crop=32, resize=40, mean=0.5"))
    'resize=40,crop=32,mean=0.5'
    """

    color: str | None = None
    resize: Size | None = None
    interpolation: str | None = None
    crop: Size | None = None
    sample_rate: int | None = None
    length: int | None = None
    scale: Fraction | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None

    def __str__(self) -> str:
        given = ((item.name, getattr(self, item.name)) for item in fields(self))
        return ",".join(f"{name}={_text(value)}" for name, value in given if value is not None)

    @classmethod
    def parse(cls, text: str, option: str = "--preprocess") -> Preprocess:
        """Return the steps of a text. Raises InvalidOptionError for an unknown step or an unusable value."""
        values: dict[str, object] = {}
        for part in filter(None, (part.strip() for part in text.split(","))):
            name, _, value = (word.strip() for word in part.partition("="))
            if name not in _READERS:
                near = difflib.get_close_matches(name, _READERS, 1)
                hint = f" Did you mean '{near[0]}'?" if near else ""
                raise InvalidOptionError(f"{option}: '{name}' is no step; there are {', '.join(_READERS)}.{hint}")
            if name in values:
                raise InvalidOptionError(f"{option}: '{name}' is given twice. Leave one out.")
            try:
                values[name] = _READERS[name](value)
            except (ValueError, ZeroDivisionError) as error:
                raise InvalidOptionError(f"{option}: '{part}' can't be read: {name} is {_FORMS[name]}.") from error
        made = cls(**values)  # type: ignore[arg-type]
        if made.interpolation is not None and made.resize is None:
            raise InvalidOptionError(f"{option}: interpolation is for resize, which is not given. Write {EXAMPLE}.")
        return made

    def refuse(self, names: tuple[str, ...], what: str, option: str = "--preprocess") -> None:
        """Raise InvalidOptionError where one of these steps is given to files that it is not for."""
        for name in names:
            if getattr(self, name) is not None:
                raise InvalidOptionError(f"{option}: {name} is not for {what}. Leave it out.")


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return ":".join(f"{number:g}" if float(f"{number:g}") == number else repr(number) for number in value)
    return str(value)


def _size(text: str) -> Size:
    numbers = [_positive(part) for part in text.lower().split("x")]
    if len(numbers) > 2:
        raise ValueError(text)
    return Size(*numbers)


def _positive(text: str) -> int:
    number = int(text)
    if not 0 < number < 2**24:
        raise ValueError(text)
    return number


def _numbers(text: str) -> tuple[float, ...]:
    numbers = tuple(float(part) for part in text.split(":"))
    if not all(map(math.isfinite, numbers)):
        raise ValueError(text)
    return numbers


def _spreads(text: str) -> tuple[float, ...]:
    numbers = _numbers(text)
    if min(numbers) <= 0:
        raise ValueError(text)
    return numbers


def _scale(text: str) -> Fraction:
    number = Fraction(text.replace(" ", ""))
    if number <= 0:
        raise ValueError(text)
    return number


def _one_of(names: tuple[str, ...]) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in names:
            raise ValueError(text)
        return text

    return read


_READERS: dict[str, Callable[[str], object]] = {
    "color": _one_of(COLORS),
    "resize": _size,
    "interpolation": _one_of(INTERPOLATIONS),
    "crop": _size,
    "sample_rate": _positive,
    "length": _positive,
    "scale": _scale,
    "mean": _numbers,
    "std": _spreads,
}

_FORMS = {
    "color": f"one of {', '.join(COLORS)}",
    "resize": "a number of pixels for the shorter side, or HEIGHTxWIDTH",
    "interpolation": f"one of {', '.join(INTERPOLATIONS)}",
    "crop": "a number of pixels for both sides, or HEIGHTxWIDTH",
    "sample_rate": "a number of values in a second",
    "length": "a number of values",
    "scale": "a number above 0, or a quotient such as 1/255",
    "mean": "a number, or one for each channel with colons between them, such as 0.485:0.456:0.406",
    "std": "a number above 0, or one for each channel with colons between them, such as 0.229:0.224:0.225",
}
