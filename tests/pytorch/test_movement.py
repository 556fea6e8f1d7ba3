# SPDX-License-Identifier: BSD-3-Clause
"""Padding with numbers that an input's int8 range may not reach, and lists with nothing in them."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.fx import GraphModule, Node

from openneutron.api.pytorch import analyse
from tests.pytorch.small_models import assert_same_as_litert, compiled, steps_apart


def _pad(module: GraphModule, filler: float) -> Node:
    """The module's padding, which gets another filler than it was calibrated with."""
    (node,) = (node for node in module.graph.nodes if "pad" in str(node.target))
    node.args = (
        (*node.args[:2], "constant", filler) if str(node.target) == "aten.pad.default" else (*node.args[:2], filler)
    )
    module.recompile()
    return node


@pytest.mark.parametrize("filler", [-3.0, 9.0])
def test_a_filler_out_of_the_inputs_range_is_in_the_results(filler: float) -> None:
    small = compiled(lambda m, x: F.pad(F.relu(m.conv(x)), (1, 1, 1, 1), value=filler))
    assert not small.reasons
    assert_same_as_litert(small.program)
    assert abs(steps_apart(small)).max() <= 1


@pytest.mark.parametrize("filler", [-50.0, 50.0, -math.inf, math.inf])
def test_a_filler_out_of_all_ranges_saturates_in_the_results(filler: float) -> None:
    small = compiled(lambda m, x: F.pad(F.relu(m.conv(x)), (1, 1, 1, 1), value=-3.0))
    _pad(small.program.quantized, filler)
    program = analyse(torch.export.export(small.program.quantized, small.inputs[0]))
    assert not program.delegation.on_cpu
    graph = program.partitions[0].graph
    quant = graph[graph.outputs[0]].quant
    assert quant is not None
    stored = 127 if filler > 0 else -128
    (got,) = program.run(*small.inputs[0])
    np.testing.assert_allclose(got[0, :, 0].numpy(), (stored - quant.zero_point) * quant.scale, rtol=1e-6)


def test_a_filler_that_only_the_result_holds_is_padded_there() -> None:
    small = compiled(lambda m, x: F.pad(F.relu(m.conv(x)), (1, 1, 1, 1), value=-3.0))
    pad = _pad(small.program.quantized, -3.0)
    # What a quantizer with an observer on either side makes: the input's range starts at 0.
    dequantize = pad.args[0]
    assert isinstance(dequantize, Node)
    quantize = dequantize.args[0]
    assert isinstance(quantize, Node)
    for node in (quantize, dequantize):
        node.args = (node.args[0], 0.01, -128, *node.args[3:])
    small.program.quantized.recompile()
    program = analyse(torch.export.export(small.program.quantized, small.inputs[0]))
    assert not program.delegation.on_cpu
    assert_same_as_litert(program)
    quant = program.partitions[0].graph[program.partitions[0].graph.outputs[0]].quant
    assert quant is not None
    wanted = small.program.quantized(*small.inputs[0])
    wanted = wanted if isinstance(wanted, torch.Tensor) else wanted[0]
    (got,) = program.run(*small.inputs[0])
    assert float((got - wanted).abs().max()) <= 1.01 * quant.scale


def test_a_filler_that_no_quantize_node_saturates_must_fit() -> None:
    small = compiled(lambda m, x: m.point(F.pad(F.relu(m.conv(x)), (1, 1, 1, 1), value=0.0)))
    pad = _pad(small.program.quantized, -3.0)
    (quantize,) = pad.users
    (dequantize,) = quantize.users
    dequantize.replace_all_uses_with(pad)
    small.program.quantized.graph.eliminate_dead_code()
    small.program.quantized.recompile()
    program = analyse(torch.export.export(small.program.quantized, small.inputs[0]))
    reasons = [str(item) for item in program.delegation.on_cpu]
    assert any("it pads with -3, which its input's int8 range does not reach" in reason for reason in reasons), reasons


def test_nan_stays_on_the_cpu() -> None:
    small = compiled(lambda m, x: F.pad(m.conv(x), (1, 1, 1, 1), value=math.nan))
    assert small.operators == ["conv_2d"]
    assert ["it pads with NaN, which no integer can hold" in reason for reason in small.reasons] == [True]


def test_a_cat_of_nothing_stays_on_the_cpu() -> None:
    # A linear layer of rank 4 has the program lowered before ExecuTorch replaces what is empty.
    small = compiled(lambda m, x: (m.linear(x), torch.cat([m.conv(x)[:, :0], m.conv(x)[:, :0]], 1)))
    assert "fully_connected" in small.operators
    assert "concatenation" not in small.operators
