# SPDX-License-Identifier: BSD-3-Clause
"""The pass that takes composite operators apart."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import patch

import pytest
import torch
from torch import nn
from torch.fx import GraphModule

from openneutron.pytorch.graph.program import WRITTEN_AS
from openneutron.pytorch.operators.rules.tables import KEPT
from openneutron.pytorch.quantizer.passes import neutron_aten_pass_manager
from openneutron.pytorch.quantizer.passes.neutron_aten_pass_manager import Decompose


class Mixed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a, _, c = torch.unbind(x, 1)
        return self.norm(a) + torch.celu(c)


def _layer_norm(input, normalized_shape, weight, bias, eps, cudnn_enable):  # type: ignore[no-untyped-def]
    dims = tuple(range(-len(normalized_shape), 0))
    centred = input - input.mean(dims, keepdim=True)
    return torch.ops.aten.celu(centred) * weight + bias * eps


def _unbind(self, dim):  # type: ignore[no-untyped-def]
    return [self.select(dim, index) for index in range(self.shape[dim])]


def _celu(self, alpha):  # type: ignore[no-untyped-def]
    return KEPT if self.dim() == 3 else self * alpha


@pytest.fixture
def table() -> Iterator[None]:
    functions = {"aten.layer_norm.default": _layer_norm, "aten.unbind.int": _unbind, "aten.celu.default": _celu}
    with (
        patch.object(neutron_aten_pass_manager, "DECOMPOSITIONS", functions),
        patch.object(neutron_aten_pass_manager, "OWN_OPERATORS", {}),
    ):
        yield


def _module(x: torch.Tensor) -> GraphModule:
    module = torch.export.export(Mixed().eval(), (x,)).module(check_guards=False)
    assert isinstance(module, GraphModule)
    return module


@pytest.mark.usefixtures("table")
def test_pieces_replace_the_call_and_say_where_they_come_from() -> None:
    module = _module(torch.randn(2, 3, 8))
    result = Decompose()(module)
    module.graph.lint()
    assert result.modified
    calls = [node for node in module.graph.nodes if node.op == "call_function"]
    names = [str(node.target).removeprefix("aten.") for node in calls]
    # celu in the norm is taken apart as well; the second of unbind's results, which nobody reads, is not made.
    pieces = (
        "select.int select.int mean.dim sub.Tensor mul.Tensor mul.Tensor mul.Tensor add.Tensor mul.Tensor add.Tensor"
    )
    assert " ".join(names) == pieces
    wrote = [node.meta.get("custom", {}).get(WRITTEN_AS) for node in calls]
    assert wrote == [*2 * ["aten.unbind.int"], *6 * ["aten.layer_norm.default"], "aten.celu.default", None]
    assert [str(list(node.meta["nn_module_stack"].values())[-1][0]) for node in calls[2:8]] == 6 * ["norm"]
    assert all(isinstance(node.meta["val"], torch.Tensor) for node in calls)


@pytest.mark.usefixtures("table")
def test_calls_may_be_left_alone() -> None:
    module = _module(torch.randn(2, 3, 8))
    assert Decompose(keep=lambda node: "celu" not in str(node.target))(module).modified
    targets = [str(node.target) for node in module.graph.nodes]
    assert "aten.layer_norm.default" in targets and "aten.celu.default" not in targets
    module = _module(torch.randn(2, 3, 4, 8))  # rank 3 after unbind: the function itself says no
    Decompose()(module)
    assert "aten.celu.default" in [str(node.target) for node in module.graph.nodes]
