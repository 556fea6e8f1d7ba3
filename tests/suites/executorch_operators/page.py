# SPDX-License-Identifier: BSD-3-Clause
"""The table of a run as a Markdown page."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from executorch.backends.test.suite.reporting import TestResult

from tests.suites.executorch_operators.records import Subtest, Test

COMMAND = "python -m tests.suites.executorch_operators --page docs/executorch-operators.md"

HEAD = """# ExecuTorch's operator suite

`executorch.backends.test.suite.operators`, as the installed ExecuTorch {version} has it, through `NeutronQuantizer`,
`NeutronPartitioner` and the simulated NPU. Made on {date} by `{command}`, which runs every test within {limit} s of
processor time. CI runs only a slice of the suite and does not make this page.

A subtest is one model. The suite skips models that fail in PyTorch itself, and models with an operator on the CPU for which
ExecuTorch has no kernel. *Executable* are all other models with at least one computing operator; *whole* are those with every
computing operator in delegate calls. The suite compares results with the quantized module's in PyTorch, with its own tolerances.
"""


def text(tests: Sequence[Test], version: str, date: str, limit: int) -> str:
    """Return the page: totals, the operators that stay on the CPU by reason, and a row for each file of the suite."""
    parts = [
        HEAD.format(version=version, date=date, command=COMMAND, limit=limit),
        _totals(tests),
        "## Executable subtests that are not delegated whole\n",
        _reasons(tests),
        "## Subtests that are not executable\n",
        _not_executable(tests),
        "## By operator\n",
        _rows(tests),
    ]
    return "\n".join(parts)


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines) + "\n"


def subtests(tests: Iterable[Test]) -> list[Subtest]:
    return [subtest for test in tests for subtest in test.subtests]


def _totals(tests: Sequence[Test]) -> str:
    outcomes = Counter(test.outcome for test in tests)
    executable = [subtest for subtest in subtests(tests) if subtest.is_executable]
    whole = sum(subtest.is_whole for subtest in executable)
    share = f"{100 * whole / len(executable):.1f}%" if executable else "-"
    counted = [len(tests), outcomes["passed"], outcomes["failed"], outcomes["skipped"]]
    head = ("tests", "passed", "failed", "skipped", "subtests", "executable", "whole", "share")
    return _table(head, [[*counted, len(subtests(tests)), len(executable), whole, share]])


def _of_each(tests: Iterable[Test]) -> Iterator[tuple[str, Subtest]]:
    for test in tests:
        for subtest in test.subtests:
            yield test.file, subtest


def _reasons(tests: Sequence[Test]) -> str:
    found: Counter[tuple[str, str, str]] = Counter()
    for file, subtest in _of_each(tests):
        if subtest.is_executable and not subtest.is_whole:
            found.update({(file, *item) for item in subtest.on_cpu} or {(file, "", subtest.error or subtest.result)})
    rows = [(file, f"`{name}`", reason, count) for (file, name, reason), count in sorted(found.items())]
    return _table(("file", "operator", "reason", "subtests"), rows)


def _not_executable(tests: Sequence[Test]) -> str:
    found: Counter[tuple[str, str]] = Counter()
    for file, subtest in _of_each(tests):
        if not subtest.is_executable:
            found[file, _why_not(subtest)] += 1
    return _table(
        ("file", "reason", "subtests"), [(file, reason, count) for (file, reason), count in sorted(found.items())]
    )


def _why_not(subtest: Subtest) -> str:
    if subtest.result != TestResult.SKIPPED.name:
        return "nothing in it computes or moves a value"
    if subtest.error:
        return f"it fails in PyTorch: {subtest.error}"
    names = sorted({name for name, _ in subtest.on_cpu})
    return "the suite takes ExecuTorch to have no kernel for " + ", ".join(f"`{name}`" for name in names)


def _rows(tests: Sequence[Test]) -> str:
    rows = []
    for file, group in itertools.groupby(sorted(tests, key=lambda test: test.file), key=lambda test: test.file):
        here = list(group)
        outcomes = Counter(test.outcome for test in here)
        executable = [subtest for subtest in subtests(here) if subtest.is_executable]
        whole = sum(subtest.is_whole for subtest in executable)
        counted = [outcomes["passed"], outcomes["failed"], outcomes["skipped"]]
        seconds = f"{max(test.seconds for test in here):.0f}"
        rows.append([file, *counted, len(subtests(here)), len(executable), whole, seconds])
    head = ("file", "passed", "failed", "skipped", "subtests", "executable", "whole", "longest test, s")
    return _table(head, rows)
