# SPDX-License-Identifier: BSD-3-Clause
"""The place where scripts for ExecuTorch's NXP backend import patterns, which this project's quantizer does not have."""

from __future__ import annotations

from typing import NoReturn

PATTERN = "Pattern"
"""The end of the names of the classes in ExecuTorch's module, such as ``AddTensorPattern``."""


def __getattr__(name: str) -> NoReturn:
    """Raise ImportError for a pattern, AttributeError for any other name."""
    if name.endswith(PATTERN):
        raise ImportError(
            f"quantizer.patterns has no '{name}': NeutronQuantizer annotates operators by a table, and no patterns can be added. "
            "Its methods set_module_name, set_module_type, set_operator and keep_float change the quantization of modules and operators."
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
