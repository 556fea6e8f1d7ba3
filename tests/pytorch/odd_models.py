# SPDX-License-Identifier: BSD-3-Clause
"""Models that torch.export takes and few front ends think of: other types than float, other arguments than tensors, state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

IMAGE = (1, 4, 8, 8)


@dataclass(frozen=True, slots=True)
class Odd:
    """A model and its arguments. ``delegated``: whether part of it runs on the NPU (None: both will do); ``exact``: whether the result is that of the
    quantized module to the last bit, because nothing of it is rounded; ``calls``: how often it is run, for what it keeps."""

    name: str
    make: Callable[[], nn.Module]
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    delegated: bool | None = True
    exact: bool = False
    calls: int = 1
    dynamic: Any = None


class Layers(nn.Module):
    """Two convolutions and a linear layer that ``function`` may use."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self.conv = nn.Conv2d(4, 4, 3, padding=1)
        self.point = nn.Conv2d(4, 4, 1)
        self.linear = nn.Linear(8, 8)
        self.table = nn.Embedding(16, 8)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(self, *args, **kwargs)


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.register_buffer("count", torch.zeros(1, dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.count.add_(1)
        return F.relu(self.linear(x)), self.count + 0


class Running(nn.Module):
    """A low-pass filter: its state is a mutated float buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.register_buffer("state", torch.zeros(1, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        self.state.copy_(0.5 * self.state + 0.5 * y)
        return F.relu(self.state)


class Cond(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor, flag: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.linear(x))
        return torch.cond(flag.sum() > 0, lambda t: t + 1.0, lambda t: t - 1.0, (y,))


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.layer = kind(8, 8, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)[0]


def layers(function: Callable[..., Any]) -> Callable[[], nn.Module]:
    return lambda: Layers(function)


NUMBERS = torch.Generator().manual_seed(1)


def image() -> torch.Tensor:
    return row(*IMAGE)


def row(*shape: int) -> torch.Tensor:
    return torch.randn(shape or (1, 8), generator=NUMBERS)


def whole(*shape: int) -> torch.Tensor:
    return torch.randint(0, 8, shape or (1, 8), generator=NUMBERS)


ODD: tuple[Odd, ...] = (
    Odd(
        "integers beside floats",
        layers(lambda m, x, n: (F.relu(m.linear(x)), n * 2 + 1, n // 3, m.linear(n.float()))),
        (row(), whole()),
    ),
    Odd("integers only", layers(lambda m, n: (n * 2 + 1).sum(1)), (whole(),), delegated=False, exact=True),
    Odd("embedding", layers(lambda m, n: F.relu(m.linear(m.table(n)))), (whole(1, 4),)),
    Odd(
        "bool masks",
        layers(lambda m, x, a, b: (m.linear(x).masked_fill(a, 0.0), torch.where(b, x, -x), x > 0, (a & b) | ~a)),
        (torch.tensor([[-2.0, -1.3, -0.8, -0.2, 0.3, 0.9, 1.4, 1.9]]), whole() > 4, whole() > 2),  # none near 0
    ),
    Odd(
        "split read twice",
        layers(lambda m, x: (lambda a, b: (F.relu(a) + b, a * 2, b))(*m.conv(x).chunk(2, 1))),
        (image(),),
    ),
    Odd("unused chunks", layers(lambda m, x: F.relu(m.conv(x).chunk(4, 1)[1])), (image(),)),
    Odd("split given back", layers(lambda m, x: m.conv(x).split([1, 3], 1)), (image(),)),
    Odd("counter", Counter, (row(),), calls=3),
    Odd("running state", Running, (row(),), calls=2),
    Odd(
        "0-d tensors",
        layers(lambda m, x, s: (m.linear(x) * s, m.linear(x).sum(), F.relu(s) + 1)),
        (row(), torch.tensor(0.75)),
    ),
    Odd(
        "numbers, strings and None",
        layers(lambda m, x, i, f, b, n, how: getattr(F, how)(m.linear(x) * f + i) if b and n is None else x),
        (row(), 3, 0.5, True, None, "relu"),
    ),
    Odd(
        "nested inputs and outputs",
        layers(lambda m, d, pair: {"a": F.relu(m.linear(d["a"])) + pair[1]["b"], "b": [pair[0], (d["a"] + 1, None)]}),
        ({"a": row()}, [row(), {"b": row()}]),
    ),
    Odd("keywords", layers(lambda m, x, *, y, scale=2.0: m.linear(x) * scale + y), (row(),), {"y": row()}),
    Odd("keywords only", layers(lambda m, *, x: F.relu(m.linear(x))), (), {"x": row()}),
    Odd(
        "dynamic batch",
        layers(lambda m, x: F.relu(m.linear(x))),
        (row(4, 8),),
        dynamic=(({0: torch.export.Dim("batch", min=2, max=8)},),),
    ),
    Odd(
        "constants given back",
        layers(lambda m, x: (m.linear(x), torch.ones(3), m.linear.bias, 3, 2.5, True, None)),
        (row(),),
    ),
    Odd("inputs given back", layers(lambda m, x, y: (x, F.relu(m.linear(x)), y)), (row(), whole())),
    Odd("identity", lambda: nn.Identity(), (row(),), delegated=False, exact=True),
    Odd("same output twice", layers(lambda m, x: (lambda y: (y, y, F.relu(y)))(m.linear(x))), (row(),)),
    Odd(
        "ranks 1 to 7",
        layers(lambda m, *inputs: [F.relu(m.linear(x)) + x for x in inputs[:-1]] + [F.relu(inputs[-1])]),
        (row(8), row(2, 3, 8), row(1, 2, 2, 3, 8), row(1, 2, 1, 2, 3, 8), row(1, 2, 1, 2, 1, 3, 8)),
    ),
    Odd("empty tensor", layers(lambda m, x, y: (m.linear(x), torch.cat([x, y], 0))), (row(), row(0, 8))),
    Odd("cond", Cond, (row(), torch.ones(1))),
    Odd("no parameters", lambda: nn.Sequential(nn.MaxPool2d(2), nn.ReLU()), (image(),)),
    Odd("nothing delegable", layers(lambda m, x: x.to(torch.int32).sum(1)), (row(),), delegated=False),
    Odd("lstm", lambda: Recurrent(nn.LSTM), (row(1, 3, 8),), delegated=None),
    Odd("silu", layers(lambda m, x: F.silu(m.linear(x))), (row(),)),
    Odd("named tuple given back", layers(lambda m, x: torch.topk(F.relu(m.linear(x)), 3)), (row(),)),
    Odd("input written to", layers(lambda m, x: (x.mul_(2.0), F.relu(m.linear(x)))[1]), (row(),)),
    Odd(
        "views of inputs",
        layers(lambda m, x, y: (F.relu(m.linear(x[:, ::2])), F.relu(m.linear(y)))),
        (row(1, 16), row(8, 2).t()),
    ),
    Odd("complex in the middle", layers(lambda m, x: torch.fft.rfft(m.linear(x)).abs()), (row(),)),
)
