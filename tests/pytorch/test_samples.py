# SPDX-License-Identifier: BSD-3-Clause
"""Calibration samples in all forms in which people have them, and samples that poison a calibration."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from openneutron.errors import InvalidOptionError, OpenNeutronWarning
from openneutron.pytorch.source.calibration_data import samples
from openneutron.pytorch.source.exporting import ModelInputs

ROWS = torch.arange(24.0).reshape(4, 2, 3)
ONE = ModelInputs((torch.zeros(1, 2, 3),), {}, ("x",))
TWO = ModelInputs((torch.zeros(1, 2, 3), torch.zeros(1, 5, dtype=torch.int64)), {}, ("x", "ids"))
NAMED = ModelInputs((), {"x": torch.zeros(1, 2, 3)}, ("x",))
IDS = torch.arange(20).reshape(4, 5)

ALL: dict[str, tuple[Any, ModelInputs]] = {
    "tensors": ([row[None] for row in ROWS], ONE),
    "tuples": ([(row[None],) for row in ROWS], ONE),
    "without a batch axis": (list(ROWS), ONE),
    "one tensor": (ROWS, ONE),
    "one tensor of batches": (ROWS[:, None], ONE),
    "one array": (ROWS.numpy(), ONE),
    "arrays of doubles": ([row.numpy().astype(np.float64) for row in ROWS], ONE),
    "a generator": ((row[None] for row in ROWS), ONE),
    "with labels": ([(row[None], torch.tensor([3])) for row in ROWS], ONE),
    "with numbers as labels": ([(row, 3) for row in ROWS.numpy()], ONE),
    "batches with labels": ([(ROWS[:2], IDS[:2]), (ROWS[2:], IDS[2:])], ONE),
    "a tensor for each input": ((ROWS, IDS), TWO),
    "arrays for two inputs": ([(row.numpy(), ids.numpy()) for row, ids in zip(ROWS, IDS, strict=True)], TWO),
    "two inputs and a label": ([(ROWS, IDS, IDS[:, 0])], TWO),
    "one dict": ({"x": ROWS}, NAMED),
    "dicts of arrays": ([{"x": row.numpy()} for row in ROWS], NAMED),
}


@pytest.mark.parametrize(("given", "wanted"), ALL.values(), ids=ALL)
def test_every_form_gives_the_same_samples(given: Any, wanted: ModelInputs) -> None:
    calls = list(samples(given, wanted))
    assert torch.equal(torch.cat([call.tensors[0] for call in calls]), ROWS)
    if wanted is TWO:
        assert torch.equal(torch.cat([call.tensors[1] for call in calls]), IDS)


TEXTS = "the example input is torch.float32 [1, 2, 3]."
REFUSED: dict[str, tuple[Any, ModelInputs, str]] = {
    "a function": (
        lambda: None,
        ONE,
        "calibration: a function is a function; pass what it returns. Pass a list of samples, each a tuple of the model's "
        "arguments.",
    ),
    "a number": (
        3,
        ONE,
        "calibration: a int is no iterable. Pass a list of samples, each a tuple of the model's arguments.",
    ),
    "a dict": (
        {"x": ROWS},
        ONE,
        "calibration: it is a dict, one sample by names. Pass a list of samples, each a tuple of the model's arguments.",
    ),
    "a dict as a sample": ([{"x": ROWS}], ONE, "calibration: sample 0 is (dict); the example inputs are (Tensor)."),
    "another shape": ([np.zeros((7, 7))], ONE, f"calibration: sample 0 has torch.float32 [7, 7] for input 0; {TEXTS}"),
    "bytes": (
        [np.zeros((2, 3), np.uint8)],
        ONE,
        f"calibration: sample 0 has torch.uint8 [1, 2, 3] for input 0; {TEXTS}",
    ),
    "texts": (
        [np.array(["a"] * 99)],
        ONE,
        f"calibration: sample 0 has an array of <U1 [99] for input 0; {TEXTS}",
    ),
    "an input too few": ([(ROWS,)], TWO, "calibration: sample 0 has 1 parts; the model has 2 tensor inputs."),
    "NaN": (
        [ROWS, torch.full((1, 2, 3), math.nan)],
        ONE,
        "calibration: sample 1 has NaN in input 0 ('x'); int8 scales come from finite values. Repair the sample, or leave it "
        "out.",
    ),
    "infinity": (
        [ROWS, (ROWS[0].numpy() / 0.0,)],
        ONE,
        "calibration: sample 1 has NaN in input 0 ('x'); int8 scales come from finite values. Repair the sample, or leave it "
        "out.",
    ),
    "one infinity": (
        torch.tensor([[1.0, 2, 3], [4, 5, -math.inf]]),
        ONE,
        "calibration: sample 0 has an infinite value in input 0 ('x'); int8 scales come from finite values. Repair the "
        "sample, or leave it out.",
    ),
}


@pytest.mark.filterwarnings("ignore:divide by zero", "ignore:invalid value")
@pytest.mark.parametrize(("given", "wanted", "message"), REFUSED.values(), ids=REFUSED)
def test_other_samples_are_refused(given: Any, wanted: ModelInputs, message: str) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        list(samples(given, wanted))
    assert str(caught.value) == message


def test_a_mask_may_have_minus_infinity() -> None:
    mask = torch.zeros(1, 2, 3)
    mask[0, 0, 1:] = -math.inf
    (call,) = samples([mask], ONE)
    assert torch.equal(call.tensors[0], mask)


WARNED: dict[str, tuple[Callable[[], Any], str]] = {
    "zeros": (
        lambda: torch.zeros(4, 2, 3),
        "calibration: every value of input 0 ('x') is 0 in all samples, so that its int8 range is that of 0. Pass typical "
        "inputs.",
    ),
    "a constant": (
        lambda: torch.full((4, 2, 3), 0.5),
        "calibration: every value of input 0 ('x') is 0.5 in all samples, so that its int8 range is that of 0.5. Pass "
        "typical inputs.",
    ),
    "one sample out of scale": (
        lambda: [ROWS[:2], ROWS[2:] * 5000],
        "calibration: input 0 ('x') reaches 115000 in sample 1 and at most 11 in all others, which leaves them few of the "
        "256 steps of int8. Leave the sample out if it is not typical.",
    ),
}


@pytest.mark.parametrize(("given", "message"), WARNED.values(), ids=WARNED)
def test_samples_that_waste_the_range_are_named(given: Callable[[], Any], message: str) -> None:
    with pytest.warns(OpenNeutronWarning) as found:
        list(samples(given(), ONE))
    assert [str(item.message) for item in found] == [message]
