# SPDX-License-Identifier: BSD-3-Clause
"""The steps between a picture or a sound and a model's input, as a text such as ``resize=256,crop=224,mean=0.5,std=0.5``."""

from __future__ import annotations

import difflib
import math
import wave
from collections.abc import Callable
from dataclasses import dataclass, fields
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from openneutron.device.data.samples import MisfitError, ModelInput, UnusableError, fitted
from openneutron.errors import InvalidOptionError, MissingToolError

if TYPE_CHECKING:
    from PIL import Image

INTERPOLATIONS = ("bilinear", "bicubic", "nearest", "box", "hamming", "lanczos")
"""Pillow's filters. All but ``nearest`` average over the source's pixels where a picture is made smaller."""

COLORS = ("rgb", "bgr", "gray")

FOR_PICTURES = ("resize", "crop", "letterbox", "interpolation", "color")
FOR_SOUNDS = ("sample_rate", "length")

EXAMPLE = "resize=256,crop=224,mean=0.485:0.456:0.406,std=0.229:0.224:0.225"


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a picture in pixels. ``width`` is None where one number is given: a shorter side, or a square."""

    height: int
    width: int | None = None

    def __str__(self) -> str:
        return str(self.height) if self.width is None else f"{self.height}x{self.width}"

    @property
    def both(self) -> tuple[int, int]:
        """Return height and width; of one number, those of a square."""
        return self.height, self.height if self.width is None else self.width


@dataclass(frozen=True, slots=True)
class Preprocess:
    """The steps in their order; a step that is None is left out.

    For pictures, as torchvision's ``Resize``, ``CenterCrop``, ``ToTensor`` and ``Normalize`` do them on Pillow's pictures:

    1. The picture is converted to ``color``: ``rgb``, ``bgr``, or ``gray`` (``(299 R + 587 G + 114 B) / 1000``). By default it
       is that of the model's channels: gray for 1, RGB for 3, RGBA for 4.
    2. ``resize=256`` makes the shorter side 256 pixels; the longer one keeps the ratio, rounded down. ``resize=240x320`` is a
       height and a width. ``interpolation`` is Pillow's filter for ``resize`` and ``letterbox``, ``bilinear`` by
       default.
    3. ``crop=224`` or ``crop=224x288`` takes the centre; an odd pixel is rounded to the even place.
    4. ``letterbox=640`` or ``letterbox=384x640``, in the place of ``resize`` and ``crop``, makes the picture as large as fits with its
       ratio of sides, in the centre of a gray frame, as detectors take it (``Letterbox``).

    For sounds: ``sample_rate=16000`` resamples to a rate in Hz with SciPy's ``resample_poly``; then ``length=16000`` cuts a longer
    sound at its end and fills a shorter one with zeros.

    For both, in float32: the value times ``scale``, minus ``mean``, divided by ``std``. ``mean`` and ``std`` have one number,
    or one for each channel. The values of a picture are 0 to 255. Its default scale is 1/255, or 1 for a model input
    of integers without a scale. The values of a sound are -1 to 1 and its default scale is 1.

    >>> str(Preprocess.parse("crop=32, resize=40, mean=0.5"))
    'resize=40,crop=32,mean=0.5'
    """

    color: str | None = None
    resize: Size | None = None
    interpolation: str | None = None
    crop: Size | None = None
    letterbox: Size | None = None
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
        """Return the steps of a text. Raises InvalidOptionError for an unknown step, an unusable value, a step that
        is given twice, or steps that exclude each other."""
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
        if made.letterbox is not None and (made.resize is not None or made.crop is not None):
            name = "resize" if made.resize is not None else "crop"
            raise InvalidOptionError(f"{option}: letterbox takes the place of resize and crop. Leave {name} out.")
        if made.interpolation is not None and made.resize is None and made.letterbox is None:
            raise InvalidOptionError(f"{option}: interpolation is for resize, which is not given. Write {EXAMPLE}.")
        return made

    def refuse(self, names: tuple[str, ...], what: str, option: str = "--preprocess") -> None:
        """Raise InvalidOptionError where one of the steps ``names`` is given: these steps are not for the files
        ``what``."""
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


BYTES = (1, 2, 3, 4)
"""The widths in bytes of the PCM values that can be read: 8, 16, 24 and 32 bits."""


@dataclass(frozen=True, slots=True)
class Header:
    """The facts that a WAV file's header states. ``frames`` is the number of values in each channel."""

    rate: int
    channels: int
    width_bytes: int
    frames: int


