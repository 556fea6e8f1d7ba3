# SPDX-License-Identifier: BSD-3-Clause
"""On a machine with only a C compiler and Python, every test that needs another program is skipped with its reason."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.support import tools

HERE = Path(__file__).parent
ROOT = HERE.parent

ON_EVERY_MACHINE = ("gcc", "cc", "g++", "c++", "as", "ld", "ar", "nm", "git", "make", "sh", "env")
"""The C and C++ compilers that build the package, the programs that these call, and git, which made the checkout."""

INSTALLED = re.compile(r"^(a(rm-none-eabi|arch64-linux-gnu)-\S+|clang(\+\+)?|qemu-\S+|cmake|ninja)$")
"""Programs that a machine may lack."""


LEFT_OUT = ("test_generated.py", "test_tools.py", "tools.py")

Starting = dict[str, set[str]]
"""The names of each module of the tests that start a program that a machine may lack: functions, fixtures, classes and values."""


def words(defined: ast.AST) -> Iterator[str]:
    """Yield the names in a definition: of values, of fixtures, those with a module in front as they are written, and every text."""
    for node in ast.walk(defined):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield f"{node.value.id}.{node.attr}"
        elif isinstance(node, ast.arg):
            yield node.arg


def defined_names(node: ast.stmt) -> set[str]:
    """Return the names that a statement of a module defines."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return {node.name}
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}


class Module:
    """The definitions of a module with the words of each, and what the module imports."""

    def __init__(self, path: Path) -> None:
        tree = ast.parse((ROOT / path).read_text())
        self.path = path.as_posix()
        self.fixtures = [".".join([*folder.parts, "conftest"]) for folder in path.parents]
        self.imports = [
            (str(node.module), item.name, item.asname or item.name)
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom)
            for item in node.names
        ]
        defined = [node for node in tree.body if not isinstance(node, (ast.Import, ast.ImportFrom))]
        self.definitions = [(defined_names(node), set(words(node))) for node in defined]
        self.naming = set().union(*(names for names, used in self.definitions if any(map(INSTALLED.match, used))))

    def known(self, starting: Starting) -> set[str]:
        """Return the names of other modules that it can use and that start a program, as it writes them."""
        found = set().union(*(starting.get(module, ()) for module in self.fixtures))
        for module, name, here in self.imports:
            found |= {f"{here}.{each}" for each in starting.get(f"{module}.{name}", ())}
            if name in starting.get(module, ()):
                found.add(here)
        return found

    def starting(self, known: set[str]) -> set[str]:
        """Return the names of its definitions that use one of the ``known`` names or name a program."""
        return self.naming.union(*(names for names, used in self.definitions if used & known))


def starting_programs(modules: dict[str, Module]) -> Starting:
    """Return the names of the modules that start such a program, directly or through others of any module."""
    starting: Starting = {name: set() for name in modules}
    before = None
    while before != starting:
        before = dict(starting)
        starting = {name: each.starting(each.known(before) | before[name]) for name, each in modules.items()}
    return starting


def needing_programs() -> list[str]:
    """Return the tests that start a program that a machine may lack, as pytest names them. The other tests of their files run
    the same way on every machine. So do those of the fuzzers, which gcc compiles where clang is absent, and of generated files
    but one."""
    paths = [path.relative_to(ROOT) for path in [*HERE.rglob("*.py"), ROOT / "scripts" / "firmware_build.py"]]
    paths = [path for path in paths if path.parent != Path("tests/fuzz") and path.name not in LEFT_OUT]
    modules = {".".join(path.with_suffix("").parts): Module(path) for path in paths}
    return sorted(
        f"{modules[module].path}::{name}"
        for module, names in starting_programs(modules).items()
        if module.rpartition(".")[2].startswith("test_")
        for name in names
        if name.startswith("test_")
    )


def test_no_test_looks_for_a_program_by_itself() -> None:
    """``tools.required`` gives all such skips one form, which the last lines of a run count."""
    asking = [path for path in HERE.rglob("*.py") if "shutil.which(" in path.read_text()]
    assert sorted(path.name for path in asking) == ["test_tools.py", "tools.py"]


def test_a_machine_without_the_programs_skips_and_says_so(tmp_path: Path) -> None:
    for name in ON_EVERY_MACHINE:
        found = shutil.which(name)
        if found is not None:
            (tmp_path / name).symlink_to(found)
    (tmp_path / "python3").symlink_to(sys.executable)
    environment = {key: value for key, value in os.environ.items() if key != "CI" and "PYTEST" not in key}
    tests = needing_programs()
    files = {test.partition("::")[0].rpartition("/")[2] for test in tests}
    assert {"test_linked_selection.py", "test_qemu.py", "test_cortex_m33.py"} <= files
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *tests]
    done = subprocess.run(
        command, cwd=ROOT, env={**environment, "PATH": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
    reasons = re.findall(r"^SKIPPED \[\d+\] [^:]+:\d+: (.*)$", done.stdout, re.MULTILINE)
    assert reasons
    assert [reason for reason in reasons if not reason.endswith(" is not installed")] == []
    assert re.search(
        r"^\d+ tests were skipped, because programs are not installed: .*arm-none-eabi-gcc", done.stdout, re.M
    )
    assert f"`{tools.INSTALLED_BY}` installs them." in done.stdout


def test_the_summary_counts_missing_programs() -> None:
    reasons = ["Skipped: qemu-system-arm is not installed"] * 2 + [
        "Skipped: clang or gcc is not installed",
        "Skipped: other",
    ]
    assert tools.summary(reasons) == [
        "3 tests were skipped, because programs are not installed: clang or gcc (1), qemu-system-arm (2). "
        "`make tools` installs them."
    ]
    assert tools.summary(["Skipped: other"]) == []
