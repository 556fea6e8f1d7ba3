# SPDX-License-Identifier: BSD-3-Clause
"""Packages named eiq_neutron_sdk that behave, or misbehave, as NXP's might: written into a folder for sys.path."""

from __future__ import annotations

import faulthandler
import os
import signal
import threading
import traceback
from pathlib import Path
from typing import IO

from openneutron.device.converter import eiq_child

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


def write_facts(folder: Path, version: str) -> None:
    """The version that the package states to ``importlib.metadata``."""
    facts = folder / f"eiq_neutron_sdk-{version}.dist-info" / "METADATA"
    facts.parent.mkdir(parents=True)
    facts.write_text(f"Metadata-Version: 2.1\nName: eiq_neutron_sdk\nVersion: {version}\n")


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

# -- SDKs that fail at one operator of the model: their bodies get ``found``, the names of the results of these operators

REFUSED = "RELU"
"""LiteRT's name of the operator that these SDKs fail at."""

AT = """\
import openneutron.features.compat.eiq_neutron_sdk.neutron_converter as ours
from openneutron.litert.read import operator_name, unpack
objects = unpack(bytes(model), "model")
tensors = objects.subgraphs[0].tensors
found = [
    tensors[operator.outputs[0]].name.decode()
    for operator in objects.subgraphs[0].operators
    if operator_name(objects, operator) == "RELU"
]
with open(os.path.join(os.path.dirname(os.path.dirname(__file__)), "calls.txt"), "a") as calls:
    calls.write("call\\n")
"""
GOES_ON = "\nreturn ours.convertModel(model, context)"
REFUSES_BY_NAME = AT + "if found: raise ValueError(f'no kernel takes {found[0]}')" + GOES_ON
REFUSES = AT + "if found: raise ValueError('tile size 3 is odd')" + GOES_ON
DIES = AT + "if found: os.kill(os.getpid(), signal.SIGSEGV)" + GOES_ON
HANGS = AT + "if found: os.kill(os.getpid(), signal.SIGKILL)" + GOES_ON
"""It ends as ``forked`` ends a process after its time."""
LEAVES = """\
import openneutron.device.mixed as mixed
from dataclasses import replace
from openneutron import litert
from openneutron.options import CompileOptions
with open(os.path.join(os.path.dirname(os.path.dirname(__file__)), "calls.txt"), "a") as calls:
    calls.write("call\\n")
loaded = litert.read(bytes(model))
names = [node.name for node in loaded.graph.nodes if node.op == "relu"]
options = CompileOptions(io_place="caller", target=context.targetOpts.name)
return mixed.compile_file(loaded, "model", options, names, must_delegate=False).to_bytes()
"""
OTHER_VERSION = """\
import struct
import openneutron.features.compat.eiq_neutron_sdk.neutron_converter as ours
with open(os.path.join(os.path.dirname(os.path.dirname(__file__)), "calls.txt"), "a") as calls:
    calls.write("call\\n")
made = bytes(ours.convertModel(model, context))
start = made.index(struct.pack("<I", 0x64434D6E))
words = list(struct.unpack_from("<15I", made, start))
words[11:15] = [words[13], words[14], 99, 99]
return made[:start] + struct.pack("<15I", *words) + made[start + 60:]
"""


def calls(folder: Path) -> int:
    """The number of calls of a package in this folder that counts them."""
    path = folder / "calls.txt"
    return len(path.read_text().splitlines()) if path.exists() else 0


def forked(folder: Path, output: IO[bytes], seconds: int) -> int | None:
    """The same as ``openneutron.device.converter.eiq._run``, in a fork of this process: nothing is imported again."""
    pid = os.fork()
    if pid:
        end = threading.Timer(seconds, os.kill, (pid, signal.SIGKILL))
        end.start()
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        end.cancel()
        return None if code == -signal.SIGKILL else code
    code = 0
    try:
        faulthandler.disable()
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
        os.chdir(folder)
        eiq_child.main(folder)
    except BaseException:
        code = 1
        os.write(2, traceback.format_exc().encode())
    os._exit(code)
