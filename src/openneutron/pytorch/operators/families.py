# SPDX-License-Identifier: BSD-3-Clause
"""The families of operators: a folder each, in which a stage's files begin with the stage's name."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).parent


def modules(stage: str) -> list[ModuleType]:
    """Import the files of all families for ``quantize``, ``decompose`` or ``lower``, in the order of their names."""
    files = sorted(HERE.glob(f"*/{stage}*.py"))
    return [import_module(f"{__package__}.{file.parent.name}.{file.stem}") for file in files]
