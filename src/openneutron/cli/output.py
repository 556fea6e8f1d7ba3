# SPDX-License-Identifier: BSD-3-Clause
"""Results on stdout, progress and notes on stderr."""

from __future__ import annotations

import json
import sys
import time
from types import TracebackType
from typing import Annotated, Any, Self

import typer
from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from openneutron.report.text import plain

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, with all details.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]

WIDE = 200
"""The columns of output that is not shown on a terminal: tables in a file are not wrapped."""


def show(renderable: RenderableType, data: Any, as_json: bool) -> None:
    """Print a table or text, coloured and fitted where stdout is a terminal; with ``as_json`` the data instead."""
    if as_json:
        print(json.dumps(data, indent=2))
    elif sys.stdout.isatty():
        Console(highlight=False).print(renderable)
    else:
        sys.stdout.write(plain(renderable, WIDE))


def note(text: str) -> None:
    """Print an important note on stderr, in bold where stderr is a terminal."""
    Console(stderr=True, highlight=False, soft_wrap=True).print(f"note: {text}", style="bold", markup=False)


WORTH_TELLING_SECONDS = 0.5
"""Without a terminal, shorter steps are not reported."""


class Steps:
    """Reports steps in sequence: a bar on a terminal, otherwise a line for each long step at its end.

    A call has the name of a step, the number of its finished parts, and the number of all; a new name ends the step before.
    """

    def __init__(self, quiet: bool = False) -> None:
        self._quiet = quiet
        self._console = Console(stderr=True, highlight=False)
        self._bars: Progress | None = None
        self._bar: TaskID | None = None
        self._step: str | None = None
        self._started = 0.0

    def __enter__(self) -> Self:
        if not self._quiet and self._console.is_terminal:
            self._bars = Progress(
                SpinnerColumn(finished_text="[green]ok[/]"),
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                console=self._console,
            )
            self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self._finish()
        if self._bars is not None:
            self._bars.stop()

    def __call__(self, step: str, done: int, total: int) -> None:
        if self._quiet:
            return
        if step != self._step:
            self._finish()
            self._step, self._started = step, time.monotonic()
            if self._bars is not None:
                self._bar = self._bars.add_task(step, total=total)
        if self._bars is not None and self._bar is not None:
            self._bars.update(self._bar, completed=done, total=total)

    def _finish(self) -> None:
        if self._step is None:
            return
        if self._bars is not None and self._bar is not None:
            total = self._bars.tasks[self._bar].total
            self._bars.update(self._bar, completed=total)
        elif not self._quiet and time.monotonic() - self._started >= WORTH_TELLING_SECONDS:
            print(f"{self._step}: {time.monotonic() - self._started:.1f} s", file=sys.stderr, flush=True)
        self._step = None
