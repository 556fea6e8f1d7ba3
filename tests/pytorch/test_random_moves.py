# SPDX-License-Identifier: BSD-3-Clause
"""Random operators on random shapes of ranks 1 to 6: one delegate call, LiteRT's bytes, within a step of the quantized module.

Each test is named by its seed, and its message lists the calls it drew.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.pytorch.small_models import Around, assert_same_as_litert, compiled, steps_apart

Step = tuple[str, Callable[[Tensor], Tensor]]
Sampler = Callable[[np.random.Generator, tuple[int, ...]], Step]


def _dim(random: np.random.Generator, shape: tuple[int, ...]) -> int:
    return int(random.integers(-len(shape), len(shape)))


def _slice(random: np.random.Generator, shape: tuple[int, ...]) -> Step:
    dim = _dim(random, shape)
    start = int(random.integers(-shape[dim], shape[dim]))
    step = int(random.integers(1, 4))
    index = (slice(None),) * (dim % len(shape)) + (slice(start, None, step),)
    return f"[{start}::{step}] of {dim}", lambda x: x[index]


def _piece(random: np.random.Generator, shape: tuple[int, ...]) -> Step:
    dim, count = _dim(random, shape), int(random.integers(1, 4))
    how = int(random.integers(3))
    if how == 0:
        return f"last of chunk({count}, {dim})", lambda x: torch.chunk(x, count, dim)[-1]
    if how == 1:
        return f"sum of split({count}, {dim})[0] and [0]", lambda x: torch.split(x, count, dim)[0]
    return f"unbind({dim})[-1]", lambda x: torch.unbind(x, dim)[-1] if x.dim() > 1 else x


def _turned(random: np.random.Generator, shape: tuple[int, ...]) -> Step:
    order = [int(axis) for axis in random.permutation(len(shape))]
    return f"permute({order})", lambda x: x.permute(order)


def _flipped(random: np.random.Generator, shape: tuple[int, ...]) -> Step:
    dims = [int(dim) for dim in np.flatnonzero(random.integers(0, 2, len(shape)))]
    return f"flip({dims})", lambda x: x.flip(dims) if dims else x


def _rolled(random: np.random.Generator, shape: tuple[int, ...]) -> Step:
    dim, shift = _dim(random, shape), int(random.integers(-3, 4))
    return f"roll({shift}, {dim})", lambda x: x.roll(shift, dim)


def _viewed(random: np.random.Generator, shape: tuple[int, ...]) -> Step:
    first = int(random.integers(0, len(shape)))
    last = int(random.integers(first, len(shape)))
    return f"flatten({first}, {last})", lambda x: x.flatten(first, last)


def _split_dim(random: np.random.Generator, shape: tuple[int, ...]) -> Step:
    dim = _dim(random, shape) % len(shape)
    divisors = [count for count in range(1, shape[dim] + 1) if shape[dim] % count == 0]
    count = int(random.choice(divisors))
    return f"unflatten({dim}, ({count}, -1))", lambda x: x.unflatten(dim, (count, -1)) if x.dim() < 6 else x


def _joined(random: np.random.Generator, shape: tuple[int, ...]) -> Step:
    dim = _dim(random, shape)
    if random.integers(2) and len(shape) < 6:
        return f"stack({dim})", lambda x: torch.stack([x, x.sigmoid()], dim)
    return f"cat({dim})", lambda x: torch.cat([x, x.sigmoid(), x], dim)


def _repeated(random: np.random.Generator, shape: tuple[int, ...]) -> Step:
    counts = [int(count) for count in random.integers(1, 3, len(shape))]
    if random.integers(2):
        dim = _dim(random, shape)
        return f"repeat_interleave(2, {dim})", lambda x: x.repeat_interleave(2, dim)
    return f"repeat({counts})", lambda x: x.repeat(counts)


def _expanded(random: np.random.Generator, shape: tuple[int, ...]) -> Step:
    dim = _dim(random, shape) % len(shape)
    wanted = [3 if axis == dim else -1 for axis in range(len(shape))]
    return f"narrow({dim}, 0, 1).expand({wanted})", lambda x: x.narrow(dim, 0, 1).expand(wanted)


def _extreme(random: np.random.Generator, shape: tuple[int, ...]) -> Step:
    dims = [int(dim) for dim in np.flatnonzero(random.integers(0, 2, len(shape)))] or [0]
    return f"amax({dims})", lambda x: x.amax(dims, keepdim=True)


def _softmax(random: np.random.Generator, shape: tuple[int, ...]) -> Step:
    dim = _dim(random, shape)
    return f"log_softmax({dim})", lambda x: F.log_softmax(x, dim)


MOVES: tuple[Sampler, ...] = (
    _slice,
    _piece,
    _turned,
    _flipped,
    _rolled,
    _viewed,
    _split_dim,
    _joined,
    _repeated,
    _expanded,
    _extreme,
    _softmax,
)


@pytest.mark.parametrize("seed", range(8))
def test_chains_of_moves(seed: int) -> None:
    random = np.random.default_rng(seed)
    shape = tuple(int(extent) for extent in random.integers(1, 5, seed % 6 + 1))
    x, steps = torch.randn(shape), []
    while len(steps) < 4:
        sampler = MOVES[(seed + 5 * len(steps)) % len(MOVES)] if len(steps) < 2 else MOVES[random.integers(len(MOVES))]
        step = sampler(random, tuple(x.shape))
        result = step[1](x)
        if 0 < result.numel() <= 4000 and 0 < result.dim() <= 6:
            x = result
            steps.append(step)

    def function(model: Around, x: Tensor) -> Tensor:
        x = x * 1.5
        for _, step in steps:
            x = step(x)
        return x

    assert_one_call(function, [shape], f"seed {seed}: {list(shape)} {', '.join(name for name, _ in steps)}")


def assert_one_call(function: Callable[..., Tensor], shapes: list[tuple[int, ...]], message: str) -> None:
    small = compiled(function, shapes)
    assert not small.reasons, f"{message}: {small.reasons}"
    assert len(small.program.partitions) == 1, message
    assert_same_as_litert(small.program)
    assert np.mean(steps_apart(small) <= 1) >= 0.99, message


@pytest.mark.parametrize("seed", range(4))
def test_products(seed: int) -> None:
    random = np.random.default_rng(100 + seed)
    rows, depth, columns = (int(extent) for extent in random.integers(1, 9, 3))
    batches = tuple(int(extent) for extent in random.integers(1, 4, random.integers(0, 4)))
    own = tuple(1 if random.integers(3) == 0 else extent for extent in batches)
    turned_a, turned_b = bool(random.integers(2)), bool(random.integers(2))
    a = (*own, *((depth, rows) if turned_a else (rows, depth)))
    b = (*batches, *((columns, depth) if turned_b else (depth, columns)))

    def function(model: Around, x: Tensor, y: Tensor) -> Tensor:
        return (x.mT if turned_a else x) @ (y.mT if turned_b else y)

    assert_one_call(function, [a, b], f"seed {seed}: {a} {b}, turned {turned_a} {turned_b}")


@pytest.mark.parametrize("seed", range(4))
def test_broadcasting(seed: int) -> None:
    random = np.random.default_rng(200 + seed)
    shape = tuple(int(extent) for extent in random.integers(2, 5, (2, 4, 5, 6)[seed]))
    other = tuple(1 if random.integers(2) else extent for extent in shape)[int(random.integers(0, len(shape))) :]
    alpha = float(random.choice([1.0, -0.5, 3.0]))

    def function(model: Around, x: Tensor, y: Tensor) -> Tensor:
        both = torch.add(torch.maximum(x, y), y, alpha=alpha)
        return torch.minimum(both * y, x) if seed % 2 else torch.sub(both, x.amin(-1, keepdim=True)) * x

    assert_one_call(function, [shape, other], f"seed {seed}: {shape} {other}, alpha {alpha}")
