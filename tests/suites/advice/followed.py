# SPDX-License-Identifier: BSD-3-Clause
"""The advice of a report is compared with a compile that follows the advice."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openneutron.cli import main

LIMIT = 0.01
"""The largest difference of a latency from what was said, in parts of it."""


@dataclass(frozen=True, slots=True)
class Followed:
    """Words of the command line, with the latency in milliseconds and the SRAM in bytes before, as said, and as compiled (None: it
    failed). ``is_advice``: they are advice, and not a line of memory against latency alone."""

    network: str
    target: str
    budget: str
    options: str
    is_advice: bool
    before: tuple[float, int]
    said: tuple[float, int]
    made: tuple[float, int] | None

    @property
    def deviation(self) -> float:
        """Return the difference of the latency from what was said, in parts of it; 0 where the compile failed."""
        return 0.0 if self.made is None else abs(self.made[0] / self.said[0] - 1)

    @property
    def is_true(self) -> bool:
        """Return whether the compile has the figures that were said."""
        return self.made is not None and self.deviation <= LIMIT and self.made[1] == self.said[1]


def run(*arguments: str) -> dict[str, Any] | None:
    """Return the JSON that a command prints; None where it fails."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
        code = main([*arguments, "--json", "--quiet"])
    found: dict[str, Any] | None = json.loads(printed.getvalue()) if not code else None
    return found


def report(network: str, options: tuple[str, ...], cache: Path) -> dict[str, Any]:
    """Return the report of a network."""
    data = run("report", network, *options, "--cache", str(cache))
    assert data is not None, (network, *options)
    return data


def middle_budget(data: dict[str, Any]) -> int:
    """Return the budget in KiB of the line in the middle of a report's lines."""
    lines = data["pareto"]
    budget: int = lines[len(lines) // 2]["sram_budget_kib"]
    return budget


def followed(network: str, target: str, options: tuple[str, ...], cache: Path) -> Iterator[Followed]:
    """Yield each piece of advice in the report of a network with these options, and the first, middle and last of its lines of memory
    against latency, each with a compile that has these words."""
    data = report(network, (*options, "--target", target), cache)
    budget = " ".join(options) or "the chip's"
    figures = data["figures"]
    before = figures["modelled_milliseconds"], figures["peak_sram_bytes"]
    advised = {item["options"]: (item["after"]["milliseconds"], item["after"]["sram_bytes"]) for item in data["advice"]}
    points = data["pareto"]
    chosen = [points[place] for place in sorted({0, len(points) // 2, len(points) - 1})]
    lines = {f"--sram-budget {each['sram_budget_kib']}": (each["milliseconds"], each["sram_bytes"]) for each in chosen}
    for words, said in (advised | lines).items():
        made = compiled(network, target, options, tuple(words.split()), cache)
        yield Followed(network, target, budget, words, words in advised, before, said, made)


def compiled(
    network: str, target: str, options: tuple[str, ...], words: tuple[str, ...], cache: Path
) -> tuple[float, int] | None:
    """Return the latency and the SRAM of a compile with these words of the command line; None where it fails."""
    given = () if words[0] in options else options
    suffix = ".tflite" if network.endswith(".tflite") else ".pte"
    place = ("--target", target, "--cache", str(cache), "--output", str(cache / f"out{suffix}"))
    data = run("compile", network, *given, *words, *place)
    return None if data is None else (data["modelled_milliseconds"], data["peak_sram_bytes"])
