# SPDX-License-Identifier: BSD-3-Clause
"""A slice of PyTorch's operator samples, in full; ``python -m tests.suites.op_db`` runs them all."""

from __future__ import annotations

import os

import pytest
import torch
from torch import Tensor

from tests.suites.op_db.measure import CPU, FAILED, NOT_RUN, NOTHING, REFUSED, WHOLE, WRONG, Outcome, outcomes
from tests.suites.op_db.page import page
from tests.suites.op_db.samples import Sample, operators, samples_of

WHOLE_SLICE = ("abs", "cat", "cosh", "cumsum", "exp", "mean", "softmax", "nn.functional.gelu")
SAMPLES = 2


@pytest.mark.parametrize("name", WHOLE_SLICE)
def test_delegated_whole(name: str) -> None:
    samples = [sample for sample in samples_of(operators()[name], SAMPLES) if all(t.numel() for t in sample.tensors)]
    found = outcomes(samples)
    assert [item.kind for item in found] == [WHOLE] * len(samples), found


def test_a_number_is_refused_as_a_result() -> None:
    (found,) = outcomes(samples_of(operators()["item"], 1))
    assert found == Outcome(
        REFUSED,
        (
            "'sample': its result 0 is a number that is read from a tensor (item); results are tensors. Return the tensor, "
            "without item().",
        ),
    )


def test_a_crash_is_an_outcome() -> None:
    def crash(x: Tensor) -> Tensor:
        os._exit(3)

    (found,) = outcomes([Sample((torch.ones(2),), crash)])
    assert found == Outcome(FAILED, ("the process ends with exit code 3",))


def test_a_copy_of_a_view_is_the_view() -> None:
    """The second sample has no element; ExecuTorch's kernel of narrow_copy ends the process there."""
    samples = samples_of(operators()["narrow_copy"], SAMPLES)
    assert [item.kind for item in outcomes(samples)] == [WHOLE, NOTHING]


def test_the_page_counts_operators_and_samples() -> None:
    text = page(
        {
            "abs": [Outcome(WHOLE, (), 48.0, 48.0)],
            "sort": [Outcome(NOT_RUN, ("aten.sort.default: it puts values in order", "message"))],
            "both": [Outcome(WHOLE), Outcome(CPU, ("aten.x.default: its result has 3 extents",))],
            "bad": [
                Outcome(WRONG, ("1.0 dB; exact between int8 values it is 40.0",)),
                Outcome(FAILED, ("KeyError: 1",)),
            ],
            "none": [],
        },
        2,
    )
    assert "| delegated whole | 1 | 2 |" in text
    assert "| delegated in part | 1 | 0 |" in text
    assert "| failed with an exception | 1 | 1 |" in text
    assert "| all | 4 | 6 |" in text
    assert "| 1 | its result has … extents |" in text
    assert "| `both` | 1 delegated whole, 1 on the CPU |" in text
    assert "none" not in text
