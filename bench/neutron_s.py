# SPDX-License-Identifier: BSD-3-Clause
"""Compare modelled time and traffic of networks in tiles on a Neutron-S with lower bounds, for several sizes of the NPU's memory."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from bench import child
from openneutron import targets
from openneutron.compiler import CompileOptions, compile_graph
from openneutron.errors import BudgetError
from openneutron.ir import Graph
from scripts.published_networks import mobilenet_v1

TITLE = "Tiles on i.MX 95: modelled cycles and traffic by the size of the NPU's memory in KiB"

TARGET = "imx95"
KIB = (256, 512, 1024)


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

    for name in ("mobilenetv2_100", "efficientnet_lite0", "resnet50"):
        yield name, lambda name=name: timm.create_model(name, pretrained=False), 224
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
    """One entry for each network and size."""
    results = []
    for name, graph in networks():
        for kib in KIB:
            target = targets.get(TARGET).with_sram(kib)
            begun = time.process_time()
            try:
                report = compile_graph(graph, target, CompileOptions(target=TARGET)).report
            except BudgetError as error:
                results.append({"network": name, "kib": kib, "least_bytes": error.least_bytes})
                continue
            compute = report.cycles - report.copy_cycles
            bound = max(compute, int(report.traffic_bound_bytes / target.copy_engine.rate.value))
            results.append(
                {
                    "network": name,
                    "kib": kib,
                    "cycles": report.cycles,
                    "compute_cycles": compute,
                    "engine_cycles": report.engine_cycles,
                    "bound_cycles": bound,
                    "traffic_bytes": report.moved_bytes + report.fetched_bytes,
                    "traffic_bound_bytes": report.traffic_bound_bytes,
                    "cpu_seconds": time.process_time() - begun,
                }
            )
    return results


def rows(results: list[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Heads and lines of the table; the ratio is to the larger of the kernels and the bound of the copies."""
    heads = ["network", "KiB", "k cycles", "kernels", "copies", "ratio", "MB copied", "bound", "CPU s"]
    lines = []
    for item in results:
        if "cycles" not in item:
            lines.append(
                [child.short_name(item["network"]), str(item["kib"]), f"needs {item['least_bytes']} B", *[""] * 6]
            )
            continue
        figures = (item[key] / 1e3 for key in ("cycles", "compute_cycles", "engine_cycles"))
        sizes = (item[key] / 1e6 for key in ("traffic_bytes", "traffic_bound_bytes"))
        lines.append(
            [
                child.short_name(item["network"]),
                str(item["kib"]),
                *(f"{figure:,.0f}" for figure in figures),
                f"{item['cycles'] / item['bound_cycles']:.3f}",
                *(f"{size:.2f}" for size in sizes),
                f"{item['cpu_seconds']:.1f}",
            ]
        )
    return heads, lines
