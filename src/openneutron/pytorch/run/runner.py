# SPDX-License-Identifier: BSD-3-Clause
"""Run a ``.pte`` in ExecuTorch's own runtime, with its delegates on the simulated NPU."""

from __future__ import annotations

import io
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import Any

import executorch.kernels.quantized  # noqa: F401  (registers the quantize and dequantize operators of the borders)
import numpy as np
import torch
from executorch.exir._serialize._program import deserialize_pte_binary
from executorch.exir.schema import KernelCall, TensorShapeDynamism
from executorch.exir.schema import Tensor as TensorSchema
from executorch.exir.tensor import enum_to_scalar_map
from executorch.runtime import Runtime

from openneutron.device.simulator import require
from openneutron.errors import InvalidModelError, InvalidOptionError, OpenNeutronError
from openneutron.pytorch.run import delegate
from openneutron.pytorch.run.method import QUANTIZE, warn_of_nan

METHOD = "forward"

_NUMBERS = ("int_val", "double_val", "bool_val")
"""The fields of ExecuTorch's Int, Double and Bool."""

RECOMPILE = "Compile the model again, for the backends that are here."
OTHER_RUNTIME = "Replace the operator in the model, or run the file where such a kernel is linked."
RUN_FAILED = re.compile(r"NeutronBackend: the run failed with 0x([0-9a-f]+)")
"""The delegate's line about an error of the driver in a run (runtime/delegate/neutron_backend.cpp)."""
ON_CPU = "Change the operator that it refuses; `openneutron explain` lists those that stay on the CPU."


def _plan(name: str, buffer: bytes) -> Any:
    """Return the execution plan of a program's first method. Raise InvalidModelError where it can't be read."""
    try:
        return deserialize_pte_binary(buffer).program.execution_plan[0]
    # The runtime has checked offsets and sizes, but neither strings nor enumerators.
    except Exception as error:
        raise InvalidModelError(
            f"'{name}' is damaged: its flatbuffer can't be read. Compile the model again."
        ) from error


def _tables(plan: Any) -> dict[int, int]:
    """Return a dict from each value of the plan that embeddings read as indices, by its number, to the number of
    entries of the smallest of these embeddings.

    Values that no embedding reads as indices are not in the dict.
    """
    found: dict[int, int] = {}
    for chain in plan.chains:
        for instruction in chain.instructions:
            call = instruction.instr_args
            if not isinstance(call, KernelCall) or plan.operators[call.op_index].name != "aten::embedding":
                continue
            table, indices = plan.values[call.args[0]].val, call.args[1]
            found[indices] = min(found.get(indices, table.sizes[0]), table.sizes[0])
    return found


def _quantized(plan: Any) -> set[int]:
    """Return the places of the inputs that an operator of the plan quantizes."""
    calls = [instruction.instr_args for chain in plan.chains for instruction in chain.instructions]
    read = {
        call.args[0]
        for call in calls
        if isinstance(call, KernelCall) and plan.operators[call.op_index].name == QUANTIZE
    }
    return {place for place, index in enumerate(plan.inputs) if index in read}


