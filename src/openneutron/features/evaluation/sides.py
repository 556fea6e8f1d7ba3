# SPDX-License-Identifier: BSD-3-Clause
"""The sides of an evaluation: forms of one model as bytes, which any process can open and run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from openneutron.device.mixed import FileSimulator
from openneutron.device.third_party import needs_pytorch, suppressed
from openneutron.ir import QuantParams, Tensor

FLOAT, INT8, NPU = "float", "int8", "npu"
TITLES = {FLOAT: "float32 on the CPU", INT8: "int8 on the CPU", NPU: "int8 on the simulated NPU"}

EXPORTED, PTE, TFLITE = ".pt2", ".pte", ".tflite"

Run = Callable[[Sequence[np.ndarray]], list[np.ndarray]]
"""A function that returns the outputs of a model for an array for each of its inputs; real values."""


@dataclass(frozen=True, slots=True)
class Side:
    """A form of the model: FLOAT, INT8 or NPU, and the bytes of a file with this suffix.

    ``has_state``: the model keeps state from run to run, so that each sample takes the file as it was at first.
    """

    name: str
    suffix: str
    content: bytes = field(repr=False)
    has_state: bool = False

    def opened(self, model: str) -> Run:
        """Return the side, ready to run; messages call it ``model``."""
        if not self.has_state:
            return self._open(model)
        return lambda arrays: self._open(model)(arrays)

    def _open(self, model: str) -> Run:
        if self.suffix == TFLITE:
            return _litert(self.content)
        with needs_pytorch("PyTorch models take"), suppressed():
            if self.suffix == PTE:
                from openneutron.pytorch.run.runner import Runner

                runner = Runner(model, self.content)
                return lambda arrays: [np.asarray(output) for output in runner.run(arrays)]
            from openneutron.pytorch.run.exported import ExportedRunner

            return ExportedRunner(self.content).run


def _litert(content: bytes) -> Run:
    simulator = FileSimulator(content)

    def run(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        outputs = simulator.run(arrays)
        return [_real(tensor, output) for tensor, output in zip(simulator.outputs, outputs, strict=True)]

    return run


def _real(tensor: Tensor, output: np.ndarray) -> np.ndarray:
    quant: QuantParams | None = tensor.quant
    if quant is None or quant.per_channel or output.dtype.kind == "f":
        return output
    return ((output.astype(np.float32) - quant.zero_point) * quant.scale).astype(np.float32)


@contextmanager
def one_thread(sides: Sequence[Side]) -> Iterator[None]:
    """Run PyTorch's operators on one thread: a sum over several threads may be rounded otherwise."""
    if all(side.suffix == TFLITE for side in sides):
        yield
        return
    with needs_pytorch("PyTorch models take"):
        from openneutron.pytorch.run.exported import on_one_thread
    with on_one_thread():
        yield


def cores() -> int:
    """Return the number of processor cores that this process may use."""
    return len(os.sched_getaffinity(0))
