# SPDX-License-Identifier: BSD-3-Clause
"""Behind the partitioner no operator ends a compile: every user error there is about something else than an operator."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import openneutron
from openneutron import errors

SOURCE = Path(openneutron.__file__).parent

BEHIND = ("compiler", "isa", "ir", "ops", "litert/write.py", "litert/expand.py")
"""What a graph goes through once it is partitioned."""

ABOUT = {
    "options, before anything is compiled": {
        ("compiler/flags.py", "read", "InvalidOptionError"): 3,
        ("compiler/flags.py", "with_flags", "InvalidOptionError"): 2,
        ("compiler/effort.py", "effort_of", "InvalidOptionError"): 1,
        ("compiler/budget.py", "budget_bytes", "InvalidOptionError"): 1,
        ("compiler/options.py", "__post_init__", "InvalidOptionError"): 3,
        ("compiler/options.py", "kib_in_bytes", "InvalidOptionError"): 1,
    },
    "a graph that was not partitioned": {("compiler/compile.py", "_compile_graph", "InvalidModelError"): 1},
    "a mistake in the compiler": {("compiler/compile.py", "checked", "CompilerFaultError"): 1},
}
"""What each error is about: (file, function, class) and how many of it. A budget that is too small is ``over_budget``'s; a
program or a file that is damaged (``InvalidProgramError``) was not made by this compile."""


def raised() -> Counter[tuple[str, str, str]]:
    found: Counter[tuple[str, str, str]] = Counter()
    files = [path for each in BEHIND for path in ([SOURCE / each] if each.endswith(".py") else (SOURCE / each).rglob("*.py"))]  # fmt: skip
    for path in files:
        for function in ast.walk(ast.parse(path.read_text())):
            if not isinstance(function, ast.FunctionDef):
                continue
            for node in ast.walk(function):
                if (
                    isinstance(node, ast.Raise)
                    and isinstance(node.exc, ast.Call)
                    and isinstance(node.exc.func, ast.Name)
                ):
                    found[str(path.relative_to(SOURCE)), function.name, node.exc.func.id] += 1
    return found


def test_every_user_error_is_known_and_about_no_operator() -> None:
    children = {name for name, item in vars(errors).items() if isinstance(item, type)} - {"InvalidProgramError"}
    known = {place: count for places in ABOUT.values() for place, count in places.items()}
    assert {place: count for place, count in raised().items() if place[2] in children} == known
