# SPDX-License-Identifier: BSD-3-Clause
"""Resizes of every mode by any factor, and shuffles of pixels and channels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from openneutron.api.pytorch import analyse
from openneutron.options import QuantizationOptions
from tests.pytorch.side_by_side import assert_delegated
from tests.pytorch.small_models import assert_same_as_litert, compiled

IMAGE = (1, 3, 7, 9)


def _resize(**given: Any) -> Callable[..., torch.Tensor]:
    return lambda m, x: F.interpolate(x, **given)


def test_resizes_of_images() -> None:
    small = assert_delegated(
        {
            "nearest by 2": _resize(scale_factor=2),
            "nearest by a factor that is not the extents'": _resize(scale_factor=1.3),
            "nearest, exact": _resize(size=(10, 4), mode="nearest-exact"),
            "bilinear by 2": _resize(scale_factor=2, mode="bilinear"),
            "bilinear to the corners": _resize(size=(13, 17), mode="bilinear", align_corners=True),
            "bilinear by a factor that is not the extents'": _resize(scale_factor=1.3, mode="bilinear"),
            "bilinear by the extents' factor": _resize(scale_factor=1.3, mode="bilinear", recompute_scale_factor=True),
            "bilinear to less, smoothed": _resize(size=(4, 5), mode="bilinear", antialias=True),
            "bicubic": _resize(size=(10, 10), mode="bicubic"),
            "area": _resize(size=(4, 5), mode="area"),
        },
        (IMAGE,),
    )
    assert small.operators.count("resize_nearest_neighbor") == 2
    assert small.operators.count("resize_bilinear") == 3


def test_resizes_of_sequences() -> None:
    assert_delegated(
        {
            "nearest": _resize(scale_factor=1.7),
            "exact": _resize(size=5, mode="nearest-exact"),
            "linear": _resize(scale_factor=1.7, mode="linear"),
            "linear to the corners": _resize(size=20, mode="linear", align_corners=True),
        },
        ((2, 3, 11),),
    )


def test_resizes_of_volumes() -> None:
    assert_delegated(
        {
            "nearest": _resize(scale_factor=1.5),
            "linear": _resize(scale_factor=1.5, mode="trilinear"),
            "linear to the corners": _resize(size=(5, 4, 9), mode="trilinear", align_corners=True),
        },
        ((1, 2, 4, 5, 6),),
        most=0.02,
    )


@pytest.mark.parametrize("seed", [0])
def test_random_resizes(seed: int) -> None:
    random = np.random.default_rng(seed)
    functions: dict[str, Callable[..., Any]] = {}
    for mode in ("nearest", "nearest-exact", "bilinear", "bilinear", "bicubic"):
        given: dict[str, Any] = {"mode": mode}
        if random.random() < 0.5:
            given["size"] = tuple(int(extent) for extent in random.integers(1, 20, 2))
        else:
            given["scale_factor"] = tuple(float(np.round(factor, 2)) for factor in random.uniform(0.4, 2.6, 2))
        if mode.startswith("bi"):
            given["align_corners"] = bool(random.random() < 0.5)
        functions[f"seed {seed}: {given}"] = _resize(**given)
    shape = tuple(int(extent) for extent in (random.integers(1, 3), random.integers(1, 9), *random.integers(3, 12, 2)))
    assert_delegated(functions, (shape,), most=0.015)


def test_large_images_are_resized_axis_by_axis() -> None:
    small = assert_delegated({"bicubic": _resize(scale_factor=1.5, mode="bicubic")}, ((1, 2, 20, 22),), most=0.03)
    assert small.operators.count("batch_matmul") == 2


def test_shuffles_move_bytes_only() -> None:
    functions: dict[str, Callable[..., Any]] = {
        "pixel_shuffle": lambda m, x: F.pixel_shuffle(x, 2),
        "pixel_unshuffle": lambda m, x: F.pixel_unshuffle(x, 3),
        "channel_shuffle": lambda m, x: F.channel_shuffle(x, 4),
    }
    small = assert_delegated(functions, ((2, 8, 6, 9),))
    assert set(small.operators) <= {"reshape", "transpose"}


def test_a_model_that_ends_in_a_pixel_shuffle_is_delegated_whole() -> None:
    small = compiled(lambda m, x: F.pixel_shuffle(m.conv(x), 2), quantization=QuantizationOptions(io_dtype="int8"))
    assert small.reasons == []
    assert [str(node.target) for node in small.program.quantized.graph.nodes if "pixel" in str(node.target)] == []
    (part,) = small.program.partitions
    assert part.graph[part.graph.outputs[0]].shape == (1, 2, 24, 24)
    assert part.graph[part.graph.outputs[0]].quant is not None


def test_windows_as_columns() -> None:
    small = assert_delegated(
        {
            "unfold": lambda m, x: F.unfold(x, 3, padding=1, stride=2),
            "dilated": lambda m, x: F.unfold(x, (2, 3), dilation=2),
            "side by side": lambda m, x: x.unfold(2, 3, 3),
            "overlapping": lambda m, x: x.unfold(3, 4, 2),
            "fold": lambda m, x: F.fold(F.unfold(x, 3, padding=1, stride=2), (7, 9), 3, padding=1, stride=2),
        },
        (IMAGE,),
    )
    assert small.operators.count("depthwise_conv_2d") == 3


class SuperResolution(nn.Module):
    """Padded by mirroring, doubled by a pixel shuffle, on top of the interpolated input."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1, padding_mode="reflect")
        self.last = nn.Conv2d(8, 12, 3, padding=1, padding_mode="circular")
        self.shuffle = nn.PixelShuffle(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        detail = self.shuffle(self.last(F.relu(self.first(x))))
        return detail + F.interpolate(x, scale_factor=2, mode="bicubic")


def test_a_super_resolution_network_is_one_delegate_call() -> None:
    torch.manual_seed(3)
    model, samples = SuperResolution().eval(), [(torch.rand(1, 3, 12, 14),) for _ in range(4)]
    program = analyse(model, samples[0], calibration=samples, quantization=QuantizationOptions(channels_last=True))
    assert program.delegation.on_cpu == ()
    assert len(program.partitions) == 1
    assert_same_as_litert(program)
    with torch.no_grad():
        got, want = program.run(*samples[0])[0], model(*samples[0])
    assert float(10 * torch.log10(want.square().sum() / (got - want).square().sum())) > 30
