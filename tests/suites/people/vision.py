# SPDX-License-Identifier: BSD-3-Clause
"""Networks over images."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.suites.people.case import Call, case, settled


def image(channels: int = 3, height: int = 16, width: int | None = None, batch: int = 1) -> Callable[[], Tensor]:
    """Return a function that draws images with values in [0, 1)."""
    return lambda: torch.rand(batch, channels, height, width or height)


def normal(*shape: int) -> Callable[[], Tensor]:
    """Return a function that draws normal values."""
    return lambda: torch.randn(*shape)


def conv_norm(
    inputs: int, outputs: int, kernel: int = 3, stride: int = 1, act: Any = nn.ReLU, groups: int = 1
) -> nn.Sequential:
    """Return a convolution with batch normalization and an activation."""
    layers: list[nn.Module] = [
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
    ]
    return nn.Sequential(*layers, *([act()] if act else []))


vision = partial(case, kind="vision")


class Residual(nn.Module):
    """A residual block."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.a, self.b = conv_norm(inputs, outputs, 3, stride), conv_norm(outputs, outputs, act=None)
        self.short = conv_norm(inputs, outputs, 1, stride, None) if stride > 1 or inputs != outputs else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return (self.b(self.a(x)) + self.short(x)).relu()


class Inverted(nn.Module):
    """An inverted residual with squeeze and excite."""

    def __init__(self, inputs: int, outputs: int, stride: int, act: Any = nn.Hardswish, excite: bool = True) -> None:
        super().__init__()
        hidden = 4 * inputs
        self.up = conv_norm(inputs, hidden, 1, act=act)
        self.deep = conv_norm(hidden, hidden, 3, stride, act, groups=hidden)
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(hidden, hidden // 4, 1),
            nn.ReLU(),
            nn.Conv2d(hidden // 4, hidden, 1),
            nn.Hardsigmoid(),
        )
        self.down, self.excite, self.same = (
            conv_norm(hidden, outputs, 1, act=None),
            excite,
            stride == 1 and inputs == outputs,
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.deep(self.up(x))
        y = self.down(y * self.gate(y) if self.excite else y)
        return x + y if self.same else y


class Shuffle(nn.Module):
    """A ShuffleNetV2 unit: half of the channels pass, then the channels are shuffled."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        half = channels // 2
        self.branch = nn.Sequential(
            conv_norm(half, half, 1), conv_norm(half, half, 3, act=None, groups=half), conv_norm(half, half, 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        left, right = x.chunk(2, 1)
        y = torch.cat([left, self.branch(right)], 1)
        n, c, h, w = y.shape
        return y.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)


class ConvNeXt(nn.Module):
    """A ConvNeXt block: a deep 7 x 7 convolution, a layer norm over channels, two linear layers, a scale and a residual."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.deep, self.norm = nn.Conv2d(width, width, 7, padding=3, groups=width), nn.LayerNorm(width)
        self.up, self.down, self.scale = (
            nn.Linear(width, 4 * width),
            nn.Linear(4 * width, width),
            nn.Parameter(torch.full((width,), 0.3)),
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.deep(x).permute(0, 2, 3, 1))
        return x + (self.scale * self.down(F.gelu(self.up(y)))).permute(0, 3, 1, 2)


class UNet(nn.Module):
    """A U-Net of three levels; ``up``: transposed convolutions, or resizes by ``mode``."""

    def __init__(self, mode: str = "") -> None:
        super().__init__()
        self.a, self.b, self.c = conv_norm(3, 8), conv_norm(8, 16), conv_norm(16, 32)
        self.up_c = (
            nn.ConvTranspose2d(32, 16, 2, 2)
            if not mode
            else nn.Sequential(nn.Upsample(scale_factor=2, mode=mode), nn.Conv2d(32, 16, 1))
        )
        self.up_b = (
            nn.ConvTranspose2d(16, 8, 2, 2)
            if not mode
            else nn.Sequential(nn.Upsample(scale_factor=2, mode=mode), nn.Conv2d(16, 8, 1))
        )
        self.d, self.e, self.out = conv_norm(32, 16), conv_norm(16, 8), nn.Conv2d(8, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        a = self.a(x)
        b = self.b(F.max_pool2d(a, 2))
        c = self.c(F.max_pool2d(b, 2))
        d = self.d(torch.cat([self.up_c(c), b], 1))
        return self.out(self.e(torch.cat([self.up_b(d), a], 1)))


class Dense(nn.Module):
    """A dense block: each layer reads all results before it."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(conv_norm(4 + 4 * i, 4) for i in range(4))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.cat([x, layer(x)], 1)
        return x


class Ghost(nn.Module):
    """A ghost module: half of the channels are cheap functions of the other half."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.first, self.cheap = (
            conv_norm(inputs, outputs // 2, 1),
            conv_norm(outputs // 2, outputs // 2, groups=outputs // 2),
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        return torch.cat([y, self.cheap(y)], 1)


class Cbam(nn.Module):
    """Channel attention, then spatial attention by mean and maximum over channels."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mlp = nn.Sequential(nn.Conv2d(width, width // 4, 1), nn.ReLU(), nn.Conv2d(width // 4, width, 1))
        self.conv = nn.Conv2d(2, 1, 7, padding=3)

    def forward(self, x: Tensor) -> Tensor:
        x = x * (self.mlp(F.adaptive_avg_pool2d(x, 1)) + self.mlp(F.adaptive_max_pool2d(x, 1))).sigmoid()
        return x * self.conv(torch.cat([x.mean(1, keepdim=True), x.amax(1, keepdim=True)], 1)).sigmoid()


def with_head(body: nn.Module, width: int, classes: int = 5) -> nn.Sequential:
    """Return a classifier: the body, a mean over the image, and a linear layer."""
    return nn.Sequential(body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes))


def body(*layers: nn.Module, channels: int = 3, extent: int = 16) -> nn.Module:
    """Return the layers with statistics of random images."""
    return settled(nn.Sequential(*layers), torch.rand(8, channels, extent, extent))


vision(
    "lenet",
    lambda: nn.Sequential(
        nn.Conv2d(1, 6, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(256, 84),
        nn.ReLU(),
        nn.Linear(84, 10),
    ),
    image(1, 28),
)
vision(
    "vgg_block",
    lambda: with_head(body(conv_norm(3, 8), conv_norm(8, 8), nn.MaxPool2d(2), conv_norm(8, 16)), 16),
    image(),
)
vision("resnet_blocks", lambda: with_head(body(Residual(3, 8), Residual(8, 16, 2), Residual(16, 16)), 16), image())
vision(
    "inverted_residuals",
    lambda: with_head(body(conv_norm(3, 8), Inverted(8, 8, 1), Inverted(8, 16, 2)), 16),
    image(),
    bar=27,
    reason="gates of hard sigmoids near their ends",
)
vision(
    "relu6_inverted",
    lambda: with_head(
        body(conv_norm(3, 8), Inverted(8, 8, 1, nn.ReLU6, False), Inverted(8, 16, 2, nn.ReLU6, False)), 16
    ),
    image(),
)
vision("silu_inverted", lambda: with_head(body(conv_norm(3, 8, act=nn.SiLU), Inverted(8, 8, 1, nn.SiLU)), 8), image())
vision("mish_and_elu", lambda: with_head(body(conv_norm(3, 8, act=nn.Mish), conv_norm(8, 8, act=nn.ELU)), 8), image())
vision(
    "leaky_relu",
    lambda: with_head(body(conv_norm(3, 8, act=nn.LeakyReLU), conv_norm(8, 8, act=nn.LeakyReLU)), 8),
    image(),
)
vision("prelu", lambda: body(nn.Conv2d(3, 8, 3), nn.PReLU(8), nn.Conv2d(8, 8, 3), nn.PReLU()), image())
vision("shuffle_unit", lambda: body(conv_norm(3, 8), Shuffle(8), Shuffle(8)), image())
vision("convnext_block", lambda: nn.Sequential(nn.Conv2d(3, 16, 4, 4), ConvNeXt(16), ConvNeXt(16)), image())
vision("convnext_classifier", lambda: with_head(nn.Sequential(nn.Conv2d(3, 16, 4, 4), ConvNeXt(16)), 16), image())
vision("unet_transposed", lambda: body(UNet()), image())
vision("unet_nearest", lambda: body(UNet("nearest")), image())
vision("unet_bilinear", lambda: body(UNet("bilinear")), image())
vision("unet_sigmoid_mask", lambda: body(UNet(), nn.Sigmoid()), image())
vision("dense_block", lambda: body(conv_norm(3, 4), Dense()), image())
vision("ghost_module", lambda: body(Ghost(3, 8), Ghost(8, 16)), image())
vision("cbam", lambda: body(conv_norm(3, 8), Cbam(8)), image())
vision(
    "inception",
    lambda: body(
        Call(
            lambda s, x: torch.cat([s.a(x), s.b(x), s.c(x), s.d(F.max_pool2d(x, 3, 1, 1))], 1),
            a=conv_norm(3, 4, 1),
            b=conv_norm(3, 4, 3),
            c=conv_norm(3, 4, 5),
            d=conv_norm(3, 4, 1),
        )
    ),
    image(),
)
vision(
    "fire_module",
    lambda: body(
        Call(
            lambda s, x: (lambda y: torch.cat([s.a(y), s.b(y)], 1))(s.q(x)),
            q=conv_norm(3, 4, 1),
            a=conv_norm(4, 8, 1),
            b=conv_norm(4, 8, 3),
        )
    ),
    image(),
)
vision(
    "group_norm_net",
    lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.GroupNorm(4, 8)),
    image(),
)
vision(
    "instance_norm_net",
    lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.InstanceNorm2d(8, affine=True), nn.ReLU(), nn.Conv2d(8, 3, 3)),
    image(),
)
vision(
    "layer_norm_2d", lambda: nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.LayerNorm([8, 16, 16]), nn.ReLU()), image()
)
vision(
    "local_response_norm",
    lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.LocalResponseNorm(3), nn.Conv2d(8, 4, 1)),
    image(),
    bar=28,
    reason="a power of a sum of squares rounds twice",
)
vision(
    "pixel_shuffle_sr",
    lambda: nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 4, 3, padding=1), nn.PixelShuffle(2)),
    image(1),
)
vision("pixel_unshuffle", lambda: nn.Sequential(nn.PixelUnshuffle(2), nn.Conv2d(12, 8, 3, padding=1)), image())
vision(
    "residual_sr",
    lambda: Call(lambda s, x: x + s.b(s.a(x).relu()), a=nn.Conv2d(3, 8, 3, padding=1), b=nn.Conv2d(8, 3, 3, padding=1)),
    image(),
)
vision(
    "denoiser",
    lambda: body(
        Call(lambda s, x: x - s.c(s.b(s.a(x))), a=conv_norm(1, 8), b=conv_norm(8, 8), c=nn.Conv2d(8, 1, 3, padding=1)),
        channels=1,
    ),
    image(1),
)
vision(
    "autoencoder",
    lambda: nn.Sequential(
        nn.Conv2d(1, 8, 3, 2, 1),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, 2, 1),
        nn.ReLU(),
        nn.ConvTranspose2d(16, 8, 3, 2, 1, 1),
        nn.ReLU(),
        nn.ConvTranspose2d(8, 1, 3, 2, 1, 1),
        nn.Sigmoid(),
    ),
    image(1),
)
vision(
    "dilated_context",
    lambda: body(
        conv_norm(3, 8),
        Call(
            lambda s, x: sum(c(x) for c in s.c),
            c=nn.ModuleList(nn.Conv2d(8, 8, 3, padding=d, dilation=d) for d in (1, 2, 4)),
        ),
    ),
    image(),
)
vision(
    "aspp",
    lambda: body(
        Call(
            lambda s, x: s.o(
                torch.cat(
                    [
                        *(c(x) for c in s.c),
                        F.interpolate(s.p(F.adaptive_avg_pool2d(x, 1)), size=(16, 16), mode="bilinear"),
                    ],
                    1,
                )
            ),
            c=nn.ModuleList(nn.Conv2d(3, 4, 3, padding=d, dilation=d) for d in (1, 2)),
            p=nn.Conv2d(3, 4, 1),
            o=nn.Conv2d(12, 4, 1),
        )
    ),
    image(),
)
vision(
    "fpn_top_down",
    lambda: Call(
        lambda s, x: (
            lambda a: (lambda b: s.o(F.interpolate(s.q(b), size=a.shape[2:], mode="nearest") + s.p(a)))(s.b(a).relu())
        )(s.a(x).relu()),
        a=nn.Conv2d(3, 8, 3, 2, 1),
        b=nn.Conv2d(8, 16, 3, 2, 1),
        p=nn.Conv2d(8, 8, 1),
        q=nn.Conv2d(16, 8, 1),
        o=nn.Conv2d(8, 4, 3, padding=1),
    ),
    image(),
)
vision(
    "bifpn_weights",
    lambda: Call(
        lambda s, x: (lambda a, b, w: s.o((w[0] * a + w[1] * b) / (w[0] + w[1] + 1e-4)))(s.a(x), s.b(x), s.w.relu()),
        a=nn.Conv2d(3, 8, 3, padding=1),
        b=nn.Conv2d(3, 8, 1),
        o=nn.Conv2d(8, 4, 1),
        w=nn.Parameter(torch.tensor([0.7, 0.4])),
    ),
    image(),
)
vision(
    "spp_pools",
    lambda: body(
        conv_norm(3, 8), Call(lambda s, x: torch.cat([x, *(F.max_pool2d(x, k, 1, k // 2) for k in (3, 5, 7))], 1))
    ),
    image(),
)
vision(
    "max_blur_pool",
    lambda: Call(
        lambda s, x: F.conv2d(F.max_pool2d(s.c(x).relu(), 2, 1), s.k, stride=2, groups=8),
        c=nn.Conv2d(3, 8, 3),
        k=nn.Buffer(torch.tensor([[1.0, 2, 1], [2, 4, 2], [1, 2, 1]]).div(16).repeat(8, 1, 1, 1)),
    ),
    image(),
)
vision(
    "reflect_pad_style",
    lambda: nn.Sequential(
        nn.ReflectionPad2d(1),
        nn.Conv2d(3, 8, 3),
        nn.InstanceNorm2d(8, affine=True),
        nn.ReLU(),
        nn.ReflectionPad2d(1),
        nn.Conv2d(8, 3, 3),
        nn.Tanh(),
    ),
    image(),
)
vision("replicate_pad", lambda: nn.Sequential(nn.ReplicationPad2d(2), nn.Conv2d(3, 8, 5)), image())
vision("zero_pad_uneven", lambda: nn.Sequential(nn.ZeroPad2d((0, 1, 0, 1)), nn.Conv2d(3, 8, 3, 2)), image())
vision("constant_pad_one", lambda: nn.Sequential(nn.ConstantPad2d(1, 1.0), nn.Conv2d(3, 8, 3)), image())
vision(
    "flip_and_average",
    lambda: Call(lambda s, x: (s.c(x) + s.c(x.flip(3)).flip(3)) / 2, c=nn.Conv2d(3, 4, 3, padding=1)),
    image(),
)
vision("crop_center", lambda: Call(lambda s, x: s.c(x[:, :, 2:-2, 3:-3]), c=nn.Conv2d(3, 4, 3)), image())
vision(
    "space_to_depth_focus",
    lambda: Call(
        lambda s, x: s.c(torch.cat([x[..., ::2, ::2], x[..., 1::2, ::2], x[..., ::2, 1::2], x[..., 1::2, 1::2]], 1)),
        c=conv_norm(12, 8),
    ),
    image(),
)
vision(
    "gem_pooling",
    lambda: Call(
        lambda s, x: F.avg_pool2d(s.c(x).relu().clamp(min=1e-2).pow(3), 14).pow(1 / 3).flatten(1), c=nn.Conv2d(3, 8, 3)
    ),
    image(),
    bar=25,
    reason="a cube root of values that differ by a factor of 1000",
)
vision(
    "global_max_and_mean",
    lambda: Call(lambda s, x: s.l(torch.cat([x.mean((2, 3)), x.amax((2, 3))], 1)), l=nn.Linear(6, 4)),
    image(),
)
vision(
    "l2_embedding",
    lambda: Call(lambda s, x: F.normalize(s.l(s.c(x).relu().mean((2, 3)))), c=nn.Conv2d(3, 16, 3), l=nn.Linear(16, 32)),
    image(),
)
vision(
    "cosine_classifier",
    lambda: Call(
        lambda s, x: F.linear(F.normalize(s.c(x).mean((2, 3))), F.normalize(s.w)) * 10,
        c=nn.Conv2d(3, 16, 3),
        w=nn.Parameter(torch.randn(5, 16)),
    ),
    image(),
)
vision(
    "softmax_classifier",
    lambda: nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(392, 10), nn.Softmax(1)),
    image(),
)
vision(
    "log_softmax_classifier",
    lambda: nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(392, 10), nn.LogSoftmax(1)),
    image(),
)
vision(
    "batch_of_four",
    lambda: nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(392, 10)),
    image(batch=4),
)
vision(
    "channels_last_input",
    lambda: nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.Conv2d(8, 4, 3)),
    lambda: torch.rand(1, 3, 16, 16).to(memory_format=torch.channels_last),
)
vision(
    "nhwc_by_permute",
    lambda: Call(lambda s, x: s.c(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1), c=nn.Conv2d(3, 4, 3)),
    lambda: torch.rand(1, 16, 16, 3),
)
vision(
    "normalize_in_model",
    lambda: Call(
        lambda s, x: s.c((x - s.mean) / s.std),
        c=nn.Conv2d(3, 8, 3),
        mean=nn.Buffer(torch.tensor([0.48, 0.46, 0.41]).view(1, 3, 1, 1)),
        std=nn.Buffer(torch.tensor([0.23, 0.22, 0.22]).view(1, 3, 1, 1)),
    ),
    image(),
)
vision(
    "gray_from_rgb",
    lambda: Call(
        lambda s, x: s.c((x * s.w).sum(1, keepdim=True)),
        c=nn.Conv2d(1, 8, 3),
        w=nn.Buffer(torch.tensor([0.299, 0.587, 0.114]).view(1, 3, 1, 1)),
    ),
    image(),
)
vision(
    "sobel_edges",
    lambda: Call(
        lambda s, x: torch.sqrt(F.conv2d(x, s.k).pow(2).sum(1, keepdim=True) + 1e-3),
        k=nn.Buffer(torch.tensor([[[[1.0, 0, -1], [2, 0, -2], [1, 0, -1]]], [[[1.0, 2, 1], [0, 0, 0], [-1, -2, -1]]]])),
    ),
    image(1),
    bar=28,
    reason="the root of a sum of squares in int8",
)
vision(
    "depthwise_multiplier",
    lambda: nn.Sequential(nn.Conv2d(4, 12, 3, groups=4), nn.ReLU(), nn.Conv2d(12, 4, 1)),
    image(4),
)
vision(
    "grouped_convolution",
    lambda: nn.Sequential(nn.Conv2d(8, 16, 3, groups=2), nn.ReLU(), nn.Conv2d(16, 8, 1, groups=4)),
    image(8),
)
vision("large_kernel", lambda: nn.Sequential(nn.Conv2d(3, 8, 11, 4, 2), nn.ReLU()), image(3, 32))
vision(
    "one_by_n_kernels",
    lambda: nn.Sequential(nn.Conv2d(3, 8, (1, 7), padding=(0, 3)), nn.Conv2d(8, 8, (7, 1), padding=(3, 0)), nn.ReLU()),
    image(),
)
vision(
    "three_dimensional",
    lambda: nn.Sequential(nn.Conv3d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(864, 4)),
    normal(1, 1, 8, 8, 8),
)
vision("max_pool_3d", lambda: nn.Sequential(nn.Conv3d(1, 4, 3), nn.MaxPool3d(2)), normal(1, 1, 8, 8, 8))
vision("adaptive_pool_uneven", lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.AdaptiveAvgPool2d((3, 5))), image())
vision(
    "lp_pool",
    lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.LPPool2d(2, 2)),
    image(),
)
vision(
    "interpolate_to_size",
    lambda: Call(
        lambda s, x: F.interpolate(s.c(x), size=(20, 24), mode="bilinear", align_corners=True), c=nn.Conv2d(3, 4, 3)
    ),
    image(),
)
vision(
    "interpolate_down",
    lambda: Call(lambda s, x: s.c(F.interpolate(x, scale_factor=0.5, mode="bilinear")), c=nn.Conv2d(3, 4, 3)),
    image(),
)
vision(
    "bicubic",
    lambda: Call(lambda s, x: s.c(F.interpolate(x, scale_factor=2, mode="bicubic")), c=nn.Conv2d(3, 4, 3)),
    image(),
)
vision(
    "mixer_block",
    lambda: Call(
        lambda s, x: (lambda y: (lambda z: z + s.b(s.m(z)))(y + s.a(s.n(y).transpose(1, 2)).transpose(1, 2)))(
            s.p(x).flatten(2).transpose(1, 2)
        ),
        p=nn.Conv2d(3, 16, 4, 4),
        n=nn.LayerNorm(16),
        m=nn.LayerNorm(16),
        a=nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16)),
        b=nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16)),
    ),
    image(),
)
vision(
    "conv_mixer",
    lambda: body(
        nn.Conv2d(3, 16, 4, 4),
        nn.GELU(),
        nn.BatchNorm2d(16),
        Call(lambda s, x: x + s.b(F.gelu(s.c(x))), c=nn.Conv2d(16, 16, 5, padding=2, groups=16), b=nn.BatchNorm2d(16)),
        nn.Conv2d(16, 16, 1),
    ),
    image(),
)
vision(
    "capsule_squash",
    lambda: Call(
        lambda s, x: (
            lambda c: (
                (c.pow(2).sum(-1, keepdim=True) / (1 + c.pow(2).sum(-1, keepdim=True)))
                * c
                / (c.pow(2).sum(-1, keepdim=True) + 1e-3).sqrt()
            )
        )(s.c(x).flatten(2).transpose(1, 2).reshape(1, -1, 4)),
        c=nn.Conv2d(3, 8, 5, 4),
    ),
    image(),
    bar=25,
    reason="a chain of squares, quotients and roots",
)
vision(
    "gram_matrix",
    lambda: Call(lambda s, x: (lambda f: f @ f.transpose(1, 2) / 196)(s.c(x).relu().flatten(2)), c=nn.Conv2d(3, 8, 3)),
    image(),
)
vision(
    "non_local",
    lambda: Call(
        lambda s, x: (
            lambda t, p, g: (
                x
                + s.o(
                    (torch.softmax(t.transpose(1, 2) @ p, -1) @ g.transpose(1, 2)).transpose(1, 2).reshape(1, 4, 8, 8)
                )
            )
        )(s.t(x).flatten(2), s.p(x).flatten(2), s.g(x).flatten(2)),
        t=nn.Conv2d(8, 4, 1),
        p=nn.Conv2d(8, 4, 1),
        g=nn.Conv2d(8, 4, 1),
        o=nn.Conv2d(4, 8, 1),
    ),
    normal(1, 8, 8, 8),
)
vision("maxout", lambda: Call(lambda s, x: s.c(x).view(1, 4, 2, 14, 14).amax(2), c=nn.Conv2d(3, 8, 3)), image())
vision(
    "highway",
    lambda: Call(
        lambda s, x: (lambda t: t * s.h(x).relu() + (1 - t) * x)(s.t(x).sigmoid()),
        h=nn.Conv2d(4, 4, 3, padding=1),
        t=nn.Conv2d(4, 4, 3, padding=1),
    ),
    image(4),
)
vision(
    "drop_path_and_dropout",
    lambda: nn.Sequential(
        nn.Conv2d(3, 8, 3),
        nn.Dropout2d(0.2),
        nn.ReLU(),
        nn.AlphaDropout(0.1),
        nn.Flatten(),
        nn.Dropout(0.5),
        nn.Linear(1568, 4),
    ),
    image(),
)
vision(
    "imx95_classifier", lambda: with_head(body(Residual(3, 16), Residual(16, 32, 2)), 32), image(3, 32), target="imx95"
)
vision(
    "mcxn_classifier",
    lambda: with_head(body(conv_norm(3, 8), conv_norm(8, 8, groups=8), conv_norm(8, 16, 1)), 16),
    image(),
    target="mcxn94x",
)
