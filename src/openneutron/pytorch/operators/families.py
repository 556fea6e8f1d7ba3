# SPDX-License-Identifier: BSD-3-Clause
"""The tables of decompositions and lowering rules, with the rows of all families of operators.

A family is a file of this folder.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from openneutron.pytorch.operators.rules.tables import DECOMPOSITIONS, LOWER_RULES

for _file in sorted(Path(__file__).parent.glob("[a-z]*.py")):
    import_module(f"{__package__}.{_file.stem}")

__all__ = ["DECOMPOSITIONS", "LOWER_RULES"]
