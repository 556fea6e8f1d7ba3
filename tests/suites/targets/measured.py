# SPDX-License-Identifier: BSD-3-Clause
"""Compile a network for the targets: ``python -m tests.suites.targets.measured NETWORK FOLDER TARGET ...`` prints a line of JSON for
each target.

Each program runs on the simulator and is compared with ``reference`` byte by byte: the program for the target's own memory, and the
program at half of the memory that the network takes without a limit, where this is feasible. Where the target's memory does not
suffice, the error must name a budget that suffices, and the layers that need it.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from openneutron import targets
from openneutron.compiler import Compiled, CompileOptions
from openneutron.compiler.driver import Prepared, compile_prepared, prepared
from openneutron.compiler.legalize.partition import type_reason
from openneutron.compiler.place.place import bytes_outside
from openneutron.compiler.search.fitted import Infeasible
from openneutron.device.simulator import Simulator
from openneutron.errors import BudgetError, OpenNeutronError
from openneutron.ir import Graph
from openneutron.options import ARENA
from openneutron.targets import Target
from tests.suites.targets import networks, reference

UNLIMITED_KIB = 2**20
"""A memory in which every network of the suite has whole tensors."""


@dataclass(slots=True)
class Case:
    """A graph with its inputs and expected outputs. ``passed``: hashes of the programs that gave these outputs."""

    graph: Graph
    inputs: reference.Runs
    wanted: reference.Runs
    passed: set[bytes] = field(default_factory=set)

    @classmethod
    def of(cls, graph: Graph) -> Case:
        """Return the case with random inputs."""
        inputs = reference.inputs_of(graph)
        return cls(graph, inputs, reference.outputs_of(graph, inputs))

    def differing(self, compiled: Compiled) -> int:
        """Return the number of output bytes that differ. A program that has passed before does not run again."""
        program = compiled.program
        key = hashlib.sha256(program.microcode + program.weights).digest()
        if key in self.passed:
            return 0
        different = 0
        with Simulator(program) as simulator:
            for inputs, wanted in zip(self.inputs, self.wanted, strict=True):
                results = simulator.run([np.ascontiguousarray(value) for value in inputs])
                for got, want in zip(results, wanted, strict=True):
                    stored = np.frombuffer(np.ascontiguousarray(want).tobytes(), np.uint8)
                    different += int(np.count_nonzero(np.frombuffer(got.tobytes(), np.uint8) != stored))
        if not different:
            self.passed.add(key)
        return different


def measured(case: Case, target: Target) -> dict[str, Any]:
    """Return the figures of a graph on a target.

    ``fault`` states the first mistake. ``stored_kib`` are weights and microcode. ``unsupported`` is the type of activations that the
    target lacks, ``least_bytes`` the budget where its memory does not suffice.
    """
    reasons = (type_reason(case.graph, node, target, True) for node in case.graph.nodes)
    if any(reasons):
        return {"unsupported": "int16"}
    began = time.process_time()
    ready = prepared(case.graph, kept=True)
    figures: dict[str, Any] = {}
    try:
        figures |= _in_memory(case, ready, target)
        figures |= _at_half(case, ready, target, figures)
    except OpenNeutronError as error:
        figures["fault"] = f"{type(error).__name__}: {error}"
    except AssertionError as error:
        figures["fault"] = str(error) or "assertion"
    return figures | {"cpu_seconds": round(time.process_time() - began, 1)}


def _in_memory(case: Case, ready: Prepared, target: Target) -> dict[str, Any]:
    """Return the figures of the program for the target's memory, or the least budget where this memory does not suffice."""
    try:
        compiled = compile_prepared(ready, target)
    except BudgetError as error:
        _check_error(case, ready, target, error)
        bound = _bound_bytes(case, ready, target)
        return {"least_bytes": error.least_bytes, "bound_bytes": bound, "message": str(error)}
    _check(case, compiled, int(target.sram.value * 1024))
    report = compiled.report
    return {
        "milliseconds": report.estimate(target).milliseconds,
        "sram_bytes": report.sram_bytes,
        "cycles": report.cycles,
        "stored_kib": (report.weights_bytes + report.microcode_bytes) / 1024,
    }


