# SPDX-License-Identifier: BSD-3-Clause
"""Attention, masks and tokens."""

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

text = partial(case, kind="text")

WIDTH, HEADS, TOKENS = 16, 4, 12


def padded(width: int = WIDTH) -> Callable[[], tuple[Tensor, Tensor]]:
    """Return a function that draws tokens and a mask: 1 where a token counts, 0 for up to six tokens at the end."""

    def draw() -> tuple[Tensor, Tensor]:
        mask = torch.ones(1, TOKENS)
        mask[:, TOKENS - int(torch.randint(0, 7, ())) :] = 0
        return torch.randn(1, TOKENS, width), mask

    return draw


def as_bool() -> tuple[Tensor, Tensor]:
    """Return tokens and a mask that is true where a token is padding."""
    x, mask = padded()()
    return x, mask < 0.5


def as_long() -> tuple[Tensor, Tensor]:
    """Return tokens and a mask of int64, as a tokenizer makes it."""
    x, mask = padded()()
    return x, mask.long()


class Attention(nn.Module):
    """Attention written with operators; ``add`` returns the scores with a mask."""

    def __init__(self, add: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.add = add

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        q, k, v = (layer(x).view(1, TOKENS, HEADS, -1).transpose(1, 2) for layer in (self.q, self.k, self.v))
        scores = self.add(q @ k.transpose(-1, -2) / math.sqrt(WIDTH // HEADS), mask)
        return x + self.o((scores.softmax(-1) @ v).transpose(1, 2).reshape(1, TOKENS, WIDTH))


class Encoder(nn.Module):
    """Layers of attention and a feed-forward block, which share a mask."""

    def __init__(self, layers: int, add: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.attention = nn.ModuleList(Attention(add) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2 * layers))
        self.forward_layers = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, 32), nn.GELU(), nn.Linear(32, WIDTH)) for _ in range(layers)
        )

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        for i, (attention, layer) in enumerate(zip(self.attention, self.forward_layers, strict=True)):
            x = self.norms[2 * i](attention(x, mask))
            x = self.norms[2 * i + 1](x + layer(x))
        return x


def encoder(causal: bool = False, **fields: Any) -> nn.Module:
    """Return a layer of torch.nn with a padding mask, and a causal one."""
    layer = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(WIDTH, HEADS, 32, 0.0, batch_first=True, **fields), 2, enable_nested_tensor=False
    )
    mask = nn.Transformer.generate_square_subsequent_mask(TOKENS)
    return Call(
        lambda s, x, m: s.t(x, mask=s.m if causal else None, src_key_padding_mask=m, is_causal=causal),
        t=layer,
        m=nn.Buffer(mask),
    )


LEAST = torch.finfo(torch.float32).min
MASKS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "added_1e4": lambda a, m: a + (1 - m[:, None, None]) * -1e4,
    "added_1e9": lambda a, m: a + (1 - m[:, None, None]) * -1e9,
    "added_least": lambda a, m: a + (1 - m[:, None, None]) * LEAST,
    "added_filled": lambda a, m: a + torch.zeros_like(m).masked_fill(m < 0.5, float("-inf"))[:, None, None],
    "filled_inf": lambda a, m: a.masked_fill(m[:, None, None] < 0.5, float("-inf")),
    "filled_1e9": lambda a, m: a.masked_fill(m[:, None, None] == 0, -1e9),
    "chosen": lambda a, m: torch.where(m[:, None, None] > 0.5, a, torch.tensor(-1e4)),
    "outer_product": lambda a, m: a + (1 - (m[:, :, None] * m[:, None])[:, None]) * -1e4,
    "logarithm": lambda a, m: a + (m + 1e-9).log()[:, None, None],
}
for _name, _add in MASKS.items():
    text(f"mask_{_name}", lambda add=_add: Attention(add), padded(), bar=28)
