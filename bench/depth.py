# SPDX-License-Identifier: BSD-3-Clause
"""Measure the growth of the time to compile a network with its depth, by ExecuTorch's steps and by openneutron.compile."""

from __future__ import annotations

import json
import statistics
import sys
from itertools import pairwise
from typing import Any

from bench import aot_steps, child, module_to_pte

TITLE = "Residual networks, 32 channels of 16x16: CPU seconds of each step by the number of blocks"
DEPTHS = (15, 30, 60)
REPEATS = 3
STEPS = ("export", "prepare", "calibrate", "convert", "re-export", "lower", "to_executorch")
COMPILE = "openneutron.compile"


def measure() -> dict[str, Any]:
    """CPU seconds of each step and of one compile by the number of blocks, medians of interleaved runs."""
    runs: dict[int, list[dict[str, float]]] = {depth: [] for depth in DEPTHS}
    for _ in range(REPEATS):
        for depth, measured in runs.items():
            compiled = child.module_json("bench.depth", COMPILE, str(depth))
            measured.append({**child.module_json("bench.depth", "steps", str(depth)), COMPILE: compiled["seconds"]})
    return {
        str(depth): {step: statistics.median(run[step] for run in measured) for step in (*STEPS, COMPILE)}
        for depth, measured in runs.items()
    }


def rows(results: dict[str, Any]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Heads and lines of the printed table."""
    heads = ("step", *(f"{depth} blocks" for depth in DEPTHS), *(f"{b} / {a}" for a, b in pairwise(DEPTHS)))
    by_step = {step: [results[str(depth)][step] for depth in DEPTHS] for step in STEPS}
    by_step["sum"] = [sum(seconds) for seconds in zip(*by_step.values(), strict=True)]
    by_step[COMPILE] = [results[str(depth)][COMPILE] for depth in DEPTHS]
    return heads, [
        (step, *(f"{item:.2f}" for item in seconds), *(f"{b / a:.2f}" for a, b in pairwise(seconds)))
        for step, seconds in by_step.items()
    ]


def residual_network(blocks: int) -> tuple[Any, Any, Any]:
    """A seeded network of so many residual blocks, two 3x3 convolutions with batch norm each; example input and samples."""
    import torch
    from torch import nn

    from openneutron.pytorch.source.models.small import BasicBlock

    torch.manual_seed(0)
    model = nn.Sequential(*(BasicBlock(32, 32, 1) for _ in range(blocks))).eval()
    samples = [(torch.randn(1, 32, 16, 16),) for _ in range(aot_steps.CALIBRATION_BATCHES)]
    return model, samples[0], samples


if __name__ == "__main__":
    what, depth = sys.argv[1:]
    if what == COMPILE:
        print(json.dumps(module_to_pte.measured("openneutron", lambda: residual_network(int(depth))[:2])))
    else:
        print(json.dumps(aot_steps.run("openneutron", lambda: residual_network(int(depth)))))
