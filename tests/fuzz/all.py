# SPDX-License-Identifier: BSD-3-Clause
"""Random graphs on every class of target: ``python -m tests.fuzz.all FIRST END`` goes through the seeds from FIRST up to END.

Seeds go round the targets: i.MX RT700, MCX N94x, i.MX 95, i.MX 943, and random chips of both classes. Of the graphs of a target, every
fourth has int16 activations, where the target computes on them, and every fourth has states from one run to the next. The graphs have 2 to
8 operators of the whole alphabet; resizes, transposed convolutions, slices, pads, broadcasts and recurrent layers are drawn more often.
Each graph is compiled, with the audit, for a random budget; where the graph does not fit, for the least budget that the error names; and
for the memory of the target. Each program is run, whole and with its calls in parts, and compared with LiteRT byte by byte; a layer that LiteRT lacks is computed by a program
of its own. Several processes may go through ranges of seeds beside one another.
"""

from __future__ import annotations

import functools
import os
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from openneutron import targets
from openneutron.compiler import Compiled, CompileOptions
from openneutron.compiler.driver import Prepared, compile_prepared, prepared
from openneutron.device.simulator import Simulator
from openneutron.errors import BudgetError, CompilerFaultError, InvalidModelError
from openneutron.ir import Graph
from openneutron.targets import Target
from tests.suites.targets import reference
from tests.support import oracle, random_chips, random_graphs, random_wide, stateful_graphs
from tests.support.divided import Divided

TARGETS = ("imxrt700", "imx95", "mcxn94x", "imx943", "drawn C", "drawn S")
FREQUENT = (
    "resize_bilinear",
    "resize_nearest_neighbor",
    "transpose_conv",
    "strided_slice",
    "slice",
    "pad",
    "mirror_pad",
    "add",
    "mul",
    "broadcast_to",
    "unidirectional_sequence_lstm",
    "bidirectional_sequence_lstm",
    "gru",
    "rnn",
    "svdf",
    "conv_2d",
    "depthwise_conv_2d",
    "max_pool_2d",
    "average_pool_2d",
)
"""Operators that are drawn as often as all others together."""

RUNS = 3
"""The runs that a program with states is compared for."""

LEAST_BYTES, MOST_BYTES = 1 << 10, 64 << 10
"""The budgets that are drawn where kernels work on a memory of the NPU; for others, budgets are below what the free arena takes."""

BATCH = 200
"""The seeds of a child process: LiteRT itself may end the process."""


@functools.cache
def _chip(name: str, seed: int) -> Target:
    if not name.startswith("drawn"):
        return targets.get(name)
    with tempfile.TemporaryDirectory() as folder:
        if name == "drawn C":
            return random_chips.drawn(Path(folder), seed, int16=True)
        path = Path(folder) / "drawn.toml"
        path.write_text(_tiled_chip(seed))
        return targets.get(str(path))


def _tiled_chip(seed: int) -> str:
    """Return the file of a chip of class Neutron-S with other numbers than those of i.MX 95."""
    random = np.random.default_rng(seed)
    text = targets.KNOWN["imx95"].read_text().replace('name = "imx95"', f'name = "drawn{seed}"')
    choices = {"units": (1, 2, 4), "pipelines": (4, 8, 16, 32), "macs": (4, 8, 16), "accumulators": (1, 4, 16)}
    choices |= {"bandwidth": (4, 16, 90), "issue_cycles": (0, 100, 5000)}
    for name, values in choices.items():
        value = int(random.choice(values))
        text = re.sub(rf"^({name} = {{ value = )[^,]+", rf"\g<1>{value}", text, count=1, flags=re.MULTILINE)
    return text


