# SPDX-License-Identifier: BSD-3-Clause
"""Arithmetic in few forms computes the same, and trained parameters go on being trained."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.fx import GraphModule

from openneutron.pytorch.quantizer.passes.constants import ScalarsToTensors


class Tempered(nn.Module):
    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.function = function
        self.temperature = nn.Parameter(torch.tensor([0.7]))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.function(x, y, self.temperature)


def rewritten(function: Callable[..., Tensor], training: bool) -> tuple[GraphModule, Tensor, Tensor]:
    """The module after the pass, its result, and the result before."""
    torch.manual_seed(0)
    inputs = torch.randn(2, 3), torch.randn(3) + 5
    module = torch.export.export(Tempered(function), inputs).module(check_guards=False)
    assert isinstance(module, GraphModule)
    before = module(*inputs)
    ScalarsToTensors(training=training)(module)
    module.graph.lint()
    return module, module(*inputs), before


FUNCTIONS = (
    lambda x, y, t: x / t,
    lambda x, y, t: x / y,
    lambda x, y, t: 2 - x,
    lambda x, y, t: torch.rsub(x, y, alpha=3),
    lambda x, y, t: torch.add(x, t, alpha=0.5),
    lambda x, y, t: torch.sub(y, 2, alpha=0.5) + x,
    lambda x, y, t: torch.maximum(x, t),
    lambda x, y, t: torch.minimum(t, x),
)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_the_results_stay(function: Callable[..., Tensor], training: bool) -> None:
    module, after, before = rewritten(function, training)
    torch.testing.assert_close(after, before)
    left = {str(node.target) for node in module.graph.nodes if node.op == "call_function"}
    assert not left & {"aten.div.Tensor", "aten.rsub.Scalar", "aten.rsub.Tensor"}


@pytest.mark.parametrize("function", FUNCTIONS[:1] + FUNCTIONS[4:5] + FUNCTIONS[6:])
def test_parameters_stay_while_they_are_trained(function: Callable[..., Tensor]) -> None:
    module, after, _ = rewritten(function, training=True)
    after.sum().backward()
    (gradient,) = (item.grad for item in module.parameters())
    assert gradient is not None and gradient.abs().sum() > 0
