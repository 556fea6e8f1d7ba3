# SPDX-License-Identifier: BSD-3-Clause
"""Normalizations: one operator each, the bytes of their definition, and how near to float that is."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.fx import GraphModule

from openneutron.api.pytorch import analyse
from openneutron.options import QuantizationOptions
from openneutron.pytorch.operators.reduction import vector_norm
from openneutron.pytorch.operators.rules.tables import KEPT
from openneutron.pytorch.quantizer.passes.neutron_aten_pass_manager import Decompose
from tests.pytorch.small_models import Compiled, assert_same_as_litert, steps_apart


@dataclass(frozen=True, slots=True)
class Case:
    """``least``: SQNR against float of uniform data in [-3, 3], in dB."""

    name: str
    module: nn.Module
    shape: tuple[int, ...]
    least: float


class L2(nn.Module):
    def __init__(self, order: float = 2) -> None:
        super().__init__()
        self.order = order

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.normalize(x, self.order, dim=1)


CASES = (
    Case("layer norm", nn.LayerNorm(16), (1, 8, 16, 16), 36),
    Case("layer norm of a sequence", nn.LayerNorm(64), (2, 8, 64), 36),
    Case("layer norm over an image", nn.LayerNorm((8, 6, 6)), (1, 8, 6, 6), 36),
    Case("layer norm without scale", nn.LayerNorm(16, elementwise_affine=False), (4, 16), 36),
    Case("RMS norm", nn.RMSNorm(16), (1, 8, 16, 16), 36),
    Case("group norm", nn.GroupNorm(2, 8), (1, 8, 16, 16), 38),
    Case("group norm of one group", nn.GroupNorm(1, 8), (1, 8, 12), 36),
    Case("instance norm", nn.InstanceNorm2d(8, affine=True), (1, 8, 16, 16), 38),
    Case("instance norm 1d", nn.InstanceNorm1d(8), (1, 8, 64), 36),
    Case("instance norm of statistics", nn.InstanceNorm2d(8, track_running_stats=True), (1, 8, 6, 6), 40),
    Case("batch norm of rank 2", nn.BatchNorm1d(8), (6, 8), 40),
    Case("batch norm of rank 3", nn.BatchNorm1d(8), (2, 8, 5), 40),
    Case("batch norm of rank 5", nn.BatchNorm3d(8), (1, 8, 3, 4, 5), 40),
    Case("L2 normalization", L2(), (1, 8, 16, 16), 36),
    Case("L1 normalization", L2(1), (1, 8, 16, 16), 36),
    Case("local response norm", nn.LocalResponseNorm(3, alpha=0.5), (1, 8, 6, 6), 36),
)


def around(module: nn.Module, shape: tuple[int, ...]) -> Compiled:
    """The module with seeded weights and statistics, compiled with seeded uniform inputs in [-3, 3]."""
    torch.manual_seed(11)
    for name, value in [*module.named_parameters(), *module.named_buffers()]:
        if value.is_floating_point():
            low, high = (-0.5, 0.5) if "bias" in name or "mean" in name else (0.5, 1.5)
            nn.init.uniform_(value, low, high)
    inputs = [(torch.rand(shape) * 6 - 3,) for _ in range(8)]
    return Compiled(analyse(module.eval(), inputs[0], calibration=inputs), inputs)


def sqnr(module: nn.Module, small: Compiled) -> float:
    """Signal to noise of what ExecuTorch runs, against the float module, in dB."""
    signal = noise = 0.0
    with torch.no_grad():
        for inputs in small.inputs[:4]:
            want, got = module(*inputs), small.program.run(*inputs)[0]
            signal, noise = signal + float((want**2).sum()), noise + float(((got - want) ** 2).sum())
    return 10 * float(torch.log10(torch.tensor(signal / noise)))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_norm(case: Case) -> None:
    small = around(case.module, case.shape)
    assert small.reasons == []
    assert len(small.program.partitions) == 1
    assert_same_as_litert(small.program)
    assert sqnr(case.module, small) >= case.least
    assert (steps_apart(small) <= 1).mean() >= 0.99


def test_what_a_layer_norm_becomes() -> None:
    """One operator without transposes, with or without gain and bias."""
    for layer in (nn.LayerNorm(64), nn.LayerNorm(64, elementwise_affine=False)):
        assert around(layer, (1, 32, 64)).operators == ["layer_norm"]


def test_more_elements_than_share_statistics_are_taken_apart() -> None:
    small = around(nn.LayerNorm((8, 64, 65), elementwise_affine=False), (1, 8, 64, 65))
    assert small.operators == ["mean", "sub", "lookup", "mean", "lookup", "mul"]
    assert_same_as_litert(small.program)


def test_a_norm_of_an_image_normalizes_it_as_it_lies() -> None:
    """Gain and bias of each element are put in the order of the image behind a convolution; nothing is transposed."""
    torch.manual_seed(1)
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.LayerNorm((4, 6, 5)), nn.GroupNorm(2, 4))
    for value in (module[1].weight, module[1].bias):
        nn.init.uniform_(value, -1, 1)
    inputs = [(torch.rand(1, 3, 8, 7) * 2 - 1,) for _ in range(4)]
    small = Compiled(analyse(module.eval(), inputs[0], calibration=inputs), inputs)
    assert small.operators == ["conv_2d", "reshape", "layer_norm", "reshape", "group_norm"]
    assert_same_as_litert(small.program)
    assert sqnr(module, small) > 34
    assert (steps_apart(small) <= 1).mean() >= 0.99


@pytest.mark.parametrize("weighted", [False, True])
def test_a_written_rms_norm_is_one_operator(weighted: bool) -> None:
    class Written(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(32))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            normal = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
            return self.weight * normal if weighted else normal

    module = Written()
    small = around(module, (1, 20, 32))
    assert small.operators == ["layer_norm"]
    assert_same_as_litert(small.program)
    assert sqnr(module, small) > 38


def test_a_written_norm_whose_root_is_read_stays_apart() -> None:
    class Root(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            root = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
            return x * root, root

    assert "layer_norm" not in around(Root(), (1, 20, 32)).operators


def test_int16_norms_add_no_noise() -> None:
    torch.manual_seed(1)
    module = nn.Sequential(nn.LayerNorm(32), nn.RMSNorm(32))
    inputs = [(torch.rand(1, 20, 32) * 6 - 3,) for _ in range(4)]
    options = QuantizationOptions(activations="int16")
    small = Compiled(analyse(module.eval(), inputs[0], calibration=inputs, quantization=options), inputs)
    assert small.operators == ["layer_norm", "layer_norm"]
    assert_same_as_litert(small.program)
    assert sqnr(module, small) > 80


NORMS_WITH_GIVEN_GAIN = {
    "layer_norm": (lambda x, gain, bias: F.layer_norm(x, (16,), gain, bias), (2, 5, 16)),
    "layer_norm_without_bias": (lambda x, gain, bias: F.layer_norm(x, (16,), gain), (2, 5, 16)),
    "layer_norm_with_constant_gain": (
        lambda x, gain, bias: F.layer_norm(x, (16,), torch.full((16,), 0.5), bias),
        (4, 16),
    ),
    "rms_norm": (lambda x, gain, bias: F.rms_norm(x, (16,), gain), (2, 5, 16)),
    "group_norm": (lambda x, gain, bias: F.group_norm(x, 4, gain, bias), (1, 16, 6, 5)),
    "instance_norm": (lambda x, gain, bias: F.instance_norm(x, weight=gain, bias=bias), (1, 16, 6, 5)),
}


@pytest.mark.parametrize("name", NORMS_WITH_GIVEN_GAIN)
def test_a_norm_with_a_computed_gain_or_bias_runs_on_the_npu(name: str) -> None:
    """A product and a sum behind the norm take the gain and the bias, which only the run gives."""
    function, shape = NORMS_WITH_GIVEN_GAIN[name]

    class Adaptive(nn.Module):
        def forward(self, x: torch.Tensor, gain: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = function(x, torch.relu(gain), torch.tanh(bias))
            return result

    torch.manual_seed(1)
    inputs = [(torch.rand(shape) * 2 - 1, torch.rand(16), torch.rand(16)) for _ in range(4)]
    small = Compiled(analyse(Adaptive(), inputs[0], calibration=inputs), inputs)
    assert not small.reasons
    norm = "group_norm" if shape[0] == 1 else "layer_norm"
    assert norm in small.operators
    assert_same_as_litert(small.program)
    assert sqnr(Adaptive(), small) > 34


def test_an_instance_norm_that_learns_its_statistics_stays() -> None:
    module = nn.InstanceNorm2d(8, track_running_stats=True)
    x = torch.randn(1, 8, 4, 4)
    exported = torch.export.export(module.train(), (x,)).module(check_guards=False)
    assert isinstance(exported, GraphModule)
    assert not Decompose()(exported).modified


def test_the_norm_of_one_value_in_another_type_stays_whole() -> None:
    assert torch.equal(vector_norm(torch.tensor(-2.0), 2, None, False, None), torch.tensor(2.0))  # type: ignore[arg-type]
    assert vector_norm(torch.tensor(-2.0), 2, None, False, torch.float64) is KEPT
