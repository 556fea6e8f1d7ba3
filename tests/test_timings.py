# SPDX-License-Identifier: BSD-3-Clause
"""The clock of a compile. Times are counted here, not measured: the clock's two readings are a counter."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path

import pytest

import openneutron
from openneutron import litert
from openneutron.cli import main
from openneutron.device import timings
from openneutron.device.timings import OTHER, StepTime, Timings, advance, measured, step
from scripts.published_networks import cifarnet


@pytest.fixture
def ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    """One second of wall time, and half a second of CPU time, from each reading of the clock to the next."""
    reading = count()
    monkeypatch.setattr(timings, "_now", lambda: (float(second := next(reading)), second / 2))


@pytest.mark.usefixtures("ticks")
def test_time_is_charged_to_the_innermost_step() -> None:
    told: list[tuple[str, int, int]] = []
    with measured(lambda *call: told.append(call)) as clock:
        with step("outer"):
            with step("inner", 2):
                advance(1, 2)
                advance(2, 2)
            with step("inner"):
                pass
        with step("last"):
            pass
    assert clock.timings == Timings(
        (StepTime("outer", 3, 1.5), StepTime("inner", 2, 1), StepTime("last", 1, 0.5), StepTime(OTHER, 3, 1.5))
    )
    assert (clock.timings.wall_seconds, clock.timings.cpu_seconds) == (9, 4.5)
    assert told == [
        ("outer", 0, 1),
        ("inner", 0, 2),
        ("inner", 1, 2),
        ("inner", 2, 2),
        ("outer", 0, 1),
        ("inner", 0, 1),
        ("inner", 1, 1),
        ("outer", 0, 1),
        ("outer", 1, 1),
        ("last", 0, 1),
        ("last", 1, 1),
    ]


@pytest.mark.usefixtures("ticks")
def test_a_step_that_fails_is_not_reported_as_finished() -> None:
    told: list[tuple[str, int, int]] = []
    with (
        pytest.raises(ZeroDivisionError),
        measured(lambda *call: told.append(call)) as clock,
        step("outer"),
        step("inner"),
    ):
        print(1 // 0)
    assert told == [("outer", 0, 1), ("inner", 0, 1)]
    assert [item.step for item in clock.timings.steps] == ["outer", "inner", OTHER]


def test_steps_outside_of_a_compile_are_not_measured() -> None:
    with step("alone"):
        advance(1, 2)
    with measured() as clock:
        advance(1, 2)
    assert [item.step for item in clock.timings.steps] == [OTHER]


def test_times_of_several_clocks_have_one_entry_for_a_name() -> None:
    before = Timings((StepTime("load", 1, 1), StepTime(OTHER, 2, 1)))
    after = Timings((StepTime("load", 2, 0), StepTime("write", 1, 1), StepTime(OTHER, 1, 1)))
    assert before + after == Timings((StepTime("load", 3, 1), StepTime("write", 1, 1), StepTime(OTHER, 3, 2)))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "net.tflite"
    path.write_bytes(litert.write(cifarnet()))
    return path


STEPS = ["Reading", "Partitioning", "Compiling", "Writing"]


def test_a_compiled_model_has_its_times(model: Path) -> None:
    made = openneutron.compile(model)
    assert [item.step for item in made.timings.steps] == [*STEPS, OTHER]
    assert "timings" not in made.report.to_dict()


def test_the_command_prints_the_times(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["compile", str(model), "-o", str(tmp_path / "out.tflite"), "-q"]
    assert main([*command, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)["timings"]
    assert [item["step"] for item in data["steps"]] == [*STEPS, "Saving", OTHER]
    assert data["cpu_seconds"] == pytest.approx(sum(item["cpu_seconds"] for item in data["steps"]))
    assert set(data) == {"wall_seconds", "cpu_seconds", "steps"}
    assert main(["compile", str(model), "-o", str(tmp_path / "out.tflite"), "--timings"]) == 0
    lines = capsys.readouterr().out.split("Time of the compile\n")[1].splitlines()
    assert lines[0].split("  ")[0] == "step" and lines[0].endswith("share of CPU")
    assert [line.split("  ")[0] for line in lines[1:]] == [*STEPS, "Saving", OTHER, "All"]
