# SPDX-License-Identifier: BSD-3-Clause
"""Batch normalizations that go into the linear layers behind them, and sums that are means: the module computes what it did."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.fx import GraphModule

from openneutron.pytorch.quantizer.passes.batch_norm import FoldBatchNorm
from openneutron.pytorch.quantizer.passes.constants import SumsToMeans


class Tokens(nn.Module):
    """A batch normalization of tokens [batch, token, channel], then ``function`` of this module and its result."""

    def __init__(self, function: Callable[[Tokens, Tensor], object]) -> None:
        super().__init__()
        self.function = function
        self.norm = nn.BatchNorm1d(8)
        self.one, self.two = nn.Linear(8, 6), nn.Linear(8, 4, bias=False)
        with torch.no_grad():
            for tensor in (self.norm.running_mean, self.norm.weight, self.norm.bias):
                assert tensor is not None
                tensor.normal_()
            assert self.norm.running_var is not None
            self.norm.running_var.uniform_(0.5, 3)

    def forward(self, x: Tensor) -> object:
        y = self.norm(x) if x.dim() == 2 else self.norm(x.transpose(1, 2)).transpose(1, 2)
        return self.function(self, y)


def exported(module: nn.Module, x: Tensor) -> GraphModule:
    found = torch.export.export(module.eval(), (x,)).module(check_guards=False)
    assert isinstance(found, GraphModule)
    return found


def targets(module: GraphModule) -> list[str]:
    names = [str(node.target) for node in module.graph.nodes if node.op == "call_function"]
    return [name.removeprefix("aten.").split(".")[0] for name in names]


@pytest.mark.parametrize("shape", [(3, 5, 8), (7, 8)])
@pytest.mark.parametrize(
    ("function", "folds"),
    [
        (lambda m, y: m.one(y), True),
        (lambda m, y: (m.one(y), m.two(y)), True),
        (lambda m, y: (m.one(y), y), False),
        (lambda m, y: (m.one(y), m.two(y.relu())), False),
        (lambda m, y: m.one(y.relu()), False),
    ],
)
def test_a_normalization_goes_into_all_its_readers(
    function: Callable[[Tokens, Tensor], object], folds: bool, shape: tuple[int, ...]
) -> None:
    torch.manual_seed(2)
    x = torch.randn(shape)
    module = exported(Tokens(function), x)
    before = module(x)
    FoldBatchNorm()(module)
    module.graph.lint()
    assert ("conv2d" in targets(module)) is not folds
    assert "batch_norm" not in targets(module)
    torch.testing.assert_close(module(x), before, atol=1e-5, rtol=1e-5)


class Function(nn.Module):
    def __init__(self, function: Callable[[Tensor], object]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> object:
        return self.function(x)


@pytest.mark.parametrize(
    ("function", "means"),
    [
        (lambda x: x.sum(1, True) / 5, 1),
        (lambda x: x.sum((0, -1)) / 24, 1),
        (lambda x: x.sum(1) / 4, 0),
        (lambda x: (lambda total: (total, total / 5))(x.sum(1)), 0),
        (lambda x: 5 / x.sum(1), 0),
    ],
)
def test_a_sum_over_its_count_is_a_mean(function: Callable[[Tensor], object], means: int) -> None:
    torch.manual_seed(2)
    x = torch.randn(3, 5, 8)
    module = exported(Function(function), x)
    before = module(x)
    SumsToMeans()(module)
    module.graph.lint()
    assert targets(module).count("mean") == means
    torch.testing.assert_close(module(x), before)
