# SPDX-License-Identifier: BSD-3-Clause
"""One model compiled with every combination of options, in a table that survives interrupts."""

from openneutron.features.sweep.grid import Point, grid
from openneutron.features.sweep.run import Compiling, Row, Table, opened, run

__all__ = ["Compiling", "Point", "Row", "Table", "grid", "opened", "run"]
