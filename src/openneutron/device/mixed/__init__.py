# SPDX-License-Identifier: BSD-3-Clause
"""LiteRT files that run partly on the NPU: compiled, and run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from openneutron.device.mixed.compiled_file import CompiledFile, compile_file, part_name

if TYPE_CHECKING:
    from openneutron.device.mixed.run import FileSimulator, Times

__all__ = ["CompiledFile", "FileSimulator", "Times", "compile_file", "part_name"]


def __getattr__(name: str) -> Any:
    if name not in ("FileSimulator", "Times"):
        raise AttributeError(f"module 'openneutron.device.mixed' has no attribute '{name}'")
    # Imported on first use: a compile runs nothing, and the simulator loads the driver.
    from openneutron.device.mixed import run

    return getattr(run, name)
