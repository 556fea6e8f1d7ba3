# SPDX-License-Identifier: BSD-3-Clause
"""Activation arenas against the exact bound, beside a greedy placement and Vela's."""

from __future__ import annotations

import csv
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench import child

TITLE = "Arena, KiB (input and output included)"

# docs/explanation/compiler.md: the most bytes live at once with whole tensors, proved exact; KiB
PUBLISHED_BOUND = {
    "mobilenet_v2_224_random_int8": 1470.0,
    "mlperf_tiny_vww96_int8": 54.0,
    "mlperf_tiny_resnet8_int8": 48.0,
    "mlperf_tiny_kws_int8": 15.6,
    "mlperf_tiny_ad01_int8": 0.75,
}


def measure() -> dict[str, Any]:
    """Bytes of our arena, of the bound and of first fit by size for each shared model, and Vela's two modes."""
    results = child.module_json("bench.arena", *map(str, child.shared_models()))
    vela = shutil.which("vela")
    for model in child.shared_models():
        results[model.stem]["published_bound_kib"] = PUBLISHED_BOUND.get(model.stem)
        for mode in ("Performance", "Size") if vela else ():
            results[model.stem][f"vela_{mode.lower()}_kib"] = vela_arena(str(vela), model, mode)
    return results


def vela_arena(vela: str, model: Path, mode: str) -> float:
    """KiB of SRAM that Vela's summary states."""
    with tempfile.TemporaryDirectory() as folder:
        child.run(
            [vela, str(model), "--output-dir", folder, "--accelerator-config", "ethos-u55-64", "--optimise", mode]
        )
        (summary,) = Path(folder).glob("*_summary_*.csv")
        with summary.open() as lines:
            return float(next(csv.DictReader(lines))["sram_memory_used"])


def rows(results: dict[str, Any]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Heads and lines of the printed table."""
    heads = ("model", "ours", "bound", "peers' bound", "greedy", "Vela fast", "Vela small")
    lines = []
    for model, cell in results.items():
        ours = [f"{cell[key] / 1024:.2f}" for key in ("arena_bytes", "bound_bytes")]
        lines.append(
            (
                child.short_name(model),
                *ours,
                _number(cell["published_bound_kib"]),
                f"{cell['greedy_bytes'] / 1024:.2f}",
                _number(cell.get("vela_performance_kib")),
                _number(cell.get("vela_size_kib")),
            )
        )
    return heads, lines


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _arenas(models: list[Path]) -> dict[str, Any]:
    from openneutron import litert, targets
    from openneutron.compiler import CompileOptions, compile_graph

    results = {}
    for model in models:
        compiled = compile_graph(litert.read(model).graph, targets.get("imxrt700"), CompileOptions(io_place="arena"))
        results[model.stem] = {
            "arena_bytes": compiled.report.arena_bytes,
            "bound_bytes": compiled.report.bound_bytes,
            "greedy_bytes": greedy_by_size(compiled.layout.items),
            "placement": compiled.report.placement,
        }
    return results


def greedy_by_size(items: Any) -> int:
    """Bytes of the usual greedy: the largest buffer first, each in the lowest gap it fits."""
    placed: list[tuple[int, Any]] = []
    for item in sorted(items, key=lambda item: (-item.size, item.first, item.name)):
        offset = 0
        for start, other in sorted(placed, key=lambda pair: pair[0]):
            if not item.overlaps(other):
                continue
            if start - offset >= item.size:
                break
            offset = max(offset, start + other.size)
        placed.append((offset, item))
    return max((start + item.size for start, item in placed), default=0)


if __name__ == "__main__":
    print(json.dumps(_arenas([Path(name) for name in sys.argv[1:]])))
