# SPDX-License-Identifier: BSD-3-Clause
"""``python -m tests.suites.architectures [NAME ...]`` compiles and runs the named architectures, all without names.

Each runs in a process of its own. Prints a line for each; ``--write`` writes docs/architectures.md and takes no names.
The exit code is 1 where an architecture fails, or where one outside ``NOT_WHOLE`` has an operator on the CPU or more
than one delegate call.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.suites.architectures.models import ARCHITECTURES

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "architectures.md"

NOT_WHOLE: dict[str, str] = {}
"""Architectures that do not run whole in one delegate call, with the reason."""

HEAD = """# Architectures

Networks from timm and transformers with random weights, quantized to int8, compiled for i.MX RT700 and run on the simulated NPU.
`operators` are those of the quantized program, `CPU` those that stay on the CPU, `calls` the delegate calls of one inference.
Latency is modelled ([targets.md](targets.md)), without the range that `openneutron compile` states. SRAM holds arena, inputs and outputs. The last three columns are signal to
noise ratios in dB over two random inputs: of the simulated NPU's output against the float model's, of the same against the
quantized module in PyTorch, and of the float model's output when only its input is rounded to 256 values. Random weights make
deep networks chaotic: where the last column is low, the float model itself multiplies the rounding of one input, and no
8-bit network can do better. Token inputs are not rounded (inf).

Made by `python -m tests.suites.architectures --write`.

| network | operators | CPU | calls | MMAC | ms | SRAM KiB | NPU, float | NPU, PyTorch int8 | float, rounded input |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
"""


def measured(name: str) -> dict[str, Any]:
    """Return the figures of one architecture, measured in a child process; ``error`` has the last line of a failed
    run."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.suites.architectures.measured", name]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        said = done.stderr.strip().splitlines() or [f"it ended with exit code {done.returncode}"]
        return {"error": said[-1]}
    result: dict[str, Any] = json.loads(lines[-1])
    return result


def row(name: str, figures: dict[str, Any]) -> str:
    """Return the line of the table for an architecture."""
    if "error" in figures:
        return f"| {name} | {figures['error']} |" + " |" * 8
    return (
        f"| {name} | {figures['operators']} | {figures['on_cpu']} | {figures['calls']} | {figures['macs'] / 1e6:.1f} | "
        f"{figures['milliseconds']:.2f} | {figures['sram_bytes'] / 1024:.0f} | {figures['sqnr_float_db']:.1f} | "
        f"{figures['sqnr_quantized_db']:.1f} | {figures['sqnr_rounded_input_db']:.1f} |"
    )


def not_whole(figures: dict[str, Any]) -> bool:
    return "error" in figures or figures["on_cpu"] > 0 or figures["calls"] != 1


def main(arguments: Sequence[str]) -> int:
    """Run the architectures of these names. Return 1 where one fails or, unexpectedly, does not run whole."""
    write = "--write" in arguments
    names = [name for name in arguments if name != "--write"] or list(ARCHITECTURES)
    lines, failed = [], []
    for name in names:
        figures = measured(name)
        lines.append(row(name, figures))
        print(lines[-1], flush=True)
        if not_whole(figures):
            print(f"  {figures.get('cpu_operators', '')} {figures.get('reasons', '')}", flush=True)
            if "error" in figures or name not in NOT_WHOLE:
                failed.append(name)
    if write:
        rest = [f"* {name}: {reason}" for name, reason in NOT_WHOLE.items()]
        tail = ["", "Not whole in one delegate call:", "", *rest] if rest else []
        PAGE.write_text(HEAD + "\n".join([*lines, *tail]) + "\n")
    print(f"{len(failed)} of {len(names)} failed or do not run whole: {', '.join(failed) or 'none'}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
