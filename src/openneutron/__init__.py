# SPDX-License-Identifier: BSD-3-Clause
"""OpenNeutron: PyTorch and LiteRT models to NXP eIQ Neutron class NPUs, with only open parts."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from openneutron.api.accuracy import accuracy as accuracy
    from openneutron.api.accuracy import repair as repair
    from openneutron.api.compile import compile as compile
    from openneutron.api.evaluate import evaluate as evaluate
    from openneutron.api.load import load as load
    from openneutron.api.share_arena import share_arena as share_arena
    from openneutron.features.export.bundle import export_bundle as export_bundle
    from openneutron.options import CompileOptions as CompileOptions
    from openneutron.options import DataOptions as DataOptions
    from openneutron.options import DelegationOptions as DelegationOptions
    from openneutron.options import InputOptions as InputOptions
    from openneutron.options import LoadingOptions as LoadingOptions
    from openneutron.options import OutputOptions as OutputOptions
    from openneutron.options import QuantizationOptions as QuantizationOptions

__version__ = "0.1.0"

_HOMES = {
    "accuracy": "openneutron.api.accuracy",
    "repair": "openneutron.api.accuracy",
    "compile": "openneutron.api.compile",
    "load": "openneutron.api.load",
    "evaluate": "openneutron.api.evaluate",
    "share_arena": "openneutron.api.share_arena",
    "CompileOptions": "openneutron.options",
    "QuantizationOptions": "openneutron.options",
    "DelegationOptions": "openneutron.options",
    "DataOptions": "openneutron.options",
    "InputOptions": "openneutron.options",
    "LoadingOptions": "openneutron.options",
    "OutputOptions": "openneutron.options",
    "export_bundle": "openneutron.features.export.bundle",
}
"""The module of each name that this package exports. A module is imported on first use of its name: importing torch
takes seconds, and the compiler path must work without torch."""

__all__ = ["__version__", *_HOMES]


_OF_PYTORCH = (
    "CustomDelegationOptions", "NeutronCompileSpecBuilder", "NeutronPartitioner", "NeutronQuantizer", "NeutronTargetSpec",
    "calibrate_and_quantize", "generate_neutron_compile_spec",
)  # fmt: skip
"""Names of the steps, which ``openneutron.pytorch`` exports, as ExecuTorch's NXP backend has them."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        hint = f"; openneutron.pytorch has it: from openneutron.pytorch import {name}" if name in _OF_PYTORCH else ""
        raise AttributeError(f"module 'openneutron' has no attribute '{name}'{hint}")
    found = getattr(import_module(_HOMES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
