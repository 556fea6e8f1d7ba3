# SPDX-License-Identifier: BSD-3-Clause
"""Bars for the steps of a command on a terminal. Imported for a terminal alone: rich's progress takes time to import."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, SpinnerColumn, Task, TextColumn
from rich.text import Text


def bars(console: Console, seconds: Callable[[str], float]) -> Progress:
    """Return the bars, each with the seconds of its step; ``seconds`` returns them for the step's name."""
    return Progress(
        SpinnerColumn(finished_text="[green]ok[/]"),
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        _Seconds(seconds),
        console=console,
    )


class _Seconds(ProgressColumn):
    """The seconds of a step alone, as ``seconds`` returns them for its name."""

    def __init__(self, seconds: Callable[[str], float]) -> None:
        super().__init__()
        self._seconds = seconds

    def render(self, task: Task) -> Text:
        return Text(f"{self._seconds(task.description):.1f} s", style="progress.elapsed")
