# SPDX-License-Identifier: BSD-3-Clause
"""A ``.pte`` file in ExecuTorch's runtime, its NeutronBackend delegates on the simulated NPU."""

from __future__ import annotations

import io
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from openneutron.cli.run_file import Border
from openneutron.errors import InvalidModelError, MissingToolError, OpenNeutronError
from openneutron.isa import payload, pte

METHOD = "forward"

DTYPE_OF_SCALAR_TYPE = {
    0: "uint8",
    1: "int8",
    2: "int16",
    3: "int32",
    4: "int64",
    5: "float16",
    6: "float32",
    7: "float64",
    11: "bool",
}
"""ExecuTorch's ScalarType (schema/scalar_type.fbs) in NumPy's words."""


@dataclass(frozen=True, slots=True)
class _Program:
    """A loaded method. ``program`` is held because the method reads its memory."""

    name: str
    inputs: tuple[Border, ...]
    delegates: int
    method: Any = field(repr=False)
    program: Any = field(repr=False)

    @property
    def where(self) -> str:
        if not self.delegates:
            return f"no {pte.BACKEND_ID} delegate in it: all of it ran on the CPU"
        return f"{self.delegates} delegate{'s' if self.delegates > 1 else ''} on the simulated NPU"

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        torch = import_module("torch")
        tensors = [torch.from_numpy(np.ascontiguousarray(value)) for value in inputs]
        with _executorch(f"'{self.name}': ExecuTorch can't run it"):
            outputs = self.method.execute(tensors)
        return [value.numpy() if isinstance(value, torch.Tensor) else np.asarray(value) for value in outputs]


def open_pte(path: Path) -> _Program:
    """The file, loaded and its delegates prepared.

    Raises InvalidProgramError where the file or a delegate's program is damaged, InvalidModelError where ExecuTorch refuses
    it, MissingToolError where something that running it takes is not installed.
    """
    data = path.read_bytes()
    ours = [found for found in pte.delegates(data, path.name) if found.backend == pte.BACKEND_ID]
    for found in ours:
        payload.parse(found.payload)
    try:
        runtime = import_module("executorch.runtime")
        # For its side effect: the quantize and dequantize operators at the borders.
        import_module("executorch.kernels.quantized")
    except ImportError as error:
        raise MissingToolError(
            f"running a .pte takes ExecuTorch: {error}. Install it: pip install 'openneutron[pytorch]'."
        ) from error
    if ours:
        from openneutron.pytorch import delegate

        delegate.load()
    with _executorch(f"'{path.name}': ExecuTorch can't load it"):
        program = runtime.Runtime.get().load_program(data)
        if METHOD not in program.method_names:
            names = ", ".join(sorted(program.method_names)) or "none"
            raise InvalidModelError(f"'{path.name}': it has no method '{METHOD}'; its methods: {names}.")
        method = program.load_method(METHOD)
        inputs = tuple(_borders(path, method.metadata))
    return _Program(path.name, inputs, len(ours), method, program)


def _borders(path: Path, metadata: Any) -> Iterator[Border]:
    for index in range(metadata.num_inputs()):
        meta = metadata.input_tensor_meta(index)
        dtype = DTYPE_OF_SCALAR_TYPE.get(int(meta.dtype()))
        if dtype is None:
            raise InvalidModelError(f"'{path.name}': input {index} has a type that NumPy does not know.")
        yield Border(f"argument {index}", tuple(int(extent) for extent in meta.sizes()), np.dtype(dtype))


@contextmanager
def _executorch(subject: str) -> Iterator[None]:
    """What ExecuTorch says on stderr goes into the message if it fails, and nowhere if it does not.

    Its bindings write to Python's stderr, its libraries to the process's.
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
                raise InvalidModelError(f"{subject}: {_words(error, log)}") from error
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
