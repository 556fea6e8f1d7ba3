# SPDX-License-Identifier: BSD-3-Clause
"""Models with state: recurrent layers whose states are given, rings of frames, caches."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from tests.suites.people.case import Call, case
from tests.suites.people.vision import normal

states = partial(case, kind="states")
streams = partial(case, kind="states", stateful=True)


class Stream(nn.Module):
    """A model with one buffer ``state``; ``step(self, state, inputs)`` returns the new state and the result."""

    def __init__(self, step: Any, state: Tensor, **layers: nn.Module) -> None:
        super().__init__()
        self.step = step
        for name, layer in layers.items():
            setattr(self, name, layer)
        self.register_buffer("state", state)

    def forward(self, *inputs: Tensor) -> Tensor:
        new, result = self.step(self, self.state, *inputs)
        self.state.copy_(new)
        return result


class Cache(nn.Module):
    """A cache of keys that is written at a position."""

    def __init__(self, first: float) -> None:
        super().__init__()
        self.l = nn.Linear(8, 8)
        self.register_buffer("k", torch.full((1, 4, 8), first), persistent=False)

    def forward(self, i: Tensor, x: Tensor) -> Tensor:
        self.k.index_copy_(1, i, self.l(x))
        return self.k * 1.0


def ring(width: int, length: int) -> Tensor:
    return torch.zeros(1, width, length)


streams(
    "ring_of_frames",
    lambda: Stream(
        lambda s, r, x: (lambda n: (n, s.c(n)))(torch.cat([r[..., 1:], x], 2)), ring(8, 5), c=nn.Conv1d(8, 4, 5)
    ),
    normal(1, 8, 1),
)
streams(
    "ring_by_roll",
    lambda: Stream(
        lambda s, r, x: (lambda n: (n, s.l(n.flatten(1))))(torch.cat([torch.roll(r, -1, 2)[..., :-1], x], 2)),
        ring(4, 6),
        l=nn.Linear(24, 4),
    ),
    normal(1, 4, 1),
)
streams(
    "smoothed_scores",
    lambda: Stream(
        lambda s, r, x: (lambda n: (n, n))(0.8 * r + 0.2 * s.l(x).sigmoid()), torch.zeros(1, 4), l=nn.Linear(8, 4)
    ),
    normal(1, 8),
)
streams(
    "running_mean_subtracted",
    lambda: Stream(lambda s, r, x: (0.9 * r + 0.1 * x, s.l(x - r)), torch.zeros(1, 8), l=nn.Linear(8, 4)),
    normal(1, 8),
)
streams(
    "gru_cell_stream",
    lambda: Stream(
        lambda s, h, x: (lambda n: (n, s.o(n)))(s.c(x, h)), torch.zeros(1, 12), c=nn.GRUCell(6, 12), o=nn.Linear(12, 3)
    ),
    normal(1, 6),
    bar=26,
    reason="a state in int8",
)
streams(
    "gru_stream",
    lambda: Stream(
        lambda s, h, x: (lambda r: (r[1], s.o(r[0])))(s.c(x, h)),
        torch.zeros(1, 1, 12),
        c=nn.GRU(6, 12, batch_first=True),
        o=nn.Linear(12, 3),
    ),
    normal(1, 4, 6),
    bar=26,
    reason="a state in int8",
)
streams(
    "rnn_cell_stream",
    lambda: Stream(
        lambda s, h, x: (lambda n: (n, s.o(n)))(s.c(x, h)), torch.zeros(1, 12), c=nn.RNNCell(6, 12), o=nn.Linear(12, 3)
    ),
    normal(1, 6),
    bar=26,
    reason="a state in int8",
)
streams("cache_of_zeros", lambda: Cache(0.0), lambda: (torch.randint(0, 4, (1,)), torch.randn(1, 1, 8)))
streams("cache_of_ones", lambda: Cache(1.0), lambda: (torch.randint(0, 4, (1,)), torch.randn(1, 1, 8)))
streams(
    "previous_frame",
    lambda: Stream(lambda s, r, x: (x, s.c(torch.cat([r, x], 1))), torch.zeros(1, 3, 8, 8), c=nn.Conv2d(6, 4, 3)),
    lambda: torch.rand(1, 3, 8, 8),
)
streams(
    "frame_difference",
    lambda: Stream(lambda s, r, x: (x, s.c(x - r)), torch.zeros(1, 1, 8, 8), c=nn.Conv2d(1, 4, 3)),
    lambda: torch.rand(1, 1, 8, 8),
)
streams(
    "leaky_neuron",
    lambda: Stream(
        lambda s, r, x: (lambda v: (v * (v < 1), (v >= 1).float()))(0.9 * r + s.l(x)),
        torch.zeros(1, 8),
        l=nn.Linear(8, 8),
    ),
    normal(1, 8),
    bar=8,
    reason="a spike is decided by the last step of the state",
)
states(
    "lstm_states_in_and_out",
    lambda: Call(
        lambda s, x, h, c: (lambda r: (r[0], r[1][0], r[1][1]))(s.r(x, (h, c))), r=nn.LSTM(6, 8, batch_first=True)
    ),
    lambda: (torch.randn(1, 4, 6), torch.randn(1, 1, 8).tanh(), torch.randn(1, 1, 8)),
    bar=26,
    reason="gates and states in int8",
)
states(
    "gru_state_in_and_out",
    lambda: Call(lambda s, x, h: s.r(x, h), r=nn.GRU(6, 8, batch_first=True)),
    lambda: (torch.randn(1, 4, 6), torch.randn(1, 1, 8).tanh()),
    bar=26,
    reason="gates and states in int8",
)
states(
    "lstm_cell",
    lambda: Call(lambda s, x, h, c: s.r(x, (h, c)), r=nn.LSTMCell(6, 8)),
    lambda: (torch.randn(1, 6), torch.randn(1, 8).tanh(), torch.randn(1, 8)),
    bar=26,
    reason="gates and states in int8",
)
states(
    "encoder_decoder_lstm",
    lambda: Call(
        lambda s, x, y: s.f(s.d(y, s.e(x)[1])[0]),
        e=nn.LSTM(6, 12, batch_first=True),
        d=nn.LSTM(6, 12, batch_first=True),
        f=nn.Linear(12, 6),
    ),
    lambda: (torch.randn(1, 8, 6), torch.randn(1, 4, 6)),
    bar=25,
    reason="two layers of gates in int8",
)
states(
    "encoder_decoder_gru",
    lambda: Call(
        lambda s, x, y: s.f(s.d(y, s.e(x)[1])[0]),
        e=nn.GRU(6, 12, batch_first=True),
        d=nn.GRU(6, 12, batch_first=True),
        f=nn.Linear(12, 6),
    ),
    lambda: (torch.randn(1, 8, 6), torch.randn(1, 4, 6)),
    bar=25,
    reason="two layers of gates in int8",
)


class Feedback(nn.Module):
    """A cell whose result is the next input, for a few steps."""

    def __init__(self, cell: type[nn.Module]) -> None:
        super().__init__()
        self.cell, self.out, self.is_lstm = cell(6, 8), nn.Linear(8, 6), cell is nn.LSTMCell

    def forward(self, x: Tensor) -> Tensor:
        h: Any = (x.new_zeros(1, 8), x.new_zeros(1, 8)) if self.is_lstm else x.new_zeros(1, 8)
        results = []
        for _ in range(4):
            h = self.cell(x, h)
            x = self.out(h[0] if self.is_lstm else h)
            results.append(x)
        return torch.stack(results, 1)


states(
    "lstm_cell_feedback",
    lambda: Feedback(nn.LSTMCell),
    normal(1, 6),
    bar=24,
    reason="results that are quantized and read again",
)
states(
    "gru_cell_feedback",
    lambda: Feedback(nn.GRUCell),
    normal(1, 6),
    bar=24,
    reason="results that are quantized and read again",
)
states(
    "attention_over_encoder",
    lambda: Call(
        lambda s, x, y: (
            lambda e: (lambda d: s.f(torch.cat([d, (d @ e.transpose(1, 2)).softmax(-1) @ e], -1)))(s.d(y)[0])
        )(s.e(x)[0]),
        e=nn.GRU(6, 8, batch_first=True),
        d=nn.GRU(6, 8, batch_first=True),
        f=nn.Linear(16, 4),
    ),
    lambda: (torch.randn(1, 8, 6), torch.randn(1, 4, 6)),
    bar=25,
    reason="gates and attention in int8",
)
states(
    "linear_state_space",
    lambda: Call(
        lambda s, x: (lambda u: torch.stack(s.scan(u), 1))(s.i(x)),
        i=nn.Linear(4, 8),
        scan=lambda u: (lambda out: [out.append((out[-1] * 0.9 if out else 0) + u[:, t]) or out[-1] for t in range(8)])(
            []
        ),
    ),
    normal(1, 8, 4),
    bar=26,
    reason="a state in int8 over eight steps",
)
states(
    "unrolled_cells",
    lambda: Call(
        lambda s, x: s.o(s.run(s.c, x)),
        c=nn.GRUCell(4, 8),
        o=nn.Linear(8, 2),
        run=lambda cell, x: (lambda h: [h.append(cell(x[:, t], h[-1])) or h for t in range(6)][-1][-1])(
            [x.new_zeros(1, 8)]
        ),
    ),
    normal(1, 6, 4),
    bar=26,
    reason="a state in int8",
)


class RunningStandardizer(nn.Module):
    """A linear layer of inputs that are standardized with running statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 4)
        self.register_buffer("mean", torch.zeros(1, 8))
        self.register_buffer("var", torch.ones(1, 8))

    def forward(self, x: Tensor) -> Tensor:
        self.mean.mul_(0.9).add_(x, alpha=0.1)
        self.var.mul_(0.9).add_((x - self.mean) ** 2, alpha=0.1)
        return self.layer((x - self.mean) * torch.rsqrt(self.var + 1e-3))


streams("running_standardizer", RunningStandardizer, normal(1, 8), bar=26, reason="a quotient in int8")
states(
    "last_valid_of_a_gru",
    lambda: Call(
        lambda s, x, n: s.l(torch.gather(s.g(x)[0], 1, (n - 1)[:, None, None].expand(-1, 1, 12)).squeeze(1)),
        g=nn.GRU(4, 12, batch_first=True),
        l=nn.Linear(12, 2),
    ),
    lambda: (torch.randn(1, 6, 4), torch.randint(1, 7, (1,))),
    calls=2,
    reason="integer arithmetic is the CPU's",
)
