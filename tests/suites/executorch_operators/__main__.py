# SPDX-License-Identifier: BSD-3-Clause
"""Run ExecuTorch's operator suite through OpenNeutron."""

from __future__ import annotations

import argparse
import datetime
import json
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from tests.suites.executorch_operators.page import text
from tests.suites.executorch_operators.plugin import LIMIT_SECONDS
from tests.suites.executorch_operators.records import Test
from tests.suites.executorch_operators.suite import run


def main() -> int:
    """Run the suite, print a line for each test and return 1 where one failed."""
    given = _arguments()
    known = [] if given.known is None else _read(given.known)
    records = None if given.records is None else given.records.open("w")

    def tell(test: Test) -> None:
        print(f"{test.outcome:8}{test.seconds:7.1f} s  {test.file}::{test.name}", flush=True)
        for number, subtest in enumerate(test.subtests):
            if subtest.error or subtest.on_cpu:
                print(f"  {number}: {subtest.result} {subtest.error} {list(subtest.on_cpu) or ''}", flush=True)
        if records is not None:
            records.write(json.dumps(test.to_dict()) + "\n")
            records.flush()

    done = [f"{test.file}::{test.name}" for test in known]
    tests = [*known, *run(given.names, tell, without=done)]
    failed = [test for test in tests if test.outcome == "failed"]
    print(f"{len(tests)} tests, {len(failed)} failed")
    if given.page is not None:
        given.page.parent.mkdir(parents=True, exist_ok=True)
        given.page.write_text(text(tests, version("executorch"), datetime.date.today().isoformat(), LIMIT_SECONDS))
    return 1 if failed or not tests else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.suites.executorch_operators", description=__doc__)
    parser.add_argument("names", nargs="*", help="files (conv3d) or tests (conv3d::test_conv3d_basic); all without")
    parser.add_argument("--page", type=Path, help="write the table of results to this Markdown file")
    parser.add_argument("--records", type=Path, help="write a line of JSON for each test to this file")
    parser.add_argument("--known", type=Path, help="go on from the records of a run that was stopped")
    return parser.parse_args()


def _read(path: Path) -> Sequence[Test]:
    return [Test.from_dict(json.loads(line)) for line in path.read_text().splitlines()]


if __name__ == "__main__":
    sys.exit(main())
