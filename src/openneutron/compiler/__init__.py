# SPDX-License-Identifier: BSD-3-Clause
"""The compiler: graphs to programs. It needs neither torch nor ExecuTorch."""

from openneutron.compiler.driver import compile_graph
from openneutron.compiler.emit.emit import Compiled, OperatorReport, Report
from openneutron.options import CompileOptions

__all__ = ["CompileOptions", "Compiled", "OperatorReport", "Report", "compile_graph"]
