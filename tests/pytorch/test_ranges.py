# SPDX-License-Identifier: BSD-3-Clause
"""Quantizations that hold less than int8 does."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.fx import GraphModule

from openneutron.api.pytorch import analyse
from tests.pytorch.small_models import compiled

REASON = (
    "its values are quantized to [{}, {}]; kernels saturate at [-128, 127]. Quantize activations with quant_min=-128"
)


def _narrowed(module: GraphModule, kind: str, low: int, high: int) -> None:
    """Gives the per-tensor nodes of a kind another range, as a quantizer for fewer bits sets it."""
    for node in module.graph.nodes:
        if str(node.target) == f"quantized_decomposed.{kind}_per_tensor.default" and node.args[-1] is torch.int8:
            node.args = (*node.args[:3], low, high, torch.int8)
    module.recompile()


@pytest.mark.parametrize("low, high", [(-64, 63), (0, 127)])
@pytest.mark.parametrize("kind", ["quantize", "dequantize"])
def test_narrower_activations_stay_on_the_cpu(kind: str, low: int, high: int) -> None:
    small = compiled(lambda m, x: m.conv(x))
    _narrowed(small.program.quantized, kind, low, high)
    program = analyse(torch.export.export(small.program.quantized, small.inputs[0]))
    assert program.partitions == ()
    assert all(REASON.format(low, high) in str(item) for item in program.delegation.on_cpu)
    (wanted,) = small.program.quantized(*small.inputs[0])
    (got,) = program.run(*small.inputs[0])
    np.testing.assert_allclose(got.numpy(), wanted[None].numpy(), atol=1e-5)
