# SPDX-License-Identifier: BSD-3-Clause
"""Projections that are split and factors that go into weights: the module computes what it did."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.fx import GraphModule

from openneutron.pytorch.quantizer.passes.linear import FoldFactors, SplitProjections


class Projected(nn.Module):
    def __init__(self, function: Callable[[Tensor], object]) -> None:
        super().__init__()
        self.function = function
        self.layer = nn.Linear(8, 12)

    def forward(self, x: Tensor) -> object:
        return self.function(self.layer(x))


def exported(function: Callable[[Tensor], object]) -> tuple[GraphModule, Tensor]:
    torch.manual_seed(4)
    x = torch.randn(2, 5, 8)
    module = torch.export.export(Projected(function).eval(), (x,)).module(check_guards=False)
    assert isinstance(module, GraphModule)
    return module, x


def targets(module: GraphModule) -> list[str]:
    names = [str(node.target) for node in module.graph.nodes if node.op == "call_function"]
    return [name.removeprefix("aten.").split(".")[0] for name in names]


@pytest.mark.parametrize(
    ("function", "layers"),
    [
        (lambda y: tuple(y.unflatten(-1, (3, 4)).movedim(-2, 0).contiguous()[part] for part in range(3)), 1),
        (lambda y: tuple(y.unflatten(-1, (3, 4)).permute(2, 0, 1, 3)[part] for part in range(3)), 3),
        (lambda y: (y[..., :4], y[..., 4:9], y[..., 9:]), 3),
        (lambda y: (y[..., :8].relu(), y[..., 6:].sin()), 2),
        (lambda y: (y[:, 1], y[..., 4:]), 1),
        (lambda y: (y[..., ::2], y[..., 1:]), 1),
        (lambda y: (y, y[..., 1:]), 1),
        (lambda y: y[..., 1:], 1),
    ],
)
def test_split(function: Callable[[Tensor], object], layers: int) -> None:
    module, x = exported(function)
    before = module(x)
    SplitProjections()(module)
    module.graph.lint()
    assert targets(module).count("linear") == layers
    after = module(x)
    for want, got in zip(before, after, strict=True):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize(
    ("function", "folds"),
    [
        (lambda y: y * 0.5, True),
        (lambda y: y.view(2, 5, 3, 4).transpose(1, 2) / 4.0, True),
        (lambda y: y.unsqueeze(0) * -2, True),
        (lambda y: y * 0.0, False),
        (lambda y: y.relu() * 0.5, False),
        (lambda y: y + y * 0.5, False),
    ],
)
def test_fold(function: Callable[[Tensor], object], folds: bool) -> None:
    module, x = exported(function)
    before = module(x)
    changed = FoldFactors()(module).modified
    module.graph.lint()
    assert changed == folds
    assert bool({"mul", "div"} & set(targets(module))) == (not folds)
    torch.testing.assert_close(module(x), before)


def test_what_the_user_keeps_is_not_folded() -> None:
    module, _ = exported(lambda y: y * 0.5)
    assert not FoldFactors(keep=lambda node: "mul" in node.name)(module).modified
