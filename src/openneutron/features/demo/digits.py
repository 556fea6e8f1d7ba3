# SPDX-License-Identifier: BSD-3-Clause
"""scikit-learn's handwritten digits as pictures of CifarNet's size."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch.nn import functional

SIDE = 32
"""Rows and columns of CifarNet's input; the digits have 8."""


@dataclass(frozen=True, slots=True, eq=False)
class Digits:
    """Pictures [N, 3, 32, 32], float32 in [-1, 1], and labels 0 to 9 [N]."""

    train: torch.Tensor
    train_labels: torch.Tensor
    test: torch.Tensor
    test_labels: torch.Tensor


def load(seed: int) -> Digits:
    """Return all 1,797 digits, a fifth of them for testing, each class in proportion."""
    digits = load_digits()
    # 8x8 pictures of grey levels 0 to 16, the same in all three colours
    grey = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 8 - 1
    pictures = functional.interpolate(grey, size=(SIDE, SIDE), mode="bilinear", align_corners=False)
    pictures = pictures.repeat(1, 3, 1, 1).contiguous()
    labels = torch.tensor(digits.target)
    train, test = train_test_split(
        torch.arange(len(labels)).numpy(), test_size=0.2, random_state=seed, stratify=digits.target
    )
    return Digits(pictures[train], labels[train], pictures[test], labels[test])
