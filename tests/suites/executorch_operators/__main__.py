# SPDX-License-Identifier: BSD-3-Clause
"""``python -m tests.suites.executorch_operators [FILE[::TEST] ...] [--page FILE]``"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from tests.suites.executorch_operators.records import Test
from tests.suites.executorch_operators.suite import run


def main() -> int:
    """Runs the suite, prints a line for each test and exits with 1 where one failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.suites.executorch_operators", description=__doc__)
    parser.add_argument("names", nargs="*", help="files (conv3d) or tests (conv3d::test_conv3d_basic); all without")
    parser.add_argument("--page", type=Path, help="write the table of results to this Markdown file")
    parser.add_argument("--records", type=Path, help="write every subtest to this file, one test a line, as JSON")
    given = parser.parse_args()
    records = None if given.records is None else given.records.open("w")

    def tell(test: Test) -> None:
        print(f"{test.outcome:8}{test.seconds:7.1f} s  {test.file}::{test.name}", flush=True)
        for number, subtest in enumerate(test.subtests):
            if subtest.error or subtest.on_cpu:
                print(f"  {number}: {subtest.result} {subtest.error} {list(subtest.on_cpu) or ''}", flush=True)
        if records is not None:
            records.write(json.dumps(test.to_dict()) + "\n")
            records.flush()

    tests = run(given.names, tell)
    failed = [test for test in tests if test.outcome == "failed"]
    print(f"{len(tests)} tests, {len(failed)} failed")
    return 1 if failed or not tests else 0


if __name__ == "__main__":
    sys.exit(main())
