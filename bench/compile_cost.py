# SPDX-License-Identifier: BSD-3-Clause
"""Measure the cost of compiling a .tflite: the whole process, from the command line to the written file."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench import child

TITLE = "Compile cost, whole process (.tflite in, file out)"
REPEATS = 5

OURS = "import sys; from openneutron.cli import main; main()"


def measure() -> dict[str, Any]:
    """CPU seconds and peak RSS of our command, and of Vela's where it is installed, for each shared model."""
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for model in child.shared_models():
            commands = {
                "openneutron": [sys.executable, "-c", OURS, "compile", str(model), "-o", f"{folder}/out.tflite"]
            }
            vela = shutil.which("vela")
            if vela is not None:
                commands["vela"] = vela_command(vela, model, folder)
            costs = child.interleaved(commands, REPEATS)
            written = sorted(path.name for path in Path(folder).glob("*.tflite"))
            assert len(written) == len(commands), f"{model.name}: {len(commands)} compilers wrote {written}"
            for path in Path(folder).iterdir():
                path.unlink()
            results[model.stem] = {name: cost.as_json() for name, cost in costs.items()}
    return results


def vela_command(vela: str, model: Path, folder: str) -> list[str]:
    """Vela for the Ethos-U55 with as many multipliers as an N3-64 has."""
    return [vela, str(model), "--output-dir", folder, "--accelerator-config", "ethos-u55-64"]


def rows(results: dict[str, Any]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Heads and lines of the printed table."""
    heads = ("model", "CPU s", "peak MB", "Vela CPU s", "Vela peak MB")
    lines = []
    for model, costs in results.items():
        cells = [child.short_name(model)]
        for name in ("openneutron", "vela"):
            cost = costs.get(name)
            cells += ["-", "-"] if cost is None else [f"{cost['cpu_seconds']:.2f}", f"{cost['peak_rss_mb']:.0f}"]
        lines.append(tuple(cells))
    return heads, lines
