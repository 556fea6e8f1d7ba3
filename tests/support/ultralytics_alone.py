# SPDX-License-Identifier: BSD-3-Clause
"""Ultralytics without a network, without torchvision and without settings in the home folder."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

STAND_INS = Path(__file__).parent / "stand_ins"
"""The folder with the stand-in for torchvision and its metadata. It stands on the path only where Ultralytics is tested: timm and
transformers look for torchvision too, and ask for more of it."""


@cache
def _settings() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="openneutron-yolo-")


def environment() -> dict[str, str]:
    """Return the environment variables of a process that uses Ultralytics."""
    return {
        "YOLO_CONFIG_DIR": _settings().name,
        "YOLO_OFFLINE": "true",
        "YOLO_AUTOINSTALL": "false",
        "YOLO_VERBOSE": "false",
        "PYTHONPATH": os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(STAND_INS)))),
    }


@contextmanager
def usable() -> Iterator[None]:
    """Let this process import and use Ultralytics while the block runs."""
    ours = [name for name in sys.modules if name.partition(".")[0] == "torchvision"]
    before = {name: sys.modules.pop(name) for name in ours}
    with pytest.MonkeyPatch.context() as changes:
        for name, value in environment().items():
            changes.setenv(name, value)
        changes.syspath_prepend(str(STAND_INS))
        try:
            yield
        finally:
            for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
                del sys.modules[name]
            sys.modules.update(before)
