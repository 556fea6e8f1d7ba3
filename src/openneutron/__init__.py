# SPDX-License-Identifier: BSD-3-Clause
"""OpenNeutron: PyTorch and LiteRT models to NXP eIQ Neutron class NPUs, with open parts alone."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from openneutron.api.accuracy import accuracy as accuracy
    from openneutron.api.accuracy import repair as repair
    from openneutron.api.compile import compile as compile
    from openneutron.api.evaluate import evaluate as evaluate
    from openneutron.api.load import load as load
    from openneutron.features.export import export_bundle as export_bundle
    from openneutron.options import CompileOptions as CompileOptions
    from openneutron.options import DataOptions as DataOptions
    from openneutron.options import DelegationOptions as DelegationOptions
    from openneutron.options import LoadingOptions as LoadingOptions
    from openneutron.options import OutputOptions as OutputOptions
    from openneutron.options import QuantizationOptions as QuantizationOptions
    from openneutron.pytorch.backend.custom_delegation_options import CustomDelegationOptions as CustomDelegationOptions
    from openneutron.pytorch.backend.neutron_target_spec import NeutronTargetSpec as NeutronTargetSpec
    from openneutron.pytorch.neutron_partitioner import NeutronPartitioner as NeutronPartitioner
    from openneutron.pytorch.nxp_backend import NeutronCompileSpecBuilder as NeutronCompileSpecBuilder
    from openneutron.pytorch.nxp_backend import generate_neutron_compile_spec as generate_neutron_compile_spec
    from openneutron.pytorch.quantizer.calibrate import calibrate_and_quantize as calibrate_and_quantize
    from openneutron.pytorch.quantizer.neutron_quantizer import NeutronQuantizer as NeutronQuantizer

__version__ = "0.1.0"

_HOMES = {
    "accuracy": "openneutron.api.accuracy",
    "repair": "openneutron.api.accuracy",
    "compile": "openneutron.api.compile",
    "load": "openneutron.api.load",
    "evaluate": "openneutron.api.evaluate",
    "CompileOptions": "openneutron.options",
    "QuantizationOptions": "openneutron.options",
    "DelegationOptions": "openneutron.options",
    "DataOptions": "openneutron.options",
    "LoadingOptions": "openneutron.options",
    "OutputOptions": "openneutron.options",
    "export_bundle": "openneutron.features.export",
    "CustomDelegationOptions": "openneutron.pytorch.backend.custom_delegation_options",
    "NeutronTargetSpec": "openneutron.pytorch.backend.neutron_target_spec",
    "NeutronPartitioner": "openneutron.pytorch.neutron_partitioner",
    "NeutronCompileSpecBuilder": "openneutron.pytorch.nxp_backend",
    "generate_neutron_compile_spec": "openneutron.pytorch.nxp_backend",
    "calibrate_and_quantize": "openneutron.pytorch.quantizer.calibrate",
    "NeutronQuantizer": "openneutron.pytorch.quantizer.neutron_quantizer",
}
"""The module of each name that this package exports. A module is imported on first use of its name: importing torch
takes seconds, and the compiler path must work without torch."""

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'openneutron' has no attribute '{name}'")
    found = getattr(import_module(_HOMES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
