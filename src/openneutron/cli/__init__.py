# SPDX-License-Identifier: BSD-3-Clause
"""The commands. This is the only part that prints."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command with these arguments (the process's own where None); the exit code.

    0: done. 2: a fault on the user's side, told in a short message. Anything else is a bug, and has a traceback.
    """
    try:
        from openneutron.cli.app import run
    except ModuleNotFoundError as error:
        print(
            f"error: the package '{error.name}' is not installed. In the checkout: pip install .",
            file=sys.stderr,
        )
        return 2

    return run(arguments)
