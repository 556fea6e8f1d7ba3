# SPDX-License-Identifier: BSD-3-Clause
"""Packages named eiq_neutron_sdk that behave, or misbehave, as NXP's might: written into a folder for sys.path."""

from __future__ import annotations

from pathlib import Path

FOUND = """
class Target:
    def __init__(self, name):
        self.name = name

def isNeutronTarget(name):
    return name in ("imxrt700", "imx95")

def getNeutronTargets():
    return [Target("imxrt700"), Target("imx95")]
"""

CONVERTER = """
import os, signal, sys
from openneutron.features.compat.eiq_neutron_sdk.neutron_converter import CompilationContext, getNeutronTarget

def convertModel(model, context):
    assert isinstance(model, list)
{body}
"""


def write(folder: Path, body: str) -> None:
    """The package, with this as the body of ``convertModel``."""
    package = folder / "eiq_neutron_sdk"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "neutron_library_utils.py").write_text(FOUND)
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    (package / "neutron_converter.py").write_text(CONVERTER.format(body=lines))


OURS = """\
import openneutron.features.compat.eiq_neutron_sdk.neutron_converter as ours
print("converting for", context.targetOpts.name, context.compilationOpts, flush=True)
return bytearray(ours.convertModel(model, context))
"""
ENDS = "print('about to end', flush=True)\nos._exit(3)"
ENDS_WELL = "os._exit(0)"
CRASHES = "os.write(2, b'core')\nos.kill(os.getpid(), signal.SIGSEGV)"
RAISES = "raise ValueError('tile size 3 is odd')"
PRINTS = "for _ in range(40000):\n    print('0123456789')\n    print('warning', file=sys.stderr)\nraise ValueError('the end')"
GIVES_BACK = "return bytes(model)"
GIVES_NOTHING = "return b''"
GIVES_TWO = """\
import openneutron.features.compat.eiq_neutron_sdk.neutron_converter as ours
from tests.support.litert_files import mixed_file
return ours.convertModel(mixed_file(), context)
"""