class Runner:
    """A loaded program. With ``traced``, its runs record events for ``etdump``.

    Raises InvalidModelError where the program is damaged, has no method ``forward``, or can't be loaded, and
    MissingToolError as ``delegate.load`` does.
    """

    def __init__(self, name: str, buffer: bytes, traced: bool = False) -> None:
        delegate.load()
        self._name = name
        with _executorch(f"'{name}'", "load", RECOMPILE):
            self._program: Any = Runtime.get().load_program(buffer, enable_etdump=traced)
            names = self._program.method_names
            if METHOD not in names:
                raise InvalidModelError(
                    f"'{name}': it has no method '{METHOD}'; its methods: {', '.join(sorted(names))}."
                )
            self._method: Any = self._program.load_method(METHOD)
        plan = _plan(name, buffer)
        self._inputs = [plan.values[index].val for index in plan.inputs]
        self._tables = _tables(plan)
        self._quantized = _quantized(plan)
        self._places = [
            place for place, value in zip(plan.inputs, self._inputs, strict=True) if isinstance(value, TensorSchema)
        ]

    @property
    def inputs(self) -> list[tuple[tuple[int, ...], torch.dtype]]:
        """Return the shape and the type of each input tensor. A shape that is not fixed is the largest one."""
        return [(tuple(wanted.sizes), enum_to_scalar_map[wanted.scalar_type]) for wanted in self._tensors]

    @property
    def memory_orders(self) -> list[tuple[int, ...]]:
        """Return the axes of each input tensor in memory order, the innermost last."""
        return [tuple(int(axis) for axis in wanted.dim_order) for wanted in self._tensors]

    @property
    def table_sizes(self) -> list[int | None]:
        """Return for each input tensor the number of entries of the smallest embedding that reads it as indices.

        The number is None for a tensor that no embedding reads.
        """
        return [self._tables.get(place) for place in self._places]

    @property
    def _tensors(self) -> list[TensorSchema]:
        return [value for value in self._inputs if isinstance(value, TensorSchema)]

    def run(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """Run the program and return its outputs.

        ``inputs`` has either all inputs, or only the tensors. In the second case, numbers and None get the values
        that the program was exported with. NumPy arrays become tensors, and floats of other types become float32.

        Raise InvalidOptionError where the inputs do not match those of the program, DriverError where the driver ends the run, and
        InvalidModelError where ExecuTorch does.
        """
        inputs = [torch.from_numpy(item.copy()) if isinstance(item, np.ndarray) else item for item in inputs]
        if len(inputs) == len(self._tensors) and all(isinstance(item, torch.Tensor) for item in inputs):
            rest = iter(inputs)
            inputs = [next(rest) if isinstance(value, TensorSchema) else _number(value) for value in self._inputs]
        elif len(inputs) != len(self._inputs):
            most = len(self._inputs)
            raise InvalidOptionError(
                f"'{self._name}' takes {most} {'input' if most == 1 else 'inputs'}; {len(inputs)} given. Pass each as an argument of its own."
            )
        given = [self._fitted(place, item) for place, item in enumerate(inputs)]
        with _executorch(f"'{self._name}'", "run", ON_CPU):
            outputs = self._method.execute(given)
        return tuple(item.clone() if isinstance(item, torch.Tensor) else item for item in outputs)

    def etdump(self) -> bytes:
        """Return the events of all runs so far as the bytes of ExecuTorch's ETDump."""
        with tempfile.TemporaryDirectory() as folder:
            dump, debug = (Path(folder) / name for name in ("etdump", "debug"))
            self._program.write_etdump_result_to_file(str(dump), str(debug))
            return dump.read_bytes()

    def _fitted(self, place: int, item: Any) -> Any:
        wanted = self._inputs[place]
        if not isinstance(wanted, TensorSchema):
            return self._checked(place, item, _number(wanted))
        dtype, shape = enum_to_scalar_map.get(wanted.scalar_type), tuple(wanted.sizes)
        if dtype == torch.float32 and isinstance(item, torch.Tensor) and item.is_floating_point():
            item = item.float()
        free = wanted.shape_dynamism != TensorShapeDynamism.STATIC
        if not isinstance(item, torch.Tensor) or not _has_shape(item, shape, free) or item.dtype != dtype:
            is_what = f"{item.dtype} {list(item.shape)}" if isinstance(item, torch.Tensor) else type(item).__name__
            most = "at most " if free else ""
            raise InvalidOptionError(
                f"'{self._name}': input {place} is {is_what}; it takes {dtype} {most}{list(shape)}."
            )
        if place in self._quantized and bool(item.isnan().any()):
            warn_of_nan(self._name, place)
        if tuple(wanted.dim_order) == (0, 2, 3, 1):
            return item.contiguous(memory_format=torch.channels_last)
        return item.contiguous()

    def _checked(self, place: int, item: Any, wanted: Any) -> Any:
        # A program stores no strings: its value for a string input is None.
        if (type(item) is type(wanted) and item == wanted) or (wanted is None and isinstance(item, str)):
            return wanted
        is_what = f"a {type(item).__name__}" if isinstance(item, torch.Tensor) else repr(item)
        raise InvalidOptionError(
            f"'{self._name}': input {place} is {is_what}; the program was made for {wanted!r}. Export the model again for "
            "another value."
        )


def _has_shape(item: torch.Tensor, shape: tuple[int, ...], free: bool) -> bool:
    if not free:
        return tuple(item.shape) == shape
    return item.dim() == len(shape) and all(here <= most for here, most in zip(item.shape, shape, strict=True))


def _number(value: Any) -> Any:
    return next((getattr(value, name) for name in _NUMBERS if hasattr(value, name)), None)


@contextmanager
def _executorch(subject: str, step: str, suggestion: str) -> Iterator[None]:
    """Raise a RuntimeError of ExecuTorch as an InvalidModelError, with the first line that ExecuTorch logged. An error of a run
    that the driver reports, such as an index outside its tensor, is raised as a DriverError.

    All output on stderr is kept away from the terminal: the bindings write to Python's stderr, and the libraries to that of the process.
    No other thread should write to stderr meanwhile.
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
                if fault := RUN_FAILED.search(log):
                    require(f"{subject}: run", int(fault[1], 16))
                words = _words(error, log)
                if kernel := re.search(r"kernel '([^']+)' not found", words):
                    words, suggestion = f"its runtime has no kernel '{kernel[1]}'.", OTHER_RUNTIME
                raise InvalidModelError(f"{subject}: ExecuTorch can't {step} it: {words} {suggestion}") from error
            finally:
                os.dup2(kept, 2)
    finally:
        os.close(kept)


def _words(error: RuntimeError, log: str) -> str:
    """Return the first line of the exception, and in parentheses the first line that ExecuTorch logged, without its place in the source.

    Libraries under ExecuTorch write to the same log. Their lines state no place.
    """
    found = re.search(r"^.*?\[\w+\.(?:cpp|h):\d+\]\s*(\S.*)$", log, re.MULTILINE)
    first = found[1] if found else next((line for line in log.splitlines() if line.strip()), "")
    head = str(error).splitlines()[0].rstrip(".") if str(error) else "no reason given"
    return f"{head} ({first.rstrip('.')})." if first else f"{head}."
