# SPDX-License-Identifier: BSD-3-Clause
"""The bars of a command on a terminal: the seconds of a step, those that are left, and the best result so far."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from openneutron.cli import output
from openneutron.cli.bars import bars, left
from openneutron.device.timings import measured, remark, step
from openneutron.features.sweep import Compiling, grid, opened, run
from openneutron.options import CompileOptions, QuantizationOptions


@pytest.mark.parametrize(
    ("seconds", "done", "total", "text"),
    [
        (10.0, 0, 5, ""),
        (10.0, 5, 5, ""),
        (10.0, 1, 5, "40 s left"),
        (59.0, 1, 2, "59 s left"),
        (60.0, 1, 2, "1:00 left"),
        (100.0, 1, 41, "66:40 left"),
    ],
)
def test_the_time_left_is_that_of_the_parts_that_are_missing(seconds: float, done: int, total: int, text: str) -> None:
    assert left(seconds, done, total) == text


def test_a_bar_has_its_step_its_parts_both_times_and_the_remark() -> None:
    screen = io.StringIO()
    shown = bars(Console(file=screen, width=120, highlight=False), lambda name: {"Searching measures": 2.5}[name])
    now = 10.0
    shown.get_time = lambda: now
    shown.add_task("Searching measures", total=5, completed=3, remark="28.1 of 30.0 dB")
    now = 16.0
    shown.console.print(shown.get_renderable())
    _, parts = screen.getvalue().replace("\u2501", "").split("Searching measures")
    assert parts.split() == ["3/5", "2.5", "s,", "4", "s", "left", "28.1", "of", "30.0", "dB"]


class Remarks:
    """A progress that keeps remarks."""

    def __init__(self) -> None:
        self.said: list[tuple[str, str]] = []

    def __call__(self, step: str, done: int, total: int) -> None: ...

    def remark(self, step: str, text: str) -> None:
        self.said.append((step, text))


def test_a_remark_is_shown_beside_the_innermost_step() -> None:
    kept = Remarks()
    with measured(kept), step("outer"), step("inner"):
        remark("21.0 dB")
    with measured(lambda *_: None), step("a progress without remarks"):
        remark("nothing")
    remark("no compile runs")
    assert kept.said == [("inner", "21.0 dB")]


def test_remarks_need_a_bar() -> None:
    with output.Steps(quiet=True) as steps:
        steps("Sweeping", 0, 1)
        steps.remark("Sweeping", "fastest 2 ms")
    with output.Steps() as steps:
        steps("Sweeping", 0, 1)
        steps.remark("Sweeping", "fastest 2 ms")


def test_a_sweep_remarks_its_best_points(tmp_path: Path) -> None:
    class Program:
        def __init__(self, budget: int) -> None:
            self.budget = budget
            self.compile_options = CompileOptions()

        def can_recompile(self, options: CompileOptions) -> bool:
            return True

        def recompile(self, **changes: Any) -> Program:
            return Program(changes["sram_budget"])

    kept = Remarks()
    names = ("sram_bytes", "modelled_ms", "expected_ms")
    figures = {10: (10 * 1024, 4.0, (3, 5)), 20: (19 * 1024 + 1, 2.5, (2, 3)), 30: (30 * 1024, 2.5, (2, 3))}
    work = Compiling(
        lambda options, quantization: Program(options.sram_budget or 0),
        lambda made, quantization: dict(zip(names, figures[made.budget // 1024], strict=True)),
        QuantizationOptions(),
    )
    with opened(tmp_path / "t.sqlite", {"model": "m"}) as table:
        run(grid({"sram_budget": "10,20,30"}), table, work, kept)  # the largest first
    assert [text for _, text in kept.said] == [
        "",
        "fastest 2.50 ms (2.0 to 3.0), least SRAM 30 KiB",
        "fastest 2.50 ms (2.0 to 3.0), least SRAM 20 KiB",
    ]


def test_a_long_step_is_reported_while_it_lasts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = output.Steps()
    waits = iter([False, False, False, True])
    asked: list[float] = []

    def wait(seconds: float) -> bool:
        asked.append(seconds)
        return next(waits)

    monkeypatch.setattr(steps._ended, "wait", wait)
    monkeypatch.setattr(steps, "seconds", lambda _step: 30.0 * len(asked) - 26.0)
    steps("Searching", 0, 1)
    steps.watch()
    assert capsys.readouterr().err == "Searching: 34 s until now\nSearching: 64 s until now\n"
    assert asked == [output.STILL_SECONDS] * 4
