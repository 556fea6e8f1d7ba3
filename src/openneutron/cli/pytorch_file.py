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
from pathlib import Path

import numpy as np
import torch

from openneutron.cli.run_file import Border
from openneutron.errors import InvalidModelError, OpenNeutronError
from openneutron.isa import pte
from openneutron.pytorch.runner import Runner


@dataclass(frozen=True, slots=True)
class _Program:
    """A loaded program, and how many of our delegates it calls."""

    name: str
    delegates: int
    runner: Runner = field(repr=False)

    @property
    def inputs(self) -> list[Border]:
        found = []
        for index, (shape, dtype) in enumerate(self.runner.inputs):
            found.append(Border(f"argument {index}", shape, np.dtype(torch.empty(0, dtype=dtype).numpy().dtype)))
        return found

    @property
    def where(self) -> str:
        if not self.delegates:
            return f"no {pte.BACKEND_ID} delegate in it: all of it ran on the CPU"
        return f"{self.delegates} delegate{'s' if self.delegates > 1 else ''} on the simulated NPU"

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        tensors = [torch.from_numpy(np.ascontiguousarray(value)) for value in inputs]
        with _executorch(f"'{self.name}': ExecuTorch can't run it"):
            outputs = self.runner.run(tensors)
        return [
            value.contiguous().numpy() if isinstance(value, torch.Tensor) else np.asarray(value) for value in outputs
        ]


def open_pte(path: Path, data: bytes, delegates: int) -> _Program:
    """The file, loaded and its delegates (so many of ours) prepared.

    Raises InvalidModelError where ExecuTorch refuses the file, MissingToolError where the delegate can't be built.
    """
    with _executorch(f"'{path.name}': ExecuTorch can't load it"):
        return _Program(path.name, delegates, Runner(path.name, data))


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
