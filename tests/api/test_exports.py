# SPDX-License-Identifier: BSD-3-Clause
"""The names that ``import openneutron`` exports, and the modules that it imports for them."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

import openneutron
import openneutron.pytorch

EXPORTS = {
    "accuracy",
    "repair",
    "CompileOptions",
    "DataOptions",
    "DelegationOptions",
    "InputOptions",
    "LoadingOptions",
    "OutputOptions",
    "QuantizationOptions",
    "compile",
    "evaluate",
    "export_bundle",
    "share_arena",
    "load",
}

STEPS = {
    "CustomDelegationOptions",
    "NeutronCompileSpecBuilder",
    "NeutronPartitioner",
    "NeutronQuantizer",
    "NeutronTargetSpec",
    "calibrate_and_quantize",
    "generate_neutron_compile_spec",
}
"""The names of the steps, which ``openneutron.pytorch`` exports."""

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
    assert len(openneutron.__all__) <= 15
    assert set(openneutron.pytorch.__all__) == STEPS
    for module, names in ((openneutron, EXPORTS), (openneutron.pytorch, STEPS)):
        for name in names:
            found = getattr(module, name)
            assert getattr(importlib.import_module(found.__module__), name) is found
    assert openneutron.pytorch.NeutronPartitioner.__module__ == "openneutron.pytorch.neutron_partitioner"


@pytest.mark.parametrize("name", sorted(STEPS))
def test_a_step_that_is_looked_for_at_the_top(name: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(openneutron, name)
    assert str(caught.value) == (
        f"module 'openneutron' has no attribute '{name}'; openneutron.pytorch has it: from openneutron.pytorch import {name}"
    )


def test_a_name_that_is_not_exported() -> None:
    with pytest.raises(AttributeError, match=r"^module 'openneutron' has no attribute 'quantise'$"):
        openneutron.quantise  # noqa: B018
