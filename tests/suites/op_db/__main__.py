# SPDX-License-Identifier: BSD-3-Clause
"""``python -m tests.suites.op_db [OPERATOR …]``: compile and run the samples of every operator, or of the named ones.

``--samples N``: at most N of each operator, 0 for all. ``--records FILE``: the outcomes as JSON lines; operators in the
file are not run again. ``--write``: write docs/op-db.md; takes no operators. The exit code is 1 where a sample failed
or is wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from tests.suites.op_db.measure import FAILED, WRONG, Outcome, outcomes
from tests.suites.op_db.page import PAGE, page
from tests.suites.op_db.samples import operators, samples_of

SAMPLES = 4


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.suites.op_db", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="OPERATOR")
    parser.add_argument("--samples", type=int, default=SAMPLES)
    parser.add_argument("--records", type=Path)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    found = read_records(options.records)
    for name, info in operators().items():
        if name in found or (options.names and name not in options.names):
            continue
        samples = samples_of(info, options.samples)
        found[name] = outcomes(samples) if samples else []
        _tell(name, found[name])
        if options.records is not None:
            with options.records.open("a") as file:
                file.write(json.dumps({"name": name, "outcomes": [asdict(item) for item in found[name]]}) + "\n")
    if options.write and not options.names:
        PAGE.write_text(page(found, options.samples))
    bad = [name for name, items in found.items() if any(item.kind in (FAILED, WRONG) for item in items)]
    print(f"{len(found)} operators; a sample failed or is wrong of {len(bad)}: {', '.join(bad) or 'none'}")
    return 1 if bad else 0


def read_records(path: Path | None) -> dict[str, list[Outcome]]:
    """Return the outcomes of earlier runs, by operator."""
    if path is None or not path.exists():
        return {}
    records = [json.loads(line) for line in path.read_text().splitlines()]
    return {
        record["name"]: [Outcome(**{**item, "reasons": tuple(item["reasons"])}) for item in record["outcomes"]]
        for record in records
    }


def _tell(name: str, items: Sequence[Outcome]) -> None:
    kinds = [item.kind for item in items]
    counted = ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds)) or "no sample with a tensor"
    print(f"{name}: {counted}", flush=True)
    for item in items:
        if item.kind in (FAILED, WRONG):
            print(f"    {item.kind}: {item.reasons[0]}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
