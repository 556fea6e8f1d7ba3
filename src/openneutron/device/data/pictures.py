# SPDX-License-Identifier: BSD-3-Clause
"""Pictures as inputs of a model."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from openneutron.device.data.arrays import fitted
from openneutron.device.data.preprocessing import Preprocess, Size
from openneutron.device.data.samples import ModelInput
from openneutron.device.data.unusable import UnusableError
from openneutron.errors import InvalidOptionError, MissingToolError

if TYPE_CHECKING:
    from PIL import Image

CHANNELS = (1, 3, 4)
"""The channels of a gray picture, of one in colors, and of one in colors with transparency."""

MODES = {1: "L", 3: "RGB", 4: "RGBA"}
"""Pillow's name of a picture with so many channels."""

BYTE_SCALE = Fraction(1, 255)


def pillow() -> Any:
    """Return Pillow's module ``Image``. Raises MissingToolError where Pillow is not installed."""
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingToolError("Reading pictures takes Pillow, which is not installed: pip install pillow.") from error
    return Image


@dataclass(frozen=True, slots=True)
class ImageInput:
    """A model's input as a picture. ``axis`` is the place of the channels in the shape; None where the shape has none."""

    wanted: ModelInput
    height: int
    width: int
    channels: int
    axis: int | None

    @classmethod
    def of(cls, wanted: ModelInput, option: str) -> ImageInput:
        """Return the input's size and layout. Raises InvalidOptionError where the input is no picture, or several."""
        shape = wanted.shape
        if len(shape) not in (3, 4) or shape[0] != 1:
            raise InvalidOptionError(
                f"{option}: pictures are for a model that takes one picture; this one takes {wanted}. Give its inputs as .npy files."
            )
        if len(shape) == 3:
            return cls(wanted, shape[1], shape[2], 1, None)
        axes = (3,) if wanted.channels_last else (1,) if wanted.channels_last is False else (1, 3)
        axis = next((axis for axis in axes if shape[axis] in CHANNELS), None)
        if axis is None:
            raise InvalidOptionError(
                f"{option}: pictures have 1, 3 or 4 channels; the model takes {wanted}. Give its inputs as .npy files."
            )
        height, width = (shape[other] for other in (1, 2, 3) if other != axis)
        return cls(wanted, height, width, shape[axis], axis)

    @property
    def is_plain_integer(self) -> bool:
        """Return whether the input has integers that stand for themselves, such as a picture's bytes."""
        return self.wanted.dtype.kind in "iu" and self.wanted.quant is None

    def arranged(self, values: np.ndarray) -> np.ndarray:
        """Return values of height, width and channels in the input's shape and type. Raises UnusableError where they don't
        fit."""
        if values.shape != (self.height, self.width, self.channels):
            height, width, channels = values.shape
            raise UnusableError(
                f"it has {_pixels(height, width)} and {channels} channels; the model takes {self.wanted}"
            )
        if self.is_plain_integer:
            limits = np.iinfo(self.wanted.dtype)
            if (values != np.rint(values)).any() or values.min() < limits.min or values.max() > limits.max:
                raise UnusableError(f"its values are no {self.wanted.dtype} after the preprocessing")
            values = values.astype(self.wanted.dtype)
        if self.axis == 1:
            values = np.moveaxis(values, 2, 0)
        return fitted(values.reshape(self.wanted.shape), self.wanted)


def _pixels(height: int, width: int) -> str:
    return f"{height}x{width} pixels"


def size_after(height: int, width: int, steps: Preprocess) -> tuple[int, int]:
    """Return a picture's height and width after the steps. Raises UnusableError where the crop is larger than the picture."""
    height, width = resized(height, width, steps.resize)
    crop = steps.crop
    if crop is None:
        return height, width
    wanted = (crop.height, crop.height if crop.width is None else crop.width)
    if wanted[0] > height or wanted[1] > width:
        after = "" if steps.resize is None else " after the resize"
        raise UnusableError(f"it has {_pixels(height, width)}{after}, less than the crop of {_pixels(*wanted)}")
    return wanted


def resized(height: int, width: int, size: Size | None) -> tuple[int, int]:
    """Return a picture's height and width after a resize: the shorter side has the size and the longer one keeps the ratio,
    rounded down, as in torchvision."""
    if size is None:
        return height, width
    if size.width is not None:
        return size.height, size.width
    short, long = sorted((height, width))
    other = int(size.height * long / short)
    return (size.height, other) if height <= width else (other, size.height)


