# SPDX-License-Identifier: BSD-3-Clause
"""Print results on stdout, and progress and notes on stderr."""

from __future__ import annotations

import json
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any, Self

import typer

from openneutron.errors import OpenNeutronError

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.progress import Progress, TaskID

    from openneutron.api.result import CompiledResult

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, with all details.")]
Plot = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Draw latency by layer and memory over time: a .png or .svg."),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress and no notes.")]
Verbose = Annotated[
    bool,
    typer.Option(
        "--verbose",
        "-v",
        help="Show each step with its seconds, the configuration file, and the exception behind an error.",
    ),
]

SCHEMA_VERSION = 2
"""The version of the JSON of all commands (docs/reference/json.schema.json).

A new field does not change it. Renaming, removing or redefining a field increments it.
"""

WIDE = 200
"""The width in columns of output that is not shown on a terminal. It is large, so that tables in a file are not
wrapped."""


def show(renderable: RenderableType, command: str, data: Mapping[str, Any], as_json: bool) -> None:
    """Print a table or text, in colour and within the width if stdout is a terminal. With ``as_json``, print ``data``
    as the JSON of the command instead."""
    if as_json:
        print(json.dumps({"schema_version": SCHEMA_VERSION, "command": command, **data}, indent=2))
        return
    from rich.console import Console

    from openneutron.features.report.text import plain

    if sys.stdout.isatty():
        Console(highlight=False, markup=False, emoji=False).print(renderable)
    else:
        sys.stdout.write(plain(renderable, WIDE))


def note(text: str) -> None:
    """Print an important note on stderr, in bold where stderr is a terminal."""
    from rich.console import Console

    Console(stderr=True, highlight=False, soft_wrap=True).print(f"note: {text}", style="bold", markup=False)


def check_plot(path: Path | None) -> None:
    """Raise InvalidOptionError if the picture can't be written, and MissingToolError if none can be drawn. Commands
    call this before they compile."""
    if path is not None:
        from openneutron.device import files
        from openneutron.features.report.page.document import check_format

        check_format(path, "--plot")
        files.check(path)


def plotted(path: Path | None, model: CompiledResult) -> dict[Path, bytes]:
    """Return the picture of a compiled model as the contents of the file to write; an empty dict without a path."""
    if path is None:
        return {}
    from openneutron.features.report.page.page import pictures

    return {path: pictures(model.report_data(pareto=False), path.suffix)}


def detail(text: str) -> None:
    """Print a line on stderr. The callers print details only with --verbose."""
    print(text, file=sys.stderr, flush=True)


WORTH_TELLING_SECONDS = 0.5
"""The shortest step that is reported without a terminal, in seconds."""


STILL_SECONDS = 30.0
"""The interval in seconds at which a step that still runs is reported without a terminal."""


class Steps:
    """Reports the steps of a command; with ``quiet``, nothing.

    On a terminal, a step has a bar. Without a terminal, a long step has a line at its end, and lines while it lasts.
    With ``verbose``, there are no bars, and each step has a line at its end. A call has the name of a step, the
    number of its finished parts and the number of all parts; the step ends when all parts are finished. The time from
    a call to the next one counts for the step of the first.
    """

    def __init__(self, quiet: bool = False, verbose: bool = False) -> None:
        self._quiet, self._verbose = quiet, verbose
        self._bars: Progress | None = None
        self._tasks: dict[str, TaskID] = {}
        self._spent: dict[str, float] = {}
        """The seconds of each step that has begun and has not ended."""
        self._step: str | None = None
        self._since = 0.0
        self._ended = threading.Event()
        self._watch: threading.Thread | None = None

    def __enter__(self) -> Self:
        if not self._quiet and not self._verbose and _on_terminal():
            from rich.console import Console

            from openneutron.cli.bars import bars

            self._bars = bars(Console(stderr=True, highlight=False), self.seconds)
            self._bars.start()
        elif not self._quiet:
            self._watch = threading.Thread(target=self.watch, daemon=True)
            self._watch.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._watch is not None:
            self._watch.join()
        if error is None:
            self._charge(None)
            for step in list(self._spent):
                self._finish(step)
        if self._bars is not None:
            self._bars.stop()
        if self._verbose and isinstance(error, OpenNeutronError) and error.__cause__ is not None:
            sys.stderr.writelines([*getattr(error, "__notes__", ()), *traceback.format_exception(error.__cause__)])

    def __call__(self, step: str, done: int, total: int) -> None:
        if self._quiet:
            return
        self._charge(step)
        if self._bars is not None:
            if step not in self._tasks:
                self._tasks[step] = self._bars.add_task(step, total=total, remark="")
            elif not done:
                self._bars.reset(self._tasks[step], total=total)
            self._bars.update(self._tasks[step], completed=done, total=total)
        if done >= total:
            self._charge(None)
            self._finish(step)

    def watch(self) -> None:
        """Print each step that takes longer than STILL_SECONDS: one line every STILL_SECONDS until the end."""
        while not self._ended.wait(STILL_SECONDS):
            step = self._step
            if step is not None and self.seconds(step) >= STILL_SECONDS:
                print(f"{step}: {self.seconds(step):.0f} s until now", file=sys.stderr, flush=True)

    def remark(self, step: str, text: str) -> None:
        """Show a remark beside the bar of a step that has begun."""
        if self._bars is not None and step in self._tasks:
            self._bars.update(self._tasks[step], remark=text)

    def seconds(self, step: str) -> float:
        """Return the seconds that a step has taken until now, without those of the steps inside it; 0 for a step that
        has not begun."""
        return self._spent.get(step, 0.0) + (time.monotonic() - self._since if step == self._step else 0.0)

    def _charge(self, step: str | None) -> None:
        """Add the time since the last call to the step that ran since then. From now on the time counts for ``step``."""
        now = time.monotonic()
        if self._step is not None:
            self._spent[self._step] += now - self._since
        self._step, self._since = step, now
        if step is not None:
            self._spent.setdefault(step, 0.0)

    def _finish(self, step: str) -> None:
        if self._bars is not None:
            self._bars.update(self._tasks[step], completed=self._bars.tasks[self._tasks[step]].total)
            return
        seconds = self._spent.pop(step)
        if not self._quiet and seconds >= (0 if self._verbose else WORTH_TELLING_SECONDS):
            print(f"{step}: {seconds:.1f} s", file=sys.stderr, flush=True)


def _on_terminal() -> bool:
    """Return whether stderr is a terminal. rich could answer this too, but its console takes time to import."""
    return sys.stderr is not None and sys.stderr.isatty()
