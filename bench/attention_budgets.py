# SPDX-License-Identifier: BSD-3-Clause
"""Networks of attention and norms within half of their unlimited arena, and within the least budget: modelled time, and bytes compared."""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np

from bench import child
from openneutron import targets
from openneutron.compiler import CompileOptions
from openneutron.compiler.driver import Prepared, compile_prepared, prepared
from openneutron.errors import BudgetError
from openneutron.ir import Graph
from openneutron.options import ARENA, IO_PLACES

TITLE = (
    "Attention within budgets: KiB of the arena, with or without inputs and outputs; time is modelled and relative to that of the "
    "unlimited arena; I/O: the larger of inputs and outputs where both are in the arena, which no schedule can be smaller than"
)

NETWORKS = ("vit_tiny_patch16", "wav2vec2", "patchtst", "gpt2", "swin_tiny", "segformer_b0")
"""The names are those of tests/suites/architectures; OPENNEUTRON_NETWORKS, with spaces between names, selects others."""

SHARES = {"half": 0.5, "0.4": 0.4}
"""Budgets by name, relative to the unlimited arena."""


def measure() -> dict[str, Any]:
    """Return for each network and each place of inputs and outputs the bytes and the time at each budget."""
    names = os.environ.get("OPENNEUTRON_NETWORKS", "").split() or NETWORKS
    # timm and transformers disagree about an absent torchvision: each network has a process of its own.
    return {name: child.module_json("bench.attention_budgets", name) for name in names}


def graph_of(name: str) -> Graph:
    """Return the int8 graph of an architecture. Raises AssertionError where some of it stays on the CPU."""
    import openneutron
    from tests.suites.architectures import models

    model, given = models.get(name)
    compiled = openneutron.compile(model, given[0], calibration=given[:3], name=name)
    (part,) = compiled.partitions
    assert not compiled.delegation.on_cpu, f"{name}: some of it stays on the CPU"
    return part.compiled.graph


def of_graph(graph: Graph) -> dict[str, Any]:
    """Return the bytes of the arena and the time at each budget, by place of inputs and outputs.

    Where the caller holds inputs and outputs, they are no part of the arena: a program's budget is that of the arena and their bytes.

    Raises AssertionError where a program within a budget computes other bytes than LiteRT's reference kernels.
    """
    from tests.support import oracle

    inputs = oracle.random_inputs(graph, 1)
    want = oracle.reference_outputs(graph, inputs)
    kept = prepared(graph, kept=True)
    return {io: _of_place(kept, io, inputs, want) for io in IO_PLACES}


def _of_place(graph: Prepared, io: str, inputs: list[np.ndarray], want: list[np.ndarray]) -> dict[str, Any]:
    from tests.support import oracle

    target, options = targets.get("imxrt700"), CompileOptions(io_place=io, check=True)
    whole = compile_prepared(graph, target, options)
    started = time.process_time()
    inside = [
        sum(graph.graph[name].size_bytes for name in names) for names in (graph.graph.inputs, graph.graph.outputs)
    ]
    outside = 0 if io == ARENA else whole.report.io_bytes
    least, arena = _least_bytes(graph, io) - outside, whole.report.sram_bytes - outside
    found: dict[str, Any] = {
        "whole_bytes": arena,
        "milliseconds": whole.report.estimate(target).milliseconds,
        "io_bytes": max(inside) if io == ARENA else 0,
        "least_bytes": least,
    }
    budgets = {**{name: int(share * arena) for name, share in SHARES.items()}, "least": least}
    for name, budget in budgets.items():
        if budget < least:
            found[name] = None
            continue
        made = compile_prepared(graph, target, CompileOptions(io_place=io, check=True, sram_budget=outside + budget))
        for got, expected in zip(oracle.simulated_outputs(made, inputs), want, strict=True):
            np.testing.assert_array_equal(got, expected, f"{graph.graph.name} in {budget} bytes")
        found[name] = {"bytes": made.report.sram_bytes - outside, "slowdown": made.report.cycles / whole.report.cycles}
    found["cpu_seconds"] = time.process_time() - started
    return found


def _least_bytes(graph: Prepared, io: str) -> int:
    try:
        compile_prepared(graph, targets.get("imxrt700"), CompileOptions(io_place=io, sram_budget=1))
    except BudgetError as error:
        return error.least_bytes
    return 1


def rows(results: dict[str, Any]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return heads and lines of the printed table."""
    heads = (
        "network",
        "I/O in",
        "I/O, KiB",
        "of whole",
        "whole, KiB",
        "ms",
        "time at half",
        "time at 0.4",
        "least, KiB",
        "of whole",
        "time at least",
        "CPU s",
    )
    lines = [
        (
            name,
            io,
            f"{cell['io_bytes'] / 1024:.2f}",
            f"{cell['io_bytes'] / cell['whole_bytes']:.2f}",
            f"{cell['whole_bytes'] / 1024:.2f}",
            f"{cell['milliseconds']:.2f}",
            *(_time_at(cell, share) for share in SHARES),
            f"{cell['least_bytes'] / 1024:.2f}",
            f"{cell['least_bytes'] / cell['whole_bytes']:.2f}",
            f"{cell['least']['slowdown']:.2f}",
            f"{cell['cpu_seconds']:.1f}",
        )
        for name, places in results.items()
        for io, cell in places.items()
    ]
    return heads, lines


def _time_at(cell: dict[str, Any], share: str) -> str:
    if cell[share]:
        return f"{cell[share]['slowdown']:.2f}"
    return "below I/O" if SHARES[share] * cell["whole_bytes"] < cell["io_bytes"] else "infeasible"


if __name__ == "__main__":
    import json
    import sys

    print(json.dumps(of_graph(graph_of(sys.argv[1]))))
