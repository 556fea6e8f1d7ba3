# SPDX-License-Identifier: BSD-3-Clause
"""On a machine with only a C compiler and Python, every test that needs another program is skipped with its reason."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support import tools

HERE = Path(__file__).parent
ROOT = HERE.parent

ON_EVERY_MACHINE = ("gcc", "cc", "g++", "c++", "as", "ld", "ar", "nm", "git", "make", "sh", "env")
"""The C and C++ compilers that build the package, the programs that these call, and git, which made the checkout."""

INSTALLED = re.compile(r"^(a(rm-none-eabi|arch64-linux-gnu)-\S+|clang(\+\+)?|qemu-\S+|cmake|ninja)$")
"""Programs that a machine may lack."""


def starts_a_program(function: ast.AST, known: set[str]) -> bool:
    """Return whether a function names a program that a machine may lack, or one of the ``known`` functions."""
    for node in ast.walk(function):
        if isinstance(node, ast.Constant) and INSTALLED.match(str(node.value)):
            return True
        if isinstance(node, ast.Name) and node.id in known:
            return True
    return False


def starting_programs(path: Path) -> set[str]:
    """Return the functions of a file that start such a program, directly or through others of the file."""
    functions = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)]
    found: set[str] = set()
    while more := {item.name for item in functions if starts_a_program(item, found)} - found:
        found |= more
    return found


def needing_programs() -> list[Path]:
    """Return the test files that start a program that a machine may lack, themselves or through an imported
    function."""
    sources = {path: path.read_text() for path in HERE.rglob("*.py") if path.name not in ("test_tools.py", "tools.py")}
    found = {path for path in sources if path.name.startswith("test_") and starting_programs(path)}
    for path in sources:
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        names = "|".join(starting_programs(path)) if not path.name.startswith("test_") else ""
        if names:
            line = re.compile(rf"^from {re.escape(module)} import .*\b({names})\b", re.MULTILINE)
            found |= {user for user, text in sources.items() if user.name.startswith("test_") and line.search(text)}
    return sorted(found)


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
    files = needing_programs()
    assert {"test_linked_selection.py", "test_qemu.py", "test_cortex_m33.py"} <= {path.name for path in files}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *map(str, files)]
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
