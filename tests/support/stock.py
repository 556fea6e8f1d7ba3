# SPDX-License-Identifier: BSD-3-Clause
"""Find ExecuTorch's own NXP delegate on this machine.

Its source is in no Python package and is not ours to copy: tests/delegate/test_stock_delegate.py runs where there is a
checkout of pytorch/executorch, in a folder that OPENNEUTRON_EXECUTORCH_SOURCE names (several, as in PATH) or beside this
checkout in ``shared/executorch``.
"""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "OPENNEUTRON_EXECUTORCH_SOURCE"
DELEGATE = Path("backends/nxp/runtime/NeutronBackend.cpp")
SHARED = Path(__file__).parents[3] / "shared" / "executorch"


def sources() -> list[Path]:
    """The delegates' C++ files. Raises FileNotFoundError where the variable names a folder without one."""
    named = [Path(folder) for folder in os.environ.get(VARIABLE, "").split(os.pathsep) if folder]
    for folder in named:
        if not (folder / DELEGATE).is_file():
            raise FileNotFoundError(f"{VARIABLE}: {folder} has no {DELEGATE}; name a checkout of pytorch/executorch.")
    return [folder / DELEGATE for folder in (*named, SHARED) if (folder / DELEGATE).is_file()]


def header() -> str:
    """Return the line about it at the start of a test run."""
    found = sources()
    if found:
        return f"ExecuTorch's NXP delegate: {', '.join(map(str, found))}"
    return (
        f"ExecuTorch's NXP delegate: no source here, so that test_stock_delegate.py is left out ({VARIABLE} names one)"
    )
