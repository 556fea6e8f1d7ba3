# SPDX-License-Identifier: BSD-3-Clause
"""The commands. This is the only part that prints."""

from __future__ import annotations

import gc
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command with these arguments (the process's own where None) and return the exit code.

    0: done. 2: a fault of the user or of the system, reported in one line. 70: a bug in this project, reported with the
    way to get its traceback. 130: interrupted. 141: the reader of the output closed the pipe.
    """
    gc.disable()  # until the command's modules are imported: a sixth of a short run went to collections without garbage
    from openneutron.cli.ending import ended

    def command() -> int:
        # Imported inside the function: packages may be absent, and an interrupt may arrive during the import.
        from openneutron.cli.app import run

        return run(arguments)

    try:
        return ended(command)
    finally:
        gc.enable()
