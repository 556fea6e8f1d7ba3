# SPDX-License-Identifier: BSD-3-Clause
"""Compare networks with Vela's at the memory of a row-by-row schedule with rolling buffers, and at multiples of it."""

from __future__ import annotations

import shutil
from typing import Any

from bench import arena, budgets, child

TITLE = (
    "Budgets of a row-by-row schedule: arena in KiB, and modelled time at multiples of it over that of whole tensors"
)

KIB = {
    "mobilenet_v2_224_random_int8": 287.0,
    "mlperf_tiny_vww96_int8": 41.0,
    "mlperf_tiny_resnet8_int8": 25.0,
    "mlperf_tiny_kws_int8": 15.625,
    "mlperf_tiny_ad01_int8": 0.75,
    "cifarnet": 13.0,
}
"""Return the bytes of chains of operators that compute one row in each step (int8, without alignment and weights)."""


def measure() -> dict[str, Any]:
    """For each network the time at each multiple of its budget, its least arena, and Vela's arena where Vela is installed."""
    vela = shutil.which("vela")
    results = {}
    for name, graph in budgets.networks():
        results[name] = {"row_stream_kib": KIB[name], **budgets.of_graph(graph, int(KIB[name] * 1024))}
    for model in child.shared_models() if vela else ():
        results[model.stem]["vela_size_kib"] = arena.vela_arena(str(vela), model, "Size")
    return results


def rows(results: dict[str, Any]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Heads and lines of the printed table."""
    heads = ("model", "row by row", "ours there", "ours, least", "Vela small", *(f"x{n:g}" for n in budgets.TIMES))
    lines = [
        (
            child.short_name(model),
            f"{cell['row_stream_kib']:.2f}",
            f"{cell['points'][0]['arena_bytes'] / 1024:.2f}",
            f"{cell['least_bytes'] / 1024:.2f}",
            f"{cell['vela_size_kib']:.2f}" if "vela_size_kib" in cell else "-",
            *(f"{point['slowdown']:.2f}" for point in cell["points"]),
        )
        for model, cell in results.items()
    ]
    return heads, lines
