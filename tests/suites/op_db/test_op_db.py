# SPDX-License-Identifier: BSD-3-Clause
"""A slice of PyTorch's operator samples, in full; ``python -m tests.suites.op_db`` runs them all."""

from __future__ import annotations

import os

import pytest
import torch
from torch import Tensor

from tests.suites.op_db.measure import (
    CPU,
    EMPTY,
    FAILED,
    NOT_RUN,
    NOTHING,
    PART,
    REFUSED,
    WHOLE,
    WRONG,
    Outcome,
    outcomes,
    outcomes_here,
)
from tests.suites.op_db.page import kind_of, page
from tests.suites.op_db.samples import Sample, operators, samples_of

WHOLE_SLICE = ("abs", "cat", "cosh", "cumsum", "exp", "mean", "softmax", "nn.functional.gelu")
SAMPLES = 2
CHIPS = ("imxrt700", "imx95")


@pytest.mark.parametrize("name", WHOLE_SLICE)
def test_delegated_whole(name: str) -> None:
    samples = [sample for sample in samples_of(operators()[name], SAMPLES) if all(t.numel() for t in sample.tensors)]
    found = outcomes(samples, CHIPS)
    assert [tuple(item.kind for item in items) for items in found] == [(WHOLE, WHOLE)] * len(samples), found


def test_a_number_is_refused_as_a_result() -> None:
    ((found, _),) = outcomes(samples_of(operators()["item"], 1), CHIPS)
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

    (found,) = outcomes([Sample((torch.ones(2),), crash)], CHIPS)
    assert found == (Outcome(FAILED, ("the process ends with exit code 3",)),) * 2


def test_a_copy_of_a_view_is_the_view() -> None:
    """The second sample has no element, and is a constant; ExecuTorch's kernel of narrow_copy ends the process there."""
    samples = samples_of(operators()["narrow_copy"], SAMPLES)
    assert [item.kind for (item,) in outcomes(samples, CHIPS[:1])] == [WHOLE, NOTHING]


def test_the_page_counts_operators_and_samples() -> None:
    found = {
        "abs": [Outcome(WHOLE, (), 48.0, 48.0)],
        "sort": [Outcome(NOT_RUN, ("aten.sort.default: it puts values in order", "message"))],
        "both": [Outcome(WHOLE), Outcome(CPU, ("aten.x.default: its result has 3 extents",))],
        "bad": [
            Outcome(WRONG, ("1.0 dB; exact between int8 values it is 40.0",)),
            Outcome(FAILED, ("KeyError: 1",)),
        ],
        "edges": [Outcome(WHOLE), Outcome(EMPTY, ("aten.x.default: its result has shape [0]",)), Outcome(NOTHING)],
        "none": [],
    }
    text = page({"imxrt700": found, "imx95": {**found, "both": [Outcome(WHOLE), Outcome(WHOLE)]}}, 2)
    assert "python -m tests.suites.op_db --samples 2 --target imxrt700 --target imx95 --write" in text
    assert "| outcome | imxrt700: operators | imxrt700: samples | imx95: operators | imx95: samples |" in text
    assert "| delegated whole | 2 | 3 | 3 | 4 |" in text
    assert "| delegated in part | 1 | 0 | 0 | 0 |" in text
    assert "| failed with an exception | 1 | 1 | 1 | 1 |" in text
    assert "| all | 5 | 9 | 5 | 9 |" in text
    assert "| 1 | 0 | its result has … extents |" in text
    assert "| `both` | 1 delegated whole, 1 on the CPU | 2 delegated whole |" in text
    assert "none" not in text


def test_the_outcome_of_an_operator_with_several_kinds() -> None:
    kinds = {
        (WHOLE, EMPTY, NOTHING): WHOLE,
        (WHOLE, CPU): PART,
        (PART, REFUSED): PART,
        (CPU, REFUSED): CPU,
        (WHOLE, NOT_RUN): NOT_RUN,
        (EMPTY, NOTHING): NOTHING,
    }
    assert {given: kind_of([Outcome(kind) for kind in given]) for given in kinds} == kinds


def test_a_chip_compiled_anew_has_the_outcomes_of_its_own_compile() -> None:
    samples = samples_of(operators()["cat"], SAMPLES)
    both = outcomes_here(samples, CHIPS)
    assert [items[1:] for items in both] == outcomes_here(samples, CHIPS[1:])
