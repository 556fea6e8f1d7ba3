# SPDX-License-Identifier: BSD-3-Clause
"""The cases of ``bench.quantization_quality``: operators and blocks, one row each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SHAPE = (1, 8, 16, 16)
SEQUENCE = (1, 32, 64)
HEADS = (1, 4, 32, 16)
VOLUME = (1, 4, 8, 8, 8)
PLACES = torch.linspace(0.0, 1.0, 1024).reshape(1024, 1)
LIMIT = 3.0
"""Data is uniform in [-3, 3] where a row does not say otherwise."""


@dataclass(frozen=True, slots=True)
class Case:
    """``function`` of tensors of ``shapes``, uniform from ``low`` to ``high``; ``least``: the least SQNR in dB, where one is set."""

    name: str
    function: Callable[..., Tensor]
    least: float | None = None
    low: float = -LIMIT
    high: float = LIMIT
    shapes: tuple[tuple[int, ...], ...] = (SHAPE,)


TWO = (SHAPE, SHAPE)
POSITIVE = 0.01


class SqueezeExcite(nn.Module):
    """``gate`` of two layers on the channels' means, times the input."""

    def __init__(self, gate: nn.Module) -> None:
        super().__init__()
        self.down, self.up, self.gate = nn.Conv2d(8, 4, 1), nn.Conv2d(4, 8, 1), gate

    def forward(self, x: Tensor) -> Tensor:
        scale: Tensor = self.gate(self.up(F.relu(self.down(x.mean((2, 3), keepdim=True)))))
        return x * scale


class SelfAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(64, 4, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.attention(x, x, x, need_weights=False)[0]
        return result


def _normalized_by(layer: nn.Module) -> nn.Module:
    for name, parameter in layer.named_parameters():
        nn.init.uniform_(parameter, -0.5, 0.5) if "bias" in name else nn.init.uniform_(parameter, 0.5, 1.5)
    for name, value in layer.named_buffers():
        if value.is_floating_point():
            nn.init.uniform_(value, -0.5, 0.5) if "mean" in name else nn.init.uniform_(value, 0.5, 1.5)
    return layer


def elementwise() -> list[Case]:
    """Functions of one tensor and arithmetic of two."""
    names = ("selu", "celu", "mish", "hardsigmoid", "softplus", "relu6", "leaky_relu", "logsigmoid", "hardshrink")
    return [
        Case("mul", torch.mul, 38, shapes=TWO),
        Case("mul by a number", lambda x: x * 0.7, 45),
        Case("x * x", lambda x: x * x, 41),
        Case("x * sigmoid(x)", lambda x: x * torch.sigmoid(x), 42),
        Case("add", torch.add, 39, shapes=TWO),
        Case("add a number", lambda x: x + 0.7),
        Case("sub", torch.sub, shapes=TWO),
        Case("number minus x", lambda x: 1.0 - x),
        Case("div by a tensor", torch.div, low=0.5, shapes=TWO),
        Case("maximum", torch.maximum, shapes=TWO),
        Case("minimum", torch.minimum, shapes=TWO),
        Case("abs", torch.abs, 45),
        Case("neg", torch.neg),
        Case("silu", F.silu, 42),
        Case("gelu", F.gelu, 43),
        Case("hardswish", F.hardswish, 42),
        Case("elu", F.elu, 43),
        *(Case(name, getattr(F, name)) for name in names),
        Case("relu", F.relu),
        Case("prelu", nn.PReLU(8)),
        Case("clamp(-1, 2)", lambda x: x.clamp(-1, 2)),
        Case("sigmoid", torch.sigmoid),
        Case("tanh", torch.tanh),
        Case("erf", torch.erf),
        Case("exp", torch.exp, 39),
        Case("sqrt on [0.01, 3]", torch.sqrt, 47, POSITIVE),
        Case("log on [0.01, 3]", torch.log, 30.5, POSITIVE),
        Case("rsqrt on [0.01, 3]", torch.rsqrt, 24, POSITIVE),
        Case("reciprocal on [0.5, 3]", torch.reciprocal, low=0.5),
        Case("x ** 3", lambda x: x**3),
        Case("where(x > y, x, y / 2)", lambda x, y: torch.where(x > y, x, y / 2), shapes=TWO),
    ]


def reductions() -> list[Case]:
    """Means, softmaxes, pools, resizes and what only moves values."""
    return [
        Case("mean over rows and columns", lambda x: x.mean((2, 3)), 37),
        Case("mean over channels", lambda x: x.mean(1)),
        Case("sum over columns", lambda x: x.sum(3)),
        Case("var over columns", lambda x: x.var(3)),
        Case("std over columns", lambda x: x.std(3)),
        Case("amax over columns", lambda x: x.amax(3)),
        Case("softmax over 64", lambda x: torch.softmax(x.reshape(1, 32, 64), -1), 35),
        Case("softmax over 1024", lambda x: torch.softmax(x.reshape(1, 2, 1024), -1), 35),
        Case("softmax over 1024, peaked", lambda x: torch.softmax(x.reshape(1, 2, 1024) * 8, -1)),
        Case("soft-argmax over 1024", lambda x: torch.softmax(x.reshape(1, 2, 1024), -1) @ PLACES, 35),
        Case("log_softmax over 64", lambda x: torch.log_softmax(x.reshape(1, 32, 64), -1)),
        Case("max_pool2d", lambda x: F.max_pool2d(x, 2)),
        Case("avg_pool2d", lambda x: F.avg_pool2d(x, 2)),
        Case("avg_pool3d", lambda x: F.avg_pool3d(x, 2), 36, shapes=(VOLUME,)),
        Case("adaptive_avg_pool3d to 4", lambda x: F.adaptive_avg_pool3d(x, 4), 36, shapes=(VOLUME,)),
        Case("adaptive_avg_pool2d to 5", lambda x: F.adaptive_avg_pool2d(x, 5)),
        Case("interpolate, nearest", lambda x: F.interpolate(x, scale_factor=2.0)),
        Case("interpolate, bilinear", lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear")),
        Case("cat", lambda x, y: torch.cat([x, y], 1), shapes=TWO),
        Case("pad", lambda x: F.pad(x, (1, 1, 1, 1))),
        Case("pixel_shuffle", lambda x: F.pixel_shuffle(x, 2)),
    ]


def layers() -> list[Case]:
    """Layers with weights, products of matrices, normalizations and blocks."""
    sequence = (SEQUENCE,)
    attention = F.scaled_dot_product_attention
    return [
        Case("conv2d", nn.Conv2d(8, 8, 3, padding=1)),
        Case("depthwise conv2d", nn.Conv2d(8, 8, 3, padding=1, groups=8)),
        Case("conv_transpose2d", nn.ConvTranspose2d(8, 8, 2, 2)),
        Case("conv1d", nn.Conv1d(8, 8, 3), shapes=((1, 8, 64),)),
        Case("linear", nn.Linear(64, 64), shapes=sequence),
        Case("matmul", torch.matmul, shapes=(HEADS, (1, 4, 16, 32))),
        Case("batch norm", _normalized_by(nn.BatchNorm2d(8))),
        Case("layer norm", _normalized_by(nn.LayerNorm(16)), 30),
        Case("layer norm over 64", _normalized_by(nn.LayerNorm(64)), 30, shapes=sequence),
        Case("layer norm over the image", nn.LayerNorm(SHAPE[1:], elementwise_affine=False), 30),
        Case("group norm", _normalized_by(nn.GroupNorm(2, 8))),
        Case("instance norm", _normalized_by(nn.InstanceNorm2d(8, affine=True))),
        Case("RMS norm", _normalized_by(nn.RMSNorm(16))),
        Case("local response norm", nn.LocalResponseNorm(3, alpha=0.5)),
        Case("normalize", lambda x: F.normalize(x, dim=1)),
        Case("squeeze-excite, sigmoid", SqueezeExcite(nn.Sigmoid()), 28),
        Case("squeeze-excite, hardsigmoid", SqueezeExcite(nn.Hardsigmoid()), 28),
        Case("attention", attention, 25, shapes=3 * ((1, 8, 16, 16),)),
        Case("attention, 32 keys", attention, 25, -1, 1, 3 * (HEADS,)),
        Case("attention, 128 keys", attention, 25, -1, 1, 3 * ((1, 2, 128, 16),)),
        Case("causal attention", lambda q, k, v: attention(q, k, v, is_causal=True), 25, shapes=3 * (HEADS,)),
        Case("multi-head attention", SelfAttention(), 25, shapes=sequence),
        Case(
            "transformer encoder layer",
            nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, activation="gelu"),
            25,
            shapes=sequence,
        ),
    ]


def cases() -> list[Case]:
    """Every row, with seeded weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return [*elementwise(), *reductions(), *layers()]
