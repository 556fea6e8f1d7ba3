# SPDX-License-Identifier: BSD-3-Clause
"""One compile of a convolution and a ReLU runs each stage once."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest
import torch

import openneutron
from openneutron.pytorch.partition import gather

PACKAGE = Path(openneutron.__file__).parent

ONCE = (
    "pytorch/operators/convolution.py convolution",
    "pytorch/backend/compile_spec.py encode",
    "pytorch/backend/compile_spec.py decode",
    "compiler/legalize/legalize.py legalize",
    "compiler/rewrite/passes.py select_calls",
    "compiler/emit/packing.py _weight_blocks",
    "compiler/emit/emit.py emit",
    "isa/payload.py pack",
)
"""A convolution's rule is the support check and the lowering; its weights are packed once."""

MOST_REJECTS = 6
"""Checks of operators against their limits: a convolution and two transposes, when added and in the whole graph."""
MOST_FILES = 37
MOST_FUNCTIONS = 336
"""Files and functions of ``api`` and ``pytorch`` that run, without comprehensions and generator expressions."""


class ConvRelu(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.conv(x))


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """Count the calls of the package's functions by file and name."""
    calls: Counter[str] = Counter()
    files: dict[str, str] = {}

    def note(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            code = frame.f_code
            if code.co_filename not in files:
                path = Path(code.co_filename)
                files[code.co_filename] = str(path.relative_to(PACKAGE)) if path.is_relative_to(PACKAGE) else ""
            if files[code.co_filename] and not code.co_name.startswith("<"):
                calls[f"{files[code.co_filename]} {code.co_qualname}"] += 1

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield calls
    finally:
        sys.setprofile(before)


def test_a_compile_runs_each_stage_once() -> None:
    torch.manual_seed(0)
    model, inputs = ConvRelu().eval(), (torch.randn(1, 3, 16, 16),)
    openneutron.compile(model, inputs, calibration=[inputs])
    with counted() as calls:
        openneutron.compile(model, inputs, calibration=[inputs])
    assert {name: calls[name] for name in ONCE} == dict.fromkeys(ONCE, 1)
    assert calls["ops/table.py Op.reject"] <= MOST_REJECTS
    front_end = [name for name in calls if name.startswith(("api/", "pytorch/"))]
    assert len({name.split(" ")[0] for name in front_end}) <= MOST_FILES
    assert len(front_end) <= MOST_FUNCTIONS


def test_a_partition_that_is_not_the_one_handed_over_is_lowered_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """The payload is the same either way."""
    torch.manual_seed(0)
    model, inputs = ConvRelu().eval(), (torch.randn(1, 3, 16, 16),)
    wanted = openneutron.compile(model, inputs, calibration=[inputs]).buffer
    monkeypatch.setattr(gather, "_same", lambda one, other: False)
    with counted() as calls:
        found = openneutron.compile(model, inputs, calibration=[inputs]).buffer
    assert found == wanted
    assert calls["pytorch/operators/convolution.py convolution"] == 2
