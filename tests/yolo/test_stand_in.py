# SPDX-License-Identifier: BSD-3-Clause
"""Tests of the stand-in for torchvision."""

from __future__ import annotations

import torch


def test_its_suppression_keeps_the_boxes_that_ultralytics_own_keeps() -> None:
    import torchvision  # type: ignore[import-not-found]
    from ultralytics.utils.nms import TorchNMS  # type: ignore[import-not-found]

    generator = torch.Generator().manual_seed(0)
    corners = torch.rand(300, 2, generator=generator) * 100
    boxes = torch.cat((corners, corners + 1 + torch.rand(300, 2, generator=generator) * 40), 1)
    scores = torch.rand(300, generator=generator)
    kept = torchvision.ops.nms(boxes, scores, 0.5)
    assert 0 < len(kept) < 300
    assert torch.equal(kept, TorchNMS.nms(boxes, scores, 0.5))
