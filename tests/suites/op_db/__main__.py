# SPDX-License-Identifier: BSD-3-Clause
"""``python -m tests.suites.op_db [OPERATOR …]``: compile and run the samples of every operator, or of the named ones.

``--samples N``: at most N of each operator, 0 for all. ``--target CHIP``: a chip to compile for, several times for several; without
it the default chip. ``--records FILE``: the outcomes as JSON lines; operators in the file are not run again. ``--write``: write
docs/op-db.md; takes no operators. The exit code is 1 where a sample failed or is wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from openneutron import targets
from tests.suites.op_db.measure import FAILED, TOGETHER, WRONG, Outcome, outcomes, outcomes_here
from tests.suites.op_db.page import PAGE, Found, page
from tests.suites.op_db.samples import Sample, may_be_refused, operators, samples_of

SAMPLES = 2
WARM_UP = "abs"
"""The operator that is compiled first in this process, so that its children find the modules imported."""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.suites.op_db", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="OPERATOR")
    parser.add_argument("--samples", type=int, default=SAMPLES)
    parser.add_argument("--target", action="append", dest="targets", metavar="CHIP")
    parser.add_argument("--records", type=Path)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    chips = options.targets or [targets.DEFAULT]
    infos = operators()
    found = {name: of for name, of in read_records(options.records).items() if set(chips) <= set(of)}
    outcomes_here(samples_of(infos[WARM_UP], 1), chips)
    wanted = [name for name in infos if name not in found and (not options.names or name in options.names)]
    for group in _groups((name, samples_of(infos[name], options.samples)) for name in wanted):
        rows = iter(outcomes([sample for samples in group.values() for sample in samples], chips))
        for name, samples in group.items():
            columns = list(zip(*(next(rows) for _ in samples), strict=True))
            found[name] = dict(zip(chips, columns or [()] * len(chips), strict=True))
            _tell(name, found[name])
            if options.records is not None:
                with options.records.open("a") as file:
                    items = {chip: [asdict(item) for item in of] for chip, of in found[name].items()}
                    file.write(json.dumps({"name": name, "outcomes": items}) + "\n")
    if options.write and not options.names:
        PAGE.write_text(page({chip: {name: of[chip] for name, of in found.items()} for chip in chips}, options.samples))
    bad = [
        name for name, of in found.items() for chip in chips if any(item.kind in (FAILED, WRONG) for item in of[chip])
    ]
    names = ", ".join(dict.fromkeys(bad))
    print(f"{len(found)} operators; a sample failed or is wrong of {len(set(bad))}: {names or 'none'}")
    return 1 if bad else 0


def _groups(items: Iterator[tuple[str, list[Sample]]]) -> Iterator[dict[str, list[Sample]]]:
    """Return operators whose samples are compiled as one model. An operator that may be refused is alone: a refusal ends
    the compile of its whole model."""
    group: dict[str, list[Sample]] = {}
    count = 0
    for name, samples in items:
        if any(may_be_refused(sample) for sample in samples):
            yield {name: samples}
            continue
        if group and count + len(samples) > TOGETHER:
            yield group
            group, count = {}, 0
        group[name] = samples
        count += len(samples)
    if group:
        yield group


def read_records(path: Path | None) -> dict[str, dict[str, Sequence[Outcome]]]:
    """Return the outcomes of earlier runs by operator and target."""
    if path is None or not path.exists():
        return {}
    records = [json.loads(line) for line in path.read_text().splitlines()]
    return {
        record["name"]: {
            chip: [Outcome(**{**item, "reasons": tuple(item["reasons"])}) for item in items]
            for chip, items in record["outcomes"].items()
        }
        for record in records
    }


def _tell(name: str, found: Found) -> None:
    for chip, items in found.items():
        kinds = [item.kind for item in items]
        counted = ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))
        print(f"{name}, {chip}: {counted or 'no sample with a tensor'}", flush=True)
        for item in items:
            if item.kind in (FAILED, WRONG):
                print(f"    {item.kind}: {item.reasons[0]}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