def target_of(seed: int) -> Target:
    """Return the target of a seed; random chips change every 600 seeds."""
    return _chip(TARGETS[seed % len(TARGETS)], seed // 600)


def graph_of(seed: int) -> Graph:
    """Return the graph of a seed."""
    kind, target = seed // len(TARGETS) % 4, target_of(seed)
    if kind == 3 and targets.takes_int16(target, host_calls=True):
        return random_wide.several(200_000 + seed, 2, 8)
    graph = random_graphs.several(200_000 + seed, 2, 8, FREQUENT)
    return (stateful_graphs.delayed(graph, seed) if kind == 1 else None) or graph


def check(seed: int) -> tuple[int, int]:
    """Compile and compare the graph of a seed, as ``check_graph`` does."""
    return check_graph(graph_of(seed), target_of(seed), seed)


def check_graph(graph: Graph, target: Target, seed: int) -> tuple[int, int]:
    """Compile and compare a graph at budgets drawn from a seed; return the numbers of programs, and of programs whose first schedule was faulty.

    No program is made where the graph is no valid model (a scale that LiteRT refuses) or has no schedule. Raises AssertionError for any
    difference.
    """
    random = np.random.default_rng(seed)
    options = CompileOptions(prefetch_constants=bool(random.integers(2)), io_place=("arena", "caller")[seed // 24 % 2])
    try:
        given = prepared(graph)
        made = list(_at_budgets(given, target, options, random))
    except InvalidModelError:
        return 0, 0
    if made:
        _compare(graph, made, seed)
    return len(made), sum(bool(each.report.faults) for each in made)


def _at_budgets(
    given: Prepared, target: Target, options: CompileOptions, random: np.random.Generator
) -> Iterator[Compiled]:
    """Yield the programs for the budgets of a graph."""
    if target.moves_tiles:
        drawn = int(2 ** random.uniform(np.log2(LEAST_BYTES), np.log2(MOST_BYTES)))
    else:
        try:
            whole = compile_prepared(given, target, options)
        except BudgetError as error:
            assert error.least_bytes > target.sram.value * 1024, f"{error}"
            return
        yield whole
        drawn = int(random.integers(1, max(whole.report.sram_bytes, 2)))
    for _ in range(2):
        try:
            made = compile_prepared(given, target, replace(options, sram_budget=drawn))
        except BudgetError as error:
            assert error.least_bytes > drawn, f"{drawn} bytes: {error}"
            drawn = error.least_bytes
            if drawn > target.sram.value * 1024:
                return
            continue
        assert made.report.sram_bytes <= drawn, f"{made.report.sram_bytes} of {drawn} bytes"
        yield made
        return
    raise AssertionError(f"the least budget of {drawn} bytes does not do")


def _compare(graph: Graph, made: list[Compiled], seed: int) -> None:
    """Raise AssertionError where a program gives other bytes than LiteRT in one of its runs, computed whole or in three parts for each call."""
    random = np.random.default_rng(seed)
    runs = [oracle.random_inputs(graph, random) for _ in range(RUNS if graph.states else 1)]
    simulators = [(each, kind) for each in made for kind in (Simulator(each.program), Divided(each.program, 3))]
    for run, (inputs, wanted) in enumerate(zip(runs, reference.outputs_of(graph, runs), strict=True)):
        for each, simulator in simulators:
            results = simulator.run([np.ascontiguousarray(value) for value in inputs])
            for name, got, right in zip(graph.outputs, results, wanted, strict=True):
                where = f"{name}, run {run} by {type(simulator).__name__}, {each.report.sram_bytes} bytes on {each.report.target}"
                assert got.tobytes() == np.ascontiguousarray(right).tobytes(), where


def _batch(first: int, end: int, writes: int) -> None:
    """Check seeds and write a line for each to a pipe."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    for seed in range(first, end):
        os.write(writes, f"{seed} begin\n".encode())
        try:
            programs, faults = check(seed)
            line = f"{seed} {programs} {faults}"
        except CompilerFaultError as error:
            line = f"{seed} fault {error}"
        except Exception as error:
            line = f"{seed} difference {type(error).__name__}: {error}"
        os.write(writes, (" ".join(line.split())[:600] + "\n").encode())


def _in_a_child(first: int, end: int) -> list[str]:
    """Return the lines of ``_batch`` in a process of its own."""
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reads)
        _batch(first, end, writes)
        os._exit(0)
    os.close(writes)
    with os.fdopen(reads) as pipe:
        lines = pipe.read().splitlines()
    os.waitpid(child, 0)
    return lines


def _reference_ends(seed: int) -> bool:
    """Return whether LiteRT alone ends the process of a graph."""
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        graph = graph_of(seed)
        reference.outputs_of(graph, [oracle.random_inputs(graph, seed)])
        os._exit(0)
    return os.waitpid(child, 0)[1] != 0


def main(first: int, end: int) -> int:
    """Check seeds [first, end); print each failure and the sums. Return 1 where anything failed."""
    counts, started = Counter[str](), time.process_time() + sum(os.times()[2:4])
    while first < end:
        begun = None
        for line in _in_a_child(first, min(first + BATCH, end)):
            number, what, *rest = line.split(" ", 2)
            first = int(number) + 1
            begun = int(number) if what == "begin" else None
            if what in ("fault", "difference"):
                counts[f"{what}s"] += 1
                counts["graphs"] += 1
                print(f"seed {number} on {target_of(int(number)).name}: {what}: {rest[0]}", flush=True)
            elif what != "begin":
                counts["graphs"] += int(what) > 0
                counts["programs"] += int(what)
                counts["faults"] += int(rest[0])
                if int(rest[0]):
                    print(f"seed {number} on {target_of(int(number)).name}: the audit finds a fault", flush=True)
        if begun is not None:
            # LiteRT's softmax ends the process where 512 values or more are nearly the largest (gemmlowp's RoundingDivideByPOT).
            what = "beyond LiteRT" if _reference_ends(begun) else "differences"
            counts[what] += 1
            if what == "differences":
                print(f"seed {begun} on {target_of(begun).name}: the process ended", flush=True)
    minutes = (time.process_time() + sum(os.times()[2:4]) - started) / 60
    sums = ", ".join(f"{counts[name]} {name}" for name in ("graphs", "programs", "differences", "faults"))
    print(
        f"{sums}; LiteRT itself gives up on {counts['beyond LiteRT']} graphs; "
        f"{counts['graphs'] / max(minutes, 1e-9):.0f} graphs per CPU-minute"
    )
    return int(counts["differences"] + counts["faults"] > 0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
