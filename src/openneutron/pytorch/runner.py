# SPDX-License-Identifier: BSD-3-Clause
"""Running a ``.pte`` in ExecuTorch's own runtime, its delegates on the simulated NPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import executorch.kernels.quantized  # noqa: F401  (registers the quantize and dequantize operators of the borders)
import torch
from executorch.exir._serialize._program import deserialize_pte_binary
from executorch.exir.schema import Tensor as TensorSchema
from executorch.runtime import Runtime

from openneutron.errors import InvalidModelError, InvalidOptionError
from openneutron.pytorch import delegate

METHOD = "forward"

DTYPES = {
    0: torch.uint8,
    1: torch.int8,
    2: torch.int16,
    3: torch.int32,
    4: torch.int64,
    6: torch.float32,
    11: torch.bool,
}
"""By ExecuTorch's ScalarType."""


def _plan(name: str, buffer: bytes) -> Any:
    """The first method as data. Raises InvalidModelError where it can't be read."""
    try:
        return deserialize_pte_binary(buffer).program.execution_plan[0]
    # The runtime has checked offsets and sizes; strings and enumerators are checked nowhere before this.
    except Exception as error:
        raise InvalidModelError(
            f"'{name}' is damaged: its flatbuffer can't be read. Compile the model again."
        ) from error


class Runner:
    """A loaded program. Raises InvalidModelError where it is damaged or has no method ``forward``."""

    def __init__(self, name: str, buffer: bytes) -> None:
        delegate.load()
        self._name = name
        self._program: Any = Runtime.get().load_program(buffer)
        names = self._program.method_names
        if METHOD not in names:
            raise InvalidModelError(f"'{name}': it has no method '{METHOD}'; its methods: {', '.join(sorted(names))}.")
        self._method: Any = self._program.load_method(METHOD)
        plan = _plan(name, buffer)
        values = [plan.values[index].val for index in plan.inputs]
        self._inputs = [value for value in values if isinstance(value, TensorSchema)]

    @property
    def inputs(self) -> list[tuple[tuple[int, ...], torch.dtype]]:
        """Shape and type of each input."""
        return [(tuple(wanted.sizes), DTYPES[int(wanted.scalar_type)]) for wanted in self._inputs]

    def run(self, inputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """The outputs. Raises InvalidOptionError where the inputs are not the program's."""
        if len(inputs) != len(self._inputs):
            raise InvalidOptionError(f"'{self._name}' takes {len(self._inputs)} inputs; there are {len(inputs)}.")
        given = [self._fitted(place, item) for place, item in enumerate(inputs)]
        return tuple(item.clone() if isinstance(item, torch.Tensor) else item for item in self._method.execute(given))

    def _fitted(self, place: int, item: torch.Tensor) -> torch.Tensor:
        wanted = self._inputs[place]
        dtype, shape = DTYPES.get(int(wanted.scalar_type)), tuple(wanted.sizes)
        if not isinstance(item, torch.Tensor) or tuple(item.shape) != shape or item.dtype != dtype:
            is_what = f"{item.dtype} {list(item.shape)}" if isinstance(item, torch.Tensor) else type(item).__name__
            raise InvalidOptionError(f"'{self._name}': input {place} is {is_what}; it takes {dtype} {list(shape)}.")
        if tuple(wanted.dim_order) == (0, 2, 3, 1):
            return item.contiguous(memory_format=torch.channels_last)
        return item.contiguous()
