# SPDX-License-Identifier: BSD-3-Clause
"""Steps on pictures of Pillow, and on tensors (channels, height, width)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from torchvision.transforms.functional import InterpolationMode


class Compose:
    """Apply steps one after the other."""

    def __init__(self, transforms: Sequence[Callable[[Any], Any]]) -> None:
        self.transforms = transforms

    def __call__(self, picture: Any) -> Any:
        for step in self.transforms:
            picture = step(picture)
        return picture


class Resize:
    """Resize a picture: one number is the length of its shorter side, two are height and width."""

    def __init__(
        self, size: int | Sequence[int], interpolation: InterpolationMode = InterpolationMode.BILINEAR
    ) -> None:
        self.size, self.interpolation = size, interpolation

    def __call__(self, picture: Image.Image) -> Image.Image:
        if isinstance(self.size, int):
            shorter = min(picture.size)
            width, height = (int(self.size * side / shorter) for side in picture.size)
        else:
            height, width = self.size
        return picture.resize((width, height), getattr(Image.Resampling, self.interpolation.name))


class CenterCrop:
    """Cut the middle out of a picture that is not smaller."""

    def __init__(self, size: int | Sequence[int]) -> None:
        self.size = (size, size) if isinstance(size, int) else tuple(size)

    def __call__(self, picture: Image.Image) -> Image.Image:
        height, width = self.size
        left, top = round((picture.width - width) / 2), round((picture.height - height) / 2)
        return picture.crop((left, top, left + width, top + height))


class ToTensor:
    """Return a picture as a tensor (channels, height, width) of float32 from 0 to 1."""

    def __call__(self, picture: Image.Image) -> Tensor:
        return torch.from_numpy(np.array(picture)).permute(2, 0, 1).float() / 255


class Normalize:
    """Subtract a mean from each channel and divide by a deviation."""

    def __init__(self, mean: Any, std: Any) -> None:
        self.mean, self.std = torch.as_tensor(mean), torch.as_tensor(std)

    def __call__(self, image: Tensor) -> Tensor:
        return (image - self.mean[:, None, None]) / self.std[:, None, None]
