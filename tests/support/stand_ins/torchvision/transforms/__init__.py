# SPDX-License-Identifier: BSD-3-Clause
"""The steps from a picture to a classifier's input."""

from torchvision.transforms.functional import InterpolationMode
from torchvision.transforms.transforms import CenterCrop, Compose, Normalize, Resize, ToTensor

__all__ = ["CenterCrop", "Compose", "InterpolationMode", "Normalize", "Resize", "ToTensor"]
