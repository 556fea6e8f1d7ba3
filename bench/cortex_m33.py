# SPDX-License-Identifier: BSD-3-Clause
"""Instructions that a Cortex-M33 executes for an inference, with the portable kernels and with those for the DSP extension.

A size of the work, counted by QEMU, and the same on every machine; how long they take is not known from it.
"""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench import child

TITLE = "Instructions of one inference on a Cortex-M33 (QEMU counts them)"
TOOLS = ("arm-none-eabi-gcc", "qemu-system-arm")
BUILT_IN = ("cifarnet",)


def measure() -> dict[str, Any]:
    """For each shared model and CifarNet: instructions in all and by kernel, portable and DSP; nothing without the tools."""
    if any(shutil.which(tool) is None for tool in TOOLS):
        return {}
    models = [*map(str, child.shared_models()), *BUILT_IN]
    return {Path(model).stem: child.module_json("bench.cortex_m33", model) for model in models}


def rows(results: dict[str, Any]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Heads and lines of the printed table; kernels below their model, indented."""
    heads = ("model", "portable", "DSP", "portable / DSP")
    lines = [] if results else [(f"left out: it takes {' and '.join(TOOLS)}", "-", "-", "-")]
    for model, builds in results.items():
        portable, dsp = builds["portable"], builds["DSP"]
        lines.append(_line(child.short_name(model), portable["total"], dsp["total"]))
        lines += [_line(f"  {kernel}", count, dsp["kernels"][kernel]) for kernel, count in portable["kernels"].items()]
    return heads, lines


def _line(name: str, portable: int, dsp: int) -> tuple[str, ...]:
    return name, f"{portable:,}", f"{dsp:,}", f"{portable / dsp:.2f}"


def _instructions(model: str) -> dict[str, Any]:
    import numpy as np

    from openneutron import litert, targets
    from openneutron.compiler import CompileOptions, compile_graph
    from tests.cortex_m33.instructions import BUILDS, instructions

    if model in BUILT_IN:
        import openneutron
        from openneutron.pytorch.source import models

        network, example = models.get(model)
        compiled = openneutron.compile(network, example, calibration=models.samples(model, 4), name=model)
        result = compiled.partitions[0].compiled
    else:
        result = compile_graph(
            litert.read(Path(model)).graph, targets.get("imxrt700"), CompileOptions(io_place="caller")
        )
    random = np.random.default_rng(0)
    inputs = random.integers(0, 256, sum(tensor.size_bytes for tensor in result.inputs), np.uint8).tobytes()
    return {name: asdict(instructions(result.program, inputs, flags)) for name, flags in BUILDS.items()}


if __name__ == "__main__":
    print(json.dumps(_instructions(sys.argv[1])))
