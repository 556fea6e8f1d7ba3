# SPDX-License-Identifier: BSD-3-Clause
"""``python -m tests.suites.people [NAME ...]`` compiles and runs the named cases, all without names.

Prints a line for each case: ``ok`` or ``SHORT``, its name and its figures. ``--kind KIND``: the cases of a kind. ``--records FILE``:
the results as JSON lines; cases that reached their bars in the file are not run again. ``--write`` writes docs/people.md,
whose rows of other cases stay. The exit code is 1 where a case is short of its bar.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from tests.suites.people.case import CASES, Result, measure
from tests.suites.people.kinds import KINDS
from tests.suites.people.page import PAGE, page


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.suites.people", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--kind", choices=KINDS)
    parser.add_argument("--records", type=Path)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    earlier = read_records(options.records)
    results: dict[str, Result] = {}
    for name, one in CASES.items():
        if (options.names and name not in options.names) or (options.kind and one.kind != options.kind):
            continue
        if name in earlier and earlier[name].good:
            results[name] = earlier[name]
            continue
        results[name] = tried(name)
        print(f"{'ok   ' if results[name].good else 'SHORT'} {name}: {results[name].text}", flush=True)
        if options.records is not None:
            with options.records.open("a") as file:
                file.write(json.dumps({"name": name, **asdict(results[name])}) + "\n")
    if options.write:
        PAGE.write_text(page(results, PAGE.read_text() if PAGE.exists() else ""))
    good = sum(result.good for result in results.values())
    print(f"{good} of {len(results)} good")
    return 0 if good == len(results) else 1


def read_records(path: Path | None) -> dict[str, Result]:
    """Return the results of earlier runs by the names of the cases, of several runs the last."""
    if path is None or not path.exists():
        return {}
    records = [json.loads(line) for line in path.read_text().splitlines()]
    return {record["name"]: Result(record["good"], record["text"]) for record in records}


def tried(name: str) -> Result:
    """Return the result of a case; a case that ends in an exception is short."""
    try:
        return measure(CASES[name])
    except Exception as error:
        return Result(False, f"{type(error).__name__}: {' '.join(str(error).split())[:160]}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
