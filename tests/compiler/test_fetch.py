# SPDX-License-Identifier: BSD-3-Clause
"""Constants that are fetched: nothing that a kernel reads is left in the weights."""

from __future__ import annotations

import dataclasses

import pytest

from openneutron.compiler import CompileOptions, compile_graph
from openneutron.isa import base, decode
from scripts.published_networks import cifarnet
from tests.support import random_graphs
from tests.support.oracle import TARGET, least_budget

FETCH = CompileOptions(prefetch_constants=True)


@pytest.mark.parametrize("op", sorted(random_graphs.SAMPLERS))
def test_kernels_read_no_weights(op: str) -> None:
    for seed in range(2):
        compiled = compile_graph(random_graphs.single(op, seed), TARGET, FETCH)
        microcode = decode(compiled.program)
        bases = [buffer["base"] for buffer in microcode.buffers]
        for operator in microcode.operators:
            bases += [operator[column.name] for column in operator.row.fields if column.name.endswith("_base")]
        assert base("WEIGHTS") not in bases
        fetches = [item["size"] for item in microcode.code if item.row.name == "FETCH"]
        assert sum(fetches) == compiled.report.fetched_bytes
        assert max(fetches, default=0) <= compiled.report.sram_bytes
        assert compiled.report.prefetch_bytes <= sum(fetches)


def test_more_memory_never_costs_time_by_a_port_that_copies_in_the_background() -> None:
    """A port that blocks may take longer (docs/explanation/compiler.md), since schedules are not compared by its time."""
    graph = cifarnet()
    least = least_budget(graph, True, "arena")
    reports = [
        compile_graph(graph, TARGET, dataclasses.replace(FETCH, sram_budget=least + least * part // 8)).report
        for part in range(8)
    ]
    spent = [report.overlapped_cycles for report in reports]
    assert spent == sorted(spent, reverse=True)
    assert all(report.cycles >= report.overlapped_cycles for report in reports)
