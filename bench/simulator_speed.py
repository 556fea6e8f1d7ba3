# SPDX-License-Identifier: BSD-3-Clause
"""The simulator's speed beside LiteRT's kernels: one thread, one process, interleaved repeats."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import child

TITLE = "One inference on the host, ms of CPU time, one thread; LiteRT's three kernel sets"
REPEATS = 9
SAMPLE_SECONDS = 0.05
"""Runs of one sample are repeated until they take so long: short networks are below a clock's tick."""

PEERS = {
    "LiteRT reference": "BUILTIN_REF",
    "LiteRT optimized": "BUILTIN_WITHOUT_DEFAULT_DELEGATES",
    "LiteRT XNNPACK": "AUTO",
}


def measure() -> dict[str, Any]:
    """Median ms of the simulator and of each of LiteRT's kernel sets, for each shared model."""
    return {model.stem: child.module_json("bench.simulator_speed", str(model)) for model in child.shared_models()}


def rows(results: dict[str, Any]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Heads and lines of the printed table."""
    heads = ("model", "simulator", *(name.removeprefix("LiteRT ") for name in PEERS), "x reference", "x optimized")
    lines = []
    for model, ms in results.items():
        ratios = [f"{ms[peer] / ms['simulator']:.2f}" for peer in list(PEERS)[:2]]
        lines.append((child.short_name(model), *(f"{ms[name]:.3f}" for name in ("simulator", *PEERS)), *ratios))
    return heads, lines


def _speeds(model: Path) -> dict[str, float]:
    import numpy as np
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    from openneutron import litert, targets
    from openneutron.compiler import compile_graph
    from openneutron.device.simulator import Simulator

    compiled = compile_graph(litert.read(model).graph, targets.get("imxrt700"))
    generator = np.random.default_rng(0)
    inputs = [generator.integers(-128, 128, tensor.shape, np.int8) for tensor in compiled.inputs]
    simulator = Simulator(compiled.program)
    contestants: dict[str, Callable[[], object]] = {"simulator": lambda: simulator.run(inputs)}
    for name, resolver in PEERS.items():
        kind = getattr(OpResolverType, resolver)
        interpreter = Interpreter(str(model), experimental_op_resolver_type=kind, num_threads=1)
        interpreter.allocate_tensors()
        for detail, value in zip(interpreter.get_input_details(), inputs, strict=True):
            interpreter.set_tensor(detail["index"], value)
        contestants[name] = interpreter.invoke
    samples: dict[str, list[float]] = {name: [] for name in contestants}
    counts = {name: _count(contestant) for name, contestant in contestants.items()}
    for _ in range(REPEATS):
        for name, contestant in contestants.items():
            start = time.process_time()
            for _ in range(counts[name]):
                contestant()
            samples[name].append((time.process_time() - start) / counts[name])
    return {name: 1e3 * statistics.median(times) for name, times in samples.items()}


def _count(contestant: Callable[[], object]) -> int:
    contestant()
    start = time.process_time()
    contestant()
    return max(1, round(SAMPLE_SECONDS / max(1e-6, time.process_time() - start)))


if __name__ == "__main__":
    print(json.dumps(_speeds(Path(sys.argv[1]))))
