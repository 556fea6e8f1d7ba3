# SPDX-License-Identifier: BSD-3-Clause
"""The results of a suite run as data: one record for each test and each of its subtests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from executorch.backends.test.suite.reporting import TestCaseSummary, TestResult

from openneutron.pytorch.partition.gather import NOTHING_TO_DO
from tests.suites.executorch_operators.flow import OpenNeutronTester


@dataclass(frozen=True, slots=True)
class Subtest:
    """One model of a test. ``computing`` counts the operators that compute or move values, ``on_cpu`` holds an operator and
    a reason for each of those outside the delegate calls."""

    result: str
    error: str = ""
    computing: int = 0
    on_cpu: tuple[tuple[str, str], ...] = ()

    @property
    def is_executable(self) -> bool:
        """Return whether the suite can run the model on ExecuTorch's kernels, and the NPU has something to compute."""
        return self.result != TestResult.SKIPPED.name and self.computing > 0

    @property
    def is_whole(self) -> bool:
        """Return whether all computing operators are delegated."""
        return self.result == TestResult.SUCCESS.name and not self.on_cpu


@dataclass(frozen=True, slots=True)
class Test:
    """A test of the suite: its file without ``test_``, its name, its outcome (passed, failed or skipped), and its processor
    time in seconds."""

    __test__ = False

    file: str
    name: str
    outcome: str
    seconds: float
    subtests: tuple[Subtest, ...] = field(default=())

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Test:
        """Return the test from its ``to_dict``, also after JSON, which turns tuples into lists."""
        found = (
            Subtest(**{**item, "on_cpu": tuple((name, reason) for name, reason in item["on_cpu"])})
            for item in data["subtests"]
        )
        return cls(**{**data, "subtests": tuple(found)})


def subtests_of(summaries: Sequence[TestCaseSummary], testers: Sequence[OpenNeutronTester]) -> tuple[Subtest, ...]:
    """Return the records of one test. A subtest whose model fails in PyTorch itself has no tester."""
    rest = iter(testers)
    return tuple(_subtest(item, next(rest) if item.quantize_time is not None else None) for item in summaries)


def _subtest(summary: TestCaseSummary, tester: OpenNeutronTester | None) -> Subtest:
    lines = [line.strip() for line in str(summary.error or "").splitlines() if line.strip()]
    error = f"{type(summary.error).__name__}: {lines[0] if lines else ''}" if summary.error is not None else ""
    delegation = None if tester is None else tester.delegation
    if delegation is None:
        return Subtest(summary.result.name, error)
    on_cpu = [item for item in delegation.on_cpu if item.rule != NOTHING_TO_DO.rule]
    return Subtest(
        summary.result.name,
        error,
        len(delegation.on_npu) + len(on_cpu),
        tuple((item.overload, item.reason) for item in on_cpu),
    )
