# SPDX-License-Identifier: BSD-3-Clause
"""The commands. This is the only part that prints."""

from __future__ import annotations

from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command with these arguments (the process's own where None) and return the exit code.

    0: done. 2: a fault on the user's side or of the system, told in one line. 70: a mistake in this project, told with how
    to get its traceback. 130: interrupted. 141: whoever read the output stopped reading.
    """
    from openneutron.cli.ending import ended

    def command() -> int:
        # Inside, since packages may be absent, and an interrupt may come while they are imported.
        from openneutron.cli.app import run

        return run(arguments)

    return ended(command)
