# SPDX-License-Identifier: BSD-3-Clause
"""Transposed convolutions of any shape, stride, padding, dilation and number of groups, as one delegate call each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from executorch.exir import to_edge_transform_and_lower
from torch import nn

from openneutron.ir import QuantParams, per_channel, per_tensor
from openneutron.options import QuantizationOptions
from openneutron.pytorch.backend.neutron_target_spec import NeutronTargetSpec
from openneutron.pytorch.graph.program import Reject, Rejected
from openneutron.pytorch.neutron_partitioner import NeutronPartitioner
from openneutron.pytorch.nxp_backend import generate_neutron_compile_spec
from openneutron.pytorch.operators.convolution import output_scales
from openneutron.pytorch.quantizer.calibrate import calibrate_and_quantize
from openneutron.pytorch.quantizer.neutron_quantizer import NeutronQuantizer
from tests.pytorch.operator_cases import assert_one_call, quantized, settled
from tests.pytorch.small_models import compiled


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


def _train(module: torch.fx.GraphModule) -> None:
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
    generator = torch.Generator().manual_seed(1)
    for _ in range(2):
        optimizer.zero_grad()
        module(torch.randn((2, 4, 5, 5), generator=generator)).square().mean().backward()
        optimizer.step()


def test_training_folds_batch_norms() -> None:
    torch.manual_seed(3)
    module = nn.Sequential(
        nn.ConvTranspose2d(4, 6, 3, 2, 1, 1),
        settled(nn.BatchNorm2d(6)),
        nn.ReLU(),
        nn.ConvTranspose2d(6, 5, 2, 2, bias=False),
        settled(nn.BatchNorm2d(5)),
        nn.ConvTranspose2d(5, 5, 3, groups=5),
        settled(nn.BatchNorm2d(5)),
    )
    small = quantized(module, (2, 4, 5, 5), quantization=QuantizationOptions(train_fn=_train))
    assert small.operators == ["transpose_conv", "slice", "transpose_conv", "transpose_conv"]
    assert_one_call(small, "trained")
    (part,) = small.program.partitions
    weights = [part.graph[str(node.inputs[1])] for node in part.graph.nodes if "conv" in node.op]
    assert [len(tensor.quant.scales) for tensor in weights if tensor.quant is not None] == [6, 5, 5]


def test_executorch_partitions_without_the_weights() -> None:
    """Its partitioner sees the weights' shapes alone."""
    torch.manual_seed(5)
    target = NeutronTargetSpec("imxrt700")
    model = nn.Sequential(
        nn.ConvTranspose2d(4, 6, 3, 2, 1, 1, groups=2), nn.ConvTranspose2d(6, 6, 3, dilation=2, groups=6)
    )
    inputs = (torch.randn(1, 4, 5, 5),)
    exported = torch.export.export(model.eval(), inputs, strict=True)
    module = calibrate_and_quantize(exported, [inputs], NeutronQuantizer(target))
    program = to_edge_transform_and_lower(
        torch.export.export(module, inputs, strict=True),
        partitioner=[NeutronPartitioner(generate_neutron_compile_spec("imxrt700"), target)],
    )
    names = [str(node.target) for node in program.exported_program().graph.nodes if node.op == "call_function"]
    assert sum("executorch_call_delegate" in name for name in names) == 1
    assert not [name for name in names if "convolution" in name]


@pytest.mark.parametrize("function", [F.conv2d, F.conv_transpose2d])
def test_weights_that_are_computed_stay(function: Any) -> None:
    small = compiled(lambda m, x: function(m.conv(x), m.point(x)), ((8, 8, 3, 3),))
    reasons = [item.reason for item in small.program.delegation.on_cpu]
    assert "its weights are computed at run time; they must be constant" in reasons


def test_weight_scales_that_belong_to_no_output_are_refused() -> None:
    assert output_scales(per_channel([1.0, 2.0], 1), 2, 4, 2) == per_channel([1.0, 2.0, 1.0, 2.0], 0)
    assert output_scales(per_channel([1.0, 2.0], 0), 2, 2, 2) == per_channel([1.0, 1.0, 2.0, 2.0], 0)
    assert output_scales(per_tensor(0.5, 0), 2, 4, 2) == per_tensor(0.5, 0)
    with pytest.raises(Rejected) as along_inputs:
        output_scales(per_channel([1.0, 2.0, 1.0, 2.0], 0), 2, 4, 2)
    assert along_inputs.value.reject == Reject(
        "its weights have a scale for each index of axis 0, where each output channel needs one",
        "Quantize with NeutronQuantizer, or along axis 1.",
    )
    with pytest.raises(Rejected) as shifted:
        output_scales(QuantParams((1.0, 2.0), (0, 3), 1), 1, 4, 2)
    assert shifted.value.reject == Reject(
        "its weights have a zero point; weights must be symmetric",
        "Quantize them as int8 with the zero point 0 (as uint8 it is 128).",
    )
