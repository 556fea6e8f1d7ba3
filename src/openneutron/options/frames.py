# SPDX-License-Identifier: BSD-3-Clause
"""The options of programs that take a camera's frames."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

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
        """Return the format that a text such as ``uint8,nhwc,bgr`` describes: words for the type, the order of the
        axes and the order of the colors. Where the text has no word for one of these, the first word in
        ``FRAME_WORDS`` is used. Raises InvalidOptionError for an unknown word, and for two different words for the
        same property."""
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

    normalize: Any = None
    """The steps from a byte to the value that the model takes: ``scale`` (1/255 if it is absent), ``mean`` and ``std``, as in
    ``DataOptions.preprocess``. Or a preprocessing that has them: torchvision's transforms, timm's data config, or an image processor of
    transformers; the options keep its text. None: the model takes the bytes as numbers from 0 to 255."""

    size: str | tuple[int, int] | None = None
    """The width and height of the frames in pixels, such as ``640x480``, if it is not the model's. The program takes the centre in the
    model's ratio, and resizes it (bilinear). The options keep the text."""

    def __post_init__(self) -> None:
        if self.normalize is not None and not isinstance(self.normalize, str):
            object.__setattr__(self, "normalize", steps_of(self.normalize))
        if isinstance(self.size, (tuple, list)):
            object.__setattr__(self, "size", "x".join(map(str, self.size)))
        for name, value in (("input_format", self.format), ("input_size", self.size)):
            if value is not None and not isinstance(value, str):
                raise InvalidOptionError(f"{name}: it is {value!r}; it is a text.")
        FrameFormat.parse(self.format or "")
        if self.size is not None and not re.fullmatch(r"[1-9]\d{0,4}x[1-9]\d{0,4}", str(self.size)):
            raise InvalidOptionError(
                f"input_size: it is '{self.size}'; it is the width and the height of a frame, such as 640x480."
            )

    @property
    def pixels(self) -> tuple[int, int] | None:
        """Return the height and the width of a frame; None where they are the model's."""
        if self.size is None:
            return None
        width, height = str(self.size).split("x")
        return int(height), int(width)

    @property
    def given(self) -> list[str]:
        """Return the names of the options that are given, as the command line has them."""
        values = {"input_format": self.format, "normalize": self.normalize, "input_size": self.size}
        return [name for name, value in values.items() if value is not None]


WITHOUT_VALUES = (
    *(
        "Resize",
        "CenterCrop",
        "ToImage",
        "ToPILImage",
        "Identity",
        "ToPureTensor",
        "ResizeKeepRatio",
        "RandomResizedCrop",
    ),
    *("RandomCrop", "RandomHorizontalFlip", "CenterCropOrPad"),
)
"""The transforms of torchvision and timm that change no values. A frame has the model's size, or ``size`` changes it."""

TO_UNIT = ("ToTensor", "MaybeToTensor", "ConvertImageDtype")
"""The transforms that divide bytes by 255."""


def steps_of(preprocessing: Any) -> str:
    """Return the normalization of a preprocessing as text.

    The preprocessing is a dict with ``mean`` and ``std`` (timm's data config), an object with ``image_mean`` and ``image_std`` (an image
    processor of transformers), or transforms of torchvision in their order: ``ToTensor`` or ``ToDtype`` with ``scale``, and ``Normalize``. Transforms that change no values
    are left out. The objects are known by their attributes and the names of their classes. Raises InvalidOptionError
    for another object, for a dict without ``mean`` and ``std``, for a transform that is not known, and for one that
    follows ``Normalize``.

    >>> steps_of({"mean": (0.5, 0.5, 0.5), "std": (0.25, 0.25, 0.25), "input_size": (3, 224, 224)})
    'mean=0.5:0.5:0.5,std=0.25:0.25:0.25'
    """
    if isinstance(preprocessing, Mapping):
        if not {"mean", "std"} <= preprocessing.keys():
            raise InvalidOptionError("normalize: the dict has no mean and std. Pass timm's data config.")
        return f"mean={_numbers(preprocessing['mean'])},std={_numbers(preprocessing['std'])}"
    if hasattr(preprocessing, "image_mean") and hasattr(preprocessing, "image_std"):
        factor = getattr(preprocessing, "rescale_factor", 1 / 255) if getattr(preprocessing, "do_rescale", True) else 1
        text = f"scale={_scale(factor)}"
        if getattr(preprocessing, "do_normalize", True):
            text += f",mean={_numbers(preprocessing.image_mean)},std={_numbers(preprocessing.image_std)}"
        return text
    transforms = getattr(preprocessing, "transforms", preprocessing)
    steps: dict[str, str] = {"scale": "1"}
    for each in transforms if isinstance(transforms, (list, tuple)) else [transforms]:
        name = type(each).__name__
        if "mean" in steps:
            raise InvalidOptionError(f"normalize: {name} follows Normalize. Give scale, mean and std as text.")
        if name in TO_UNIT or (name == "ToDtype" and getattr(each, "scale", False)):
            steps["scale"] = "1/255"
        elif name == "Normalize" and hasattr(each, "mean") and hasattr(each, "std"):
            steps |= {"mean": _numbers(each.mean), "std": _numbers(each.std)}
        elif name not in (*WITHOUT_VALUES, "PILToTensor", "ToDtype"):
            raise InvalidOptionError(
                f"normalize: {name} is not known. Give scale, mean and std as text, such as mean=0.5,std=0.5."
            )
    return ",".join(f"{name}={value}" for name, value in steps.items())


def _numbers(values: Any) -> str:
    """Return one number, or one for each channel, as text."""
    several = values.tolist() if hasattr(values, "tolist") else values
    several = several if isinstance(several, (list, tuple)) else [several]
    return ":".join(repr(round(float(value), 9)) for value in several)


def _scale(factor: float) -> str:
    whole = round(1 / factor)
    return f"1/{whole}" if abs(1 / factor - whole) < 1e-6 else repr(float(factor))
