# SPDX-License-Identifier: BSD-3-Clause
"""LiteRT files that run partly on the NPU: compiling them, and running what comes out."""

from openneutron.mixed.compiled_file import CompiledFile, analyse_file, compile_file
from openneutron.mixed.run import FileSimulator

__all__ = ["CompiledFile", "FileSimulator", "analyse_file", "compile_file"]
