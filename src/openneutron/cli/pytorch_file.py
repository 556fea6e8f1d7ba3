# SPDX-License-Identifier: BSD-3-Clause
"""A ``.pte`` file in ExecuTorch's runtime, its NeutronBackend delegates on the simulated NPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from openneutron import pte
from openneutron.cli.arrays import InputTensor
from openneutron.errors import InvalidModelError
from openneutron.pytorch.run.runner import Runner


@dataclass(frozen=True, slots=True)
class _Program:
    """A loaded program, and how many of our delegates it calls."""

    name: str
    delegates: int
    runner: Runner = field(repr=False)

    @property
    def inputs(self) -> list[InputTensor]:
        found = []
        for index, ((shape, dtype), below) in enumerate(zip(self.runner.inputs, self.runner.table_sizes, strict=True)):
            if dtype == torch.bfloat16:
                raise InvalidModelError(
                    f"'{self.name}': argument {index} is torch.bfloat16, which NumPy has no type for. Run it with Runner.run."
                )
            kind = np.dtype(torch.empty(0, dtype=dtype).numpy().dtype)
            found.append(InputTensor(f"argument {index}", shape, kind, below=below))
        return found

    @property
    def where(self) -> str:
        if not self.delegates:
            return f"no {pte.BACKEND_ID} delegate in it: all of it ran on the CPU"
        return f"{self.delegates} delegate{'s' if self.delegates > 1 else ''} on the simulated NPU"

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        tensors = [torch.from_numpy(np.ascontiguousarray(value)) for value in inputs]
        outputs = self.runner.run(tensors)
        return [
            value.contiguous().numpy() if isinstance(value, torch.Tensor) else np.asarray(value) for value in outputs
        ]


def open_pte(path: Path, data: bytes, delegates: int) -> _Program:
    """Return the loaded file with its delegates (so many of ours) prepared.

    Raises InvalidModelError where ExecuTorch refuses the file, MissingToolError where the delegate can't be built.
    """
    return _Program(path.name, delegates, Runner(path.name, data))
