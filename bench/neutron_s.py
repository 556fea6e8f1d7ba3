# SPDX-License-Identifier: BSD-3-Clause
"""Compare modelled time and traffic of networks in tiles on a Neutron-S with lower bounds, for several sizes of the NPU's memory.

Where ``vela`` is on the path, the same networks are compiled by Vela for an Ethos-U65, see ``ethos_u65``.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

from bench import child, ethos_u65
from bench.live_traffic import least_reloaded_bytes
from bench.traffic_of_choices import least_moved_bytes
from openneutron import targets
from openneutron.compiler import CompileOptions, compile_graph
from openneutron.compiler.driver import prepared
from openneutron.errors import BudgetError
from openneutron.ir import Graph
from openneutron.litert import write
from scripts.published_networks import mobilenet_v1

TITLE = "Tiles on i.MX 95: modelled cycles and traffic by the size of the NPU's memory in KiB"

TARGET = "imx95"
KIB = (256, 384, 512, 1024)


def networks() -> Iterator[tuple[str, Graph]]:
    """Yield the networks; those from PyTorch have random weights and are quantized with one random input."""
    yield "mobilenet_v1", mobilenet_v1()
    for name, make, size in _modules():
        yield f"{name} {size}", _graph(make(), size)


def _modules() -> Iterator[tuple[str, Any, int]]:
    from tests.architectures.yolov8 import YoloV8n
    from tests.suites.architectures import absent_torchvision

    absent_torchvision.install()
    import timm

    for name in ("mobilenetv2_100", "efficientnet_lite0"):
        yield name, lambda name=name: timm.create_model(name, pretrained=False), 224
    # Other random weights of timm's would be 0 in each block's last layer, and constants that are equal count once.
    yield "resnet50", lambda: timm.create_model("resnet50", pretrained=False, zero_init_last=False), 224
    for size in (224, 640):
        yield "yolov8n", YoloV8n, size


def _graph(module: Any, size: int) -> Graph:
    """Return the graph of the largest partition."""
    import torch

    import openneutron

    torch.manual_seed(0)
    given = (torch.randn(1, 3, size, size),)
    # Compiled for i.MX RT700 without a budget: the graph is the same.
    made = openneutron.compile(
        module.eval(), given, calibration=[given], options=CompileOptions(target=TARGET), name="net"
    )
    return max((part.graph for part in made.partitions), key=lambda graph: len(graph.nodes))


def measure() -> list[dict[str, Any]]:
    """One entry for each network and size, and one of Vela's for each network where ``vela`` is on the path."""
    results = []
    for name, graph in networks():
        storages, calls = prepared(graph).tasks.selected[0]
        reloaded = least_reloaded_bytes(calls, storages, [kib * 1024 for kib in KIB])
        for kib, more in zip(KIB, reloaded, strict=True):
            results.append({"network": name, "kib": kib, **_measured(graph, kib, more)})
            print(*rows(results[-1:])[1][0], file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory() as folder:
            found = ethos_u65.measure(write(graph), folder)
        if found is not None:
            results.append({"network": name, "kib": ethos_u65.KIB, "compiler": "vela", **found})
    return results


def _measured(graph: Graph, kib: int, reloaded: int) -> dict[str, Any]:
    target, begun = targets.get(TARGET).with_sram(kib), time.process_time()
    try:
        report = compile_graph(graph, target, CompileOptions(target=TARGET)).report
    except BudgetError as error:
        return {"least_bytes": error.least_bytes}
    seconds, compute = time.process_time() - begun, report.cycles - report.copy_cycles
    selected = prepared(graph).tasks.selected
    return {
        "cycles": report.cycles,
        "compute_cycles": compute,
        "engine_cycles": report.engine_cycles,
        "bound_cycles": max(compute, int(report.traffic_bound_bytes / target.copy_engine.rate.value)),
        "traffic_bytes": report.moved_bytes + report.fetched_bytes,
        "traffic_bound_bytes": report.traffic_bound_bytes,
        "traffic_bound_once_bytes": report.traffic_bound_bytes + reloaded,
        "traffic_bound_of_choices_bytes": report.fetched_bytes
        + least_moved_bytes(selected, target, kib * 1024, report.moved_bytes),
        "cpu_seconds": seconds,
    }


def rows(results: list[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Return heads and lines of the table.

    The ratio is to the larger of the kernels and the bound of the copies. "any": a lower bound of all schedules; "once": one of all
    schedules that compute each element once; "choices": one of all plans that the search for tiles chooses from. A line of Vela's has the operators that Vela leaves on the CPU.
    """
    heads = ["network", "KiB", "k cycles", "kernels", "copies", "ratio", "MB copied", "any", "once", "choices", "CPU s"]
    lines = []
    for item in results:
        start = [child.short_name(item["network"]), str(item["kib"])]
        if "cycles" not in item:
            reason = f"needs {item['least_bytes']} B" if "least_bytes" in item else "Vela: error"
            lines.append([*start, reason, *[""] * 8])
            continue
        of_vela = item.get("compiler") == "vela"
        if of_vela:
            start = [f"  Vela, {item['cpu_operators']} on the CPU", start[1]]
        figures = (item[key] / 1e3 for key in ("cycles", "compute_cycles", "engine_cycles"))
        bounds = ("traffic_bound_bytes", "traffic_bound_once_bytes", "traffic_bound_of_choices_bytes")
        lines.append(
            [
                *start,
                *(f"{figure:,.0f}" for figure in figures),
                "" if of_vela else f"{item['cycles'] / item['bound_cycles']:.3f}",
                f"{item['traffic_bytes'] / 1e6:.2f}",
                *("" if of_vela else f"{item[key] / 1e6:.2f}" for key in bounds),
                f"{item['cpu_seconds']:.1f}",
            ]
        )
    return heads, lines
