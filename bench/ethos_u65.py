# SPDX-License-Identifier: BSD-3-Clause
"""Run Vela, Arm's compiler, for an Ethos-U65 with a memory of its own of 384 KiB, and read the figures that Vela writes.

The Ethos-U65-512 has 512 multipliers and, in this configuration, tensors and constants in DRAM like a Neutron-S. The clock is that of i.MX 95,
1 GHz, and DRAM passes 12 bytes a cycle with a latency of 150 cycles, as ``targets/chips/imx95.toml`` assumes.
"""

from __future__ import annotations

import csv
import re
import shutil
from pathlib import Path
from typing import Any

from bench import child

KIB = 384

CONFIGURATION = f"""
[System_Config.Dram]
core_clock=1e9
axi0_port=Sram
axi1_port=Dram
Sram_clock_scale=1.0
Sram_burst_length=32
Sram_read_latency=32
Sram_write_latency=32
Dram_clock_scale=0.75
Dram_burst_length=128
Dram_read_latency=150
Dram_write_latency=150

[Memory_Mode.Cache]
const_mem_area=Axi1
arena_mem_area=Axi1
cache_mem_area=Axi0
arena_cache_size={KIB * 1024}
"""


def measure(model: bytes, folder: str) -> dict[str, Any] | None:
    """Return Vela's figures of a ``.tflite``; None where no ``vela`` is on the path. ``folder`` takes Vela's files.

    Cycles are those that Vela estimates for the NPU, without ``cpu_operators``, which Vela leaves on the CPU. ``error``: the end of Vela's
    message where Vela ends with one.
    """
    vela = shutil.which("vela")
    if vela is None:
        return None
    path, configuration = Path(folder) / "model.tflite", Path(folder) / "vela.ini"
    path.write_bytes(model)
    configuration.write_text(CONFIGURATION)
    command = [vela, str(path), "--output-dir", folder, "--accelerator-config", "ethos-u65-512", "--config"]
    command += [str(configuration), "--system-config", "Dram", "--memory-mode", "Cache"]
    try:
        cost, output = child.run(command)
    except RuntimeError as error:
        return {"error": str(error)[-200:]}
    with (Path(folder) / "model_summary_Dram.csv").open() as lines:
        figures = next(csv.DictReader(lines))
    left = re.search(r"CPU operators = (\d+)", output)
    return {
        "cycles": int(float(figures["cycles_total"])),
        "compute_cycles": int(float(figures["cycles_npu"])),
        "engine_cycles": int(float(figures["cycles_dram_access"])),
        "traffic_bytes": int(float(figures["dram_total_bytes"])),
        "sram_kib": float(figures["sram_memory_used"]),
        "cpu_operators": int(left[1]) if left else 0,
        "cpu_seconds": cost.cpu_seconds,
    }
