# SPDX-License-Identifier: BSD-3-Clause
"""The results as lines of text and as the page of the documentation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from openneutron import targets

PAGE = Path(__file__).parents[3] / "docs" / "networks-on-targets.md"

Figures = Mapping[str, Any]

HEAD = """# Networks on all targets

Each network is compiled for each target, and runs on the simulated NPU with random inputs; networks with states run three times. All
bytes of the outputs equal those of LiteRT's reference kernels. Normalizations, which LiteRT does not have, equal their definition in
Python's integers; layers such as GRU equal their kernel alone in a program. Each network is quantized once, with random inputs.

A cell has the modelled latency and the SRAM of the program for the target's own memory, and what half of the memory costs that the
network takes without a limit: `half 1.10x` is the latency at this budget over the latency without a limit, `least 0.62` states that
half is not feasible and 62 % is. `needs` is the least memory where the target has less, with a lower bound of all schedules that
the compiler searches. The programs at these budgets run too, with the same bytes. On a Neutron-S, SRAM is the memory of the NPU, and
half is that of the program's own. `5.0 MiB for flash` states that weights and microcode are larger than this memory of the chip, so
that the network can't run from there. `no int16`: programs for the target take int8 alone. The host core of an MCX N computes int16 parts, in the program. Targets in one
column have equal numbers. Their programs
differ in the checksum of the target's name alone, so that one of them runs. Latencies have no range here, since the table is for comparisons; `openneutron compile` states the range.

Made by `python -m tests.suites.targets --write`, which goes on where an earlier run has stopped and fails where a byte differs. The
last column has the commits whose compilers a row was measured with; `--again` measures rows anew, `--jobs 2` two networks at a time.
Groups: `shared`, LiteRT files; `published`, networks with published latencies; `built-in` and `int16`, the networks of
`examples`; `small`, tests/architectures; `suite`, [timm and transformers](architectures.md).

"""


def line(figures: Figures) -> str:
    """Return the figures of a network on a target in one line."""
    return f"{figures['network']:<36} {figures['target']:<9} {figures.get('fault') or cell(figures)}"


def cell(figures: Figures) -> str:
    """Return the figures of a network on a target as a cell of the table."""
    if "fault" in figures:
        return "failed"
    if "unsupported" in figures:
        return f"no {figures['unsupported']}"
    if "least_bytes" in figures:
        return f"needs {_kib(figures['least_bytes'])}, bound {_kib(figures['bound_bytes'])}"
    return f"{figures['milliseconds']:.3g} ms, {_kib(figures['sram_bytes'])}{_half(figures)}{_beyond(figures)}"


def _half(figures: Figures) -> str:
    if "half_least_bytes" in figures:
        return f", least {figures['half_least_bytes'] / figures['unlimited_bytes']:.2f}"
    if "half_milliseconds" in figures:
        return f", half {figures['half_milliseconds'] / figures['unlimited_milliseconds']:.2f}x"
    return ""


def _beyond(figures: Figures) -> str:
    """Return the size of the program where the memory that has it between runs is smaller."""
    home = targets.get(figures["target"]).constants_home
    stored = figures["stored_kib"]
    return f", {stored / 1024:.1f} MiB for {home.name}" if stored > home.size.value else ""


def _kib(size: int) -> str:
    return f"{size / 1024:.0f} KiB" if size >= 100 * 1024 else f"{size / 1024:.3g} KiB"


def page(
    results: Mapping[str, Mapping[str, Figures]], columns: Sequence[Sequence[str]], absent: Sequence[str] = ()
) -> str:
    """Return the page of all results. ``columns``: the targets of each column; the first target's figures are shown. ``absent``: networks
    that were not measured."""
    heads = ["network", "operators", *(", ".join(f"`{name}`" for name in each) for each in columns), "commit"]
    lines = [_row(heads), _row(["---"] * len(heads))]
    faults = []
    for name, found in results.items():
        shown = [found[each[0]] for each in columns]
        lines.append(_row([name, str(shown[0].get("operators", "")), *map(cell, shown), _revisions(shown)]))
        faults += [f"* {name} on {each['target']}: {each['fault']}" for each in shown if "fault" in each]
    tail = ["", "Failures:", "", *faults] if faults else []
    if absent:
        tail += ["", f"Not measured yet: {', '.join(absent)}."]
    return HEAD + "\n".join([*lines, *tail]) + "\n"


def _revisions(shown: Sequence[Figures]) -> str:
    """Return the commits whose compilers the figures are from, those of the first target first."""
    return ", ".join(dict.fromkeys(str(figures["revision"]) for figures in shown if "revision" in figures))


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
