# SPDX-License-Identifier: BSD-3-Clause
"""Embedding bags and rounded quotients, which are decomposed before quantization."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F

from openneutron.pytorch.operators.families import DECOMPOSITIONS
from openneutron.pytorch.operators.rules.tables import KEPT
from tests.pytorch.side_by_side import assert_delegated
from tests.pytorch.small_models import compiled

_bag = torch.ops.aten.embedding_bag.padding_idx
_TAKEN = torch.tensor([1, 2, 4, 5, 4, 3, 2, 9])


def test_bags_hold_what_pytorch_puts_into_them() -> None:
    table = torch.randn(10, 4)
    for offsets in ([0, 4], [0, 0, 3, 8], [0], [0, 3, 3, 5]):
        for mode in (0, 1, 2):
            for last in (False, True):
                ends = torch.tensor([*offsets, 8] if last and offsets[-1] != 8 else offsets)
                arguments = (table, _TAKEN, ends, False, mode, False, None, last, None)
                got = DECOMPOSITIONS["aten.embedding_bag.padding_idx"](*arguments)[0]
                torch.testing.assert_close(got, _bag(*arguments)[0])
    weighted = (table, _TAKEN, torch.tensor([0, 4]), False, 0, False, torch.randn(8), False, None)
    torch.testing.assert_close(DECOMPOSITIONS["aten.embedding_bag.padding_idx"](*weighted)[0], _bag(*weighted)[0])
    assert DECOMPOSITIONS["aten.embedding_bag.padding_idx"](*weighted[:-1], padding_idx=3) is KEPT


def test_bags_of_computed_indices_and_offsets_are_delegated_whole() -> None:
    table = torch.randn(6, 3, generator=torch.Generator().manual_seed(2))

    def offsets(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([torch.zeros(1, dtype=torch.int64), torch.tensor([3])])

    assert_delegated(
        {
            mode: lambda m, x, mode=mode: F.embedding_bag(x.argmax(1), table, offsets(x), mode=mode)
            for mode in ("sum", "mean", "max")
        },
        ((5, 6),),
    )


def test_rounded_quotients_are_delegated() -> None:
    small = assert_delegated(
        {
            "floor": lambda m, x, y: torch.div(x * 5, y.abs() + 0.5, rounding_mode="floor"),
            "trunc": lambda m, x, y: torch.div(x * 5, y.abs() + 0.5, rounding_mode="trunc"),
            "floor_divide": lambda m, x, y: torch.floor_divide(x * 5, y.abs() + 0.5),
        },
        ((8, 12), (8, 12)),
        # A quotient within a step of a rounding boundary may round the other way.
        most=0.02,
    )
    x, y = small.inputs[0]
    got = small.program.run(x, y)[0]
    wanted = torch.floor_divide(x * 5, y.abs() + 0.5)
    assert int((got - wanted).abs().round().max()) <= 1
    assert float(((got - wanted).abs() < 0.5).float().mean()) > 0.8


def test_quotients_of_integers_stay_exact_on_the_cpu() -> None:
    function = DECOMPOSITIONS["aten.div.Tensor_mode"]
    assert function(torch.tensor([7, -7]), torch.tensor([2, 2]), "floor") is KEPT


def test_a_mean_in_double_precision_is_cast_behind_the_npu() -> None:
    small = compiled(lambda m, x: x.mean(1, dtype=torch.float64), ((3, 8),))
    assert small.operators[0] == "mean"
    (item,) = small.program.delegation.on_cpu
    assert item.overload.startswith(("aten._to_copy", "dim_order_ops._to_dim_order_copy"))
    (got,) = small.program.run(*small.inputs[0])
    assert got.dtype == torch.float64
    np.testing.assert_allclose(got, small.inputs[0][0].mean(1), atol=0.02)
