# SPDX-License-Identifier: BSD-3-Clause
"""The share of the 64 multipliers at work in each layer, modelled, what its time goes to, and why where it is below a half.

Whole tensors, constants in SRAM. Layers are kernel calls: a first layer that is computed in pieces has one line for each.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Any

from bench import child
from openneutron import litert, targets
from openneutron.compiler import Report, compile_graph
from openneutron.targets import Target

TITLE = "Utilisation of 64 MACs per cycle, modelled for i.MX RT700, whole tensors"
TARGET = "imxrt700"
MODELS = ("mobilenet_v2_224_random_int8", "mlperf_tiny_resnet8_int8", "mlperf_tiny_vww96_int8")
LEFT = ("bound by", "why below 50 %")
"""Columns of words."""


def measure() -> dict[str, Any]:
    """For each model its kernel calls in their order, and what they come to."""
    models = {path.stem: path for path in child.shared_models()}
    target = targets.get(TARGET)
    return {name: of_report(compile_graph(litert.read(models[name]).graph, target).report, target) for name in MODELS}


def of_report(report: Report, target: Target) -> dict[str, Any]:
    """A report's totals, and the fields of each of its kernel calls."""
    spent = Counter[str]()
    for call in report.operators:
        spent[call.bottleneck] += call.cycles
    return {
        "macs": report.macs,
        "cycles": report.cycles,
        "milliseconds": report.estimate(target).milliseconds,
        "utilisation": report.utilisation,
        "cycles_bound_by": dict(spent),
        "layers": [asdict(call) | {"idle": call.idle} for call in report.operators],
    }


def rows(results: dict[str, Any]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Heads and lines of the printed table: each model's total, and its layers below."""
    heads = ("layer", "MACs", "cycles", "used", *LEFT)
    lines = []
    for model, cell in results.items():
        shares = (f"{name} {100 * count / cell['cycles']:.1f} %" for name, count in cell["cycles_bound_by"].items())
        lines.append((child.short_name(model), *_figures(cell), "", f"time bound by: {', '.join(shares)}"))
        for layer in cell["layers"]:
            shape = "x".join(str(extent) for extent in layer["output"][1:])
            why = layer["idle"] if layer["macs"] else "nothing to multiply"
            lines.append((f"  {layer['kernel']} {shape}", *_figures(layer), layer["bottleneck"], why))
    return heads, lines


def _figures(cell: dict[str, Any]) -> tuple[str, ...]:
    used = f"{100 * cell['utilisation']:.1f} %" if cell["macs"] else ""
    return f"{cell['macs']:,}" if cell["macs"] else "", f"{cell['cycles']:,}", used
