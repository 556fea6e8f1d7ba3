# SPDX-License-Identifier: BSD-3-Clause
"""WAV files as inputs of a model."""

from __future__ import annotations

import math
import wave
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from openneutron.device.data.arrays import fitted
from openneutron.device.data.pictures import check_channels, normalized
from openneutron.device.data.preprocessing import Preprocess
from openneutron.device.data.samples import ModelInput
from openneutron.device.data.unusable import UnusableError
from openneutron.errors import InvalidOptionError, MissingToolError

BYTES = (1, 2, 3, 4)
"""The bytes of one value in PCM files that are read: 8, 16, 24 and 32 bits."""


@dataclass(frozen=True, slots=True)
class Header:
    """The facts of a WAV file. ``frames`` has one value for each channel."""

    rate: int
    channels: int
    width_bytes: int
    frames: int


@dataclass(frozen=True, slots=True)
class SoundSteps:
    """The steps from a WAV file to a model's input.

    The values are between -1 and 1: 16 bits are divided by 32,768. Channels are averaged for a model of one channel. The model's
    input is ``[1, values]`` or ``[1, channels, values]``.
    """

    steps: Preprocess
    wanted: ModelInput
    rate: int | None

    @classmethod
    def of(cls, steps: Preprocess, wanted: ModelInput, rate: int | None, option: str) -> SoundSteps:
        """Return the steps. Raises InvalidOptionError where the input is no sound."""
        if len(wanted.shape) not in (2, 3) or wanted.shape[0] != 1:
            raise InvalidOptionError(
                f"{option}: WAV files are for a model that takes [1, values] or [1, channels, values]; this one takes {wanted}. Give a "
                "function that makes its input: --preprocess file.py:function."
            )
        made = cls(steps, wanted, rate)
        check_channels(steps, made.channels, option)
        return made

    @property
    def channels(self) -> int:
        """Return the channels that the model takes."""
        return self.wanted.shape[1] if len(self.wanted.shape) == 3 else 1

    def check(self, path: Path) -> None:
        """Check a file's header. Raises UnusableError where it is no WAV file, or does not fit the model."""
        self._check(header(path))

    def _check(self, found: Header) -> None:
        if found.channels != self.channels and self.channels != 1:
            raise UnusableError(f"it has {found.channels} channels; the model takes {self.channels}")
        if self.rate is not None and found.rate != self.rate:
            resampler()
        length = resampled_length(found, self.rate) if self.steps.length is None else self.steps.length
        if length != self.wanted.shape[-1]:
            after = f" at {self.rate:,} Hz" if self.rate not in (None, found.rate) else ""
            raise UnusableError(f"it has {length:,} values{after}; the model takes {self.wanted.shape[-1]:,}")

    def __call__(self, path: Path) -> np.ndarray:
        """Return the model's input. Raises UnusableError where the file does not fit."""
        found = header(path)
        self._check(found)
        values = read(path, self.rate)
        if self.channels == 1:
            values = values.mean(1, keepdims=True)
        if self.steps.length is not None:
            values = values[: self.steps.length]
            values = np.pad(values, ((0, self.steps.length - len(values)), (0, 0)))
        values = normalized(values.astype(np.float32), self.steps, Fraction(1))
        return fitted(values.T.reshape(self.wanted.shape), self.wanted)


def resampled_length(found: Header, rate: int | None) -> int:
    """Return the number of values for each channel after the resampling, rounded up."""
    return found.frames if rate is None else math.ceil(Fraction(found.frames * rate, found.rate))


def header(path: Path) -> Header:
    """Return the facts of a WAV file. Raises UnusableError where it is no PCM file."""
    try:
        with wave.open(str(path), "rb") as file:
            made = Header(file.getframerate(), file.getnchannels(), file.getsampwidth(), file.getnframes())
    except (wave.Error, EOFError, OSError) as error:
        raise UnusableError(f"it is no WAV file with PCM values: {str(error) or 'it is too short'}") from error
    if made.width_bytes not in BYTES or not made.rate:
        raise UnusableError(
            f"it has {8 * made.width_bytes} bits per value at {made.rate} Hz; 8, 16, 24 and 32 bits are read"
        )
    return made


def read(path: Path, rate: int | None) -> np.ndarray:
    """Return a WAV file's values as float64[values, channels] between -1 and 1, at another rate where one is given.

    Raises UnusableError where the file is damaged, MissingToolError where the resampling takes SciPy and SciPy is not installed.
    """
    found = header(path)
    with wave.open(str(path), "rb") as file:
        data = file.readframes(found.frames)
    if len(data) != found.frames * found.channels * found.width_bytes:
        raise UnusableError(f"it is truncated: its header states {found.frames:,} values")
    stored = _integers(data, found.width_bytes).reshape(-1, found.channels)
    values = stored / float(2 ** (8 * found.width_bytes - 1))
    if rate is None or rate == found.rate:
        return values
    common = math.gcd(rate, found.rate)
    made: np.ndarray = resampler()(values, rate // common, found.rate // common, axis=0)
    return made


def _integers(data: bytes, width: int) -> np.ndarray:
    """Return PCM values as signed integers: bytes are stored with 128 as their zero, 24 bits in three bytes."""
    if width == 1:
        return np.frombuffer(data, np.uint8).astype(np.int32) - 128
    if width == 3:
        parts = np.frombuffer(data, np.uint8).reshape(-1, 3)
        widened = np.zeros((len(parts), 4), np.uint8)
        widened[:, 1:] = parts
        return widened.view("<i4").reshape(-1) >> 8
    return np.frombuffer(data, f"<i{width}")


def resamples(path: Path, rate: int) -> bool:
    """Return whether a file is a WAV file of another sample rate."""
    try:
        return header(path).rate != rate
    except UnusableError:
        return False


def resampler() -> Any:
    """Return SciPy's ``resample_poly``. Raises MissingToolError where SciPy is not installed."""
    try:
        from scipy.signal import resample_poly
    except ImportError as error:
        raise MissingToolError(
            "Resampling WAV files takes SciPy, which is not installed. Install it with the extra 'sounds': "
            "pip install 'openneutron[sounds]'. Files that have the sample rate already need none."
        ) from error
    return resample_poly
