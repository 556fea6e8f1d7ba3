# SPDX-License-Identifier: BSD-3-Clause
"""Runs the code of tutorials and inserts its output: ``python -m scripts.run_pages OUT.json PAGE...``

Each page runs in an empty folder of its own, from top to bottom, in one process for all pages, so that PyTorch is imported
once. Blocks of a page:

* ```` ```python ```` runs; all blocks of a page share their names.
* ```` ```python title="net.py" ```` is written to that file.
* ```` ```sh ```` runs line by line. ``openneutron`` runs in this process, as on a terminal of ``COLUMNS`` columns.

A comment above a block changes the run: ``<!-- run: exit=2 -->`` expects another exit code and shows stderr, ``lines=9`` shows
the first lines, ``says="2 of 3"`` fails without this text in the output (several times: all of them, in this order), ``shows=a.svg`` inserts a drawing that the block wrote, ``needs=qemu-system-arm,cmake`` leaves the block out where a program is absent, ``no`` neither runs nor writes the block.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import types
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

COLUMNS = 118
"""The width of tables in the output of commands; wider code blocks get scroll bars."""

_BLOCK = re.compile(
    r"^(?:<!-- run: (?P<words>[^>]*?) -->\n+)?```(?P<language>python|sh)(?: title=\"(?P<file>[^\"]+)\")?\n(?P<code>.*?)^```\n",
    re.DOTALL | re.MULTILINE,
)


class BlockError(Exception):
    """A block of a page failed; the message has its code and its output."""


@dataclass(frozen=True, slots=True)
class Directive:
    """The words of the comment above a block."""

    exit_code: int = 0
    lines: int | None = None
    needs: tuple[str, ...] = ()
    says: tuple[str, ...] = ()
    shows: str | None = None
    run: bool = True

    @classmethod
    def of(cls, words: str) -> Directive:
        """Return the directive of ``exit=2 lines=9 needs=cmake``, or of ``no``."""
        pairs = [word.partition("=")[::2] for word in shlex.split(words)]
        given, says = dict(pairs), tuple(value for key, value in pairs if key == "says")
        unknown = given.keys() - {"exit", "lines", "needs", "says", "shows", "no"}
        assert not unknown, f"run: unknown words: {unknown}"
        lines = int(given["lines"]) if "lines" in given else None
        needs = tuple(filter(None, given.get("needs", "").split(",")))
        return cls(int(given.get("exit", 0)), lines, needs, says, given.get("shows"), "no" not in given)

    @property
    def absent(self) -> list[str]:
        """Return the programs that the block needs and that are not installed."""
        return [program for program in self.needs if shutil.which(program) is None]


@dataclass(slots=True)
class Session:
    """The run of one page: its folder is the working directory, its blocks share the names of ``module``."""

    page: str
    module: types.ModuleType = field(default_factory=lambda: types.ModuleType("__main__"))

    def replaced(self, block: re.Match[str]) -> str:
        """Return a block without its comment, followed by its output."""
        directive = Directive.of(block["words"] or "")
        shown = re.sub(r"^<!-- run: [^>]* -->\n+", "", block[0])
        if not directive.run:
            return shown
        if block["file"]:
            Path(block["file"]).write_text(block["code"])
            return shown
        if directive.absent:
            assert not os.environ.get("CI"), f"{self.page}: CI must have {directive.absent}"
            return f"{shown}\nNot run when this page was built: {', '.join(directive.absent)} was not installed.\n"
        output = self._python(block["code"]) if block["language"] == "python" else self._shell(block["code"], directive)
        found = 0
        for words in directive.says:
            found = output.find(words, found) + 1
            if not found:
                raise self._failed(block["code"], f"{output}the output lacks '{words}'")
        if output.strip():
            shown += f"\n{_framed(output, directive.lines)}"
        if directive.shows is not None:
            shown += f'\n<div class="drawing">\n{Path(directive.shows).read_text()}</div>\n'
        return shown

    def _python(self, code: str) -> str:
        printed, errors = io.StringIO(), io.StringIO()
        sys.modules["__main__"] = self.module
        try:
            with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(errors):
                exec(compile(code, f"<{self.page}>", "exec"), vars(self.module))
        except Exception as error:
            raise self._failed(code, printed.getvalue() + errors.getvalue() + repr(error)) from error
        return printed.getvalue()

    def _shell(self, code: str, directive: Directive) -> str:
        shown = []
        for line in code.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if not words:
                continue
            ours = words[0] == "openneutron" and not {"|", ">", "&&"} & set(words)
            status, output, errors = _command(words[1:]) if ours else _process(line)
            if status != directive.exit_code:
                raise self._failed(line, f"{output}{errors}exit code {status}, not {directive.exit_code}")
            shown.append(output + (errors if directive.exit_code else ""))
        return "\n".join(filter(None, shown))

    def _failed(self, code: str, output: str) -> BlockError:
        return BlockError(f"{self.page}: this block failed:\n{code}\n{output[-4000:]}")


def _command(arguments: list[str]) -> tuple[int, str, str]:
    """Run a command of ours in this process; return its exit code and what it wrote to both streams."""
    from openneutron.cli import main, output

    output.WIDE = COLUMNS
    printed, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(errors):
        status = main(arguments)
    return status, printed.getvalue(), errors.getvalue()


def _process(line: str) -> tuple[int, str, str]:
    done = subprocess.run(line, shell=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return done.returncode, done.stdout, ""


def _framed(output: str, lines: int | None) -> str:
    """Return the output as a block, of its first lines where a number is given."""
    kept = output.replace(sys.prefix, ".venv").replace(str(Path.cwd()), ".").rstrip("\n").splitlines()
    if lines is not None and len(kept) > lines:
        kept = [*kept[:lines], "..."]
    text = "\n".join(kept)
    return f'<div class="output" markdown>\n\n```text\n{text}\n```\n\n</div>\n'


def run_page(path: Path) -> str:
    """Return a page with the output of its blocks. Raises BlockError where one fails."""
    before = Path.cwd()
    modules = set(sys.modules)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        sys.path.insert(0, folder)
        try:
            return _BLOCK.sub(Session(path.name).replaced, path.read_text())
        finally:
            os.chdir(before)
            sys.path.remove(folder)
            for name in set(sys.modules) - modules:
                _forget(name, Path(folder))


def _forget(name: str, folder: Path) -> None:
    """Remove a module that a page wrote: another page may have one of the same name."""
    file = getattr(sys.modules[name], "__file__", None)
    if file is not None and Path(file).is_relative_to(folder):
        del sys.modules[name]


def main(result: str, *pages: str) -> None:
    """Write the pages with their outputs to a JSON file, by path."""
    done: dict[str, Any] = {page: run_page(Path(page).absolute()) for page in pages}
    Path(result).write_text(json.dumps(done))


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except BlockError as error:
        sys.exit(str(error))
