# SPDX-License-Identifier: BSD-3-Clause
"""The pictures of README.md and of the site's first page, made from real runs of the commands that they show."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from openneutron.cli import main

COMPILE = "openneutron compile mobilenet_v2 -o mobilenet_v2.pte --sram-budget 400"
PARETO = "openneutron pareto mobilenet_v2 --plot memory.svg"

COLUMNS = 106
"""The width of the terminal in the picture."""

THEME = TerminalTheme(
    (28, 31, 38),
    (214, 218, 224),
    [
        (40, 44, 52),
        (224, 108, 117),
        (152, 195, 121),
        (229, 192, 123),
        (97, 175, 239),
        (198, 120, 221),
        (86, 182, 194),
        (171, 178, 191),
    ],
)

_FONT_FACE = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
"""The fonts that rich's drawings fetch from the network. A reader's own monospaced font takes their place."""


class _Terminal(io.StringIO):
    """A stream that commands take for a terminal."""

    def isatty(self) -> bool:
        return True


@contextlib.contextmanager
def _empty_folder() -> Iterator[Path]:
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            yield Path(folder)
        finally:
            os.chdir(before)


def _run(command: str) -> str:
    """Run a command of ours as on a terminal; return what it wrote to stdout, colours included."""
    stream = _Terminal()
    environment = {"TERM": "xterm-256color", "COLUMNS": str(COLUMNS), "NO_COLOR": ""}
    with mock.patch.dict(os.environ, environment):
        del os.environ["NO_COLOR"]
        with contextlib.redirect_stdout(stream), contextlib.redirect_stderr(io.StringIO()):
            assert main(shlex.split(command)[1:]) == 0, command
    return stream.getvalue()


def terminal_svg() -> str:
    """Return the drawing of a terminal in which MobileNetV2 is compiled."""
    with _empty_folder():
        output = _run(COMPILE)
    console = Console(record=True, file=io.StringIO(), width=COLUMNS, force_terminal=True, highlight=False)
    console.print(Text.assemble(("$ ", "bold green"), (COMPILE, "bold")))
    console.print(Text.from_ansi(output.rstrip("\n")))
    console.print()  # rich's drawing cuts the descenders of the last line
    drawing = console.export_svg(title="openneutron", theme=THEME, unique_id="terminal")
    return "\n".join(line.rstrip() for line in _FONT_FACE.sub("", drawing).splitlines()) + "\n"


def memory_svg() -> str:
    """Return the drawing of MobileNetV2's modelled time for each amount of SRAM."""
    with _empty_folder() as folder:
        _run(PARETO)
        return (folder / "memory.svg").read_text()
