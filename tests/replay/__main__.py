# SPDX-License-Identifier: BSD-3-Clause
"""``python -m tests.replay`` compares the records of all cases with the files; ``--write`` writes the files."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from itertools import chain
from pathlib import Path

from tests.replay.graphs import GROUPS, chips
from tests.replay.networks import pytorch
from tests.replay.records import Case, differences, read, write

HERE = Path(__file__).parent


def main(arguments: list[str]) -> int:
    """Return 1 where a record differs from its file, else 0."""
    parser = argparse.ArgumentParser(prog="python -m tests.replay", description="Compare programs with their records.")
    parser.add_argument("--write", action="store_true", help="write the records instead of comparing them")
    parser.add_argument(
        "--all", action="store_true", help="also other chips and the networks that go through PyTorch: minutes"
    )
    options = parser.parse_args(arguments)
    files: dict[str, Iterable[Case]] = {"programs.txt": chain.from_iterable(group() for group in GROUPS.values())}
    if options.all:
        files["chips.txt"] = chips()
        files["pytorch.txt"] = pytorch()
    different = 0
    for file, cases in files.items():
        if options.write:
            _write(HERE / file, cases)
            continue
        for line in differences(cases, read(HERE / file)):
            different += 1
            print(line, flush=True)
    return int(different > 0)


def _write(path: Path, cases: Iterable[Case]) -> None:
    """Write the records of the cases; records of trained models that are absent here stay as they are."""
    made = {case.name: case.record() for case in cases}
    before = read(path) if path.is_file() else {}
    kept = {name: record for name, record in before.items() if name.startswith("trained/")}
    write(path, {**kept, **made})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
