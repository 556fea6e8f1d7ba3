# SPDX-License-Identifier: BSD-3-Clause
"""Networks exported to ONNX and read back, beside the same networks from PyTorch.

    python -m tests.onnx_models.networks [--folder FOLDER] [NAME ...]

The networks are those of ``tests/suites/architectures``, with random weights, exported by ``torch.onnx.export``. Both ways have the same
calibration and the same inputs to measure. Prints for each network its NPU and kernel calls, its operators on the CPU, and the ratio of
signal to error against the float module in dB, from ONNX and from PyTorch. Takes about 15 CPU-s for each network.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import torch

import openneutron
from openneutron.device.third_party import suppressed
from openneutron.options import DelegationOptions
from tests.suites.architectures import models
from tests.suites.architectures.measured import CALIBRATED_WITH, decibels, outputs

CLOSE = 0.5
"""Decibels by which the way through ONNX may be worse."""


def figures(model: Any, given: list[Any], example: Any) -> tuple[int, int, int, float, float]:
    """Return NPU calls, kernel calls, operators on the CPU, dB against the float module, and CPU seconds of the compile."""
    source, float_module = model
    began = time.process_time()
    compiled = openneutron.compile(
        source, example, calibration=given[:CALIBRATED_WITH], delegation=DelegationOptions(must_delegate=False)
    )
    seconds = time.process_time() - began
    floats, found = [], []
    with torch.no_grad():
        for inputs in given[CALIBRATED_WITH:]:
            floats += outputs(float_module(*inputs))
            found += outputs(compiled.run(*inputs))
    report = compiled.report
    calls = sum(call.stripes for part in report.partitions for call in part.report.operators)
    return len(report.partitions), calls, len(report.on_cpu), decibels(floats, found), seconds


def row(name: str, folder: Path) -> str:
    """Return the line of a network, whose file is in a folder, or is written to it."""
    torch.set_num_threads(1)
    module, given = models.get(name)
    module = module.eval()
    path = folder / f"{name}.onnx"
    if not path.exists():
        try:
            with suppressed(50), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                torch.onnx.export(module, given[0], str(path), dynamo=True, verbose=False, external_data=False)
        except Exception as error:
            return f"{name:24} torch.onnx can't export it: {type(error).__name__}"
    try:
        first = figures((path, module), given, None)
    except Exception as error:
        return f"{name:24} {type(error).__name__}: {error}"
    second = figures((module, module), given, given[0])
    same = first[:3] == second[:3] and first[3] >= second[3] - CLOSE
    return (
        f"{name:24} {first[0]:3} {second[0]:3}  {first[1]:4} {second[1]:4}  {first[2]:3} {second[2]:3}  {first[3]:6.2f} {second[3]:6.2f}  "
        f"{first[4]:5.1f} {second[4]:5.1f}  {'' if same else 'differs'}"
    )


def main(arguments: list[str]) -> int:
    """Print a line for each network."""
    parser = argparse.ArgumentParser(prog="python -m tests.onnx_models.networks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--folder", type=Path, help="the folder that keeps the files")
    parsed = parser.parse_args(arguments)
    names = parsed.names or list(models.ARCHITECTURES)
    importlib.import_module("transformers.models.auto.processing_auto")  # before timm's stand-in for torchvision
    print(f"{'network':24} NPU calls kernel calls on CPU      dB            CPU-s   (ONNX, PyTorch)")
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in names:
            print(row(name, parsed.folder or Path(folder)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
