# SPDX-License-Identifier: BSD-3-Clause
"""Imports that scripts for ExecuTorch's NXP backend make, and how much of the package they load."""

from __future__ import annotations

import subprocess
import sys

MOST_MODULES = 70

LOADED = """
import sys
from openneutron.pytorch.quantizer.neutron_quantizer import NeutronQuantizer
print(*(name for name in sys.modules if name.startswith(("openneutron", "ortools"))))
"""


def test_the_quantizer_loads_neither_the_compiler_nor_decompositions_and_lowering() -> None:
    result = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    loaded = result.stdout.split()
    assert len(loaded) <= MOST_MODULES
    assert [name for name in loaded if name.startswith(("ortools", "openneutron.compiler"))] == []
    assert [name for name in loaded if name.endswith((".decompose", ".lower"))] == []
