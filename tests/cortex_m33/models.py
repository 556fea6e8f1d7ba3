# SPDX-License-Identifier: BSD-3-Clause
"""The models that the Cortex-M33 runs: MLPerf Tiny's four, and two from PyTorch as they lie in their ``.pte``."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

import openneutron
from openneutron import litert, targets
from openneutron.compiler import CompileOptions, Report, compile_graph
from openneutron.device import pte
from openneutron.device.simulator import Simulator
from openneutron.ir import Graph
from openneutron.isa import Program, decode, payload
from openneutron.isa.kernel_selection import KernelSelection, called_kernels
from openneutron.options import CALLER
from tests.support.made_networks import models_folder

if TYPE_CHECKING:
    from openneutron.api.pytorch import CompiledModel

TINY = {
    "anomaly detection": "mlperf_tiny_ad01_int8",
    "keyword spotting": "mlperf_tiny_kws_int8",
    "ResNet-8": "mlperf_tiny_resnet8_int8",
    "MobileNetV1 0.25": "mlperf_tiny_vww96_int8",
}
CIFARNET = "CifarNet"
BUILT_IN = {CIFARNET: "cifarnet", "autoencoder": "autoencoder"}
NAMES = (*TINY, *BUILT_IN)


@dataclass(frozen=True, slots=True)
class Model:
    """A compiled model and what the compiler says of it."""

    program: Program
    report: Report

    @property
    def selection(self) -> str:
        """The C file that registers the kernels it calls."""
        return KernelSelection(f"OpenNeutron {openneutron.__version__}", called_kernels([self.program])).text()


TARGET = targets.get("imxrt700")


@functools.cache
def model(name: str, prefetch_constants: bool = False, sram_budget: int | None = None) -> Model:
    """Return a model by its name, compiled once."""
    if name in BUILT_IN and not prefetch_constants and sram_budget is None:
        compiled = _built_in(name)
        (delegate,) = pte.delegates(compiled.buffer)
        return Model(payload.parse(delegate.payload).program, compiled.partitions[0].compiled.report)
    options = CompileOptions(sram_budget=sram_budget, io_place=CALLER, prefetch_constants=prefetch_constants)
    result = compile_graph(_graph(name), TARGET, options)
    return Model(result.program, result.report)


def _graph(name: str) -> Graph:
    if name in BUILT_IN:
        return _built_in(name).partitions[0].compiled.graph
    return litert.read(models_folder() / f"{TINY[name]}.tflite").graph


@functools.cache
def _built_in(name: str) -> CompiledModel:
    from openneutron.pytorch.source import models

    network, example = models.get(BUILT_IN[name])
    return openneutron.compile(network, example, calibration=models.samples(BUILT_IN[name], 4), name=BUILT_IN[name])


def random_inputs(program: Program, count: int, seed: int = 0) -> tuple[bytes, ...]:
    """The bytes of all inputs of ``count`` runs."""
    random = np.random.default_rng(seed)
    size = sum(item["size"] for item in decode(program).inputs)
    return tuple(random.integers(0, 256, size, np.uint8).tobytes() for _ in range(count))


def on_the_host(program: Program, inputs: tuple[bytes, ...]) -> list[bytes]:
    """The bytes of all outputs of each run, from the simulator."""
    results = []
    with Simulator(program) as simulator:
        ends = np.cumsum([item["size"] for item in simulator.microcode.inputs])[:-1]
        for data in inputs:
            outputs = simulator.run(np.split(np.frombuffer(data, np.uint8), ends))
            results.append(b"".join(output.tobytes() for output in outputs))
    return results
