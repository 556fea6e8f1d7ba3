# SPDX-License-Identifier: BSD-3-Clause
"""Sweeps: compiles of one model with every combination of options, in a table from which an interrupted sweep
continues."""

from openneutron.features.sweep.grid import Point, grid
from openneutron.features.sweep.run import Compiling, Row, Table, opened, run

__all__ = ["Compiling", "Point", "Row", "Table", "grid", "opened", "run"]
