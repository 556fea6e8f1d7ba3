# SPDX-License-Identifier: BSD-3-Clause
"""Detectors, keypoints and decoders of boxes."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.suites.people.case import Call, case, settled
from tests.suites.people.vision import conv_norm, image, normal

detect = partial(case, kind="detect")


def boxes(y: Tensor) -> Tensor:
    return y[:, :4]


def scores(y: Tensor) -> Tensor:
    return y[:, 4:]


def last_boxes(y: Tensor) -> Tensor:
    return y[..., :4]


def last_scores(y: Tensor) -> Tensor:
    return y[..., 4:]


class Yolo(nn.Module):
    """A detector of two scales whose boxes are in pixels; ``form`` names the form of its output."""

    def __init__(self, form: str, size: int = 64, bias: float = -2.0) -> None:
        super().__init__()
        self.form = form
        self.stem = nn.Sequential(
            conv_norm(3, 8, stride=2, act=nn.SiLU),
            conv_norm(8, 16, stride=2, act=nn.SiLU),
            conv_norm(16, 16, stride=2, act=nn.SiLU),
        )
        self.down = conv_norm(16, 16, stride=2, act=nn.SiLU)
        self.box, self.score = (
            nn.ModuleList(nn.Conv2d(16, 4, 1) for _ in range(2)),
            nn.ModuleList(nn.Conv2d(16, 3, 1) for _ in range(2)),
        )
        for layer in self.score:
            layer.bias.data.fill_(bias)
        grid, stride = [], []
        for step in (8, 16):
            axis = torch.arange(size // step) + 0.5
            y, x = torch.meshgrid(axis, axis, indexing="ij")
            grid.append(torch.stack((x, y)).flatten(1))
            stride.append(torch.full((1, grid[-1].shape[1]), float(step)))
        self.register_buffer("grid", torch.cat(grid, 1)[None])
        self.register_buffer("stride", torch.cat(stride, 1)[None])

    def forward(self, x: Tensor):  # type: ignore[no-untyped-def]
        fine = self.stem(x)
        maps = [fine, self.down(fine)]
        box = torch.cat([layer(item).flatten(2) for layer, item in zip(self.box, maps, strict=True)], 2)
        score = torch.cat([layer(item).flatten(2) for layer, item in zip(self.score, maps, strict=True)], 2).sigmoid()
        center, extent = self.grid + box[:, :2], box[:, 2:].exp()
        pixels = torch.cat([center, extent], 1) * self.stride
        if self.form == "two":
            return pixels, score
        both = torch.cat([pixels, score], 1)
        if self.form == "transposed":
            return both.transpose(1, 2)
        if self.form == "split":
            return both.split((4, 3), 1)
        if self.form == "sliced":
            return both[:, :4], both[:, 4:]
        if self.form == "corners":
            half = pixels[:, 2:] / 2
            return torch.cat([pixels[:, :2] - half, pixels[:, :2] + half, score], 1)
        return both


def yolo(form: str, bias: float = -2.0) -> nn.Module:
    return settled(Yolo(form, bias=bias), torch.rand(4, 3, 64, 64))


for _target in ("imxrt700", "mcxn94x", "imx95"):
    detect(
        f"yolo_one_output_{_target}", lambda: yolo("one"), image(3, 64), bar=25, parts=(boxes, scores), target=_target
    )
detect("yolo_transposed", lambda: yolo("transposed"), image(3, 64), bar=25, parts=(last_boxes, last_scores))
detect("yolo_split_again", lambda: yolo("split"), image(3, 64), bar=25)
detect("yolo_sliced_again", lambda: yolo("sliced"), image(3, 64), bar=25)
detect("yolo_two_outputs", lambda: yolo("two"), image(3, 64), bar=25)
detect("yolo_corners", lambda: yolo("corners"), image(3, 64), bar=25, parts=(boxes, scores))
detect("yolo_rare_scores", lambda: yolo("one", -4.6), image(3, 64), bar=25, parts=(boxes, scores))
detect(
    "boxes_and_scores_stacked",
    lambda: Call(
        lambda s, x: torch.stack([s.a(x).flatten(1) * 64, s.b(x).flatten(1).sigmoid()], 1),
        a=nn.Conv2d(3, 1, 3),
        b=nn.Conv2d(3, 1, 3),
    ),
    image(),
    bar=25,
    parts=(lambda y: y[:, 0], lambda y: y[:, 1]),
)
detect(
    "boxes_and_scores_flat",
    lambda: Call(
        lambda s, x: torch.cat([(s.a(x) * 100).flatten(1), s.b(x).sigmoid().flatten(1)], 1),
        a=nn.Conv2d(3, 2, 3),
        b=nn.Conv2d(3, 1, 3),
    ),
    image(),
    bar=25,
    parts=(lambda y: y[:, :392], lambda y: y[:, 392:]),
)
detect(
    "three_parts_in_one",
    lambda: Call(
        lambda s, x: torch.cat([s.a(x) * 200, s.b(x).sigmoid(), s.c(x).tanh() * 3], 1),
        a=nn.Conv2d(3, 4, 3),
        b=nn.Conv2d(3, 1, 3),
        c=nn.Conv2d(3, 2, 3),
    ),
    image(),
    bar=25,
    parts=(boxes, lambda y: y[:, 4:5], lambda y: y[:, 5:]),
)
detect(
    "ssd_heads",
    lambda: Call(
        lambda s, x: (
            lambda a, b: (
                torch.cat(
                    [s.l[0](a).permute(0, 2, 3, 1).reshape(1, -1, 4), s.l[1](b).permute(0, 2, 3, 1).reshape(1, -1, 4)],
                    1,
                ),
                torch.cat(
                    [s.c[0](a).permute(0, 2, 3, 1).reshape(1, -1, 3), s.c[1](b).permute(0, 2, 3, 1).reshape(1, -1, 3)],
                    1,
                ).softmax(-1),
            )
        )(x, F.max_pool2d(x, 2)),
        l=nn.ModuleList(nn.Conv2d(8, 8, 3, padding=1) for _ in range(2)),
        c=nn.ModuleList(nn.Conv2d(8, 6, 3, padding=1) for _ in range(2)),
    ),
    normal(1, 8, 8, 8),
)
detect(
    "retina_prior",
    lambda: (lambda m: (m.c.bias.data.fill_(-4.6), m)[1])(
        Call(lambda s, x: s.c(s.a(x).relu()).sigmoid(), a=nn.Conv2d(3, 8, 3), c=nn.Conv2d(8, 3, 1))
    ),
    image(),
    bar=30,
)
detect(
    "fcos_head",
    lambda: Call(
        lambda s, x: (lambda y: (s.c(y).sigmoid(), s.b(y).exp() * 8, s.o(y).sigmoid()))(s.t(x)),
        t=nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.ReLU()),
        c=nn.Conv2d(8, 3, 1),
        b=nn.Conv2d(8, 4, 1),
        o=nn.Conv2d(8, 1, 1),
    ),
    normal(1, 8, 8, 8),
)
detect(
    "center_net",
    lambda: settled(
        Call(
            lambda s, x: (lambda h: (F.max_pool2d(h, 3, 1, 1) == h).float() * h)(s.o(s.c(x)).sigmoid()),
            c=conv_norm(3, 8, stride=2),
            o=nn.Conv2d(8, 2, 1),
        ),
        torch.rand(4, 3, 32, 32),
    ),
    image(3, 32),
    bar=25,
    reason="neighbours that share an int8 value become peaks together; XNNPACK's quantizer has 15.1 dB",
)
detect(
    "heatmap_soft_argmax",
    lambda: Call(
        lambda s, x: (lambda p: torch.stack([(p.sum(1) * s.r).sum(1), (p.sum(2) * s.r).sum(1)], 1))(
            s.c(x).flatten(1).softmax(-1).view(1, 8, 8)
        ),
        c=nn.Conv2d(3, 1, 1),
        r=nn.Buffer(torch.arange(8.0)),
    ),
    normal(1, 3, 8, 8),
    bar=28,
)
detect(
    "heatmap_argmax",
    lambda: Call(lambda s, x: s.c(x).flatten(2).argmax(2), c=nn.Conv2d(3, 4, 1)),
    image(),
    agree=0.7,
    reason="values that round to the same step are equal",
)
detect(
    "segmentation_argmax",
    lambda: Call(lambda s, x: s.c(x).argmax(1), c=nn.Conv2d(3, 4, 3)),
    image(),
    agree=0.9,
    reason="values that round to the same step are equal",
)
detect(
    "yolox_decode",
    lambda: settled(
        Call(
            lambda s, x: (
                lambda o: torch.cat([(o[..., :2] + s.g) * 4, o[..., 2:4].exp() * 4, o[..., 4:].sigmoid()], -1)
            )(s.o(s.c(x)).flatten(2).transpose(1, 2)),
            c=conv_norm(3, 16, stride=2),
            o=nn.Conv2d(16, 6, 1),
            g=nn.Buffer(
                torch.stack(torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="xy"), 2).view(1, -1, 2)
            ),
        ),
        torch.rand(4, 3, 32, 32),
    ),
    image(3, 32),
    bar=25,
    parts=(lambda y: y[..., :2], lambda y: y[..., 2:4], last_scores),
)
detect(
    "distribution_of_distances",
    lambda: Call(
        lambda s, x: (s.c(x).view(1, 4, 8, -1).softmax(2) * s.r).sum(2),
        c=nn.Conv2d(8, 32, 1),
        r=nn.Buffer(torch.arange(8.0).view(1, 1, 8, 1)),
    ),
    normal(1, 8, 4, 4),
)
detect(
    "assigned_slices",
    lambda: Call(
        lambda s, x: (lambda y: torch.cat([y[..., :2] * 2 - 0.5, (y[..., 2:4] * 2) ** 2, y[..., 4:]], -1))(
            s.c(x).permute(0, 2, 3, 1).sigmoid()
        ),
        c=nn.Conv2d(8, 6, 1),
    ),
    normal(1, 8, 4, 4),
    parts=(lambda y: y[..., :2], lambda y: y[..., 2:4], last_scores),
)
detect(
    "face_landmarks",
    lambda: Call(
        lambda s, x: (lambda y: (s.a(y) * 112, s.b(y).sigmoid()))(s.c(x).relu().mean((2, 3))),
        c=nn.Conv2d(3, 16, 3, 2),
        a=nn.Linear(16, 10),
        b=nn.Linear(16, 1),
    ),
    image(),
)
detect(
    "intersection_over_union",
    lambda: Call(
        lambda s, x: (lambda wh: wh[:, 0] * wh[:, 1])(
            (torch.minimum(x[:, 2:], s.b[:, 2:]) - torch.maximum(x[:, :2], s.b[:, :2])).clamp_min(0)
        ),
        b=nn.Buffer(torch.tensor([[0.2, 0.3, 0.6, 0.8]])),
    ),
    lambda: torch.cat([torch.rand(1, 2) * 0.4, torch.rand(1, 2) * 0.4 + 0.5], 1),
    bar=22,
    reason="a product of two small differences",
)
detect(
    "top_scores_on_the_cpu",
    lambda: Call(lambda s, x: s.c(x).flatten(1).topk(5)[0], c=nn.Conv2d(3, 2, 3)),
    image(),
    calls=2,
    reason="sorting stays on the CPU",
)
