# SPDX-License-Identifier: BSD-3-Clause
"""A slice of ExecuTorch's operator suite is passed and delegated whole; the page of a run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.suites.executorch_operators.page import text
from tests.suites.executorch_operators.records import Subtest, Test

SLICE = (
    "convtranspose3d::test_convtranspose3d_groups",
    "div::test_divide_f32_floor",
    "embedding_bag::test_embedding_bag_dtype",
    "index_put::test_index_put_dtype",
)
"""One test of each family that other operators are compositions of; each has one subtest."""

KNOWN = Test("relu", "test_relu_f32_multi_dim", "passed", 0.5, (Subtest("SUCCESS", "", 1),))


def test_a_slice_of_the_suite_passes_and_is_delegated_whole(root: Path, tmp_path: Path) -> None:
    """The suite runs in a child process, since pytest does not run inside pytest. Known results are not measured
    again."""
    known, records = tmp_path / "known.jsonl", tmp_path / "records.jsonl"
    known.write_text(json.dumps(KNOWN.to_dict()) + "\n")
    command = [sys.executable, "-W", "ignore", "-m", "tests.suites.executorch_operators", *SLICE]
    command += ["relu::test_relu_f32_multi_dim", "--known", str(known), "--records", str(records)]
    result = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.endswith("5 tests, 0 failed\n")
    tests = [Test.from_dict(json.loads(line)) for line in records.read_text().splitlines()]
    assert [f"{test.file}::{test.name}" for test in tests] == list(SLICE)
    assert [[subtest.is_whole for subtest in test.subtests] for test in tests] == [[True]] * len(SLICE)


def test_the_page_counts_what_is_whole_and_gives_reasons() -> None:
    left = Subtest("SUCCESS_UNDELEGATED", "", 1, (("aten.median.default", "there is no kernel"),))
    skipped = Subtest("SKIPPED", "RuntimeError: too large", 0)
    tests = [
        KNOWN,
        Test("median", "test_median", "passed", 1.6, (left, left, Subtest("SUCCESS_UNDELEGATED"))),
        Test("median", "test_median_dim", "skipped", 0.2, (skipped,)),
    ]
    assert Test.from_dict(json.loads(json.dumps(tests[1].to_dict()))) == tests[1]
    page = text(tests, "1.5", "2026-01-31", 120)
    assert "Made on 2026-01-31 by" in page
    assert "\n| 3 | 2 | 0 | 1 | 5 | 3 | 1 | 33.3% |\n" in page
    assert "\n| median | `aten.median.default` | there is no kernel | 2 |\n" in page
    assert "\n| median | it fails in PyTorch: RuntimeError: too large | 1 |\n" in page
    assert "\n| median | nothing in it computes or moves a value | 1 |\n" in page
    assert "\n| median | 1 | 0 | 1 | 4 | 2 | 0 | 2 |\n" in page
