# SPDX-License-Identifier: BSD-3-Clause
"""LiteRT files that run partly on the NPU: compiled, and run."""

from openneutron.mixed.compiled_file import CompiledFile, compile_file, part_name
from openneutron.mixed.run import FileSimulator, Times

__all__ = ["CompiledFile", "FileSimulator", "Times", "compile_file", "part_name"]
