# SPDX-License-Identifier: BSD-3-Clause
"""The compiler: graphs to programs. It needs neither torch nor ExecuTorch."""

from openneutron.compiler.driver import Compiled, Prepared, compile_graph, compile_prepared, prepared
from openneutron.compiler.emit.report import OperatorReport, Report
from openneutron.options import CompileOptions

__all__ = [
    "CompileOptions",
    "Compiled",
    "OperatorReport",
    "Prepared",
    "Report",
    "compile_graph",
    "compile_prepared",
    "prepared",
]
