# SPDX-License-Identifier: BSD-3-Clause
"""Constants in flash: modelled time against the SRAM of whole tensors and copies, with a port that copies in the background
and with one that blocks."""

from __future__ import annotations

from typing import Any

from openneutron import targets
from openneutron.compiler.legalize.legalize import legalize
from openneutron.compiler.place.place import lay_out
from openneutron.compiler.place.prefetch import PrefetchSearch, all_plans
from openneutron.compiler.rewrite.passes import select_calls
from openneutron.compiler.schedule.schedule import copy_cycles, durations, fetched_sizes, whole_schedule
from openneutron.options import ARENA
from scripts.published_networks import cifarnet, mobilenet_v1

TITLE = "Prefetch: all constants in flash, modelled for i.MX RT700"


def measure() -> list[dict[str, Any]]:
    """One entry for each plan of each network, from the least memory on."""
    target = targets.get("imxrt700")
    results = []
    for graph in (cifarnet(), mobilenet_v1()):
        storages, calls = select_calls(legalize(graph))
        schedule = whole_schedule(calls)
        uncut = sum(durations(schedule, target).values())
        layout = lay_out(schedule, storages, ARENA)
        for plan in all_plans([PrefetchSearch(schedule, layout, storages, target)]):
            made, _ = plan.laid_out(ARENA)
            copies = copy_cycles(made, fetched_sizes(made, storages), target)
            results.append(
                {
                    "network": graph.name,
                    "sram_bytes": plan.size_bytes,
                    "tensor_bytes": layout.scratch_bytes,
                    "kernel_calls": len(made.calls),
                    "overlapped_ms": target.milliseconds(plan.cycles),
                    "blocking_ms": target.milliseconds(sum(durations(made, target).values()) + copies),
                    "compute_ms": target.milliseconds(uncut),
                    "copy_ms": target.milliseconds(copies),
                }
            )
    return results


def rows(results: list[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Heads and lines of the table; the ratio is to the greater of computing and copying, the least there can be."""
    heads = ["network", "SRAM KiB", "calls", "background ms", "ratio", "blocking ms", "compute ms", "copies ms"]
    lines = [
        [
            item["network"],
            f"{item['sram_bytes'] / 1024:,.0f}",
            str(item["kernel_calls"]),
            f"{item['overlapped_ms']:.2f}",
            f"{item['overlapped_ms'] / max(item['compute_ms'], item['copy_ms']):.2f}",
            f"{item['blocking_ms']:.2f}",
            f"{item['compute_ms']:.2f}",
            f"{item['copy_ms']:.2f}",
        ]
        for item in results
    ]
    return heads, lines
