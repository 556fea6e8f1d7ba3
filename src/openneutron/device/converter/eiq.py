# SPDX-License-Identifier: BSD-3-Clause
"""NXP's converter, if a user has installed it. Its programs are for the chip itself, not for this project's simulator.

This module calls the Python package ``eiq_neutron_sdk`` as ExecuTorch's NXP backend does
(executorch/backends/nxp/backend/neutron_converter_manager.py). The call is in a child process, since the package may
end the process that it runs in.
"""

from __future__ import annotations

import difflib
import importlib.util
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from openneutron import litert
from openneutron.compiler import Prepared
from openneutron.compiler.select.select import Trial
from openneutron.device.converter import Conversion
from openneutron.errors import (
    ConverterError,
    InvalidModelError,
    InvalidOptionError,
    InvalidProgramError,
    MissingToolError,
)
from openneutron.ir import Graph
from openneutron.litert.interpret import ended
from openneutron.litert.neutron_graph import only_graph
from openneutron.options import EIQ, CompileOptions

PACKAGE = "eiq_neutron_sdk"
CHILD = Path(__file__).with_name("eiq_child.py")

SHOWN = 4000
"""The number of characters from the end of the converter's output that a message repeats. ``ConverterError.output``
has the whole output."""

KERNEL_SELECTION = "_kernel_selection.c"
"""The file that the SDK writes to its working directory when it is asked for one."""

EXCLUDED_PASSES = "HoistSliceAboveTranspose,MergeTranspose"
"""The passes of NXP's converter that ExecuTorch's NXP backend excludes; this module excludes them too."""

OURS = "Or compile with converter='open', this project's own compiler."


class EiqConverter:
    """The converter ``eiq``: NXP's ``eiq_neutron_sdk``. A flag sets a field of the package's ``compilationOpts``, for
    instance ``--minNumOpsPerGraph=2``."""

    name = EIQ

    def check(self, options: CompileOptions) -> None:
        loaded = sys.modules.get(PACKAGE)
        if loaded is not None and loaded.__name__ != PACKAGE:
            raise MissingToolError(
                f"eiq: {PACKAGE} is {loaded.__name__} in this process, which is this project's compiler and not NXP's. "
                f"Call {loaded.__name__}.uninstall() first."
            )
        if loaded is None and importlib.util.find_spec(PACKAGE) is None:
            raise MissingToolError(
                f"eiq: NXP's package {PACKAGE} is not installed for {sys.executable}. "
                f"Install it as NXP's eIQ documentation says. {OURS}"
            )
        _flags(options.converter_flags)

    def convert(
        self,
        graph: Graph,
        options: CompileOptions,
        kernel_selection: bool = False,
        trial: Trial | Prepared | None = None,
    ) -> Conversion:
        del trial
        self.check(options)
        wanted = {
            "minNumOpsPerGraph": 1,
            "excludeGraphPasses": EXCLUDED_PASSES,
            "fetchConstantsToSRAM": options.prefetch_constants,
            "dumpKernelSelectionCode": kernel_selection,
            "useProfiling": options.profile,
        }
        with tempfile.TemporaryDirectory(prefix="openneutron-eiq-") as name:
            folder = Path(name)
            said, code = _run(folder, litert.write(graph), options, wanted)
            result = folder / "converted.tflite"
            if not result.exists():
                raise ConverterError(
                    f"eiq: {PACKAGE} {ended(code)} and returned no model for '{graph.name}'. {_heard(said)}{_suggestion()}",
                    said,
                    code,
                )
            converted = result.read_bytes()
            selection = folder / KERNEL_SELECTION
            text = None
            if kernel_selection:
                if not selection.exists():
                    raise ConverterError(
                        f"eiq: {PACKAGE} was asked for the kernel selection of '{graph.name}' and wrote none. {_heard(said)}"
                        "Leave dump_kernel_selection_code out, or take a release of the SDK that has it.",
                        said,
                        code,
                    )
                text = selection.read_text(errors="replace")
        try:
            found = only_graph(converted)
            _check_borders(found.inputs, found.outputs, graph)
        except (InvalidProgramError, InvalidModelError) as error:
            raise ConverterError(
                f"eiq: the model that {PACKAGE} made of '{graph.name}' can't be used: {str(error).rstrip('.')}. "
                f"{_heard(said)}{_suggestion()}",
                said,
                code,
            ) from error
        return Conversion(found.program, found.inputs, found.outputs, found.payload_version, None, text, converted)


def _run(folder: Path, model: bytes, options: CompileOptions, wanted: dict[str, Any]) -> tuple[str, int]:
    """Run a conversion in the child process, and return the child's output and exit code. Raises InvalidOptionError
    where the child refuses an option."""
    request = {
        "search_path": [str(Path(place).absolute()) for place in sys.path],
        "target": options.target,
        "options": wanted,
        "flags": _flags(options.converter_flags),
    }
    (folder / "request.json").write_text(json.dumps(request))
    (folder / "model.tflite").write_bytes(model)
    # A file, not a pipe: a converter may print more than a pipe holds, and leave children behind that keep it open.
    with (folder / "output.txt").open("wb") as output:
        done = subprocess.run(
            [sys.executable, "-P", str(CHILD), str(folder)],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    said = (folder / "output.txt").read_text(errors="replace")
    refused = folder / "refused.json"
    if done.returncode == 0 and refused.exists():
        raise _refusal(**json.loads(refused.read_text()))
    return said, done.returncode


def _flags(flags: Sequence[str]) -> list[tuple[str, str | None]]:
    read: list[tuple[str, str | None]] = []
    for flag in flags:
        name, equals, text = flag.removeprefix("--").partition("=")
        if not flag.startswith("--") or not name:
            raise InvalidOptionError(
                f"converter_flags: '{flag}' is no flag. NXP's converter takes fields of its compilationOpts, "
                "for instance --minNumOpsPerGraph=2."
            )
        read.append((name, text if equals else None))
    return read


def _refusal(what: str, given: str, there_are: list[str]) -> InvalidOptionError:
    near = difflib.get_close_matches(given, there_are, 1)
    hint = f" Did you mean '{near[0]}'?" if near else ""
    if what == "target":
        return InvalidOptionError(f"eiq: {PACKAGE} knows no target '{given}'; it knows {', '.join(there_are)}.{hint}")
    return InvalidOptionError(
        f"converter_flags: '--{given}' is no flag of {PACKAGE}; its compilationOpts has {', '.join(there_are)}.{hint}"
    )


def _check_borders(inputs: Sequence[str], outputs: Sequence[str], graph: Graph) -> None:
    for kind, got, wanted in (("inputs", inputs, graph.inputs), ("outputs", outputs, graph.outputs)):
        if not set(got) <= set(wanted) or (kind == "outputs" and set(got) != set(wanted)):
            raise InvalidProgramError(
                f"its {kind} are {', '.join(got) or 'none'}; the partition's are {', '.join(wanted)}"
            )


def _heard(said: str) -> str:
    if not said.strip():
        return "It printed nothing. "
    rest = len(said) - SHOWN
    what = f"the last {SHOWN} of {len(said)} characters that it printed" if rest > 0 else "what it printed"
    return f"This is {what}:\n{said[-SHOWN:].strip()}\n"


def _suggestion() -> str:
    return f"Leave the operators that it stumbles on to the CPU with operators_not_to_delegate. {OURS}"
