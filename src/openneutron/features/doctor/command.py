# SPDX-License-Identifier: BSD-3-Clause
"""The command ``doctor``, and the checks of an installation."""

from __future__ import annotations

import importlib.metadata
import operator
import os
import platform
import re
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import zip_longest
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from openneutron.cli import output
from openneutron.cli.ending import PART_MISSING
from openneutron.cli.model_source import BUILT_IN
from openneutron.device.files import existing
from openneutron.device.forms import SAVED_MODEL, of_content
from openneutron.device.third_party import EXTRAS, PACKAGES
from openneutron.errors import InvalidModelError, OpenNeutronError
from openneutron.features.doctor import model
from openneutron.features.report.table import Column, Table, facts
from openneutron.options import Progress

LOAD_DELEGATE = "from openneutron.pytorch.run.delegate import load; print(load())"
LONGEST_LOAD_SECONDS = 300


class State(Enum):
    FINE = auto()
    OPTIONAL = auto()
    """The packages of an extra are not installed."""
    LACKING = auto()
    """A part that is not needed to compile or to run does not work."""
    BROKEN = auto()


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check. ``to_do`` is an instruction for the user; empty if there is nothing to do."""

    what: str
    state: State
    found: str
    wanted: str = ""
    to_do: str = ""


WORDS = {
    State.FINE: ("ok", "green"),
    State.OPTIONAL: ("optional", "dim"),
    State.LACKING: ("lacking", "yellow"),
    State.BROKEN: ("missing", "red"),
}


DELEGATE = "ExecuTorch delegate"
"""The check of the library through which ExecuTorch calls the simulator."""


def findings(checks: list[Check]) -> RenderableType:
    """Return the checks as a table, with what to do below it."""
    words = [Text(*WORDS[check.state]) for check in checks]
    table = Table(
        (
            Column("", words),
            Column("what", [check.what for check in checks], style="cyan"),
            Column("found", [check.found for check in checks], wraps=True),
            Column("wanted", [check.wanted for check in checks], wraps=True),
        ),
        gap=4,
    )
    parts: list[RenderableType] = [table, ""]
    to_do = [check for check in checks if check.to_do]
    for check in to_do:
        parts.append(Text.assemble((check.what, "cyan"), f": {check.to_do}"))
    if to_do:
        parts.append("")
    broken = {check.what for check in checks if check.state is State.BROKEN}
    if not broken:
        parts.append("Everything works: try `openneutron compile cifarnet`.")
    elif broken <= {*PACKAGES, DELEGATE}:
        parts.append(
            "PyTorch models do not work yet; see the instructions above. An int8 .tflite compiles and runs without."
        )
    else:
        parts.append("Not everything works yet; see the instructions above.")
    return Group(*parts)


def all_checks(progress: Progress) -> list[Check]:
    """Return the results of all checks, the slowest last."""
    checks = [
        Check("Python", State.FINE, platform.python_version(), ">=3.11"),
        platform_check(),
        *map(package_check, requirements()),
        *map(extra_check, EXTRAS),
    ]
    progress("Host library and compiler", 0, 1)
    checks += [host_library_check(), self_test()]
    compiler = None
    if not delegate_is_included():
        compiler = compiler_check()
        checks += [compiler, cache_check()]
    progress("Delegate", 0, 1)
    checks.append(delegate_check(compiler))
    return checks


def platform_check() -> Check:
    found, wanted = f"{platform.system()} {platform.machine()}", "Linux x86_64 or aarch64"
    if platform.system() == "Linux" and platform.machine() in ("x86_64", "aarch64"):
        return Check("platform", State.FINE, found, wanted)
    return Check("platform", State.LACKING, found, wanted, "Others are untested. Use Linux if this one does not work.")


SIGNS = {"==": operator.eq, ">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt}


@dataclass(frozen=True, slots=True)
class Requirement:
    """A package that this one requires. ``extra`` names the extra that requires it; it is empty if nothing works
    without the package."""

    name: str
    bounds: str
    extra: str

    def admits(self, version: str) -> bool:
        """Return whether the bounds admit a version. Only ==, >=, <=, > and < are used here."""
        number = release(version)
        for sign, bound in re.findall(r"(==|>=|<=|>|<)\s*([\w.]+)", self.bounds):
            have, want = zip(*zip_longest(number, release(bound), fillvalue=0), strict=True)
            if not SIGNS[sign](have, want):
                return False
        return True


def release(version: str) -> tuple[int, ...]:
    """Return the numbers of a version, without any suffix: 2.13.0+cpu is (2, 13, 0)."""
    found = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in found.group().split(".")) if found else ()


def requirements() -> list[Requirement]:
    """Return the packages that this one requires: its own, then those of the extra ``pytorch``."""
    try:
        lines = importlib.metadata.requires("openneutron") or []
    except importlib.metadata.PackageNotFoundError:
        lines = _declared(Path(__file__).parents[3] / "pyproject.toml")
    found = []
    for line in lines:
        match = re.match(r"([\w.-]+)\s*([^;]*)(?:;.*extra\s*==\s*['\"]([\w-]+)['\"])?", line)
        if match and match[3] in (None, "pytorch"):
            found.append(Requirement(match[1], match[2].strip(), match[3] or ""))
    return found


def _declared(path: Path) -> list[str]:
    """Return the requirements of a source tree, in the form that the metadata of an installed package has."""
    if not path.is_file():
        return []
    project = tomllib.loads(path.read_text())["project"]
    extra = project["optional-dependencies"]["pytorch"]
    return [*project["dependencies"], *(f'{line}; extra == "pytorch"' for line in extra)]


def package_check(requirement: Requirement) -> Check:
    what = f"'openneutron[{requirement.extra}]'" if requirement.extra else "openneutron"
    to_do = f"pip install {what}, or this alone: pip install '{requirement.name}{requirement.bounds}'"
    try:
        found = importlib.metadata.version(requirement.name)
    except importlib.metadata.PackageNotFoundError:
        return Check(requirement.name, State.BROKEN, "not installed", requirement.bounds, to_do)
    state = State.FINE if requirement.admits(found) else State.BROKEN
    return Check(requirement.name, state, found, requirement.bounds, "" if state is State.FINE else to_do)


def extra_check(extra: str) -> Check:
    """Return the check of an extra: what it is needed for, and whether its packages are installed."""
    packages, gives = EXTRAS[extra]
    missing = []
    for package in packages:
        try:
            importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            missing.append(package)
    if missing:
        found = f"not installed: pip install 'openneutron[{extra}]'"
        return Check(f"extra {extra}", State.OPTIONAL, found, f"for {gives}")
    return Check(f"extra {extra}", State.FINE, "installed", f"for {gives}")


def host_library_check() -> Check:
    from openneutron.device.simulator import LIBRARY, library

    try:
        library()
    except OpenNeutronError as error:
        return Check("driver for this computer", State.BROKEN, "not built", "", str(error))
    return Check("driver for this computer", State.FINE, str(LIBRARY))


def self_test() -> Check:
    """Compare a convolution through compiler and simulator with LiteRT's reference kernels."""
    import numpy as np

    from openneutron import litert, targets
    from openneutron.compiler import compile_graph
    from openneutron.device.simulator import Simulator
    from openneutron.ir import DType, Graph, Node, Tensor, constant, per_tensor
    from openneutron.litert.interpret import interpret

    quant = per_tensor(0.05, 3)
    weights = np.arange(-36, 36, dtype=np.int8).reshape(4, 3, 3, 2)
    tensors = [
        Tensor("input", (1, 6, 5, 2), DType.INT8, quant),
        constant("weights", weights, per_tensor(0.01, 0)),
        constant("bias", np.array([100, -100, 7, 0], np.int32), per_tensor(0.0005, 0)),
        Tensor("output", (1, 6, 5, 4), DType.INT8, quant),
    ]
    steps = dict.fromkeys(("stride_h", "stride_w", "dilation_h", "dilation_w"), 1)
    attributes = {"padding": "SAME", "activation": "NONE", **steps}
    node = Node("conv_2d", ("input", "weights", "bias"), ("output",), attributes)
    graph = Graph("doctor", {tensor.name: tensor for tensor in tensors}, (node,), ("input",), ("output",))
    value = np.arange(-30, 30, dtype=np.int8).reshape(1, 6, 5, 2)
    what = "compiler and simulator"
    try:
        with Simulator(compile_graph(graph, targets.get("imxrt700")).program) as simulator:
            got = simulator.run([value])[0]
        want = interpret(litert.write(graph), [value])[0]
    except (OpenNeutronError, OSError) as error:
        return Check(what, State.BROKEN, "does not run", "", str(error))
    if got.tobytes() != want.tobytes():
        return Check(what, State.BROKEN, "another result than LiteRT's", "", "Install the package again.")
    return Check(what, State.FINE, "the same bytes as LiteRT")


