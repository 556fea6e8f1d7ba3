# SPDX-License-Identifier: BSD-3-Clause
"""CPU seconds of compiling one PyTorch model again: with a cache, and with ``recompile``."""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from typing import Any

from bench import child

TITLE = "MobileNetV2 224, compiled again: CPU seconds beyond imports"
MODEL = "mobilenet_v2"
SAMPLES = 8
REPEATS = 3
KIB = 1024
BUDGET = 700 * KIB
BUDGETS = tuple(range(300 * KIB, 1500 * KIB, 60 * KIB))
"""Twenty budgets, from near the smallest sufficient one to whole tensors."""

WORK = {
    "first": "compile, empty cache",
    "same": "the same again, new process",
    "budget": "another budget, new process",
    "recompile": "another budget, recompile",
    "budgets": "compile and 20 budgets by recompile",
}


def measure() -> dict[str, float]:
    """CPU seconds of each kind of work, medians of new processes; each starts with an empty cache or with that of the first."""
    runs: dict[str, list[float]] = {work: [] for work in WORK}
    for _ in range(REPEATS):
        with tempfile.TemporaryDirectory() as cache:
            for work in ("first", "same", "budget"):
                runs[work].append(child.module_json("bench.cached", work, cache)[work])
        found = child.module_json("bench.cached", "budgets", "")
        for work in ("recompile", "budgets"):
            runs[work].append(found[work])
    return {work: statistics.median(seconds) for work, seconds in runs.items()}


def rows(results: dict[str, float]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Heads and lines of the printed table."""
    return ("work", "CPU s"), [(words, f"{results[work]:.2f}") for work, words in WORK.items()]


def run(work: str, cache: str) -> dict[str, float]:
    """Return the CPU seconds of one kind of work in this process."""
    import torch

    import openneutron
    import openneutron.api.pytorch
    from openneutron.pytorch.source import models

    torch.set_num_threads(1)
    model, example = models.get(MODEL)
    samples = models.samples(MODEL, SAMPLES)
    options = openneutron.CompileOptions(sram_budget=BUDGET if work == "budget" else None)
    start = time.process_time()
    made: Any = openneutron.compile(model, example, calibration=samples, options=options, cache=cache or None)
    if work != "budgets":
        return {work: time.process_time() - start}
    before = time.process_time()
    made.recompile(sram_budget=BUDGET)
    first = time.process_time() - before
    for budget in BUDGETS:
        made.recompile(sram_budget=budget)
    return {"recompile": first, "budgets": time.process_time() - start}


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1], sys.argv[2])))
