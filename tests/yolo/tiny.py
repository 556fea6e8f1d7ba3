# SPDX-License-Identifier: BSD-3-Clause
"""A small detector of Ultralytics' layers."""

from __future__ import annotations

import copy
from typing import Any

import torch

from tests.support.random_yolo import pictures, with_boxes

SIZE = 64

LAYERS = {
    "nc": 3,
    "backbone": [[-1, 1, "Conv", [8, 3, 2]], [-1, 1, "Conv", [8, 3, 2]], [-1, 1, "Conv", [16, 3, 2]]],
    "head": [[[2], 1, "Detect", ["nc"]]],
}


def detector(**changes: Any) -> Any:
    """Return the network, with random weights that find boxes."""
    from ultralytics.nn.tasks import DetectionModel  # type: ignore[import-not-found]

    torch.manual_seed(0)
    network = DetectionModel({**copy.deepcopy(LAYERS), **changes}, verbose=False)
    network.names = {0: "cup", 1: "fork", 2: "plate"}
    return with_boxes(network, pictures(4, SIZE), share=0.2)
