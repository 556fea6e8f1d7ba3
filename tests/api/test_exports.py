# SPDX-License-Identifier: BSD-3-Clause
"""The names that ``import openneutron`` exports, and the modules that it imports for them."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

import openneutron

EXPORTS = {
    "accuracy",
    "repair",
    "CompileOptions",
    "CustomDelegationOptions",
    "DataOptions",
    "DelegationOptions",
    "LoadingOptions",
    "NeutronCompileSpecBuilder",
    "NeutronPartitioner",
    "NeutronQuantizer",
    "NeutronTargetSpec",
    "OutputOptions",
    "QuantizationOptions",
    "calibrate_and_quantize",
    "compile",
    "evaluate",
    "export_bundle",
    "generate_neutron_compile_spec",
    "load",
}

IMPORTED = """
import json, sys
before = set(sys.modules)
import openneutron
dir(openneutron)
imported = {name.split(".")[0] for name in set(sys.modules) - before}
print(json.dumps(sorted(imported - sys.stdlib_module_names)), "openneutron.pytorch" in sys.modules)
"""


def test_importing_the_package_imports_nothing_but_itself() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORTED], capture_output=True, text=True, check=True)
    assert done.stdout == '["openneutron"] False\n'


def test_every_export_is_what_its_module_defines() -> None:
    assert set(openneutron.__all__) - {"__version__"} == EXPORTS
    assert set(dir(openneutron)) >= EXPORTS
    for name in EXPORTS:
        found = getattr(openneutron, name)
        assert getattr(importlib.import_module(found.__module__), name) is found
    assert openneutron.NeutronPartitioner.__module__ == "openneutron.pytorch.neutron_partitioner"


def test_a_name_that_is_not_exported() -> None:
    with pytest.raises(AttributeError, match=r"^module 'openneutron' has no attribute 'quantise'$"):
        openneutron.quantise  # noqa: B018
