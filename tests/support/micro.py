# SPDX-License-Identifier: BSD-3-Clause
"""LiteRT for Microcontrollers beside the oracle: the reference of operators that LiteRT's own interpreter refuses.

Its package has builds for Linux on x86_64 alone. A test that takes it is skipped where it is absent.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

ARENA_BYTES = 1 << 20


def runtime() -> Any:
    """Return the module with LiteRT for Microcontrollers' interpreter; skip the test or the file of tests where it is absent."""
    reason = (
        "LiteRT for Microcontrollers is absent: `pip install --constraint constraints.txt tflite-micro` installs it"
    )
    return pytest.importorskip("tflite_micro.python.tflite_micro.runtime", reason=reason)


class MicroInterpreter:
    """An interpreter of a file with one input and one output, whose variables last from run to run.

    Raises RuntimeError for a file that LiteRT for Microcontrollers refuses.
    """

    def __init__(self, content: bytes) -> None:
        self._interpreter = runtime().Interpreter.from_bytes(content, arena_size=ARENA_BYTES)

    def run(self, x: np.ndarray) -> np.ndarray:
        """Return the result of one more run."""
        self._interpreter.set_input(x, 0)
        self._interpreter.invoke()
        result: np.ndarray = self._interpreter.get_output(0)
        return result
