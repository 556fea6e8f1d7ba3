# SPDX-License-Identifier: BSD-3-Clause
"""Convert every exception of a command to a line on stderr and an exit code. No other module does this."""

from __future__ import annotations

import errno
import io
import os
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from openneutron.errors import ConverterError, OpenNeutronError, OpenNeutronWarning, said

DONE = 0
PART_MISSING = 1
USER_FAULT = 2
"""The exit code for a fault of the user or the system. click has the same code for usage errors."""
BUG = 70
"""The exit code for a bug in this project: EX_SOFTWARE of BSD's sysexits.h."""
INTERRUPTED = 130
"""The exit code after an interrupt: 128 plus the number of SIGINT, as in shells."""
CLOSED_PIPE = 141
"""The exit code after the reader of the output has closed the pipe: 128 plus the number of SIGPIPE."""

EXITS = {
    DONE: ("done", "notes"),
    PART_MISSING: ("`doctor` has found a part that is missing or does not work", "nothing"),
    USER_FAULT: (
        "a fault of the user or of the system: wrong usage, a model that can't be compiled, a file that can't be read or written, "
        "too little memory",
        "`error: ...`, one line; of several models one line each (usage errors of options: click's own lines)",
    ),
    BUG: ("a bug in OpenNeutron", "one line that reports the bug"),
    INTERRUPTED: ("interrupted (Ctrl-C), also during imports", "`interrupted`"),
    CLOSED_PIPE: ("the reader of the output closed the pipe (`openneutron targets | head -1`)", "nothing"),
}
"""Every exit code, with its meaning and what is on stderr."""

TRACEBACK = "OPENNEUTRON_TRACEBACK"
"""The environment variable that makes every error show its traceback."""


def ended(command: Callable[[], int]) -> int:
    """Run a command and return the process's exit code, whatever the command raises.

    ``command`` returns the code of a run without an exception. Messages go to stderr, one line each.
    """
    _accept_any_character()
    try:
        code = command()
        sys.stdout.flush()
    except BaseException as error:
        code = told(error)
    _flush()
    return code


def told(error: BaseException, subject: str = "") -> int:
    """Print the line about an exception on stderr, after ``subject`` if one is given, and return the exit code."""
    message, code = _ending(error)
    if subject:
        message = message.replace("error: ", f"error: {_CONTROL.sub(_escaped, subject)}: ", 1)
    with suppress(OSError):
        if os.environ.get(TRACEBACK):
            traceback.print_exception(error, file=sys.stderr)
        if message:
            print(message, file=sys.stderr, flush=True)
    return code


@contextmanager
def warnings_in_lines(shown: bool) -> Iterator[None]:
    """Print each warning of this project as one line on stderr if ``shown``, else print none of them. Warnings of
    other packages are not changed."""
    with warnings.catch_warnings():
        usual = warnings.showwarning

        def show(
            message: Warning | str,
            category: type[Warning],
            filename: str,
            lineno: int,
            file: TextIO | None = None,
            line: str | None = None,
        ) -> None:
            if not issubclass(category, OpenNeutronWarning):
                usual(message, category, filename, lineno, file, line)
            elif shown:
                with suppress(OSError):
                    print(f"warning: {_CONTROL.sub(_escaped, str(message))}", file=sys.stderr, flush=True)

        warnings.simplefilter("always", OpenNeutronWarning)
        warnings.showwarning = show
        yield


def _ending(error: BaseException) -> tuple[str, int]:
    """Return the line on stderr, if any, and the exit code."""
    if isinstance(error, ConverterError):  # the one that repeats what another program printed
        return f"error: {error}", USER_FAULT
    if isinstance(error, OpenNeutronError):
        return f"error: {_CONTROL.sub(_escaped, str(error))}", USER_FAULT
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", INTERRUPTED
    if isinstance(error, BrokenPipeError):
        return "", CLOSED_PIPE
    if isinstance(error, OSError):
        return f"error: {_system_error(error)}", USER_FAULT
    if isinstance(error, MemoryError):
        return f"error: there is not enough memory on this computer: {said(error)}.", USER_FAULT
    if isinstance(error, SystemExit):
        return (
            f"error: {_place(error)}: sys.exit({error.code!r}) was called before the command was done. A model must return.",
            USER_FAULT,
        )
    if isinstance(error, ModuleNotFoundError) and error.name and error.name.partition(".")[0] != "openneutron":
        return (
            f"error: the package '{error.name}' is not installed. Install the package again: pip install openneutron.",
            USER_FAULT,
        )
    return (
        f"error: this is a mistake in openneutron: {said(error)} ({_place(error)}). {TRACEBACK}=1 in the environment shows the "
        "traceback; please report it with that.",
        BUG,
    )


def _system_error(error: OSError) -> str:
    words = error.strerror or said(error)
    names = [
        os.fsdecode(name) for name in (error.filename, error.filename2) if isinstance(name, (str, bytes, os.PathLike))
    ]
    if names:
        return f"{' and '.join(repr(name) for name in names)}: {words}."
    if error.errno in (errno.ENOSPC, errno.EBADF, errno.EIO):
        return f"the output can't be written: {words}."
    return f"the operating system refused something: {words}."


_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
"""Characters of a name that a terminal would interpret and that messages therefore escape."""


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")


def _place(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return f"{Path(frames[-1].filename).name}, line {frames[-1].lineno}" if frames else "no line known"


def _accept_any_character() -> None:
    """Replace characters that the terminal's encoding lacks with question marks; let a closed stream accept all
    output."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # Python's value where the descriptor is closed
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115  (for as long as the process runs)
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _flush() -> None:
    """Flush both streams; a closed one must not raise when the interpreter exits."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            with suppress(OSError, ValueError):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, stream.fileno())
                os.close(nowhere)
