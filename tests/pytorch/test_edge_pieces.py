# SPDX-License-Identifier: BSD-3-Clause
"""Models that come quantized, with operators that this project's own quantizer would have taken apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from openneutron.api.pytorch import analyse
from tests.pytorch.small_models import assert_same_as_litert

_quantized = torch.ops.quantized_decomposed
SCALE = 0.03


def stored(x: Tensor) -> Tensor:
    """Quantized and dequantized."""
    numbers = (SCALE, 5, -128, 127, torch.int8)
    return _quantized.dequantize_per_tensor.default(_quantized.quantize_per_tensor.default(x, *numbers), *numbers)


class Pieces(nn.Module):
    """The pieces of a quantized tensor, added up."""

    def __init__(self, apart: Callable[[Tensor], Sequence[Tensor]]) -> None:
        super().__init__()
        self.apart = apart

    def forward(self, x: Tensor) -> Tensor:
        first, *rest = (stored(piece) for piece in self.apart(stored(x)))
        for piece in rest:
            first = stored(first + piece)
        return first


@pytest.mark.parametrize(
    ("apart", "operators"),
    [
        (lambda x: torch.split(x, 2, 1), "slice slice add"),
        (lambda x: torch.split(x, [1, 1, 2], 1)[:2], "slice slice add"),
        (lambda x: torch.unbind(x, -1), "slice reshape " * 3 + "add add"),
        (lambda x: (x.select(1, -1), x[:, 0]), "slice reshape " * 2 + "add"),
        (lambda x: (x.flip(1), x.repeat(1, 1, 1), x[:, :1].expand(-1, 4, -1)), "reverse_v2 add slice tile add"),
    ],
    ids=["split", "sizes", "unbind", "select", "others"],
)
def test_pieces_of_a_quantized_model(apart: Callable[[Tensor], Sequence[Tensor]], operators: str) -> None:
    torch.manual_seed(3)
    x = torch.randn(2, 4, 3)
    model = Pieces(apart).eval()
    program = analyse(torch.export.export(model, (x,)))
    assert not program.delegation.on_cpu
    (part,) = program.partitions
    assert sorted(node.op for node in part.graph.nodes) == sorted(operators.split())
    assert_same_as_litert(program)
    (got,) = program.run(x)
    assert np.rint(((got - model(x)).abs() / SCALE).max().item()) <= 1
