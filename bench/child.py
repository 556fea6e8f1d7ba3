# SPDX-License-Identifier: BSD-3-Clause
"""Whole processes, measured from outside: CPU seconds and peak memory.

The parent must stay small: Linux counts its pages to a child's peak until the child's own program has started. So nothing here
or in ``bench.__main__`` imports NumPy, torch or LiteRT; what needs them runs as a child.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU seconds (user and system, child processes included) and peak resident memory in MB (10^6 bytes)."""

    cpu_seconds: float
    peak_rss_mb: float

    def as_json(self) -> dict[str, float]:
        return asdict(self)


def run(command: Sequence[str]) -> tuple[Cost, str]:
    """Runs a command and returns its cost and standard output. Raises RuntimeError where it fails."""
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, stdout=output, stderr=errors, env=quiet_environment())
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        errors.seek(0)
        if process.returncode:
            raise RuntimeError(f"{' '.join(command)} exits with {process.returncode}:\n{errors.read()[-2000:]}")
        # ru_maxrss is KiB on Linux (getrusage(2))
        return Cost(usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024 / 1e6), output.read()


def quiet_environment() -> dict[str, str]:
    """One thread for everybody, and no warnings among the results."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    return {**os.environ, **threads, "PYTHONWARNINGS": "ignore", "TF_CPP_MIN_LOG_LEVEL": "3"}


def interleaved(commands: Mapping[str, Sequence[str]], repeats: int) -> dict[str, Cost]:
    """The median cost of each command over ``repeats`` rounds; every round runs each command once."""
    costs: dict[str, list[Cost]] = {name: [] for name in commands}
    for _ in range(repeats):
        for name, command in commands.items():
            costs[name].append(run(command)[0])
    return {
        name: Cost(
            statistics.median(cost.cpu_seconds for cost in measured),
            statistics.median(cost.peak_rss_mb for cost in measured),
        )
        for name, measured in costs.items()
    }


def module_json(module: str, *arguments: str, python: str | Path = sys.executable) -> Any:
    """Return the last line that ``python -m module arguments`` prints, read as JSON. ``python``: the interpreter."""
    _, output = run([str(python), "-m", module, *arguments])
    return json.loads(output.strip().splitlines()[-1])


def shared_models() -> list[Path]:
    """The trained models beside the checkout. Ends the process with a message where they are absent."""
    folder = Path(__file__).parents[2] / "shared" / "models"
    models = sorted(folder.glob("*.tflite"))
    if not models:
        sys.exit(
            f"{folder} has no .tflite. This section measures trained models there, which are no part of the checkout."
        )
    return models


def short_name(model: str) -> str:
    """A shared model's name for tables: ``resnet8`` for ``mlperf_tiny_resnet8_int8``."""
    return model.removeprefix("mlperf_tiny_").removesuffix("_int8").removesuffix("_random")