@dataclass(frozen=True, slots=True)
class SoundSteps:
    """The steps from a WAV file to a model's input.

    The values are scaled to -1 to 1: values of 16 bits are divided by 32,768. Channels are averaged for a model of one
    channel. The model's input is ``[1, values]`` or ``[1, channels, values]``.
    """

    steps: Preprocess
    wanted: ModelInput
    rate: int | None

    @classmethod
    def of(cls, steps: Preprocess, wanted: ModelInput, rate: int | None, option: str) -> SoundSteps:
        """Return ``steps`` as the steps for this model input. Raises InvalidOptionError where the model's input is no
        sound, or where mean, std or color don't fit its channels."""
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
        """Return the number of channels that the model takes."""
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
            raise MisfitError(f"it has {length:,} values{after}; the model takes {self.wanted.shape[-1]:,}")

    def __call__(self, path: Path) -> np.ndarray:
        """Return the model's input for a WAV file. Raises UnusableError where the file does not fit the model."""
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
    """Return the number of values in each channel after the resampling, rounded up."""
    return found.frames if rate is None else math.ceil(Fraction(found.frames * rate, found.rate))


def header(path: Path) -> Header:
    """Return the facts in a WAV file's header. Raises UnusableError where the file is no PCM file."""
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
    """Return a WAV file's values as float64[values, channels] between -1 and 1. They are resampled to ``rate`` unless
    it is None.

    Raises UnusableError where the file is damaged, and MissingToolError where the resampling needs SciPy, which is not
    installed.
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
    """Return PCM values as signed integers. 8-bit values are unsigned in the file, with 128 as their zero, and 24-bit
    values take three bytes."""
    if width == 1:
        return np.frombuffer(data, np.uint8).astype(np.int32) - 128
    if width == 3:
        parts = np.frombuffer(data, np.uint8).reshape(-1, 3)
        widened = np.zeros((len(parts), 4), np.uint8)
        widened[:, 1:] = parts
        return widened.view("<i4").reshape(-1) >> 8
    return np.frombuffer(data, f"<i{width}")


def resamples(path: Path, rate: int) -> bool:
    """Return whether a file is a WAV file with another sample rate than ``rate``."""
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


_READERS: dict[str, Callable[[str], object]] = {
    "color": _one_of(COLORS),
    "resize": _size,
    "interpolation": _one_of(INTERPOLATIONS),
    "crop": _size,
    "letterbox": _size,
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
    "letterbox": "a number of pixels for both sides, or HEIGHTxWIDTH",
    "sample_rate": "a number of values in a second",
    "length": "a number of values",
    "scale": "a number above 0, or a quotient such as 1/255",
    "mean": "a number, or one for each channel with colons between them, such as 0.485:0.456:0.406",
    "std": "a number above 0, or one for each channel with colons between them, such as 0.229:0.224:0.225",
}


CHANNELS = (1, 3, 4)
"""The numbers of channels of a gray picture, of a color picture, and of a color picture with transparency."""

MODES = {1: "L", 3: "RGB", 4: "RGBA"}
"""Pillow's mode of a picture, by the number of channels."""

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
    """A model's input that is a picture. ``axis`` is the place of the channels in the shape; None where the shape has
    no channel axis."""

    wanted: ModelInput
    height: int
    width: int
    channels: int
    axis: int | None

    @classmethod
    def of(cls, wanted: ModelInput, option: str) -> ImageInput:
        """Return the size and layout of a model's input. Raises InvalidOptionError where the input is no picture, or
        several."""
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
        """Return whether the input has integers without a scale, such as a picture's bytes."""
        return self.wanted.dtype.kind in "iu" and self.wanted.quant is None

    def arranged(self, values: np.ndarray) -> np.ndarray:
        """Return values of height, width and channels in the input's shape and type. Raises UnusableError where the
        values don't fit the input."""
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
    if steps.letterbox is not None:
        return steps.letterbox.both
    height, width = resized(height, width, steps.resize)
    crop = steps.crop
    if crop is None:
        return height, width
    wanted = crop.both
    if wanted[0] > height or wanted[1] > width:
        after = "" if steps.resize is None else " after the resize"
        raise MisfitError(f"it has {_pixels(height, width)}{after}, less than the crop of {_pixels(*wanted)}")
    return wanted


FRAME = 114
"""The gray value of a letterbox' frame, of 0 to 255 (``padding_value`` of LetterBox in Ultralytics' data/augment.py, 8.4)."""


