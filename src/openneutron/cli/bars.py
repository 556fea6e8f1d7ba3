# SPDX-License-Identifier: BSD-3-Clause
"""Show a bar for each step of a command on a terminal. Other output does not import this module, because rich's
progress takes time to import."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, SpinnerColumn, Task, TextColumn
from rich.text import Text

MINUTE = 60
"""Seconds of a minute."""


def bars(console: Console, seconds: Callable[[str], float]) -> Progress:
    """Return progress bars that show each step's seconds, the time that is left, and the field ``remark``.

    ``seconds`` returns the seconds that the step of a name has taken until now.
    """
    return Progress(
        SpinnerColumn(finished_text="[green]ok[/]"),
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        _Seconds(seconds),
        TextColumn("[bold]{task.fields[remark]}"),
        console=console,
    )


def left(seconds: float, done: float, total: float) -> str:
    """Return the time that is left if each part takes as long as those before it. The text is empty before the first
    part is done, and at the end.

    >>> left(12.0, 4, 100)
    '4:48 left'
    """
    if not 0 < done < total:
        return ""
    rest = round(seconds / done * (total - done))
    return f"{rest} s left" if rest < MINUTE else f"{rest // MINUTE}:{rest % MINUTE:02} left"


class _Seconds(ProgressColumn):
    """A column with the seconds that a step has taken, as ``seconds`` returns them for its name, and the time that is
    left."""

    def __init__(self, seconds: Callable[[str], float]) -> None:
        super().__init__()
        self._seconds = seconds

    def render(self, task: Task) -> Text:
        spent = self._seconds(task.description)
        # The parts of a step take the time of the steps inside it too.
        rest = left(task.elapsed or 0.0, task.completed, task.total or 0)
        return Text(", ".join(filter(None, (f"{spent:.1f} s", rest))), style="progress.elapsed")
