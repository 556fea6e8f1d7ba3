# SPDX-License-Identifier: BSD-3-Clause
"""A function that is compiled on its own, and the checks of what becomes of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from openneutron.api.pytorch import analyse
from tests.pytorch.small_models import IMAGE, Compiled, assert_same_as_litert, compiled, steps_apart


@dataclass(frozen=True, slots=True)
class Case:
    """``operators`` is what the graph holds besides the transposes at its borders; None: not looked at."""

    name: str
    function: Callable[..., Any]
    operators: str | None
    shapes: tuple[tuple[int, ...], ...] = (IMAGE,)


def check_case(case: Case) -> None:
    """One delegate call that computes LiteRT's bytes, within a step of the quantized module."""
    small = compiled(case.function, case.shapes)
    assert small.reasons == []
    assert len(small.program.partitions) == 1
    if case.operators is not None:
        assert small.operators == case.operators.split()
    assert_same_as_litert(small.program)
    apart = steps_apart(small)
    assert np.mean(apart <= 1) >= 0.99, dict(zip(*np.unique(apart, return_counts=True), strict=True))


def quantized(module: nn.Module, shape: tuple[int, ...], **options: Any) -> Compiled:
    inputs = [(torch.randn(shape),) for _ in range(2)]
    return Compiled(analyse(module.eval(), inputs[0], calibration=inputs, **options), inputs)


def assert_one_call(small: Compiled, title: str) -> None:
    assert small.reasons == [], title
    assert len(small.program.partitions) == 1, title
    assert_same_as_litert(small.program)
    assert steps_apart(small).max() <= 1, title


def settled(norm: nn.Module) -> nn.Module:
    nn.init.normal_(norm.running_mean, std=0.3)
    nn.init.uniform_(norm.running_var, 0.5, 2.0)
    nn.init.uniform_(norm.weight, 0.5, 2.0)
    nn.init.normal_(norm.bias)
    return norm
