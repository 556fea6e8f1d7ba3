# SPDX-License-Identifier: BSD-3-Clause
"""``python -m tests.suites.people [NAME ...]`` compiles and runs the named cases, all without names.

Prints a line for each case: ``ok`` or ``SHORT``, its name and its figures. ``--kind KIND``: the cases of a kind. ``--write`` writes
docs/people.md and takes no names. The exit code is 1 where a case is short of its bar.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Sequence

from tests.suites.people.case import CASES, Result, measure
from tests.suites.people.kinds import KINDS
from tests.suites.people.page import PAGE, page


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.suites.people", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--kind", choices=KINDS)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    results: dict[str, Result] = {}
    for name, one in CASES.items():
        if (options.names and name not in options.names) or (options.kind and one.kind != options.kind):
            continue
        results[name] = tried(name)
        print(f"{'ok   ' if results[name].good else 'SHORT'} {name}: {results[name].text}", flush=True)
    if options.write and not options.names and not options.kind:
        PAGE.write_text(page(results))
    good = sum(result.good for result in results.values())
    print(f"{good} of {len(results)} good")
    return 0 if good == len(results) else 1


def tried(name: str) -> Result:
    """Return the result of a case; a case that ends in an exception is short."""
    try:
        return measure(CASES[name])
    except Exception as error:
        return Result(False, f"{type(error).__name__}: {' '.join(str(error).split())[:160]}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
