# SPDX-License-Identifier: BSD-3-Clause
"""Measure the audit's share of a compile's CPU time for the shared and the built-in networks on three chips.

"of all" is the share of ``openneutron.compile``, which reads a file or quantizes a module, and writes a file. The other shares are those of
the way from graph to program, which is the audit's and the compiler's own, for each partition. The share is the least CPU time of an audit over the least one of a compile. Small networks, which compile in a few milliseconds, are compiled
up to 41 times: the audit runs once after a long compile, and other processes on the machine disturb its caches more than the compile's.
The median of the shares stands beside the share.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from unittest import mock

import openneutron
from bench import child
from openneutron import litert, targets
from openneutron.compiler import CompileOptions, compile_graph, driver
from openneutron.errors import BudgetError
from openneutron.ir import Graph

TITLE = "The audit's share of a compile's CPU time"

TARGETS = ("imxrt700", "mcxn94x", "imx95")
FEWEST, MOST = 3, 41
"""The numbers of compiles of a pair."""
LEAST_SECONDS = 0.5
"""The CPU time after which a pair with enough compiles ends."""
TIGHT = 1.2
"""The tight budget as a multiple of the least one."""


Whole = Callable[[CompileOptions], object]
"""``openneutron.compile`` of a network."""


def networks() -> Iterator[tuple[str, Graph, Whole]]:
    """Yield the shared networks, and the partitions of the built-in ones."""
    for path in child.shared_models():
        yield path.stem, litert.read(path).graph, partial(_compiled, path)
    from openneutron.pytorch.source import models

    for name in models.names():
        model, inputs = models.get(name)
        whole = partial(_compiled, model.eval(), inputs, calibration=[inputs], name=name)
        for number, part in enumerate(whole(CompileOptions()).partitions):
            yield f"{name} {number}", part.graph, whole


def _compiled(*given: Any, **named: Any) -> Any:
    *source, options = given
    return openneutron.compile(*source, options=options, **named)


def measure() -> list[dict[str, Any]]:
    """Return the CPU seconds of compile and audit for each network and chip, without a budget and with a tight one."""
    results = []
    for name, graph, whole in networks():
        for chip in TARGETS:
            for budget in (None, _tight(graph, chip)):
                found = _measured(graph, whole, chip, budget)
                results.append({"network": name, "target": chip, "budget_bytes": budget, **found})
                print(*rows(results[-1:])[1][0], file=sys.stderr, flush=True)
    return results


def _tight(graph: Graph, chip: str) -> int:
    try:
        compile_graph(graph, targets.get(chip), CompileOptions(sram_budget=1))
    except BudgetError as error:
        return int(error.least_bytes * TIGHT)
    return 1


def _measured(graph: Graph, whole: Whole, chip: str, budget: int | None) -> dict[str, float]:
    audit, spent = driver.audit, [0.0]

    def timed(*given: Any) -> Any:
        started = time.process_time()
        try:
            return audit(*given)
        finally:
            spent[0] += time.process_time() - started

    compiles, audits, of_all = list[float](), list[float](), list[float]()
    with mock.patch.object(driver, "audit", timed):
        while len(of_all) < FEWEST:
            spent[0], started = 0.0, time.process_time()
            try:
                whole(CompileOptions(target=chip, sram_budget=budget))
            except BudgetError:  # another partition needs more
                break
            of_all.append(spent[0] / (time.process_time() - started))
        while len(compiles) < FEWEST or (len(compiles) < MOST and sum(compiles) < LEAST_SECONDS):
            spent[0], started = 0.0, time.process_time()
            compile_graph(graph, targets.get(chip), CompileOptions(sram_budget=budget))
            compiles.append(time.process_time() - started)
            audits.append(spent[0])
    return {
        "compiles": len(compiles),
        "compile_seconds": min(compiles),
        "audit_seconds": min(audits),
        "share": min(audits) / min(compiles),
        "share_of_all": statistics.median(of_all) if of_all else 0.0,
        "median_share": statistics.median(own / whole for own, whole in zip(audits, compiles, strict=True)),
    }


def rows(results: list[dict[str, Any]]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Heads and lines of the printed table."""
    heads = ("network", "target", "budget", "compile s", "audit s", "of all", "share", "median share")
    return heads, [
        (
            cell["network"],
            cell["target"],
            "none" if cell["budget_bytes"] is None else str(cell["budget_bytes"]),
            f"{cell['compile_seconds']:.4f}",
            f"{cell['audit_seconds']:.4f}",
            f"{cell['share_of_all']:.1%}",
            f"{cell['share']:.1%}",
            f"{cell['median_share']:.1%}",
        )
        for cell in results
    ]
