# SPDX-License-Identifier: BSD-3-Clause
"""Networks of Ultralytics with random weights that find boxes.

``make_low_rank`` gives each convolution a weight of rank RANK over its channels. Random weights have none of the structure of trained ones:
of either rank, int8 loses many boxes of such networks, so that they show what runs where, and not how well a trained detector keeps its boxes.

Ultralytics begins a training with biases of the class layers that leave nearly all scores at 0, and batch normalizations without
statistics. ``with_boxes`` calibrates the normalizations on pictures, and scales the last layers of the head: class logits have the
standard deviation SPREAD, and their bias leaves the share ``SHARE`` of all anchors above a score of 0.5. Logits of distances have SPREAD
too, so that boxes have different sizes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

SPREAD, SHARE, RANK = 2.0, 0.01, 4


def pictures(count: int, size: int, seed: int = 0) -> list[Tensor]:
    """Return pictures (1, 3, size, size) of colored rectangles on a gradient, with values from 0 to 1."""
    generator = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        across = np.linspace(0, 1, size, dtype=np.float32)
        picture = np.stack([np.add.outer(across * a, across * b) / 2 for a, b in generator.random((3, 2))])
        for _ in range(8):
            top, left = generator.integers(0, size - size // 8, 2)
            height, width = generator.integers(size // 16 + 1, size // 2, 2)
            picture[:, top : top + height, left : left + width] = generator.random((3, 1, 1))
        picture += generator.normal(0, 0.02, picture.shape)
        made.append(torch.from_numpy(picture.clip(0, 1).astype(np.float32))[None])
    return made


def make_low_rank(network: Any, seed: int = 0) -> Any:
    """Replace the weights of all convolutions, in place, and return the network."""
    generator = torch.Generator().manual_seed(seed)
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d):
            weight = layer.weight
            outputs, inputs, *window = weight.shape
            rank = min(RANK, outputs, inputs)
            mixed = torch.randn(outputs, rank, generator=generator) @ torch.randn(rank, inputs, generator=generator)
            place = torch.rand(window, generator=generator)
            with torch.no_grad():
                weight.copy_(mixed[:, :, None, None] * place / (rank * inputs * place.square().sum()) ** 0.5)
    return network


def with_boxes(network: Any, samples: list[Tensor], share: float = SHARE) -> Any:
    """Calibrate a network of Ultralytics on pictures, in place, and return it. Boxes are found after this."""
    norms = [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # the mean over all batches
    network.train()
    with torch.no_grad():
        network(torch.cat(samples))
    network.eval()
    for norm in norms:
        norm.momentum = 0.03
    head = network.model[-1]
    for name in ("cv2", "cv3", "one2one_cv2", "one2one_cv3"):
        branches = getattr(head, name, None)
        if branches is not None:
            _scaled([branch[-1] for branch in branches], network, samples, share if name.endswith("cv3") else None)
    return network


def _scaled(layers: list[Any], network: Any, samples: list[Tensor], share: float | None) -> None:
    found: dict[int, Tensor] = {}
    hooks = [
        layer.register_forward_hook(lambda _module, _given, result, place=place: found.__setitem__(place, result))
        for place, layer in enumerate(layers)
    ]
    with torch.no_grad():
        for layer in layers:
            layer.bias.zero_()
        network(torch.cat(samples))
        for place, layer in enumerate(layers):
            factor = SPREAD / float(found[place].std())
            layer.weight.mul_(factor)
            best = (found[place] * factor).amax(1).flatten()
            layer.bias.fill_(0.0 if share is None else -float(best.quantile(1 - share)))
    for hook in hooks:
        hook.remove()
