# SPDX-License-Identifier: BSD-3-Clause
"""Padding of every mode, of sequences, images and volumes, by any amount, below 0 too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch.nn.functional as F

from tests.pytorch.side_by_side import assert_delegated, steps_of_each

IMAGE = (2, 3, 6, 7)


def _pad(*amounts: int, **given: Any) -> Callable[..., Any]:
    return lambda m, x: F.pad(x, amounts, **given)


def test_pads_of_images_move_bytes_only() -> None:
    small = assert_delegated(
        {
            "mirrored": _pad(1, 2, 3, 4, mode="reflect"),
            "mirrored along one axis": _pad(1, 2, mode="constant"),
            "mirrored and cropped": _pad(-1, 2, 3, -4, mode="reflect"),
            "the edge's": _pad(1, 2, 3, 9, mode="replicate"),
            "the edge's, cropped": _pad(1, 2, -3, 4, mode="replicate"),
            "around": _pad(1, 2, 3, 4, mode="circular"),
            "zeros": _pad(1, 2, 3, 4, 0, 1, 1, 0),
            "a number, cropped": _pad(-1, 2, 3, -4, value=0.5),
            "cropped alone": _pad(-1, 0, -2, -1),
        },
        (IMAGE,),
    )
    assert all(apart.max() == 0 for apart in steps_of_each(small))
    assert small.operators.count("mirror_pad") == 1


@pytest.mark.parametrize("shape", [(2, 5, 8), (1, 2, 4, 5, 6)])
def test_pads_of_sequences_and_volumes(shape: tuple[int, ...]) -> None:
    amounts = (2, 1, 1, 3, 2, 0)[: 2 * (len(shape) - 2)]
    functions = {mode: _pad(*amounts, mode=mode) for mode in ("reflect", "replicate", "circular")}
    small = assert_delegated({**functions, "number": _pad(*amounts, value=-0.25)}, (shape,))
    assert all(apart.max() == 0 for apart in steps_of_each(small))


@pytest.mark.parametrize("seed", [1])
def test_random_pads(seed: int) -> None:
    random = np.random.default_rng(seed)
    shape = tuple(int(extent) for extent in (1, random.integers(1, 6), *random.integers(4, 9, 2)))
    functions = {}
    for mode in ("constant", "reflect", "replicate", "circular"):
        for _ in range(2):
            amounts = tuple(int(amount) for amount in random.integers(-1, 4, 4))
            functions[f"seed {seed}: {mode} {amounts}"] = _pad(*amounts, mode=mode)
    small = assert_delegated(functions, (shape,))
    assert all(apart.max() == 0 for apart in steps_of_each(small))
