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
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

from openneutron import litert
from openneutron.compiler import Prepared
from openneutron.compiler.select.select import Refused, Trial
from openneutron.device.cache import UNREADABLE, Digest, kept, packed, unpacked, versions
from openneutron.device.converter import Conversion, refusals, releases
from openneutron.errors import (
    ConverterError,
    Failure,
    InvalidModelError,
    InvalidOptionError,
    InvalidProgramError,
    MissingToolError,
)
from openneutron.ir import Graph
from openneutron.litert.interpret import ended
from openneutron.litert.neutron_graph import misfit, only_graph, outside
from openneutron.options import EIQ, CompileOptions

PACKAGE = "eiq_neutron_sdk"
CHILD = Path(__file__).with_name("eiq_child.py")

SHOWN = 4000
"""The number of characters from the end of the converter's output that a message repeats. ``ConverterError.output``
has the whole output."""

SHOWN_OF_A_REASON = 200
"""The number of characters that the reason of a CPU fallback repeats of the converter's last line."""

KERNEL_SELECTION = "_kernel_selection.c"
"""The file that the SDK writes to its working directory when it is asked for one."""

EXCLUDED_PASSES = "HoistSliceAboveTranspose,MergeTranspose"
"""The passes of NXP's converter that ExecuTorch's NXP backend excludes; this module excludes them too."""

OURS = "Or compile with converter='open', this project's own compiler."


@dataclass(frozen=True, slots=True)
class _Answer:
    """The result of one call of NXP's converter: the converted file and the kernel selection, None where it wrote none;
    its output; its exit code, None where it was stopped after ``converter_timeout``."""

    file: bytes | None = field(repr=False)
    selection: str | None = field(repr=False)
    said: str = field(repr=False)
    code: int | None


@dataclass(frozen=True, slots=True)
class _Question:
    """The input of one call of NXP's converter. Questions with equal keys are equal. The key depends on the model,
    the request, the version of Python, the installed SDK, and ``seconds``, the time after which the call is stopped.
    Since ``seconds`` is in the key, a call that was stopped does not answer a question with a longer time."""

    key: str
    model: bytes = field(compare=False, repr=False)
    request: Mapping[str, Any] = field(compare=False)
    seconds: int = field(compare=False)


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
        asked, there = options.converter_release, release()
        if asked is not None and there and there != asked and not there.startswith(f"{asked}."):
            raise InvalidOptionError(
                f"converter_release: {PACKAGE} is release {there} in this Python, and not {asked}, whose microcode may be of another "
                f"version. Install that release, or leave converter_release out."
            )

    def tried(self, graph: Graph, options: CompileOptions) -> tuple[Refused, ...]:
        """Return the nodes that must leave the graph before NXP's converter can convert the rest, with the limit that NXP publishes or
        with the converter's own words. Raises as ``convert`` does for a failure that no node causes."""
        self.check(options)
        beyond = _beyond_limits(graph, options)
        if beyond:
            return beyond

        def failure(part: Graph) -> Failure | None:
            try:
                self.convert(part, options)
            except ConverterError as error:
                if error.failure is None:
                    raise
                return error.failure
            return None

        return refusals(graph, failure, f"NXP's converter {release()}".rstrip())

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
        request = {"target": options.target, "options": wanted, "flags": _flags(options.converter_flags)}
        model, seconds = litert.write(replace(graph, name="")), options.converter_timeout
        answer = _answer(_Question(_key(model, request, seconds), model, request, seconds))
        if answer.file is None:
            raise _no_model(graph, answer, options)
        if kernel_selection and answer.selection is None:
            raise ConverterError(
                f"eiq: {PACKAGE} was asked for the kernel selection of '{graph.name}' and wrote none. {_heard(answer.said)}"
                "Leave dump_kernel_selection_code out, or take a release of the SDK that has it.",
                answer.said,
                answer.code or 0,
            )
        try:
            found = only_graph(answer.file)
            _check_borders(found.inputs, found.outputs, graph)
        except (InvalidProgramError, InvalidModelError) as error:
            fact = str(error).rstrip(".")
            raise ConverterError(
                f"eiq: the model that {PACKAGE} made of '{graph.name}' can't be used: {fact}. "
                f"{_heard(answer.said)}{_suggestion()}",
                answer.said,
                answer.code or 0,
                Failure(f"refuses it: {fact}", answer.said, outside(answer.file)),
            ) from error
        foreign = misfit(found)
        if foreign is not None:
            raise ConverterError(
                f"eiq: {PACKAGE} made microcode of '{graph.name}' that no published driver reads: {foreign}. "
                f"Install the release of the SDK that the board's driver is from. {OURS}",
                answer.said,
                answer.code or 0,
            )
        selection = answer.selection if kernel_selection else None
        return Conversion(
            found.program,
            found.inputs,
            found.outputs,
            found.payload_version,
            None,
            selection,
            answer.file,
            found.work_bytes,
        )