def _check(case: Case, compiled: Compiled, budget: int) -> None:
    different = case.differing(compiled)
    assert not different, f"{different} bytes of the outputs differ at {budget} bytes"
    assert compiled.report.sram_bytes <= budget, f"{compiled.report.sram_bytes} bytes at a budget of {budget}"


def _check_error(case: Case, ready: Prepared, target: Target, error: BudgetError) -> None:
    """Check that the budget which an error names suffices."""
    roomy = target.with_sram(UNLIMITED_KIB)
    _check(case, _within(ready, roomy, error.least_bytes), error.least_bytes)


def _bound_bytes(case: Case, ready: Prepared, target: Target) -> int:
    """Return a lower bound of the memory of all schedules that the compiler searches, in bytes."""
    options = CompileOptions()
    outside = bytes_outside(case.graph, ARENA if target.moves_tiles else options.place)
    budget = int(target.sram.value * 1024) - outside
    found = [task.within(budget) for task in ready.tasks.of(target, options)]
    return outside + min(each.floor_bytes for each in found if isinstance(each, Infeasible))


def _within(ready: Prepared, target: Target, budget: int | None) -> Compiled:
    return compile_prepared(ready, target, CompileOptions(sram_budget=budget))


def _at_half(case: Case, ready: Prepared, target: Target, figures: dict[str, Any]) -> dict[str, Any]:
    """Return the figures at half of the memory that the network takes without a limit. On a Neutron-S that is half of what its plan for
    the memory of the NPU takes. Half is not compiled where it is more than the target's memory."""
    if target.moves_tiles:
        if "sram_bytes" not in figures:
            return {}
        roomy, whole = target, {"sram_bytes": figures["sram_bytes"], "milliseconds": figures["milliseconds"]}
    else:
        roomy = target.with_sram(UNLIMITED_KIB)
        report = _within(ready, roomy, None).report
        whole = {"sram_bytes": report.sram_bytes, "milliseconds": report.estimate(target).milliseconds}
    half = whole["sram_bytes"] // 2
    found: dict[str, Any] = {"unlimited_bytes": whole["sram_bytes"], "unlimited_milliseconds": whole["milliseconds"]}
    if half > target.sram.value * 1024:
        return found
    try:
        compiled = _within(ready, roomy, half)
    except BudgetError as error:
        assert error.least_bytes > half, f"the error at {half} bytes names {error.least_bytes}"
        _check_error(case, ready, target, error)
        return found | {"half_least_bytes": error.least_bytes}
    _check(case, compiled, half)
    milliseconds = compiled.report.estimate(target).milliseconds
    return found | {"half_milliseconds": milliseconds, "half_bytes": compiled.report.sram_bytes}


def merged(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the figures of a network from those of its partitions, which run one after the other: the largest of sizes in bytes, and
    sums of others."""
    made: dict[str, Any] = {"partitions": len(parts)}
    for key in dict.fromkeys(key for part in parts for key in part):
        values = [part[key] for part in parts if key in part]
        if isinstance(values[0], str):
            made[key] = values[0]
        elif key.endswith("bytes"):
            made[key] = max(values)
        else:
            made[key] = sum(values)
    return made


def main(name: str, folder: str, names: list[str]) -> None:
    """Print a line of JSON for each target."""
    network = networks.get(name, Path(folder))
    cases = [Case.of(graph) for graph in network.graphs]
    facts = {"operators": sum(len(case.graph.nodes) for case in cases), "on_cpu": network.on_cpu}
    for target in map(targets.get, names):
        figures = merged([measured(case, target) for case in cases])
        print(json.dumps({"network": name, "target": target.name, **facts, **figures}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
