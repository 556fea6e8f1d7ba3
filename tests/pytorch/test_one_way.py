# SPDX-License-Identifier: BSD-3-Clause
"""One compile of a convolution and a ReLU runs each stage once."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import FrameType

import pytest
import torch

import openneutron
from openneutron import litert
from openneutron.pytorch.partition import gather

PACKAGE = Path(openneutron.__file__).parent

ONCE = (
    "pytorch/operators/convolution.py convolution",
    "pytorch/backend/neutron_target_spec.py encode_specs",
    "pytorch/backend/neutron_target_spec.py decode_specs",
    "compiler/legalize/legalize.py legalize",
    "compiler/rewrite/passes.py select_calls",
    "compiler/emit/emit.py _weight_blocks",
    "compiler/emit/emit.py emit",
    "isa/payload.py pack",
)
"""A convolution's rule is the support check and the lowering; its weights are packed once."""

MOST_REJECTS = 3
"""Checks of operators against their limits: a convolution and two transposes, when they are added to the graph."""
MOST_FILES = 27
MOST_FUNCTIONS = 333
"""Files and functions of ``api`` and ``pytorch`` that run, without comprehensions and generator expressions."""


@dataclass(frozen=True, slots=True)
class Way:
    """The most that one compile runs of the whole package: files, functions, and changes of file.

    A change of file is a call of a function in another file than the function that was called before.
    """

    files: int
    functions: int
    changes: int

    @classmethod
    def of(cls, calls: Sequence[str]) -> Way:
        """Return the way of calls, each a file and a function."""
        files = [call.split(" ")[0] for call in calls]
        return cls(len(set(files)), len(set(calls)), sum(one != other for one, other in pairwise(files)))

    def is_within(self, most: Way) -> bool:
        return self.files <= most.files and self.functions <= most.functions and self.changes <= most.changes


FROM_PYTORCH = Way(70, 740, 1487)
FROM_TFLITE = Way(45, 458, 1141)
"""The second compile of the same convolution and ReLU, from PyTorch and from a ``.tflite``."""


class ConvRelu(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.conv(x))


@contextmanager
def counted() -> Iterator[list[str]]:
    """List the calls of the package's functions in their order, each as file and name."""
    calls: list[str] = []
    files: dict[str, str] = {}

    def note(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            code = frame.f_code
            if code.co_filename not in files:
                path = Path(code.co_filename)
                files[code.co_filename] = str(path.relative_to(PACKAGE)) if path.is_relative_to(PACKAGE) else ""
            if files[code.co_filename] and not code.co_name.startswith("<"):
                calls.append(f"{files[code.co_filename]} {code.co_qualname}")

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
    with counted() as called:
        openneutron.compile(model, inputs, calibration=[inputs])
    calls = Counter(called)
    assert {name: calls[name] for name in ONCE} == dict.fromkeys(ONCE, 1)
    assert calls["ops/table.py Op.reject"] <= MOST_REJECTS
    front_end = [name for name in calls if name.startswith(("api/", "pytorch/"))]
    assert len({name.split(" ")[0] for name in front_end}) <= MOST_FILES
    assert len(front_end) <= MOST_FUNCTIONS
    way = Way.of(called)
    assert way.is_within(FROM_PYTORCH), way


def test_a_compile_of_a_litert_file_goes_a_short_way(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, inputs = ConvRelu().eval(), (torch.randn(1, 3, 16, 16),)
    (part,) = openneutron.compile(model, inputs, calibration=[inputs]).partitions
    path = tmp_path / "small.tflite"
    path.write_bytes(litert.write(part.graph))
    openneutron.compile(path)
    with counted() as called:
        openneutron.compile(path)
    way = Way.of(called)
    assert way.is_within(FROM_TFLITE), way


def test_a_partition_that_is_not_the_one_handed_over_is_lowered_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """The payload is the same either way."""
    torch.manual_seed(0)
    model, inputs = ConvRelu().eval(), (torch.randn(1, 3, 16, 16),)
    wanted = openneutron.compile(model, inputs, calibration=[inputs]).buffer
    monkeypatch.setattr(gather, "_same", lambda one, other: False)
    with counted() as calls:
        found = openneutron.compile(model, inputs, calibration=[inputs]).buffer
    assert found == wanted
    assert calls.count("pytorch/operators/convolution.py convolution") == 2
