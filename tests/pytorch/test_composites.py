# SPDX-License-Identifier: BSD-3-Clause
"""Operators without a rule of ours: PyTorch's own decompositions, the operators that stay whole, and their reasons."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.fx import GraphModule

from openneutron.api.pytorch import analyse
from openneutron.options import QuantizationOptions
from openneutron.pytorch.quantizer.neutron_quantizer import NeutronQuantizer
from openneutron.pytorch.quantizer.passes.constants import MOST_ELEMENTS, FoldConstants
from openneutron.pytorch.quantizer.passes.exported_forms import InlineWrappers
from tests.pytorch.side_by_side import assert_delegated
from tests.pytorch.small_models import assert_same_as_litert, compiled

ROWS = (2, 8, 6)
LARGEST = torch.tensor(torch.finfo(torch.float32).max)

FUNCTIONS = {
    "glu": lambda m, x, y: F.glu(x, 1),
    "logsumexp": lambda m, x, y: torch.logsumexp(x * 8, -1),
    "logsumexp of two axes": lambda m, x, y: torch.logsumexp(x, (0, 2), keepdim=True),
    "logaddexp": lambda m, x, y: torch.logaddexp(x, y),
    "cosine_similarity": lambda m, x, y: F.cosine_similarity(x, y),
    "pairwise_distance": lambda m, x, y: F.pairwise_distance(x, y),
    "hypot": lambda m, x, y: torch.hypot(x, y),
    "mse_loss": lambda m, x, y: F.mse_loss(x, y),
    "smooth_l1_loss": lambda m, x, y: F.smooth_l1_loss(x, y),
    "rrelu": lambda m, x, y: F.rrelu(x),
    "trapezoid": lambda m, x, y: torch.trapezoid(x),
    "softmax of negated scores with a mask": lambda m, x, y: torch.softmax(-torch.where(x > -1, y * 8, LARGEST), -1),
    "tensordot of a dimension of 1": lambda m, x, y: torch.tensordot(x[:, :, :1], y, ([0, 2], [0, 2])),
    "cross": lambda m, x, y: torch.linalg.cross(x[..., :3], y[..., :3]),
    "kron": lambda m, x, y: torch.kron(x[0, :3, :2], y[0, :2, :2]),
    "prod": lambda m, x, y: torch.prod(torch.sigmoid(x) + 0.5, 2),
    "fmax": lambda m, x, y: torch.fmax(x, y),
    "diag_embed": lambda m, x, y: torch.diag_embed(x),
    "any": lambda m, x, y: (x > 1).any(1).float(),
    "all": lambda m, x, y: (x > y).all(-1, keepdim=True).float(),
    "dist": lambda m, x, y: torch.dist(x, y),
    "cdist": lambda m, x, y: torch.cdist(x, y),
    "dist, power 4": lambda m, x, y: torch.dist(x, y, 4),
    "dist, largest": lambda m, x, y: torch.dist(x, y, math.inf),
    "cdist, power 3": lambda m, x, y: torch.cdist(x, y, 3.0),
    "one_hot": lambda m, x, y: F.one_hot(x.argmax(1), 8).float() * 0.5,
}


def test_composites_run_in_one_delegate_call() -> None:
    assert_delegated(FUNCTIONS, (ROWS, ROWS), most=0.05)


def test_what_has_no_kernel_says_so_for_the_whole_operator() -> None:
    small = compiled(lambda m, x: (torch.logcumsumexp(x, 1), torch.cumprod(x, 1)), ((4, 6),))
    said = {item.overload: (item.reason, item.suggestion) for item in small.program.delegation.on_cpu}
    for name in ("aten.logcumsumexp", "aten.cumprod"):
        reason, suggestion = said[f"{name}.default"]
        assert reason == f"there is no kernel for {name}"
        assert suggestion.startswith("Write it with operators that docs/supported-ops.md lists.")


def test_one_hot_that_is_kept_float_runs() -> None:
    """ExecuTorch's decomposition of this operator has assertions without a kernel in its runtime."""
    small = compiled(
        lambda m, x: F.one_hot(m.conv(x).argmax(1), 8).float(),
        quantization=QuantizationOptions(keep_float=("aten.one_hot.default",)),
    )
    (got,) = small.program.run(*small.inputs[0])
    torch.testing.assert_close(got, small.program.quantized(*small.inputs[0]))


