# SPDX-License-Identifier: BSD-3-Clause
"""The shapes that real networks have, each small: what one of a kind does, with seeded random weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from tests.architectures import classifiers, images, others

SEED = 2025


@dataclass(frozen=True, slots=True)
class Architecture:
    """A module and the shapes of its inputs."""

    make: Callable[[], nn.Module]
    shapes: tuple[tuple[int, ...], ...]


ARCHITECTURES = {
    "mobilenet_v3": Architecture(classifiers.mobilenet_v3, ((1, 3, 64, 64),)),
    "efficientnet_lite": Architecture(classifiers.efficientnet_lite, ((1, 3, 64, 64),)),
    "shufflenet_v2": Architecture(classifiers.shufflenet_v2, ((1, 3, 64, 64),)),
    "squeezenet": Architecture(classifiers.squeezenet, ((1, 3, 64, 64),)),
    "densenet": Architecture(classifiers.densenet, ((1, 3, 32, 32),)),
    "inception": Architecture(classifiers.inception, ((1, 3, 48, 48),)),
    "unet_nearest": Architecture(lambda: images.UNetResize("nearest"), ((1, 3, 32, 32),)),
    "unet_bilinear": Architecture(lambda: images.UNetResize("bilinear"), ((1, 3, 32, 32),)),
    "pyramid": Architecture(images.Pyramid, ((1, 3, 64, 64),)),
    "yolo": Architecture(images.Yolo, ((1, 3, 64, 64),)),
    "resnet_v2": Architecture(classifiers.resnet_v2, ((1, 3, 32, 32),)),
    "convnext": Architecture(classifiers.convnext, ((1, 3, 32, 32),)),
    "tcn": Architecture(others.tcn, ((1, 8, 64),)),
    "audio_1d": Architecture(others.audio_1d, ((1, 1, 2048),)),
    "ds_cnn": Architecture(others.ds_cnn, ((1, 1, 49, 10),)),
    "autoencoder": Architecture(images.autoencoder, ((1, 3, 32, 32),)),
    "vit": Architecture(others.VisionTransformer, ((1, 3, 32, 32),)),
    "super_resolution": Architecture(images.super_resolution, ((1, 1, 32, 32),)),
    "deeplab": Architecture(images.DeepLab, ((1, 3, 64, 64),)),
    "grouped": Architecture(classifiers.grouped, ((1, 3, 32, 32),)),
    "two_inputs": Architecture(others.two_inputs, ((1, 3, 24, 24), (1, 1, 24, 24))),
    "siamese": Architecture(others.siamese, ((1, 1, 24, 24), (1, 1, 24, 24))),
    "recursive": Architecture(images.recursive, ((1, 1, 32, 32),)),
    "batch_4": Architecture(classifiers.batch_net, ((4, 3, 32, 32),)),
    "high_resolution": Architecture(images.high_resolution, ((1, 3, 64, 64),)),
}


def get(name: str) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """The module in eval mode, its batch norms settled on random inputs, and example inputs."""
    row = ARCHITECTURES[name]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        model = row.make()
        with torch.no_grad():
            for _ in range(3):
                model.train()(*(torch.randn(max(2, shape[0]), *shape[1:]) for shape in row.shapes))
        return model.eval(), tuple(torch.randn(shape) for shape in row.shapes)
