# SPDX-License-Identifier: BSD-3-Clause
"""Compute the effect of SRAM bandwidth, which is not published, on modelled times."""

from __future__ import annotations

import math
from dataclasses import replace

from openneutron.compiler import compile_graph
from openneutron.compiler.cost.cycles import call_cost
from openneutron.compiler.select.calls import KernelCall, View
from openneutron.ir import Graph
from openneutron.targets import Target
from scripts.published_networks import Chain, cifarnet, mobilenet_v1

RATES = (4, 8, 12, 32)
"""Bytes in a cycle."""


def autoencoder() -> Graph:
    """The fully connected network of MLPerf Tiny's anomaly detection: 640 inputs, 8 values in the middle, 640 outputs."""
    chain = Chain("autoencoder", (1, 640))
    for features in (128, 128, 128, 128, 8, 128, 128, 128, 128, 640):
        chain.fully_connected(features)
    return chain.graph()


def least_bytes(call: KernelCall) -> int:
    """Return the bytes of a call that touches every byte of its operands, constants and result once."""
    return sum(map(_distinct_bytes, call.views.values())) + sum(call.packed_bytes().values())


def _distinct_bytes(view: View) -> int:
    """Broadcast elements, and columns that overlap, are the same bytes."""
    elements = math.prod(extent for extent, pitch in zip(view.extents, view.pitches, strict=True) if pitch)
    span = 1 + sum((extent - 1) * pitch for extent, pitch in zip(view.extents, view.pitches, strict=True))
    return min(elements, span)


def _with_port(target: Target, rate: int) -> Target:
    arena = target.arena_memory
    other = replace(arena, bandwidth=replace(arena.bandwidth, value=rate))
    return replace(target, memories=tuple(other if memory is arena else memory for memory in target.memories))


def added(graph: Graph, target: Target, rate: int) -> float:
    """Return the additional time with this port, as a fraction of the modelled time with the target's."""
    calls, other = compile_graph(graph, target).schedule.calls, _with_port(target, rate)
    cycles = sum(call_cost(call, target).cycles for call in calls)
    return sum(call_cost(call, other).cycles for call in calls) / cycles - 1


def table(target: Target) -> str:
    """A Markdown table: networks, the bytes a run moves at least, and what each rate would add."""
    lines = [f"| network | MB moved at least | {' | '.join(f'{rate} bytes/cycle' for rate in RATES)} |"]
    lines.append(f"| {' | '.join(['---'] * (2 + len(RATES)))} |")
    for title, graph in (
        ("CifarNet 32x32", cifarnet()),
        ("MobileNetV1 1.0 224", mobilenet_v1()),
        ("fully connected autoencoder 640-128-8-128-640", autoencoder()),
    ):
        moved = sum(map(least_bytes, compile_graph(graph, target).schedule.calls))
        shares = (f"{added(graph, target, rate):+.1%}" for rate in RATES)
        lines.append(f"| {title} | {moved / 1e6:.2f} | {' | '.join(shares)} |")
    return "".join(f"{line}\n" for line in lines)
