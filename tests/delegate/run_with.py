# SPDX-License-Identifier: BSD-3-Clause
"""A ``.pte`` run with another delegate than ours, in a process of its own, since both take the same name.

    python run_with.py DRIVER.so DELEGATE.so MODEL.pte INPUTS.pt RESULT.pt

RESULT.pt has the outputs of two runs, the calls of the port's ``power`` and ExecuTorch's events. The NPU is suspended
before the first run, unless the delegate does not switch its power: its first run then fails and the message is kept.
"""

from __future__ import annotations

import ctypes
import importlib
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch


def main(driver_path: str, delegate_path: str, pte: str, inputs_path: str, result_path: str) -> None:
    from tests.support.c_api import Port, Power

    driver = ctypes.CDLL(driver_path, mode=ctypes.RTLD_GLOBAL)
    switched: list[bool] = []
    port = Port(power=Power(switched.append))
    driver.neutronSetPort(ctypes.byref(port))
    driver.neutronInit()
    importlib.import_module("executorch.extension.pybindings.portable_lib")
    importlib.import_module("executorch.kernels.quantized")
    from executorch.runtime import Runtime

    ctypes.CDLL(delegate_path, mode=ctypes.RTLD_GLOBAL)
    inputs = torch.load(inputs_path)
    result: dict[str, Any] = {"outputs": [], "refused": ""}
    program: Any = Runtime.get().load_program(Path(pte).read_bytes(), enable_etdump=True)
    driver.neutronSuspend()
    try:
        method = program.load_method("forward")
        method.execute(inputs)
    except RuntimeError as error:
        result["refused"] = str(error)
        driver.neutronResume()
    switched.clear()
    if "method" in locals():
        result["outputs"] = [[item.clone() for item in method.execute(inputs)] for _ in range(2)]
    result["switched"] = list(switched)
    result["events"] = events(program)
    torch.save(result, result_path)


def events(program: Any) -> list[tuple[bytes, float]]:
    """The delegated events of all runs: what the delegate says of each, and its cycles."""
    from executorch.devtools import Inspector
    from executorch.devtools.inspector import TimeScale

    with tempfile.TemporaryDirectory() as folder:
        dump, debug = f"{folder}/etdump", f"{folder}/debug"
        program.write_etdump_result_to_file(dump, debug)
        if not Path(dump).exists():
            return []
        inspector = Inspector(dump, source_time_scale=TimeScale.CYCLES, target_time_scale=TimeScale.CYCLES)
    return [
        (metadata, cycles)
        for block in inspector.event_blocks
        for event in block.events
        if event.is_delegated_op
        for metadata, cycles in zip(event.delegate_debug_metadatas, event.perf_data.raw, strict=True)
    ]


if __name__ == "__main__":
    main(*sys.argv[1:])
