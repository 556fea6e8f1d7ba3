# SPDX-License-Identifier: BSD-3-Clause
"""Integers, booleans and casts."""

from __future__ import annotations

from functools import partial

import torch
from torch import nn
from torch.nn import functional as F

from tests.suites.people.case import Call, case
from tests.suites.people.vision import image, normal

integers = partial(case, kind="integers")


def camera() -> torch.Tensor:
    return torch.randint(0, 256, (1, 16, 16, 3), dtype=torch.uint8)


integers(
    "camera_picture",
    lambda: Call(lambda s, x: s.c((x.permute(0, 3, 1, 2).float() / 255 - 0.45) / 0.22).relu(), c=nn.Conv2d(3, 8, 3, 2)),
    camera,
)
integers(
    "camera_picture_planar",
    lambda: Call(lambda s, x: s.c(x.float() / 255), c=nn.Conv2d(3, 8, 3)),
    lambda: torch.randint(0, 256, (1, 3, 16, 16), dtype=torch.uint8),
)
integers(
    "audio_of_int16",
    lambda: Call(lambda s, x: s.c(x.float() / 32768), c=nn.Conv1d(1, 8, 9, 4)),
    lambda: torch.randint(-20000, 20000, (1, 1, 64), dtype=torch.int16),
)
integers(
    "audio_of_int8",
    lambda: Call(lambda s, x: s.c(x.to(torch.float32) * 0.01), c=nn.Conv1d(1, 8, 9, 4)),
    lambda: torch.randint(-128, 128, (1, 1, 64), dtype=torch.int8),
)
integers("arange_added", lambda: Call(lambda s, x: s.l(x) + torch.arange(8), l=nn.Linear(16, 8)), normal(1, 16))
integers(
    "boolean_constant_factor",
    lambda: Call(lambda s, x: s.l(x) * (torch.arange(8) < 5), l=nn.Linear(16, 8)),
    normal(1, 16),
)
integers(
    "integer_buffer_in_division",
    lambda: Call(lambda s, x: s.l(x) / s.n, l=nn.Linear(16, 8), n=nn.Buffer(torch.arange(1, 9))),
    normal(1, 16),
)
integers(
    "boolean_input_as_factor",
    lambda: Call(lambda s, x, m: s.l(x * m[..., None]), l=nn.Linear(8, 4)),
    lambda: (torch.randn(1, 6, 8), torch.rand(1, 6) > 0.3),
)
integers(
    "integer_mask_as_factor",
    lambda: Call(lambda s, x, m: s.l(x * m[..., None].float()), l=nn.Linear(8, 4)),
    lambda: (torch.randn(1, 6, 8), torch.randint(0, 2, (1, 6))),
)
integers(
    "where_of_boolean_input",
    lambda: Call(lambda s, x, m: torch.where(m, s.l(x), 0.0), l=nn.Linear(8, 8)),
    lambda: (torch.randn(1, 8), torch.rand(1, 8) > 0.5),
)
integers(
    "one_hot_class",
    lambda: Call(lambda s, i: s.l(F.one_hot(i, 6).float()), l=nn.Linear(6, 4)),
    lambda: torch.randint(0, 6, (1,)),
)
integers(
    "embedding_and_features",
    lambda: Call(lambda s, i, x: s.l(torch.cat([s.e(i), x], 1)), e=nn.Embedding(20, 8), l=nn.Linear(12, 4)),
    lambda: (torch.randint(0, 20, (1,)), torch.randn(1, 4)),
)
integers(
    "several_embeddings",
    lambda: Call(
        lambda s, i: s.l(torch.cat([e(i[:, n]) for n, e in enumerate(s.e)], 1)),
        e=nn.ModuleList(nn.Embedding(10, 4) for _ in range(3)),
        l=nn.Linear(12, 2),
    ),
    lambda: torch.randint(0, 10, (1, 3)),
)
integers(
    "embedding_bag_mean",
    lambda: nn.Sequential(nn.EmbeddingBag(30, 8, mode="mean"), nn.Linear(8, 3)),
    lambda: torch.randint(0, 30, (1, 6)),
)
integers(
    "positions_by_arange",
    lambda: Call(
        lambda s, i: s.l(s.e(i) + s.p(torch.arange(6))), e=nn.Embedding(20, 8), p=nn.Embedding(6, 8), l=nn.Linear(8, 4)
    ),
    lambda: torch.randint(0, 20, (1, 6)),
)
integers(
    "positions_of_unpadded",
    lambda: Call(
        lambda s, i: s.l(s.e(i) + s.p(torch.cumsum((i != 0).long(), 1) * (i != 0).long())),
        e=nn.Embedding(20, 8),
        p=nn.Embedding(8, 8),
        l=nn.Linear(8, 4),
    ),
    lambda: torch.randint(0, 20, (1, 6)),
)
integers(
    "segment_ids",
    lambda: Call(lambda s, i, g: s.l(s.e(i) + s.g(g)), e=nn.Embedding(20, 8), g=nn.Embedding(2, 8), l=nn.Linear(8, 4)),
    lambda: (torch.randint(0, 20, (1, 6)), torch.randint(0, 2, (1, 6))),
)
integers(
    "last_token_by_index",
    lambda: Call(lambda s, x, i: s.l(x[torch.arange(1), i]), l=nn.Linear(8, 4)),
    lambda: (torch.randn(1, 6, 8), torch.randint(0, 6, (1,))),
)
integers(
    "gathered_columns",
    lambda: Call(lambda s, x: s.l(x[:, s.i]), l=nn.Linear(4, 4), i=nn.Buffer(torch.tensor([5, 0, 3, 3]))),
    normal(1, 8),
)
integers(
    "index_select_rows",
    lambda: Call(
        lambda s, x: torch.index_select(s.c(x), 1, s.i), c=nn.Conv2d(3, 6, 3), i=nn.Buffer(torch.tensor([4, 1, 2]))
    ),
    image(),
)
integers(
    "threshold_to_boolean",
    lambda: Call(lambda s, x: s.l(x) > 0, l=nn.Linear(8, 8)),
    normal(1, 8),
    agree=0.9,
    reason="values near the threshold",
)
integers(
    "threshold_to_float",
    lambda: Call(lambda s, x: (x > 0).float() * s.l(x), l=nn.Linear(8, 8)),
    normal(1, 8),
    bar=20,
    reason="values near the threshold",
)
integers(
    "class_number",
    lambda: Call(lambda s, x: s.l(x).argmax(-1), l=nn.Linear(8, 4)),
    normal(1, 8),
    agree=0.7,
    reason="classes whose scores round to the same step",
)
integers(
    "floor_of_an_index",
    lambda: Call(lambda s, i: s.e(i // 2), e=nn.Embedding(10, 8)),
    lambda: torch.randint(0, 20, (1, 4)),
    calls=2,
    reason="integer arithmetic is the CPU's",
)
integers(
    "remainder_of_an_index",
    lambda: Call(lambda s, i: s.e(i % 7), e=nn.Embedding(7, 8)),
    lambda: torch.randint(0, 100, (1, 4)),
    calls=2,
    reason="integer arithmetic is the CPU's",
)
integers(
    "offset_of_an_index",
    lambda: Call(lambda s, i: s.e(i + 2), e=nn.Embedding(12, 8)),
    lambda: torch.randint(0, 10, (1, 4)),
    calls=2,
    reason="integer arithmetic is the CPU's",
)
integers(
    "integer_scores",
    lambda: Call(lambda s, x: (s.l(x) * 10).round(), l=nn.Linear(8, 4)),
    normal(1, 8),
    bar=15,
    reason="rounding to whole numbers",
)
integers(
    "double_precision_model",
    lambda: nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4)).double(),
    lambda: torch.randn(1, 8, dtype=torch.float64),
)
integers(
    "mask_of_lengths",
    lambda: Call(lambda s, x, n: s.l(x) * (torch.arange(6) < n[:, None])[..., None], l=nn.Linear(8, 4)),
    lambda: (torch.randn(2, 6, 8), torch.randint(0, 9, (2,))),
)
integers(
    "mean_over_lengths",
    lambda: Call(lambda s, x, m: s.l((x * m[..., None]).sum(1) / m.sum(1, keepdim=True)), l=nn.Linear(8, 4)),
    lambda: (torch.randn(1, 6, 8), torch.arange(6)[None] < torch.randint(1, 7, (1, 1))),
)
integers(
    "last_token_by_mask",
    lambda: Call(lambda s, x, m: s.l(x[torch.arange(1), m.sum(1) - 1]), l=nn.Linear(8, 4)),
    lambda: (torch.randn(1, 6, 8), torch.arange(6)[None] < torch.randint(1, 7, (1, 1))),
)
integers(
    "token_of_each_row",
    lambda: Call(lambda s, x, i: s.l(x[torch.arange(3), i]), l=nn.Linear(8, 4)),
    lambda: (torch.randn(3, 6, 8), torch.randint(0, 6, (3,))),
)
integers(
    "pairs_of_a_matrix",
    lambda: Call(
        lambda s, x: s.l((x @ x.transpose(1, 2))[:, s.i[0], s.i[1]]),
        l=nn.Linear(10, 4),
        i=nn.Buffer(torch.triu_indices(5, 5, 1)),
    ),
    normal(1, 5, 4),
)
integers(
    "ages_and_features",
    lambda: Call(lambda s, x, a: s.l(torch.cat([x, a.float() / 100], 1)), l=nn.Linear(10, 4)),
    lambda: (torch.randn(1, 8), torch.randint(0, 100, (1, 2))),
)
integers(
    "large_integers_and_features",
    lambda: Call(lambda s, x, a: s.l(torch.cat([x, a.float() / 1000], 1)), l=nn.Linear(10, 4)),
    lambda: (torch.randn(1, 8), torch.randint(-1000, 1000, (1, 2))),
)
integers(
    "embedding_of_a_bucket",
    lambda: Call(lambda s, x: s.e((x.sigmoid() * 10).long()), e=nn.Embedding(11, 8)),
    normal(1, 6),
    bar=20,
    reason="values near the edge of a bucket",
)


