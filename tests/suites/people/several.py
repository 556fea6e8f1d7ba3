# SPDX-License-Identifier: BSD-3-Clause
"""Models of several inputs or outputs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import nn
from torch.nn import functional as F

from tests.suites.people.case import Call, case
from tests.suites.people.vision import image, normal

several = partial(case, kind="several")


@dataclass
class Detections:
    """The results of a detector."""

    boxes: torch.Tensor
    scores: torch.Tensor


several(
    "image_and_numbers",
    lambda: Call(
        lambda s, x, v: s.l(torch.cat([s.c(x).relu().mean((2, 3)), v], 1)), c=nn.Conv2d(3, 8, 3), l=nn.Linear(12, 4)
    ),
    lambda: (torch.rand(1, 3, 16, 16), torch.randn(1, 4)),
)
several(
    "two_images",
    lambda: Call(lambda s, a, b: s.c(torch.cat([a, b], 1)), c=nn.Conv2d(6, 4, 3)),
    lambda: (torch.rand(1, 3, 12, 12), torch.rand(1, 3, 12, 12)),
)
several(
    "siamese_distance",
    lambda: Call(
        lambda s, a, b: (s.e(a) - s.e(b)).abs(),
        e=nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(1568, 8)),
    ),
    lambda: (torch.rand(1, 3, 16, 16), torch.rand(1, 3, 16, 16)),
    bar=24,
    reason="differences of two similar values",
)
several(
    "volts_and_kilopascal",
    lambda: Call(lambda s, v, p: s.l(torch.cat([v, p], 1)), l=nn.Linear(8, 4)),
    lambda: (torch.randn(1, 4) * 3, torch.randn(1, 4) * 100 + 500),
    bar=(28,),
)
several(
    "scaled_apart",
    lambda: (lambda m: (m.l.weight.data[:, 4:].mul_(0.01), m)[1])(
        Call(lambda s, v, p: s.l(torch.cat([v, p], 1)), l=nn.Linear(8, 4))
    ),
    lambda: (torch.randn(1, 4) * 3, torch.randn(1, 4) * 300),
)
several(
    "wide_and_narrow_channels",
    lambda: (lambda m: (m.c.weight.data[:, :2].mul_(0.01), m)[1])(
        Call(lambda s, a, b: s.c(torch.cat([a * 200, b], 1)), c=nn.Conv2d(4, 4, 1))
    ),
    lambda: (torch.randn(1, 2, 8, 8), torch.randn(1, 2, 8, 8)),
)
several(
    "two_heads",
    lambda: Call(
        lambda s, x: (lambda y: (s.a(y), s.b(y).sigmoid()))(s.c(x).relu().flatten(1)),
        c=nn.Conv2d(3, 8, 3, 2),
        a=nn.Linear(392, 4),
        b=nn.Linear(392, 1),
    ),
    image(),
)
several(
    "dictionary_of_heads",
    lambda: Call(
        lambda s, x: (lambda y: {"age": s.a(y), "smile": s.b(y).sigmoid()})(s.c(x).relu().mean((2, 3))),
        c=nn.Conv2d(3, 8, 3),
        a=nn.Linear(8, 1),
        b=nn.Linear(8, 2),
    ),
    image(),
)
several(
    "list_of_maps",
    lambda: Call(lambda s, x: (lambda a: [a, s.b(a)])(s.a(x).relu()), a=nn.Conv2d(3, 8, 3, 2), b=nn.Conv2d(8, 8, 3, 2)),
    image(),
)
several(
    "nested_results",
    lambda: Call(
        lambda s, x: (lambda a: (a, (s.b(a), {"c": s.c(a)})))(s.a(x)),
        a=nn.Linear(8, 8),
        b=nn.Linear(8, 4),
        c=nn.Linear(8, 2),
    ),
    normal(1, 8),
)
several("result_twice", lambda: Call(lambda s, x: (lambda y: (y, y))(s.l(x)), l=nn.Linear(8, 4)), normal(1, 8))
several("input_returned", lambda: Call(lambda s, x: (x, s.l(x)), l=nn.Linear(8, 4)), normal(1, 8))
several(
    "features_and_classes",
    lambda: Call(
        lambda s, x: (lambda f: (F.normalize(f), s.l(f)))(s.c(x).relu().mean((2, 3))),
        c=nn.Conv2d(3, 16, 3),
        l=nn.Linear(16, 4),
    ),
    image(),
)
several(
    "early_exit",
    lambda: Call(
        lambda s, x: (lambda a: (s.e(a.mean((2, 3))), s.o(s.b(a).relu().mean((2, 3)))))(s.a(x).relu()),
        a=nn.Conv2d(3, 8, 3),
        b=nn.Conv2d(8, 8, 3),
        e=nn.Linear(8, 4),
        o=nn.Linear(8, 4),
    ),
    image(),
)
several(
    "film_conditioning",
    lambda: Call(
        lambda s, x, c: (lambda g: s.a(x) * (1 + g[:, :8, None, None]) + g[:, 8:, None, None])(s.f(c)),
        a=nn.Conv2d(3, 8, 3),
        f=nn.Linear(4, 16),
    ),
    lambda: (torch.rand(1, 3, 12, 12), torch.randn(1, 4)),
)
several(
    "gain_as_an_input",
    lambda: Call(lambda s, x, g: s.c(x * g), c=nn.Conv2d(3, 4, 3)),
    lambda: (torch.rand(1, 3, 12, 12), torch.rand(1, 1, 1, 1) + 0.5),
)
several(
    "state_and_action",
    lambda: Call(
        lambda s, o, a: s.q(torch.cat([s.e(o).relu(), a.tanh()], -1)),
        e=nn.Linear(8, 16),
        q=nn.Sequential(nn.Linear(18, 16), nn.ReLU(), nn.Linear(16, 1)),
    ),
    lambda: (torch.randn(1, 8), torch.randn(1, 2)),
)
several(
    "mean_and_deviation",
    lambda: Call(
        lambda s, x: (lambda h: (s.m(h).tanh(), F.softplus(s.d(h))))(s.b(x).relu()),
        b=nn.Linear(8, 16),
        m=nn.Linear(16, 2),
        d=nn.Linear(16, 2),
    ),
    normal(1, 8),
)
several(
    "dueling_network",
    lambda: Call(
        lambda s, x: (lambda a: s.v(x) + a - a.mean(1, keepdim=True))(s.a(x)), v=nn.Linear(8, 1), a=nn.Linear(8, 4)
    ),
    normal(1, 8),
)
several(
    "three_sensors",
    lambda: Call(lambda s, a, g, m: s.l(torch.stack([a * 0.1, g * 10, m], 1).flatten(1)), l=nn.Linear(24, 4)),
    lambda: (torch.randn(1, 8) * 10, torch.randn(1, 8) * 0.1, torch.randn(1, 8)),
)
several(
    "mixture_of_experts",
    lambda: Call(
        lambda s, x: (s.g(x).softmax(-1)[..., None] * torch.stack([e(x) for e in s.e], 1)).sum(1),
        g=nn.Linear(8, 3),
        e=nn.ModuleList(nn.Linear(8, 4) for _ in range(3)),
    ),
    normal(1, 8),
)
several(
    "bilinear_layer",
    lambda: nn.Bilinear(4, 5, 6),
    lambda: (torch.randn(1, 4), torch.randn(1, 5)),
    bar=26,
    reason="a sum of products of two inputs",
)
several(
    "outer_interactions",
    lambda: Call(lambda s, a, b: s.l((a[:, :, None] * b[:, None]).flatten(1)), l=nn.Linear(24, 4)),
    lambda: (torch.randn(1, 4), torch.randn(1, 6)),
)
several(
    "factorization_machine",
    lambda: Call(
        lambda s, x: s.l(x) + 0.5 * ((x @ s.v).pow(2) - x.pow(2) @ s.v.pow(2)).sum(1, keepdim=True),
        l=nn.Linear(8, 1),
        v=nn.Parameter(torch.randn(8, 4) * 0.3),
    ),
    normal(1, 8),
    bar=22,
    reason="a difference of two sums of squares",
)
several(
    "dataclass_of_heads",
    lambda: Call(
        lambda s, x: (lambda y: Detections(s.b(y).flatten(2) * 16, s.c(y).flatten(2).sigmoid()))(s.a(x).relu()),
        a=nn.Conv2d(3, 8, 3),
        b=nn.Conv2d(8, 4, 1),
        c=nn.Conv2d(8, 2, 1),
    ),
    image(),
)
