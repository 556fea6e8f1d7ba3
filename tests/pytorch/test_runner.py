# SPDX-License-Identifier: BSD-3-Clause
"""Programs that ExecuTorch loads but refuses to run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from openneutron.api.pytorch import analyse
from openneutron.errors import DriverError, InvalidModelError, InvalidOptionError
from openneutron.features.run.command import INDICES, open_pte, random_array
from openneutron.options import DelegationOptions
from openneutron.pytorch.run.runner import Runner
from tests.pytorch.small_models import compiled


def test_what_a_cpu_kernel_refuses_is_said_in_words() -> None:
    left = ["aten.pad", "aten.constant_pad_nd"]
    small = compiled(
        lambda m, x: F.pad(m.conv(x), (-1, 1)),
        name="cropped",
        delegation=DelegationOptions(operators_not_to_delegate=left),
    )
    with pytest.raises(InvalidModelError) as caught:
        small.program.run(*small.inputs[0])
    message = str(caught.value)
    assert message.startswith("'cropped': ExecuTorch can't run it: ")
    assert "Padding values must be non-negative" in message
    assert message.endswith("`openneutron explain` lists those that stay on the CPU.")


class Looked(nn.Module):
    """Two tables, of which the smaller one bounds the indices."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.kinds = nn.Embedding(16, 8), nn.Embedding(3, 8)
        self.linear = nn.Linear(8, 8)

    def forward(self, n: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return self.linear(self.words(n) + self.kinds(n) + x)


def test_indices_are_bounded_by_the_tables_they_are_for(tmp_path: Path) -> None:
    given = (torch.tensor([[1, 2]]), torch.randn(1, 2, 8))
    program = analyse(
        Looked().eval(),
        given,
        calibration=[given],
        delegation=DelegationOptions(operators_not_to_delegate=["aten.embedding"]),
    )
    assert Runner("looked", program.buffer).table_sizes == [3, None]
    program.save(tmp_path / "looked.pte")
    indices, _ = open_pte(tmp_path / "looked.pte").inputs
    drawn = random_array(np.random.default_rng(0), indices.dtype, (100,), indices.below)
    assert drawn.dtype == np.int64 and set(drawn.tolist()) == {0, 1, 2}


def test_an_index_outside_of_a_table_is_the_drivers_error() -> None:
    program = analyse(
        nn.Embedding(16, 8).eval(), (torch.tensor([[1, 2]]),), calibration=[(torch.tensor([[1, 2]]),)], name="words"
    )
    with pytest.raises(DriverError) as caught:
        program.run(torch.tensor([[1, 16]]))
    assert caught.value.code == 0x1123
    assert str(caught.value) == (
        "'words': run: the driver says that an index that was given or computed is outside the tensor that it takes values from; error "
        "0x1123."
    )


def test_integers_that_nothing_bounds_are_small() -> None:
    wide = random_array(np.random.default_rng(0), np.dtype(np.int64), (200,))
    assert set(wide.tolist()) == set(range(INDICES))
    narrow = random_array(np.random.default_rng(0), np.dtype(np.int8), (5000,))
    assert (narrow.min(), narrow.max()) == (-128, 127)


def test_numbers_are_part_of_a_program() -> None:
    given = (torch.randn(1, 8), 3)
    program = analyse(Times().eval(), given, calibration=[given], name="times")
    (output,) = program.run(*given)
    assert torch.equal(Runner("times", program.buffer).run(given[:1])[0], output)
    with pytest.raises(InvalidOptionError) as caught:
        program.run(given[0], 4)
    assert str(caught.value) == (
        "'times': input 1 is 4; the program was made for 3. Export the model again for another value."
    )


class Times(nn.Module):
    def forward(self, x: torch.Tensor, factor: int) -> torch.Tensor:
        return F.relu(x) * factor
