# SPDX-License-Identifier: BSD-3-Clause
"""Running a ``.pte`` in ExecuTorch's own runtime, its delegates on the simulated NPU."""

from __future__ import annotations

import io
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from typing import Any

import executorch.kernels.quantized  # noqa: F401  (registers the quantize and dequantize operators of the borders)
import torch
from executorch.exir._serialize._program import deserialize_pte_binary
from executorch.exir.schema import Tensor as TensorSchema
from executorch.runtime import Runtime

from openneutron.errors import InvalidModelError, InvalidOptionError, OpenNeutronError
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


RECOMPILE = "Compile the model again, for the backends that are here."
ON_CPU = "Change the operator that it refuses; `openneutron explain` lists those that stay on the CPU."


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
        with _executorch(f"'{name}': ExecuTorch can't load it", RECOMPILE):
            self._program: Any = Runtime.get().load_program(buffer)
            names = self._program.method_names
            if METHOD not in names:
                raise InvalidModelError(
                    f"'{name}': it has no method '{METHOD}'; its methods: {', '.join(sorted(names))}."
                )
            self._method: Any = self._program.load_method(METHOD)
        plan = _plan(name, buffer)
        values = [plan.values[index].val for index in plan.inputs]
        self._inputs = [value for value in values if isinstance(value, TensorSchema)]

    @property
    def inputs(self) -> list[tuple[tuple[int, ...], torch.dtype]]:
        """Shape and type of each input."""
        return [(tuple(wanted.sizes), DTYPES[int(wanted.scalar_type)]) for wanted in self._inputs]

    def run(self, inputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """The outputs. Raises InvalidOptionError where the inputs are not the program's, InvalidModelError where ExecuTorch
        refuses to compute one of its operators."""
        if len(inputs) != len(self._inputs):
            raise InvalidOptionError(f"'{self._name}' takes {len(self._inputs)} inputs; there are {len(inputs)}.")
        given = [self._fitted(place, item) for place, item in enumerate(inputs)]
        with _executorch(f"'{self._name}': ExecuTorch can't run it", ON_CPU):
            outputs = self._method.execute(given)
        return tuple(item.clone() if isinstance(item, torch.Tensor) else item for item in outputs)

    def _fitted(self, place: int, item: torch.Tensor) -> torch.Tensor:
        wanted = self._inputs[place]
        dtype, shape = DTYPES.get(int(wanted.scalar_type)), tuple(wanted.sizes)
        if not isinstance(item, torch.Tensor) or tuple(item.shape) != shape or item.dtype != dtype:
            is_what = f"{item.dtype} {list(item.shape)}" if isinstance(item, torch.Tensor) else type(item).__name__
            raise InvalidOptionError(f"'{self._name}': input {place} is {is_what}; it takes {dtype} {list(shape)}.")
        if tuple(wanted.dim_order) == (0, 2, 3, 1):
            return item.contiguous(memory_format=torch.channels_last)
        return item.contiguous()


@contextmanager
def _executorch(subject: str, way_out: str) -> Iterator[None]:
    """What ExecuTorch says on stderr goes into the message if it fails, and nowhere if it does not.

    Its bindings write to Python's stderr, its libraries to the process's; meanwhile nobody else should.
    """
    sys.stderr.flush()
    kept = os.dup(2)
    written = io.StringIO()
    try:
        with tempfile.TemporaryFile() as said, redirect_stderr(written):
            os.dup2(said.fileno(), 2)
            try:
                yield
            except OpenNeutronError:
                raise
            except RuntimeError as error:
                said.seek(0)
                log = written.getvalue() + said.read().decode(errors="replace")
                raise InvalidModelError(f"{subject}: {_words(error, log)} {way_out}") from error
            finally:
                os.dup2(kept, 2)
    finally:
        os.close(kept)


def _words(error: RuntimeError, log: str) -> str:
    """The exception's first line, then the first thing ExecuTorch logged, without where in its sources."""
    lines = [re.sub(r"^.*?\[\w+\.(?:cpp|h):\d+\]\s*", "", line) for line in log.splitlines()]
    first = next((line for line in lines if line.strip()), "")
    head = str(error).splitlines()[0].rstrip(".") if str(error) else "no reason given"
    return f"{head} ({first.rstrip('.')})." if first else f"{head}."
