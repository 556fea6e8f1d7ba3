# SPDX-License-Identifier: BSD-3-Clause
"""Functions of few values whose range a fixed scale would not fit, and arithmetic as people write it."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.suites.people.case import Call, case
from tests.suites.people.vision import normal

functions = partial(case, kind="functions")


def linear(bias: float = 0.0, factor: float = 1.0, outputs: int = 8) -> nn.Linear:
    """Return a linear layer of 16 inputs with a constant bias and scaled weights."""
    layer = nn.Linear(16, outputs)
    layer.weight.data.mul_(factor)
    layer.bias.data.fill_(bias)
    return layer


def behind(function: Callable[[Tensor], Any], bias: float = 0.0, factor: float = 1.0) -> nn.Module:
    """Return a linear layer and a function of its result."""
    return Call(lambda s, x: function(s.l(x)), l=linear(bias, factor))


x16 = normal(1, 16)
for _bias in (-3, -5, -7):
    functions(f"sigmoid_near_{-_bias}", lambda b=_bias: behind(torch.sigmoid, b), x16, samples=32)
functions("sigmoid_near_one", lambda: behind(lambda y: 1 - torch.sigmoid(y), 5), x16, samples=32)
functions("small_tanh", lambda: behind(torch.tanh, 0, 0.02), x16, samples=32)
functions("tanh_of_a_delta", lambda: behind(lambda y: torch.tanh(y) * 0.1), x16)
functions(
    "gate_almost_closed",
    lambda: Call(lambda s, x: s.a(x) * s.b(x).sigmoid(), a=linear(), b=linear(-4)),
    x16,
    samples=32,
)
functions(
    "glu_almost_closed",
    lambda: Call(
        lambda s, x: F.glu(s.a(x) + s.b), a=nn.Linear(16, 16), b=nn.Buffer(torch.tensor([0.0] * 8 + [-4.0] * 8))
    ),
    x16,
    samples=32,
)
functions("small_sine", lambda: behind(torch.sin, 0, 0.01), x16, samples=32)
functions("cosine_near_one", lambda: behind(torch.cos, 0, 0.1), x16, samples=32)
functions("softmax_of_many", lambda: nn.Sequential(nn.Linear(16, 200), nn.Softmax(-1)), x16, bar=28)
functions("softmax_with_temperature", lambda: Call(lambda s, x: (s.l(x) / 0.5).softmax(-1), l=linear()), x16)
functions("normalized_rows", lambda: Call(lambda s, x: F.normalize(s.l(x), dim=-1), l=nn.Linear(16, 128)), x16)
functions("softplus", lambda: behind(F.softplus, -2), x16)
functions("exponential", lambda: behind(torch.exp), x16)
functions("exponential_small", lambda: behind(torch.exp, -4), x16, samples=32)
functions("logarithm", lambda: behind(lambda y: torch.log(y.abs() + 0.1)), x16)
functions("log1p_of_relu", lambda: behind(lambda y: torch.log1p(y.relu())), x16)
functions("reciprocal", lambda: behind(lambda y: 1 / (y.abs() + 0.5)), x16)
functions("reciprocal_root", lambda: behind(lambda y: torch.rsqrt(y.pow(2) + 0.1)), x16)
functions("square_root", lambda: behind(lambda y: y.abs().sqrt()), x16, bar=28)
functions("powers", lambda: behind(lambda y: y**3 - 2 * y**2 + y), x16)
functions(
    "polynomial_of_two",
    lambda: Call(lambda s, x: (lambda a, b: a * b + a - b)(s.a(x), s.b(x)), a=linear(), b=linear()),
    x16,
)
functions(
    "quotient_of_two",
    lambda: Call(lambda s, x: s.a(x) / (s.b(x).abs() + 1), a=linear(), b=linear()),
    x16,
    bar=27,
    reason="a product with the table of a reciprocal",
)
functions(
    "atan2_angle",
    lambda: Call(lambda s, x: torch.atan2(s.a(x), s.b(x)), a=linear(1.0, 0.3), b=linear(2.0, 0.3)),
    x16,
    calls=4,
    bar=25,
    reason="a function of two values is the CPU's",
)
functions("angle_by_atan", lambda: Call(lambda s, x: torch.atan(s.a(x)), a=linear()), x16)
functions("gelu_tanh", lambda: behind(lambda y: F.gelu(y, approximate="tanh")), x16)
functions("gelu_by_hand", lambda: behind(lambda y: 0.5 * y * (1 + torch.erf(y / math.sqrt(2)))), x16)
functions("swish_by_hand", lambda: behind(lambda y: y * (1 / (1 + torch.exp(-y)))), x16)
functions("hard_swish_by_hand", lambda: behind(lambda y: y * F.relu6(y + 3) / 6), x16)
functions("mish_by_hand", lambda: behind(lambda y: y * torch.tanh(F.softplus(y))), x16)
functions("clamped_both_ends", lambda: behind(lambda y: y.clamp(-0.3, 0.4)), x16)
functions(
    "threshold", lambda: behind(lambda y: F.threshold(y, 0.1, 0.0)), x16, bar=22, reason="values near the threshold"
)
functions("sign_and_size", lambda: behind(lambda y: torch.sign(y) * torch.log1p(y.abs())), x16)
functions(
    "minimum_and_maximum",
    lambda: Call(lambda s, x: torch.maximum(s.a(x), s.b(x)) - torch.minimum(s.a(x), s.b(x)), a=linear(), b=linear()),
    x16,
    bar=27,
    reason="a difference of two similar values",
)
functions(
    "variance",
    lambda: Call(lambda s, x: s.l(x).view(1, 4, 8).var(-1), l=nn.Linear(16, 32)),
    x16,
    bar=26,
    reason="a mean of squares in int8",
)
functions(
    "standardized",
    lambda: Call(
        lambda s, x: (lambda y: (y - y.mean(-1, keepdim=True)) / (y.std(-1, keepdim=True) + 1e-3))(s.l(x)), l=linear()
    ),
    x16,
    bar=26,
    reason="a quotient in int8",
)
functions(
    "norm_of_rows",
    lambda: Call(lambda s, x: s.l(x).view(1, 4, 8).norm(dim=-1), l=nn.Linear(16, 32)),
    x16,
    bar=36,
)
functions(
    "distance_to_prototypes",
    lambda: Call(lambda s, x: (s.l(x)[:, None] - s.p).pow(2).sum(-1), l=linear(), p=nn.Parameter(torch.randn(1, 5, 8))),
    x16,
    bar=27,
    reason="a sum of squares in int8",
)
functions(
    "radial_basis",
    lambda: Call(
        lambda s, x: torch.exp(-0.2 * (s.l(x)[:, None] - s.p).pow(2).sum(-1)),
        l=linear(),
        p=nn.Parameter(torch.randn(1, 5, 8)),
    ),
    x16,
    bar=22,
    reason="the exponential of a sum of squares in int8",
)
functions(
    "matrix_of_parameters",
    lambda: Call(
        lambda s, x: x @ (s.a @ s.b) + s.c,
        a=nn.Parameter(torch.randn(16, 2)),
        b=nn.Parameter(torch.randn(2, 8)),
        c=nn.Parameter(torch.randn(8)),
    ),
    x16,
)
functions(
    "low_rank_adapter",
    lambda: Call(
        lambda s, x: s.l(x) + s.b(s.a(x)) * 0.5,
        l=linear(),
        a=nn.Linear(16, 2, bias=False),
        b=nn.Linear(2, 8, bias=False),
    ),
    x16,
)
functions(
    "einsum_product",
    lambda: Call(lambda s, x: torch.einsum("bi,io->bo", x, s.w), w=nn.Parameter(torch.randn(16, 8))),
    x16,
)
functions(
    "einsum_of_heads",
    lambda: Call(
        lambda s, x: torch.einsum("bthd,bshd->bhts", x.view(1, 4, 2, 2), s.l(x).view(1, 4, 2, 2)), l=nn.Linear(16, 16)
    ),
    x16,
    bar=27,
    reason="a sum of two products",
)
functions(
    "kan_layer",
    lambda: Call(
        lambda s, x: s.l(F.silu(x)) + s.b(torch.exp(-((x[..., None] - s.g) ** 2) * 4).flatten(1)),
        l=linear(),
        b=nn.Linear(64, 8),
        g=nn.Buffer(torch.linspace(-1, 1, 4)),
    ),
    x16,
)
functions(
    "fourier_features",
    lambda: Call(
        lambda s, x: (lambda p: s.l(torch.cat([p.sin(), p.cos()], -1)))(x @ s.b),
        b=nn.Buffer(torch.randn(16, 8) * 0.2),
        l=nn.Linear(16, 4),
    ),
    x16,
    bar=27,
    reason="angles in int8",
)
functions(
    "siren",
    lambda: Call(lambda s, x: s.b(torch.sin(3 * s.a(x))), a=linear(), b=nn.Linear(8, 3)),
    x16,
    bar=26,
    reason="angles in int8",
)
functions(
    "tiny_weights_large_bias",
    lambda: (lambda m: (m.weight.data[2].mul_(1e-8), m.bias.data[2].fill_(1.0), m.weight.data[5].zero_(), m)[3])(
        nn.Linear(16, 8)
    ),
    x16,
)
functions(
    "dead_channels",
    lambda: (lambda m: (m[0].weight.data[1].zero_(), m[0].bias.data[1].fill_(-9.0), m)[2])(
        nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 4))
    ),
    x16,
)
functions(
    "one_large_channel",
    lambda: (lambda m: (m[0].weight.data[1].mul_(50.0), m)[1])(
        nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 4))
    ),
    x16,
)
