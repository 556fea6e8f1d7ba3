# SPDX-License-Identifier: BSD-3-Clause
"""Compile and run one architecture: ``python -m tests.suites.architectures.measured NAME`` prints its figures as
JSON."""

from __future__ import annotations

import collections
import json
import math
import sys
import time
from typing import Any

import torch
from torch.utils import _pytree as pytree

import openneutron
from openneutron.options import DelegationOptions
from tests.suites.architectures import models

CALIBRATED_WITH = 3
"""The number of random inputs that calibrate; the others are measured."""


def decibels(signal: list[torch.Tensor], other: list[torch.Tensor]) -> float:
    """Return the signal to noise ratio of ``other`` against ``signal``, in dB."""
    power = sum(float(one.double().square().sum()) for one in signal)
    noise = sum(float((one.double() - two.double()).square().sum()) for one, two in zip(signal, other, strict=True))
    return math.inf if noise == 0 else 10 * math.log10(power / noise)


def outputs(result: Any) -> list[torch.Tensor]:
    """Return the float tensors of a result, in order."""
    return [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()]


def rounded(x: torch.Tensor) -> torch.Tensor:
    """Return a float tensor rounded to 256 values over its range; other tensors unchanged."""
    if not x.is_floating_point():
        return x
    step = (x.max() - x.min()) / 255
    return (x / step).round() * step


def measured(name: str) -> dict[str, Any]:
    """Return the figures of an architecture: operators, delegate and kernel calls, multiply-accumulates, latency, SRAM, SQNR in dB."""
    torch.set_num_threads(1)
    model, given = models.get(name)
    began = time.process_time()
    compiled = openneutron.compile(
        model,
        given[0],
        calibration=given[:CALIBRATED_WITH],
        name=name,
        delegation=DelegationOptions(must_delegate=False),
    )
    seconds = time.process_time() - began
    floats, quantized, npu, from_rounded = [], [], [], []
    with torch.no_grad():
        for inputs in given[CALIBRATED_WITH:]:
            floats += outputs(model(*inputs))
            quantized += outputs(compiled.quantized(*inputs))
            npu += outputs(compiled.run(*inputs))
            from_rounded += outputs(model(*map(rounded, inputs)))
    report = compiled.report
    reasons = collections.Counter(item.reason for item in report.on_cpu)
    return {
        "operators": report.operators,
        "on_cpu": len(report.on_cpu),
        "calls": len(report.partitions),
        "kernel_calls": sum(call.stripes for part in report.partitions for call in part.report.operators),
        "macs": report.macs,
        "milliseconds": report.milliseconds,
        "sram_bytes": report.sram_bytes,
        "sqnr_float_db": decibels(floats, npu),
        "sqnr_rounded_input_db": decibels(floats, from_rounded),
        "sqnr_quantized_db": decibels(quantized, npu),
        "compile_cpu_seconds": seconds,
        "reasons": dict(reasons.most_common()),
        "cpu_operators": dict(collections.Counter(item.operator for item in report.on_cpu).most_common()),
    }


if __name__ == "__main__":
    print(json.dumps(measured(sys.argv[1])))
