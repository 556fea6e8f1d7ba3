# SPDX-License-Identifier: BSD-3-Clause
"""Operators on int16 from PyTorch: one delegate call that computes LiteRT's bytes, near the quantized module."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from openneutron.ir import per_tensor
from openneutron.litert.write import interpolated
from openneutron.options import QuantizationOptions
from openneutron.pytorch.lower.units import _interpolated
from tests.pytorch.operator_cases import Case
from tests.pytorch.small_models import assert_same_as_litert, compiled, outputs_of

LINES = ((1, 8, 20),)
PAIR = ((1, 8, 12, 12), (1, 8, 12, 12))

CASES = (
    Case("transposed", lambda m, x: F.conv_transpose1d(x, m.conv.weight[:, :, 0], m.conv.bias, 2), None, LINES),
    Case("hardswish", lambda m, x: F.hardswish(m.conv(x)), "conv_2d lookup"),
    Case("quotient", lambda m, x: torch.tanh(m.conv(x)) / (m.point(x).square() + 1), None),
    Case("prelu", lambda m, x: F.prelu(m.conv(x), m.columns[0, :8]), "conv_2d prelu"),
    Case("max of padding", lambda m, x: F.max_pool2d(m.conv(x), 3, 2, 1), "conv_2d padv2 max_pool_2d"),
    Case("sum", lambda m, x: m.conv(x).sum((2, 3)), "conv_2d mean mul reshape"),
    Case("negative product", lambda m, x: F.max_pool2d(x, 2) * -0.37, "max_pool_2d mul"),
    Case("softmax over channels", lambda m, x: F.softmax(m.conv(x), 1), "conv_2d softmax"),
    Case("product of matrices", lambda m, x, y: x @ y, "batch_matmul", PAIR),
    Case("choice", lambda m, x, y: torch.where(x < y, x, y * 2), None, PAIR),
    Case("a mask as numbers", lambda m, x: (x > 0).float() * m.conv(x), None),
    Case("comparison with a number", lambda m, x: m.conv(x).masked_fill(x >= 0.25, 0.0), None),
    Case("bicubic resize", lambda m, x: F.interpolate(m.conv(x), size=(9, 9), mode="bicubic"), None),
)

LEAST_DECIBELS = 65.0


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_operator_on_int16(case: Case) -> None:
    small = compiled(case.function, case.shapes, quantization=QuantizationOptions(activations="int16"))
    assert small.reasons == []
    assert len(small.program.partitions) == 1
    # Booleans become numbers of 8 bits.
    assert small.program.report.conversions == (case.name == "a mask as numbers")
    if case.operators is not None:
        assert small.operators == case.operators.split()
    assert_same_as_litert(small.program)
    for inputs in small.inputs[:2]:
        with torch.no_grad():
            wanted = outputs_of(small.program.quantized(*inputs))
        for found, want in zip(small.program.run(*inputs), wanted, strict=True):
            noise = (torch.as_tensor(found) - want).square().sum()
            assert 10 * torch.log10(want.square().sum() / noise) > LEAST_DECIBELS


def test_a_product_with_a_number_is_rounded_once() -> None:
    """A table has an entry for each 128th value, and computes lines between them. For 0.37 these are 0 and 47 (47.36): the line gives
    (34 * 47 + 64) >> 7 = 12 at 34, not 13 (12.58)."""
    small = compiled(lambda m, x: x * 0.37, PAIR[:1], quantization=QuantizationOptions(activations="int16"))
    assert small.operators == ["mul"]
    (graph,) = (partition.graph for partition in small.program.partitions)
    source, result = (graph[name].quant for name in (graph.inputs[0], graph.outputs[0]))
    assert source is not None and result is not None
    for (values,) in small.inputs:
        stored = np.rint(values.numpy() / np.float32(source.scale))
        once = np.rint(stored * (0.37 * source.scale / result.scale))
        found = np.rint(np.asarray(small.program.run(values)[0]) / result.scale)
        assert (found != once).mean() < 0.005

    line = interpolated(_interpolated((np.arange(-32768, 32769, 64) * 0.37).astype(np.float32), per_tensor(1.0, 0)))
    once = np.rint(np.arange(-32768, 32768) * 0.37)
    assert line[32768 + 34] == 12 and once[32768 + 34] == 13
    assert (line != once).mean() > 0.25