def _beyond_limits(graph: Graph, options: CompileOptions) -> tuple[Refused, ...]:
    """Return the nodes that keep a state, and those that break a limit that NXP publishes for this release and target."""
    states = {name for state in graph.states for name in (state.tensor, state.update)}
    published = (
        releases.of_sdk(release()) if release() else releases.get(options.converter_release or releases.names()[-1])
    )
    found = []
    for node in graph.nodes:
        broken = published.broken_limit(graph, node) if options.target in published.targets else None
        if states & {*node.inputs, *node.outputs}:
            found.append(Refused(node.outputs[0], "NXP's converter keeps no state from run to run"))
        elif broken is not None:
            found.append(Refused(node.outputs[0], f"NXP's limit of release {published.name}: {broken}"))
    return tuple(found)


def release() -> str:
    """Return the version of the installed SDK; an empty text where the package states none."""
    return versions([PACKAGE])[0]


def _no_model(graph: Graph, answer: _Answer, options: CompileOptions) -> ConverterError:
    if answer.code is None:
        end = f"was stopped after {options.converter_timeout} s (converter_timeout)"
        verdict = f"refuses it: it did not end within {options.converter_timeout} s"
    else:
        end = ended(answer.code)
        lines = [line.strip() for line in answer.said.splitlines() if line.strip()]
        words = lines[-1][:SHOWN_OF_A_REASON] if lines and answer.code > 0 else f"it {end}"
        verdict = f"refuses it: {words.rstrip('.')}"
    return ConverterError(
        f"eiq: {PACKAGE} {end} and returned no model for '{graph.name}'. {_heard(answer.said)}{_suggestion()}",
        answer.said,
        -signal.SIGKILL if answer.code is None else answer.code,
        Failure(verdict, answer.said),
    )


def _key(model: bytes, request: Mapping[str, Any], seconds: int) -> str:
    """Return the key of a question: a hash of the model, the request, the time limit, the versions of Python and of the
    SDK, and the paths, sizes and times of the SDK's files."""
    digest = Digest(EIQ, json.dumps(request, sort_keys=True), str(seconds), release(), sys.version)
    spec = importlib.util.find_spec(PACKAGE)
    for folder in [] if spec is None else spec.submodule_search_locations or []:
        for path in sorted(Path(folder).rglob("*")):
            if path.suffix != ".pyc" and path.is_file():
                facts = path.stat()
                digest.add(repr((str(path), facts.st_size, facts.st_mtime_ns)).encode())
    digest.add(model)
    return digest.hex()


@lru_cache(maxsize=32)
def _answer(question: _Question) -> _Answer:
    """Return the answer of NXP's converter: this process's last answers and the cache of the running compile are asked
    first."""

    def written(made: _Answer) -> bytes:
        facts = {"said": made.said, "code": made.code, "file": made.file is not None, "selection": made.selection}
        return packed(facts, [] if made.file is None else [made.file])

    def read(content: bytes) -> _Answer | None:
        try:
            facts, blobs = unpacked(content)
            return _Answer(blobs[0] if facts["file"] else None, facts["selection"], facts["said"], facts["code"])
        except UNREADABLE:
            return None

    return kept(EIQ, lambda: question.key, lambda: _asked(question), written, read)


def _asked(question: _Question) -> _Answer:
    """Call the converter in a child process. Raises InvalidOptionError where the SDK does not know the target or a
    flag."""
    with tempfile.TemporaryDirectory(prefix="openneutron-eiq-") as name:
        folder = Path(name)
        request = {**question.request, "search_path": [str(Path(place).absolute()) for place in sys.path]}
        (folder / "request.json").write_text(json.dumps(request))
        (folder / "model.tflite").write_bytes(question.model)
        # A file, not a pipe: a converter may print more than a pipe holds, and leave children behind that keep it open.
        with (folder / "output.txt").open("wb") as output:
            code = _run(folder, output, question.seconds)
        said = (folder / "output.txt").read_text(errors="replace")
        refused = folder / "refused.json"
        if code == 0 and refused.exists():
            raise _refusal(**json.loads(refused.read_text()))
        result, selection = folder / "converted.tflite", folder / KERNEL_SELECTION
        return _Answer(
            result.read_bytes() if code is not None and result.exists() else None,
            selection.read_text(errors="replace") if selection.exists() else None,
            said,
            code,
        )


def _run(folder: Path, output: IO[bytes], seconds: int) -> int | None:
    """Run the child process in ``folder``. When it ends, kill the processes that it has left running. Return its exit
    code, or None if it was stopped because it took longer than ``seconds``."""
    child = subprocess.Popen(
        [sys.executable, "-P", str(CHILD), str(folder)],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        return child.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


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