@dataclass(frozen=True, slots=True)
class PictureSteps:
    """The steps from a picture to a model's input."""

    steps: Preprocess
    input: ImageInput

    def check(self, path: Path) -> None:
        """Check a file's header. Raises UnusableError where it is no picture, or has not the size after the steps."""
        with opened(path) as picture:
            self.check_size(picture)

    def check_size(self, picture: Image.Image) -> None:
        """Raise UnusableError where the picture has not the model's size after the steps, or more than 8 bits per channel."""
        if picture.mode.startswith(("I", "F")):
            raise UnusableError(f"its values have more than 8 bits (Pillow's mode {picture.mode})")
        after = size_after(picture.height, picture.width, self.steps)
        if after != (self.input.height, self.input.width):
            wanted = _pixels(self.input.height, self.input.width)
            before = _pixels(picture.height, picture.width)
            there = before if after == (picture.height, picture.width) else f"{_pixels(*after)} after the preprocessing"
            raise UnusableError(f"it has {there}; the model takes {wanted}")

    def __call__(self, picture: Image.Image) -> np.ndarray:
        """Return the model's input. Raises UnusableError where the picture does not fit."""
        self.check_size(picture)
        steps = self.steps
        pixels = np.asarray(self._pixels(picture))
        if steps.color == "bgr":
            pixels = pixels[..., ::-1]
        if pixels.ndim == 2:
            pixels = pixels[..., np.newaxis]
        if pixels.shape[2] == 1 and self.input.channels > 1:
            pixels = np.repeat(pixels, self.input.channels, 2)
        default = Fraction(1) if self.input.is_plain_integer else BYTE_SCALE
        return self.input.arranged(normalized(pixels.astype(np.float32), steps, default))

    def _pixels(self, picture: Image.Image) -> Image.Image:
        """Return the picture in its color, resized and cropped."""
        steps, image = self.steps, pillow()
        picture = picture.convert("L" if steps.color == "gray" else MODES[self.input.channels])
        size = resized(picture.height, picture.width, steps.resize)
        if size != (picture.height, picture.width):
            chosen = image.Resampling[(steps.interpolation or "bilinear").upper()]
            picture = picture.resize((size[1], size[0]), chosen)
        height, width = size_after(size[0], size[1], Preprocess(crop=steps.crop))
        top, left = round((size[0] - height) / 2), round((size[1] - width) / 2)
        return picture.crop((left, top, left + width, top + height))


def normalized(values: np.ndarray, steps: Preprocess, default: Fraction) -> np.ndarray:
    """Return float32 values times the scale, minus the mean, divided by the standard deviation, for each channel of the last
    axis. A scale of 1/N divides by N, as torchvision's ``ToTensor`` does."""
    scale = default if steps.scale is None else steps.scale
    values = values / np.float32(scale.denominator) if scale.numerator == 1 else values * np.float32(float(scale))
    if steps.mean is not None:
        values = values - np.array(steps.mean, np.float32)
    if steps.std is not None:
        values = values / np.array(steps.std, np.float32)
    return values


def check_channels(steps: Preprocess, channels: int, option: str) -> None:
    """Raise InvalidOptionError where mean, std or color don't fit the model's channels."""
    for name in ("mean", "std"):
        numbers = getattr(steps, name)
        if numbers is not None and len(numbers) not in (1, channels):
            raise InvalidOptionError(
                f"{option}: {name} has {len(numbers)} numbers; the model has {channels} channels. Give one number, or one for each."
            )
    if steps.color in ("rgb", "bgr") and channels != 3:
        raise InvalidOptionError(
            f"{option}: color={steps.color} is for 3 channels; the model has {channels}. Leave it out."
        )


def opened(path: Path) -> Any:
    """Return the picture of a file, whose pixels are not decoded yet. Raises UnusableError where it is no picture."""
    image = pillow()
    try:
        return image.open(path)
    # Pillow raises UnidentifiedImageError, OSError, SyntaxError, ValueError and others for damaged headers.
    except Exception as error:
        raise UnusableError("it is no picture that Pillow can read") from error


def decoded(path: Path) -> Image.Image:
    """Return the picture of a file with its pixels. Raises UnusableError where the file is damaged."""
    with opened(path) as picture:
        try:
            picture.load()
        # Pillow raises OSError, SyntaxError, ValueError, EOFError and others for damaged files.
        except Exception as error:
            first = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise UnusableError(f"it can't be decoded: {first}") from error
        made: Image.Image = picture
        return made
