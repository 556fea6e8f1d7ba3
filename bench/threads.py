# SPDX-License-Identifier: BSD-3-Clause
"""Threads that compute each kernel call together: wall and CPU time of an inference on the host, for one thread and two."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from bench import child

TITLE = "One inference, ms: on the host, wall and CPU time of one thread and of two, the best of repeated samples; modelled, a Cortex-A55"
REPEATS = 12
SAMPLE_SECONDS = 0.02
MODELLED = (1, 2, 4, 6)
"""The numbers of threads whose times on a Cortex-A55 are modelled."""
TOKENS, HEADS, DEPTH = 128, 4, 32
TRANSFORMER = f"transformer block, {TOKENS} tokens of {HEADS * DEPTH} channels"


def measure() -> dict[str, Any]:
    """Return the times of each shared model and of a transformer block, by name."""
    models = {model.stem: str(model) for model in child.shared_models()}
    return {
        name: child.module_json("bench.threads", model) for name, model in {**models, TRANSFORMER: TRANSFORMER}.items()
    }


def rows(results: dict[str, Any]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return heads and lines of the printed table."""
    heads = ("model", "1 thread", "CPU", "2 threads", "CPU", "times faster", *(f"A55, {count}" for count in MODELLED))
    lines = []
    for model, times in results.items():
        (one, one_cpu), (two, two_cpu) = times["1"], times["2"]
        figures = (f"{ms:.3f}" for ms in (one, one_cpu, two, two_cpu))
        modelled = (f"{ms:.3f}" for ms in times["modelled"])
        lines.append((child.short_name(model), *figures, f"{one / two:.2f}", *modelled))
    return heads, lines


def _times(name: str) -> dict[str, Any]:
    """Return wall and CPU milliseconds on the host by the number of threads, and the modelled milliseconds of ``MODELLED``."""
    import numpy as np

    from openneutron import litert, targets
    from openneutron.compiler import compile_graph
    from openneutron.device.simulator import Simulator
    from tests.support.attention_graphs import block

    graph = block(0, 1, TOKENS, HEADS, DEPTH, layer_norm=True) if name == TRANSFORMER else litert.read(Path(name)).graph
    compiled = compile_graph(graph, targets.get("cortex-a55"))
    generator = np.random.default_rng(0)
    inputs = [generator.integers(-128, 128, tensor.shape, np.int8) for tensor in compiled.inputs]
    simulators = {threads: Simulator(compiled.program, threads=threads) for threads in (1, 2)}
    best = dict.fromkeys(simulators, (float("inf"), float("inf")))
    wanted = simulators[1].run(inputs)
    for _ in range(REPEATS):
        for threads, simulator in simulators.items():
            wall, cpu, runs = time.perf_counter(), time.process_time(), 0
            while time.perf_counter() - wall < SAMPLE_SECONDS or runs == 0:
                results, runs = simulator.run(inputs), runs + 1
            assert all(np.array_equal(got, want) for got, want in zip(results, wanted, strict=True))
            spent = 1e3 * (time.perf_counter() - wall) / runs, 1e3 * (time.process_time() - cpu) / runs
            best[threads] = min(best[threads], spent)
    modelled = []
    for count in MODELLED:
        target = targets.get(targets.in_threads("cortex-a55", count))
        modelled.append(target.milliseconds(compile_graph(graph, target).report.cycles))
    return {**{str(threads): times for threads, times in best.items()}, "modelled": modelled}


if __name__ == "__main__":
    print(json.dumps(_times(sys.argv[1])))