for _name in ("added_1e9", "added_filled", "filled_inf"):
    text(
        f"encoder_of_two_{_name}",
        lambda add=MASKS[_name]: Encoder(2, add),
        padded(),
        bar=26,
        reason="two layers of int8",
    )
    text(
        f"encoder_of_six_{_name}",
        lambda add=MASKS[_name]: Encoder(6, add),
        padded(),
        bar=22,
        reason="six layers of int8",
    )
text("mask_of_int64", lambda: Attention(lambda a, m: a + (1.0 - m[:, None, None].float()) * -1e4), as_long, bar=28)
text(
    "mask_of_int64_to_bool",
    lambda: Attention(lambda a, m: a.masked_fill(~m[:, None, None].bool(), -1e4)),
    as_long,
    bar=28,
)
text("encoder_key_padding", encoder, as_bool, bar=26, reason="two layers of int8")
text("encoder_causal_and_padding", lambda: encoder(True), as_bool, bar=26, reason="two layers of int8")
text(
    "encoder_pre_norm",
    lambda: encoder(norm_first=True, activation="gelu"),
    as_bool,
    bar=26,
    reason="two layers of int8",
)
text(
    "multihead_key_padding",
    lambda: Call(
        lambda s, x, m: x + s.a(x, x, x, key_padding_mask=m, need_weights=False)[0],
        a=nn.MultiheadAttention(WIDTH, HEADS, batch_first=True),
    ),
    as_bool,
    bar=28,
)
text(
    "multihead_causal_buffer",
    lambda: Call(
        lambda s, x: x + s.a(x, x, x, attn_mask=s.m, need_weights=False)[0],
        a=nn.MultiheadAttention(WIDTH, HEADS, batch_first=True),
        m=nn.Buffer(torch.full((TOKENS, TOKENS), float("-inf")).triu(1)),
    ),
    normal(1, TOKENS, WIDTH),
)
text(
    "sdpa_boolean_mask",
    lambda: Call(
        lambda s, x, m: s.o(
            F.scaled_dot_product_attention(s.q(x)[:, None], s.k(x)[:, None], x[:, None], attn_mask=~m[:, None, None])[
                :, 0
            ]
        ),
        q=nn.Linear(WIDTH, WIDTH),
        k=nn.Linear(WIDTH, WIDTH),
        o=nn.Linear(WIDTH, WIDTH),
    ),
    as_bool,
    bar=28,
)
text(
    "sdpa_causal",
    lambda: Call(
        lambda s, x: s.o(
            F.scaled_dot_product_attention(s.q(x)[:, None], s.k(x)[:, None], x[:, None], is_causal=True)[:, 0]
        ),
        q=nn.Linear(WIDTH, WIDTH),
        k=nn.Linear(WIDTH, WIDTH),
        o=nn.Linear(WIDTH, WIDTH),
    ),
    normal(1, TOKENS, WIDTH),
)
text(
    "alibi_bias",
    lambda: Call(
        lambda s, x: (s.q(x) @ s.k(x).transpose(1, 2) / 4 + s.b).softmax(-1) @ x,
        q=nn.Linear(WIDTH, WIDTH),
        k=nn.Linear(WIDTH, WIDTH),
        b=nn.Buffer(-0.5 * (torch.arange(TOKENS)[:, None] - torch.arange(TOKENS)).abs().float()),
    ),
    normal(1, TOKENS, WIDTH),
)
text(
    "window_of_attention",
    lambda: Call(
        lambda s, x: (s.q(x) @ s.k(x).transpose(1, 2) / 4).masked_fill(s.m, float("-inf")).softmax(-1) @ x,
        q=nn.Linear(WIDTH, WIDTH),
        k=nn.Linear(WIDTH, WIDTH),
        m=nn.Buffer((torch.arange(TOKENS)[:, None] - torch.arange(TOKENS)).abs() > 2),
    ),
    normal(1, TOKENS, WIDTH),
)
text(
    "relative_positions",
    lambda: Call(
        lambda s, x: (s.q(x) @ s.k(x).transpose(1, 2) / 4 + s.e(s.i)[..., 0]).softmax(-1) @ x,
        q=nn.Linear(WIDTH, WIDTH),
        k=nn.Linear(WIDTH, WIDTH),
        e=nn.Embedding(2 * TOKENS, 1),
        i=nn.Buffer(torch.arange(TOKENS)[:, None] - torch.arange(TOKENS) + TOKENS),
    ),
    normal(1, TOKENS, WIDTH),
)
text(
    "rotary_positions",
    lambda: Call(
        lambda s, x: (lambda q: (q @ q.transpose(1, 2) / 4).softmax(-1) @ x)(
            s.q(x) * s.c + torch.cat([-s.q(x)[..., WIDTH // 2 :], s.q(x)[..., : WIDTH // 2]], -1) * s.s
        ),
        q=nn.Linear(WIDTH, WIDTH),
        c=nn.Buffer(torch.outer(torch.arange(TOKENS), 0.5 ** torch.arange(WIDTH)).cos()),
        s=nn.Buffer(torch.outer(torch.arange(TOKENS), 0.5 ** torch.arange(WIDTH)).sin()),
    ),
    normal(1, TOKENS, WIDTH),
)
text(
    "cross_attention",
    lambda: Call(
        lambda s, x, y: s.a(x, y, y, need_weights=False)[0], a=nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
    ),
    lambda: (torch.randn(1, 6, WIDTH), torch.randn(1, TOKENS, WIDTH)),
)
text(
    "attention_weights_returned",
    lambda: Call(lambda s, x: s.a(x, x, x), a=nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)),
    normal(1, TOKENS, WIDTH),
    bar=28,
)
text(
    "linear_attention",
    lambda: Call(
        lambda s, x: (
            lambda q, k: (q @ (k.transpose(1, 2) @ x)) / ((q * k.sum(1, keepdim=True)).sum(-1, keepdim=True))
        )(F.elu(s.q(x)) + 1, F.elu(s.k(x)) + 1),
        q=nn.Linear(WIDTH, WIDTH),
        k=nn.Linear(WIDTH, WIDTH),
    ),
    normal(1, TOKENS, WIDTH),
    bar=24,
    reason="a quotient of two sums in int8",
)
text(
    "cls_token",
    lambda: Call(
        lambda s, x: s.o(s.t(torch.cat([s.c.expand(1, 1, WIDTH), x], 1))[:, 0]),
        c=nn.Parameter(torch.randn(1, 1, WIDTH)),
        t=nn.TransformerEncoderLayer(WIDTH, HEADS, 32, 0.0, batch_first=True),
        o=nn.Linear(WIDTH, 3),
    ),
    normal(1, TOKENS, WIDTH),
    bar=28,
)
text(
    "token_classifier",
    lambda: Call(
        lambda s, i: s.o(s.t(s.e(i) + s.p)),
        e=nn.Embedding(50, WIDTH),
        p=nn.Parameter(torch.randn(TOKENS, WIDTH) * 0.1),
        t=nn.TransformerEncoderLayer(WIDTH, HEADS, 32, 0.0, batch_first=True),
        o=nn.Linear(WIDTH, 3),
    ),
    lambda: torch.randint(0, 50, (1, TOKENS)),
    bar=28,
)
text(
    "bag_of_words",
    lambda: Call(lambda s, i: s.o(s.e(i).mean(1)), e=nn.Embedding(100, WIDTH), o=nn.Linear(WIDTH, 4)),
    lambda: torch.randint(0, 100, (1, TOKENS)),
)
text(
    "large_embedding_imx95",
    lambda: Call(lambda s, i: s.o(s.e(i).mean(1)), e=nn.Embedding(50000, 64), o=nn.Linear(64, 4)),
    lambda: torch.randint(0, 50000, (1, TOKENS)),
    target="imx95",
)
text(
    "masked_mean_of_tokens",
    lambda: Call(
        lambda s, x, m: s.o((x * m[..., None]).sum(1) / m.sum(1, keepdim=True).clamp(min=1)), o=nn.Linear(WIDTH, 4)
    ),
    padded(),
    bar=26,
    reason="a quotient of two sums in int8",
)
text(
    "text_cnn",
    lambda: Call(
        lambda s, i: (lambda y: s.o(torch.cat([c(y).relu().amax(2) for c in s.c], 1)))(s.e(i).transpose(1, 2)),
        e=nn.Embedding(50, WIDTH),
        c=nn.ModuleList(nn.Conv1d(WIDTH, 8, k) for k in (2, 3, 4)),
        o=nn.Linear(24, 3),
    ),
    lambda: torch.randint(0, 50, (1, TOKENS)),
)
text(
    "swiglu_and_rms_norm",
    lambda: Call(
        lambda s, x: x + s.o(F.silu(s.g(s.n(x))) * s.u(s.n(x))),
        n=nn.RMSNorm(WIDTH),
        g=nn.Linear(WIDTH, 32, bias=False),
        u=nn.Linear(WIDTH, 32, bias=False),
        o=nn.Linear(32, WIDTH, bias=False),
    ),
    normal(1, TOKENS, WIDTH),
)
text(
    "vision_transformer",
    lambda: Call(
        lambda s, x: s.o(s.t(s.c(x).flatten(2).transpose(1, 2) + s.p).mean(1)),
        c=nn.Conv2d(3, WIDTH, 4, 4),
        p=nn.Parameter(torch.randn(16, WIDTH) * 0.1),
        t=nn.TransformerEncoderLayer(WIDTH, HEADS, 32, 0.0, batch_first=True, norm_first=True),
        o=nn.Linear(WIDTH, 4),
    ),
    normal(1, 3, 16, 16),
)
text(
    "tokens_returned",
    lambda: Call(
        lambda s, x: s.t(s.c(x).flatten(2).transpose(1, 2) + s.p),
        c=nn.Conv2d(3, WIDTH, 4, 4),
        p=nn.Parameter(torch.randn(16, WIDTH) * 0.1),
        t=nn.TransformerEncoderLayer(WIDTH, HEADS, 32, 0.0, batch_first=True, norm_first=True),
    ),
    normal(1, 3, 16, 16),
)
text(
    "residual_behind_transpose",
    lambda: Call(
        lambda s, x: (lambda y: y + s.l(s.n(y)))(x.transpose(1, 2)), n=nn.LayerNorm(WIDTH), l=nn.Linear(WIDTH, WIDTH)
    ),
    normal(1, WIDTH, TOKENS),
)
text(
    "speech_encoder",
    lambda: Call(
        lambda s, x: s.t(F.gelu(s.a(x)).transpose(1, 2) + s.p),
        a=nn.Conv1d(10, WIDTH, 3, 2, 1),
        p=nn.Buffer(torch.randn(TOKENS, WIDTH) * 0.1),
        t=nn.TransformerEncoderLayer(WIDTH, HEADS, 32, 0.0, F.gelu, batch_first=True, norm_first=True),
    ),
    normal(1, 10, 2 * TOKENS),
)
text(
    "decoder_layer",
    lambda: Call(lambda s, x, y: s.d(x, y), d=nn.TransformerDecoderLayer(WIDTH, HEADS, 32, 0.0, batch_first=True)),
    lambda: (torch.randn(1, 6, WIDTH), torch.randn(1, TOKENS, WIDTH)),
    bar=26,
    reason="two attentions and a feed-forward block in int8",
)
text(
    "two_towers",
    lambda: Call(
        lambda s, a, b: (F.normalize(s.a(a), dim=-1) * F.normalize(s.b(b), dim=-1)).sum(-1),
        a=nn.Linear(WIDTH, 16),
        b=nn.Linear(WIDTH, 16),
    ),
    lambda: (torch.randn(1, WIDTH), torch.randn(1, WIDTH)),
    bar=20,
    reason="a sum of products of either sign near 0",
)