def delegate_is_included() -> bool:
    """Return whether the package includes the delegate for the installed ExecuTorch. Without an ExecuTorch, return
    whether it includes any delegate."""
    from openneutron.pytorch.run import delegate

    try:
        return delegate.included(delegate.executorch_package()) is not None
    except OpenNeutronError:
        return delegate.INCLUDED.is_dir()


def compiler_check() -> Check:
    from openneutron.pytorch.run import delegate

    try:
        return Check("C++ compiler", State.FINE, delegate.compiler(), "any with C++17")
    except OpenNeutronError as error:
        return Check("C++ compiler", State.BROKEN, "none", "any with C++17", str(error))


def cache_check() -> Check:
    from openneutron.pytorch.run import delegate

    folder = delegate.cache_directory()
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if os.access(existing, os.W_OK):
        return Check("cache for the delegate", State.FINE, str(folder))
    to_do = f"'{existing}' can't be written; set XDG_CACHE_HOME to a folder that can."
    return Check("cache for the delegate", State.BROKEN, str(folder), "writable", to_do)


def delegate_check(compiler: Check | None, command: Sequence[str] = (sys.executable, "-c", LOAD_DELEGATE)) -> Check:
    """Return the result of loading the ExecuTorch delegate. It is loaded in a process of its own, since a wrong
    ExecuTorch may end the process.

    ``compiler`` is the check of the compiler; None if the delegate is not compiled.
    """
    what, wanted = DELEGATE, "loads" if compiler is None else "builds and loads"
    try:
        importlib.metadata.version("executorch")
    except importlib.metadata.PackageNotFoundError:
        return Check(what, State.BROKEN, "needs executorch", wanted)
    if compiler is not None and compiler.state is not State.FINE:
        return Check(what, State.BROKEN, "needs a C++ compiler", wanted)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=LONGEST_LOAD_SECONDS, env=environment
        )
    except subprocess.TimeoutExpired:
        return Check(
            what, State.BROKEN, f"not done after {LONGEST_LOAD_SECONDS} s", wanted, "Try again on a less busy computer."
        )
    if done.returncode == 0:
        return Check(what, State.FINE, done.stdout.strip().splitlines()[-1], wanted)
    lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
    said = re.sub(r"^[\w.]*Error: ", "", lines[-1])
    return Check(what, State.BROKEN, "does not load", wanted, said)


