# SPDX-License-Identifier: BSD-3-Clause
"""The names of interpolations."""

from enum import Enum


class InterpolationMode(Enum):
    """The interpolations of Pillow, by torchvision's names."""

    NEAREST = "nearest"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
