# SPDX-License-Identifier: BSD-3-Clause
"""``python -m tests.suites.targets [NETWORK ...]`` compiles and runs networks on all targets, all networks without names.

A name may have ``*``. Each network is quantized once, and runs in a process of its own. Its graphs and results are kept in the folder
of ``--folder``, so that a run that was interrupted goes on where it was; ``--again`` measures anew. ``--targets`` names some targets.
``--jobs N`` runs N networks at a time, whose lines are printed in the order in which they end.
``--write`` writes docs/networks-on-targets.md from all results of the folder. The exit code is 1 where a network failed on a target.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from typing import Any

from openneutron import targets
from openneutron.targets import Target
from tests.suites.targets import networks
from tests.suites.targets.page import PAGE, line, page

ROOT = Path(__file__).parents[3]
FOLDER = Path(tempfile.gettempdir()) / "openneutron-targets"
SECONDS = 3600
"""The time limit of a network on all targets."""

Results = dict[str, dict[str, Any]]
"""Figures by target."""


def machine(target: Target) -> tuple[Any, ...]:
    """Return all numbers of a target: programs for targets with equal numbers differ in the name's checksum alone.

    Those of jobs are for programs of the host core.
    """
    return tuple((place, str(fact.value)) for place, _, fact in replace(target, jobs=None).facts())


def twins(names: Sequence[str]) -> dict[str, str]:
    """Return the first target of equal numbers for each target."""
    first: dict[tuple[Any, ...], str] = {}
    return {name: first.setdefault(machine(targets.get(name)), name) for name in names}


def columns() -> list[list[str]]:
    """Return all targets, those of equal numbers together; i.MX RT700 is in the first place."""
    same = twins(targets.names())
    found: dict[str, list[str]] = {}
    for name in sorted(same, key=lambda name: (targets.get(name).moves_tiles, name)):
        found.setdefault(same[name], []).append(name)
    return list(found.values())


def run(name: str, folder: Path, chosen: Sequence[str], known: Results) -> Results:
    """Return ``known`` with the figures of a network on the chosen targets that are absent there."""
    same = twins(chosen)
    open_targets = [target for target in dict.fromkeys(same.values()) if target not in known]
    found = dict(known)
    if open_targets:
        command = [sys.executable, "-W", "ignore", "-m", "tests.suites.targets.measured", name, str(folder / "graphs")]
        text, fault = _ran([*command, *open_targets])
        made = {"revision": revision()}
        found |= {figures["target"]: {**figures, **made} for figures in map(json.loads, text.splitlines())}
        for target in open_targets:
            found.setdefault(target, {"network": name, "target": target, "fault": fault, **made})
    return found | {target: {**found[first], "target": target} for target, first in same.items() if target not in found}


def run_all(
    names: Sequence[str], folder: Path, chosen: Sequence[str], known: dict[str, Results], jobs: int = 1
) -> Iterator[tuple[str, Results]]:
    """Yield each network with its figures when its run has ended and its results are saved; ``jobs`` networks run at a time."""
    with ThreadPoolExecutor(jobs) as pool:
        runs = {pool.submit(run, name, folder, chosen, known.get(name, {})): name for name in names}
        try:
            for done in as_completed(runs):
                name, found = runs[done], done.result()
                _save(folder, name, found)
                yield name, found
        finally:
            pool.shutdown(cancel_futures=True)


def revision() -> str:
    """Return the commit that is checked out; an empty string outside of a repository."""
    command = ["git", "rev-parse", "--short=8", "HEAD"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()


def _ran(command: list[str]) -> tuple[str, str]:
    """Return the standard output of a process, and the last line of its errors."""
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=SECONDS)
    except subprocess.TimeoutExpired as error:
        said = error.stdout or b""
        return said.decode() if isinstance(said, bytes) else said, f"it took more than {SECONDS} s"
    said = done.stderr.strip().splitlines() or ["no message"]
    return done.stdout, f"exit code {done.returncode}: {said[-1]}"


def main(arguments: Sequence[str]) -> int:
    """Return 1 where a network failed on a target, else 0."""
    parser = argparse.ArgumentParser(prog="python -m tests.suites.targets", description="Run networks on all targets.")
    parser.add_argument("networks", nargs="*", help="names such as 'suite/*'; all networks without names")
    parser.add_argument("--targets", nargs="+", default=targets.names(), help="the targets; all without names")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="the folder of graphs and results")
    parser.add_argument("--again", action="store_true", help="measure anew where there are results")
    parser.add_argument("--jobs", type=int, default=1, help="the number of networks at a time; 1 by default")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name} from all results of the folder")
    options = parser.parse_args(arguments)
    patterns = options.networks or ["*"]
    names = [name for name in networks.makers() if any(fnmatch.fnmatch(name, pattern) for pattern in patterns)]
    results = _read(options.folder)
    known = {} if options.again else results
    failed = []
    for name, found in run_all(names, options.folder, options.targets, known, options.jobs):
        results[name] = found
        for target in options.targets:
            print(line(found[target]), flush=True)
            failed += [f"{name} on {target}"] if "fault" in found[target] else []
    if options.write:
        whole = {name: each for name, each in results.items() if set(targets.names()) <= each.keys()}
        absent = [name for name in networks.makers() if name not in whole]
        PAGE.write_text(page({name: whole[name] for name in networks.makers() if name in whole}, columns(), absent))
    print(f"{len(failed)} of {len(names) * len(options.targets)} failed: {', '.join(failed) or 'none'}")
    return int(bool(failed))


def _read(folder: Path) -> dict[str, Results]:
    found = [json.loads(path.read_text()) for path in sorted((folder / "results").glob("*.json"))]
    return {each["network"]: each["targets"] for each in found}


def _save(folder: Path, name: str, results: Results) -> None:
    path = folder / "results" / f"{name.replace('/', '-')}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"network": name, "targets": results}, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