class Rotary(nn.Module):
    """Rotary angles as in Hugging Face's language models, computed without gradients and without autocast."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("frequencies", 1.0 / 100 ** (torch.arange(0, 8, 2).float() / 8))

    @torch.no_grad()
    def forward(self, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        places = torch.arange(length)
        with torch.autocast("cpu", enabled=False):
            angles = torch.outer(places.float(), self.frequencies)
            angles = torch.cat((angles, angles), -1)
            return angles.cos(), angles.sin()


class Constants(nn.Module):
    """Queries behind dropout (as in DETR), angles of positions, an expanded table."""

    def __init__(self) -> None:
        super().__init__()
        self.rotary, self.dropout, self.linear = Rotary(), nn.Dropout(0.1), nn.Linear(8, 8)
        self.queries = nn.Embedding(6, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        cosine, sine = self.rotary(x.shape[1])
        left, right = (x * cosine + torch.roll(x, 4, -1) * sine).split(4, -1)
        queries = self.dropout(self.linear(self.queries.weight)).unsqueeze(0).expand(2, -1, -1)
        return torch.matmul(torch.cat((left, right), -1), queries.transpose(1, 2))


def test_what_depends_on_constants_alone_is_computed_once() -> None:
    torch.manual_seed(0)
    inputs = [(torch.randn(2, 6, 8),) for _ in range(3)]
    program = analyse(Constants().eval(), inputs[0], calibration=inputs)
    assert program.delegation.on_cpu == ()
    assert len(program.partitions) == 1
    operators = [node.op for node in program.partitions[0].graph.nodes]
    assert "broadcast_to" not in operators and operators.count("fully_connected") + operators.count("batch_matmul") == 1
    assert_same_as_litert(program)


def test_a_wrapper_that_changes_types_stays() -> None:
    class Mixed(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                product = torch.matmul(x, x)
            with torch.no_grad():
                return product.float() + x.relu()

    module = torch.export.export(Mixed(), (torch.randn(4, 4),)).module(check_guards=False)
    assert isinstance(module, GraphModule)
    InlineWrappers()(module)
    module.graph.lint()
    names = [str(node.target) for node in module.graph.nodes if node.op == "call_function"]
    assert "wrap_with_autocast" in names and "wrap_with_set_grad_enabled" not in names
    assert "aten.relu.default" in names


def test_a_constant_above_the_limit_is_left_to_the_run() -> None:
    class Large(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            row = torch.arange(8.0)
            return x + row.expand(1024, 8), torch.cat((x, torch.full((MOST_ELEMENTS // 8 + 1, 8), 0.5)))

    module = torch.export.export(Large(), (torch.randn(1024, 8),)).module(check_guards=False)
    assert isinstance(module, GraphModule)
    FoldConstants()(module)
    shapes = [tuple(node.meta["val"].shape) for node in module.graph.find_nodes(op="get_attr")]
    assert shapes == [(1, 8)]
    assert "aten.full.default" in [str(node.target) for node in module.graph.nodes]


def test_a_mask_of_ones_costs_nothing() -> None:
    """A tensor of ones in the shape of another is a constant, sums of it too, and products with it are the other factor."""

    class MaskedMean(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            mask = torch.ones_like(x)
            return (x * mask).sum(1, keepdim=True) / mask.sum(1, keepdim=True).clamp(min=1)

    exported = torch.export.export(MaskedMean(), (torch.randn(1, 6, 4),)).module(check_guards=False)
    assert isinstance(exported, GraphModule)
    changed = NeutronQuantizer().transform_for_annotation(exported)
    operators = [str(node.target) for node in changed.graph.nodes if node.op == "call_function"]
    assert operators == ["aten.mean.dim"]
    x = torch.randn(1, 6, 4)
    torch.testing.assert_close(changed(x), MaskedMean()(x))