@dataclass(frozen=True, slots=True)
class Letterbox:
    """The place of a picture in a frame: its size after the resize, and its corner, in pixels. ``ratio`` is the new size over the old
    one. The rounding is that of LetterBox in Ultralytics' data/augment.py (8.4).

    >>> Letterbox.of(80, 96, 64, 64)
    Letterbox(ratio=0.6666666666666666, height=53, width=64, top=5, left=0)
    """

    ratio: float
    height: int
    width: int
    top: int
    left: int

    @classmethod
    def of(cls, height: int, width: int, frame_height: int, frame_width: int) -> Letterbox:
        """Return the place of a picture of this size in a frame of that size."""
        ratio = min(frame_height / height, frame_width / width)
        new_height, new_width = max(1, round(height * ratio)), max(1, round(width * ratio))
        top, left = (
            round((frame - new) / 2 - 0.1) for frame, new in ((frame_height, new_height), (frame_width, new_width))
        )
        return cls(ratio, new_height, new_width, top, left)


def resized(height: int, width: int, size: Size | None) -> tuple[int, int]:
    """Return a picture's height and width after a resize. Given one number, the shorter side becomes this number and
    the longer side keeps the ratio, rounded down, as in torchvision."""
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
        """Check a file's header. Raises UnusableError where the file is no picture, or has another size than the
        model's after the steps."""
        with opened(path) as picture:
            self.check_size(picture)

    def check_size(self, picture: Image.Image) -> None:
        """Raise UnusableError where the picture has another size than the model's after the steps, or more than 8 bits
        per channel."""
        if picture.mode.startswith(("I", "F")):
            raise UnusableError(f"its values have more than 8 bits (Pillow's mode {picture.mode})")
        after = size_after(picture.height, picture.width, self.steps)
        if after != (self.input.height, self.input.width):
            wanted = _pixels(self.input.height, self.input.width)
            before = _pixels(picture.height, picture.width)
            there = before if after == (picture.height, picture.width) else f"{_pixels(*after)} after the preprocessing"
            raise MisfitError(f"it has {there}; the model takes {wanted}")

    def __call__(self, picture: Image.Image) -> np.ndarray:
        """Return the model's input for a picture. Raises UnusableError where the picture does not fit the model."""
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
        """Return the picture converted to its color mode, resized and cropped, or in a letterbox."""
        steps, image = self.steps, pillow()
        picture = picture.convert("L" if steps.color == "gray" else MODES[self.input.channels])
        if steps.letterbox is not None:
            place = Letterbox.of(picture.height, picture.width, *steps.letterbox.both)
            chosen = image.Resampling[(steps.interpolation or "bilinear").upper()]
            frame: Image.Image = image.new(picture.mode, steps.letterbox.both[::-1], (FRAME,) * len(picture.getbands()))
            frame.paste(picture.resize((place.width, place.height), chosen), (place.left, place.top))
            return frame
        size = resized(picture.height, picture.width, steps.resize)
        if size != (picture.height, picture.width):
            chosen = image.Resampling[(steps.interpolation or "bilinear").upper()]
            picture = picture.resize((size[1], size[0]), chosen)
        height, width = size_after(size[0], size[1], Preprocess(crop=steps.crop))
        top, left = round((size[0] - height) / 2), round((size[1] - width) / 2)
        return picture.crop((left, top, left + width, top + height))


def normalized(values: np.ndarray, steps: Preprocess, default: Fraction) -> np.ndarray:
    """Return ``values`` as float32, times the scale, minus the mean, divided by the standard deviation, for each
    channel of the last axis. A scale of 1/N divides by N, as torchvision's ``ToTensor`` does."""
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
    """Return the picture in a file before its pixels are decoded. Raises UnusableError where the file is no picture."""
    image = pillow()
    try:
        return image.open(path)
    # Pillow raises UnidentifiedImageError, OSError, SyntaxError, ValueError and others for damaged headers.
    except Exception as error:
        raise UnusableError("it is no picture that Pillow can read") from error


def decoded(path: Path) -> Image.Image:
    """Return the picture in a file with its pixels decoded. Raises UnusableError where the file is damaged."""
    with opened(path) as picture:
        try:
            picture.load()
        # Pillow raises OSError, SyntaxError, ValueError, EOFError and others for damaged files.
        except Exception as error:
            first = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise UnusableError(f"it can't be decoded: {first}") from error
        made: Image.Image = picture
        return made
