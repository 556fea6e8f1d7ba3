# SPDX-License-Identifier: BSD-3-Clause
"""Measure calls, modelled time, memory and noise of the built-in networks with recurrent layers, states or int16 activations.

A run of a network with state takes one frame. Noise is measured on a stream of frames, or on as many inputs, against PyTorch in float
with its own states.
"""

from __future__ import annotations

import copy
from dataclasses import asdict, dataclass
from typing import Any

import torch

from bench.quantization_quality import sqnr
from openneutron import targets
from openneutron.api.pytorch import analyse
from openneutron.options import INT8, INT16, QuantizationOptions
from openneutron.pytorch.source import models

TITLE = "Networks with recurrent layers, with states or for int16 activations, on i.MX RT700 (modelled)"
NETWORKS = (
    "lstm_kws",
    "gru_kws",
    "streaming_lstm_kws",
    "noise_suppression",
    "streaming_tcn",
    "crnn",
    "speech_enhancement",
    "wake_word",
    "text_decoder",
)
CALIBRATION, FRAMES = 32, 64


@dataclass(frozen=True, slots=True)
class Figures:
    """A network in one type of activations. ``on_cpu``: operators that are not delegated. ``kernel_calls``, ``milliseconds``: of
    one run. ``sram_bytes`` includes the state. ``sqnr_db``: over all outputs."""

    delegate_calls: int
    on_cpu: int
    kernel_calls: int
    milliseconds: float
    sram_bytes: int
    state_bytes: int
    sqnr_db: float


def figures(name: str, activations: str, frames: int = FRAMES) -> Figures:
    """Return the figures of a built-in network. The same network gives the same figures."""
    model, example = models.get(name)
    reference = copy.deepcopy(model)
    options = QuantizationOptions(activations=activations)
    calibration = models.samples(name, CALIBRATION, seed=1)
    program = analyse(model, example, calibration=calibration, quantization=options)
    reports = [partition.compiled.report for partition in program.partitions]
    target = targets.get(targets.DEFAULT)
    real, found = [], []
    for sample in models.samples(name, frames, seed=2):
        with torch.no_grad():
            real += _tensors(reference(*sample))
        found += _tensors(program.run(*sample))
    return Figures(
        len(reports),
        len(program.delegation.on_cpu),
        sum(len(report.operators) for report in reports),
        sum(report.estimate(target).milliseconds for report in reports),
        sum(report.sram_bytes for report in reports),
        sum(report.state_bytes for report in reports),
        sqnr(real, found),
    )


def _tensors(outputs: Any) -> list[torch.Tensor]:
    return [*outputs] if isinstance(outputs, (tuple, list)) else [outputs]


def measure() -> dict[str, Any]:
    """Return the figures of each network by the type of its activations."""
    return {name: {kind: asdict(figures(name, kind)) for kind in (INT8, INT16)} for name in NETWORKS}


def rows(results: dict[str, Any]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the heads and the lines of the printed table, a line for each network and type."""
    heads = ("network", "type", "delegates", "on the CPU", "kernels", "ms", "KiB of SRAM", "state, bytes", "SQNR, dB")
    return heads, [
        (
            name,
            {INT8: "int8", INT16: "16x8"}[kind],
            f"{cell['delegate_calls']}",
            f"{cell['on_cpu']}",
            f"{cell['kernel_calls']}",
            f"{cell['milliseconds']:.3f}",
            f"{cell['sram_bytes'] / 1024:.1f}",
            f"{cell['state_bytes']}",
            f"{cell['sqnr_db']:.1f}",
        )
        for name, kinds in results.items()
        for kind, cell in kinds.items()
    ]


LEFT = ("type",)
"""Columns of words."""
