# SPDX-License-Identifier: BSD-3-Clause
"""Transposed convolutions of any shape, stride, padding, dilation and number of groups, as one delegate call each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from openneutron.pytorch.compile import analyse
from tests.pytorch.small_models import Compiled, assert_same_as_litert, steps_apart


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


def random_layer(seed: int) -> tuple[nn.Module, tuple[int, ...], str]:
    """A transposed convolution, its input's shape, and its arguments in words."""
    random = np.random.default_rng(seed)
    dims = int(random.integers(1, 3))

    def up_to(most: int) -> int:
        return int(random.integers(1, most + 1))

    groups = int(random.choice([1, 1, 2, 3, 5]))
    inputs, outputs = groups * up_to(6 // groups + 1), groups * up_to(6)
    if random.random() < 0.25:
        groups, outputs = inputs, inputs * up_to(2)
    kernel, stride, dilation = (tuple(up_to(most) for _ in range(dims)) for most in (5, 4, 3))
    reach = [(taps - 1) * step for taps, step in zip(kernel, dilation, strict=True)]
    extents = [up_to(7) for _ in range(dims)]
    more = [int(random.integers(max(step, far))) for step, far in zip(stride, dilation, strict=True)]
    most = [
        ((extent - 1) * step + far + behind) // 2
        for extent, step, far, behind in zip(extents, stride, reach, more, strict=True)
    ]
    padding = [int(random.integers(min(limit, far + 1) + 1)) for limit, far in zip(most, reach, strict=True)]
    kind = nn.ConvTranspose1d if dims == 1 else nn.ConvTranspose2d
    layer = kind(
        inputs, outputs, kernel, stride, tuple(padding), tuple(more), groups, bool(random.random() < 0.8), dilation
    )
    torch.manual_seed(seed)
    modules: list[nn.Module] = [layer]
    if random.random() < 0.3:
        modules.append(settled((nn.BatchNorm1d if dims == 1 else nn.BatchNorm2d)(outputs)))
    if random.random() < 0.4:
        modules.append((nn.ReLU, nn.ReLU6, nn.Hardtanh)[int(random.integers(3))]())
    batches = up_to(2)
    return nn.Sequential(*modules), (batches, inputs, *extents), f"seed {seed}: {modules}, extents {extents}"


@pytest.mark.parametrize("seed", range(8))
def test_random_layers(seed: int) -> None:
    module, shape, title = random_layer(seed)
    assert_one_call(quantized(module, shape), title)
