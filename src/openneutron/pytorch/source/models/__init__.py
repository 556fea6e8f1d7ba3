# SPDX-License-Identifier: BSD-3-Clause
"""Networks to try things with, defined here, with seeded random weights.

Parameter names are torchvision's where torchvision has the network, so that its checkpoints load.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn

from openneutron.errors import InvalidModelError
from openneutron.pytorch.source.models.mobilenets import MobileNetV1, MobileNetV2, MobileNetV3
from openneutron.pytorch.source.models.small import (
    DSCNN,
    TCN,
    Autoencoder,
    CifarNet,
    ResNet8,
    UNet,
    transformer_encoder,
)
from openneutron.pytorch.source.models.weights import random_inputs, settle

SEED = 2025
"""Seeds weights and example inputs; any other number would do."""


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """A network, and the shape of its one input (batch 1, NCHW where it is an image)."""

    make: Callable[[], nn.Module]
    input_shape: tuple[int, ...]
    title: str


_MODELS = {
    "autoencoder": BuiltIn(Autoencoder, (1, 640), "MLPerf Tiny anomaly detection, fully connected"),
    "cifarnet": BuiltIn(CifarNet, (1, 3, 32, 32), "CifarNet: three 5x5 convolutions, 32x32"),
    "ds_cnn": BuiltIn(DSCNN, (1, 1, 49, 10), "MLPerf Tiny keyword spotting, DS-CNN"),
    "mobilenet_v1": BuiltIn(MobileNetV1, (1, 3, 224, 224), "MobileNetV1 1.0, 224x224"),
    "mobilenet_v2": BuiltIn(MobileNetV2, (1, 3, 224, 224), "MobileNetV2 1.0, 224x224"),
    "mobilenet_v3_small": BuiltIn(MobileNetV3, (1, 3, 96, 96), "MobileNetV3-Small, 96x96"),
    "resnet8": BuiltIn(ResNet8, (1, 3, 32, 32), "MLPerf Tiny image classification, ResNet-8"),
    "tcn": BuiltIn(TCN, (1, 8, 64), "temporal convolutional network: dilated causal convolutions"),
    "unet": BuiltIn(UNet, (1, 3, 32, 32), "U-Net of three levels: transposed convolutions, 32x32"),
    "transformer_encoder": BuiltIn(
        transformer_encoder, (1, 32, 64), "Transformer encoder block: 64 wide, 4 heads, 32 tokens"
    ),
    "vww": BuiltIn(
        partial(MobileNetV1, 2, 0.25, True), (1, 3, 96, 96), "MLPerf Tiny visual wake words, MobileNetV1 0.25, 96x96"
    ),
}


def names() -> list[str]:
    """Return the built-in models' names."""
    return list(_MODELS)


def describe(name: str) -> BuiltIn:
    """Return the row of a built-in model. Raises InvalidModelError for an unknown name."""
    if name not in _MODELS:
        raise InvalidModelError(f"there is no built-in model '{name}'; there are {', '.join(_MODELS)}.")
    return _MODELS[name]


def get(name: str) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Return the module in eval mode with seeded random weights (see ``weights.py``), and example inputs (batch 1,
    float32).

    Raises InvalidModelError for an unknown name.
    """
    row = describe(name)
    generator = torch.Generator().manual_seed(SEED)
    with torch.random.fork_rng(devices=[]):
        # Dropout is on while the batch norms settle, and draws from the global generator.
        torch.manual_seed(SEED)
        model = row.make()
        settle(model, row.input_shape, generator)
    return model, (random_inputs(row.input_shape, generator),)


def samples(name: str, count: int, seed: int = SEED + 1) -> list[tuple[torch.Tensor, ...]]:
    """Return ``count`` seeded random inputs of a built-in model, for calibration or comparison."""
    generator = torch.Generator().manual_seed(seed)
    return [(random_inputs(describe(name).input_shape, generator),) for _ in range(count)]
