# SPDX-License-Identifier: BSD-3-Clause
"""No operator ends a compile after the partitioner: every later user error is about another subject."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import openneutron
from openneutron import errors

SOURCE = Path(openneutron.__file__).parent

BEHIND = ("options", "compiler", "isa", "ir", "ops", "litert/write.py")
"""The stages of a graph after partitioning."""

ABOUT = {
    "options, before anything is compiled": {
        ("options/flags.py", "check", "InvalidOptionError"): 1,
        ("options/flags.py", "check_choice", "InvalidOptionError"): 1,
        ("options/flags.py", "size_in_bytes", "InvalidOptionError"): 1,
        ("options/flags.py", "sizes_of_regions", "InvalidOptionError"): 1,
        ("options/flags.py", "sizes_between", "InvalidOptionError"): 2,
        ("options/flags.py", "split_flags", "InvalidOptionError"): 1,
        ("options/flags.py", "whole_number", "InvalidOptionError"): 1,
        ("options/flags.py", "with_flags", "InvalidOptionError"): 3,
        ("options/flags.py", "_value", "InvalidOptionError"): 2,
        ("options/flags.py", "read_as", "InvalidOptionError"): 1,
        ("options/__init__.py", "_check_budget", "InvalidOptionError"): 3,
        ("options/__init__.py", "region_bytes", "InvalidOptionError"): 2,
        ("options/__init__.py", "budget_bytes", "InvalidOptionError"): 1,
        ("options/__init__.py", "_check_list", "InvalidOptionError"): 1,
        ("options/__init__.py", "_check_texts", "InvalidOptionError"): 1,
        ("options/__init__.py", "_check_text", "InvalidOptionError"): 1,
        ("options/__init__.py", "_check_seconds", "InvalidOptionError"): 1,
        ("options/__init__.py", "_check_threads", "InvalidOptionError"): 1,
        ("options/__init__.py", "__post_init__", "InvalidOptionError"): 6,
        ("options/__init__.py", "from_dict", "InvalidOptionError"): 1,
        ("options/__init__.py", "as_group", "InvalidOptionError"): 2,
        ("options/frames.py", "__post_init__", "InvalidOptionError"): 2,
        ("options/frames.py", "steps_of", "InvalidOptionError"): 3,
        ("options/frames.py", "parse", "InvalidOptionError"): 2,
        ("options/flags.py", "_checked", "InvalidOptionError"): 4,
        ("options/flags.py", "entries_in", "InvalidOptionError"): 1,
    },
    "a graph that was not partitioned": {("compiler/driver.py", "_legalized", "InvalidModelError"): 1},
    "a graph of a type that the chip does not have, partitioned for another chip or for none": {
        ("compiler/driver.py", "_compiled", "InvalidModelError"): 1,
    },
    "a graph without tiles at any size of the memory": {
        ("compiler/search/fit.py", "_within_one_buffer", "InvalidModelError"): 1,
        ("compiler/search/fit.py", "within_budget", "InvalidOptionError"): 1,
    },
    "a damaged file, while it is read": {("litert/write.py", "_within", "InvalidModelError"): 1},
    "the format of frames": {
        ("litert/write.py", "with_frames", "InvalidOptionError"): 1,
        ("litert/write.py", "_reverse", "InvalidOptionError"): 2,
    },
    "a pass that no row has": {("compiler/rewrite/passes.py", "__post_init__", "InvalidOptionError"): 1},
    "a mistake in the compiler": {("compiler/driver.py", "checked", "CompilerFaultError"): 1},
}
"""The subject of each error: (file, function, class) and its count. A budget that is too small belongs to
``over_budget``. A damaged program or file (``InvalidProgramError``) was not made by this compile."""


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