def _ids() -> torch.Tensor:
    """Return token numbers of a text and the padding 1 behind it."""
    return torch.where(torch.arange(135) < torch.randint(1, 136, ()), torch.randint(2, 20, (1, 135)), 1)


integers(
    "roberta_positions",
    lambda: Call(
        lambda s, i: (lambda m: s.l(s.e(i) + s.p((torch.cumsum(m, 1).type_as(m) * m).long() + 1)))(i.ne(1).int()),
        e=nn.Embedding(20, 8),
        p=nn.Embedding(140, 8),
        l=nn.Linear(8, 4),
    ),
    _ids,
)
integers(
    "mask_of_bytes",
    lambda: Call(lambda s, x, m: torch.where(m > 127, s.c(x), torch.zeros(())), c=nn.Conv2d(3, 4, 3, padding=1)),
    lambda: (torch.rand(1, 3, 12, 12), torch.randint(0, 256, (1, 1, 12, 12), dtype=torch.uint8)),
)
integers(
    "board_of_pieces",
    lambda: Call(
        lambda s, b: s.l(F.one_hot(b.long() + 6, 13).permute(0, 3, 1, 2).float()).relu().flatten(1),
        l=nn.Conv2d(13, 8, 3),
    ),
    lambda: torch.randint(-6, 7, (1, 8, 8), dtype=torch.int8),
    calls=2,
    reason="integer arithmetic is the CPU's",
)
integers(
    "messages_along_edges",
    lambda: Call(
        lambda s, x, e: s.o(torch.zeros(1, 7, 8).index_add(1, e[1], s.l(x)[:, e[0]])),
        l=nn.Linear(6, 8),
        o=nn.Linear(8, 3),
    ),
    lambda: (torch.randn(1, 7, 6), torch.randint(0, 7, (2, 12))),
)
integers(
    "time_of_a_diffusion_step",
    lambda: Call(
        lambda s, x, t: (lambda a: s.o((s.a(x) + s.b(torch.cat([a.sin(), a.cos()], -1))).relu()))(
            t[:, None].float() * s.f
        ),
        a=nn.Linear(8, 16),
        b=nn.Linear(16, 16),
        o=nn.Linear(16, 8),
        f=nn.Buffer(0.1 ** torch.arange(8.0)),
    ),
    lambda: (torch.randn(1, 8), torch.randint(0, 100, (1,))),
    bar=22,
    reason="angles in int8",
)
