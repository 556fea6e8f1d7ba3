# SPDX-License-Identifier: BSD-3-Clause
"""Build what several test files read once for all processes of a run of the tests."""

from __future__ import annotations

import fcntl
import functools
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

FOLDER = "OPENNEUTRON_BUILT"
"""The environment variable with the folder that the processes of a run share; a run outside of pytest has none."""


@functools.cache
def _own_folder() -> tempfile.TemporaryDirectory[str]:
    """Return a folder of this process, for runs that share none. It is removed when Python ends."""
    return tempfile.TemporaryDirectory(prefix="openneutron-")


def built_once(name: str, build: Callable[[Path], object]) -> Path:
    """Return a folder that ``build`` has filled. Other processes of the run wait for the first one, and take its folder."""
    folder = Path(os.environ.get(FOLDER) or _own_folder().name) / name
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = folder.with_name(f"{name}.done")
        if not done.exists():
            folder.mkdir(exist_ok=True)  # a build that failed has left it
            build(folder)
            done.touch()
    return folder