def doctor(
    file: Annotated[
        str | None,
        typer.Argument(
            metavar="[FILE]", help="A model's file, of which this says what it is; nothing in it is executed."
        ),
    ] = None,
    as_json: output.AsJson = False,
    quiet: output.Quiet = False,
    verbose: output.Verbose = False,
) -> None:
    """Check the installation, and print instructions for missing parts; or say what a model's file is.

    Exit code 0: PyTorch models can be compiled and run. 1: a part is missing. With FILE, the installation is not checked: the exit code
    is 0 where the file can be described.
    """
    if file is not None:
        _describe(file, as_json)
        return
    with output.Steps(quiet or as_json, verbose) as steps:
        checks = all_checks(steps)
    broken = [check for check in checks if check.state is State.BROKEN]
    rows = [
        {"what": c.what, "state": WORDS[c.state][0], "found": c.found, "wanted": c.wanted, "to_do": c.to_do}
        for c in checks
    ]
    output.show(findings(checks), "doctor", {"works": not broken, "checks": rows, "model": None}, as_json)
    if broken:
        raise typer.Exit(PART_MISSING)


def _describe(file: str, as_json: bool) -> None:
    """Print the description of a model's file."""
    path = Path(file)
    if file in BUILT_IN and not path.exists():
        raise InvalidModelError(
            f"'{file}' is a built-in model and no file. `openneutron explain {file}` says what a compile does with it."
        )
    found = model.described(path if of_content(path) is SAVED_MODEL else existing(file))
    rows = [("file", file), ("form", found.what), ("made by", found.made_by)]
    operators = ", ".join(f"{name} {count}" for name, count in found.operators.most_common(MOST_OPERATORS))
    if more := len(found.operators) - MOST_OPERATORS:
        operators += f" and {more} other kinds" if more > 0 else ""
    rows += [("operators", operators), *(("note", note) for note in found.notes), ("next", found.plan)]
    tensors = [("input", item) for item in found.inputs] + [("output", item) for item in found.outputs]
    table = Table(
        (
            Column("", [kind for kind, _ in tensors]),
            Column("name", [item.name for _, item in tensors], style="cyan"),
            Column("type", [item.dtype for _, item in tensors]),
            Column("shape", [item.shape for _, item in tensors]),
        ),
        gap=2,
    )
    parts: list[RenderableType] = [facts([(name, value) for name, value in rows if value])]
    if tensors:
        parts += ["", table, ""]
    text = Group(
        *parts, *([Text.assemble("Try ", (f"`{found.command.format(file)}`", "bold"), ".")] if found.command else [])
    )
    data = {
        "file": file,
        "form": found.what,
        "made_by": found.made_by,
        "inputs": [item.data() for item in found.inputs],
        "outputs": [item.data() for item in found.outputs],
        "operators": dict(found.operators.most_common()),
        "notes": list(found.notes),
        "plan": found.plan,
        "try": found.command.format(file),
    }
    output.show(text, "doctor", {"works": None, "checks": [], "model": data}, as_json)


MOST_OPERATORS = 12
"""The largest number of kinds of operators that is printed."""
