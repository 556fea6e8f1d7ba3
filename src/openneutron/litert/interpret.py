# SPDX-License-Identifier: BSD-3-Clause
"""Run models without NeutronGraphs in LiteRT's interpreter, in this process or in a child process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from openneutron.errors import InvalidModelError
from openneutron.litert import interpreter_child
from openneutron.litert.read import operator_name, unpack

CHILD = Path(interpreter_child.__file__)

PATIENCE_SECONDS = 5
"""The time in seconds for the child to exit after its stdin is closed. A child that takes longer is killed."""


def interpret(model: bytes, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return the outputs of a model, in the model's order, computed on one thread. If an input has another shape than
    the model states, the model's input is resized.

    LiteRT runs in this process and may abort it: call this only for models that are known to be safe. Raises
    InvalidModelError, with LiteRT's message, where the interpreter can't run the model.
    """
    try:
        return interpreter_child.run(model, inputs, beyond_reference(unpack(model, "model")))
    except (RuntimeError, ValueError) as error:
        raise _refused(" ".join(str(error).split())) from error


def _refused(words: str) -> InvalidModelError:
    return InvalidModelError(f"LiteRT's interpreter can't run the operators on the CPU: {words}")


class InterpreterProcess:
    """A child process that runs models, so that a crash of LiteRT is an error in this process.

    The process starts with the first run, serves all runs, and ends with this object or with this process.
    """

    def __init__(self, models: Sequence[tuple[bytes, str]]) -> None:
        """Set the models that the process will run: pairs of a flatbuffer and a description of its operators for
        messages."""
        self._models = tuple(models)
        self._lock = threading.Lock()
        self._sent: set[int] = set()
        self._child: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        self._end: Any = None

    def run(self, index: int, inputs: Sequence[np.ndarray], shapes: bool = False) -> list[np.ndarray]:
        """Return the outputs of the model at ``index``, as ``interpret`` does. Each run starts from a fresh state.

        With ``shapes``, return what ``interpreter_child.shapes`` returns.

        Raises InvalidModelError where LiteRT can't run the model or crashes.
        """
        with self._lock:
            try:
                message, outputs = self._ask(index, inputs, shapes)
            except (EOFError, OSError) as error:
                raise InvalidModelError(self._crash(self._models[index][1])) from error
            except BaseException:  # after an interrupt, the bytes in the pipes belong to no request
                self.close()
                raise
        if message["error"] is not None:
            raise _refused(message["error"])
        return outputs

    def close(self) -> None:
        """End the process if one is running. The next run starts another."""
        if self._end is not None:
            self._end()
        self._child, self._log, self._end = None, None, None
        self._sent.clear()

    def _ask(self, index: int, inputs: Sequence[np.ndarray], shapes: bool) -> tuple[dict[str, Any], list[np.ndarray]]:
        if self._child is None:
            self._start()
        child = self._child
        assert child is not None and child.stdin is not None and child.stdout is not None
        new = index not in self._sent
        content = self._models[index][0]
        model = [np.frombuffer(content, np.uint8)] if new else []
        optimized = new and beyond_reference(unpack(content, "model"))
        interpreter_child.send(
            child.stdin, {"model": index, "new": new, "optimized": optimized, "shapes": shapes}, [*model, *inputs]
        )
        answer = interpreter_child.receive(child.stdout)
        self._sent.add(index)
        return answer

    def _start(self) -> None:
        log = tempfile.TemporaryFile()  # noqa: SIM115  (closed with the process)
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        child = subprocess.Popen(
            [sys.executable, "-P", str(CHILD)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=environment,
        )
        self._child, self._log = child, log
        self._end = weakref.finalize(self, _stop, child, log)

    def _crash(self, what: str) -> str:
        """Return the message for a process that has ended, and discard the process."""
        child, log = self._child, self._log
        assert child is not None and log is not None
        try:
            code = child.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            code = child.wait()
        log.seek(0)
        lines = [line.strip() for line in log.read().decode(errors="replace").splitlines() if line.strip()]
        self.close()
        words = f" Its last words: {lines[-1][:LONGEST_WORDS]}" if lines else ""
        return (
            f"LiteRT's interpreter {ended(code)} when it ran the operators on the CPU ({what}): the fault is LiteRT's, with "
            f"this model.{words} `openneutron explain` lists the operators that stay on the CPU; change the model so that "
            "these are others."
        )


LONGEST_WORDS = 200
"""The largest number of characters of LiteRT's last line of output that a message repeats."""


def ended(code: int) -> str:
    """Return words for the end of a child process with this exit code."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by signal {-code} ({signal.Signals(-code).name})"
    except ValueError:
        return f"was ended by signal {-code}"


def _stop(child: subprocess.Popen[bytes], log: IO[bytes]) -> None:
    for stream in (child.stdin, child.stdout):
        if stream is not None:
            with suppress(OSError):  # bytes were still to be written to a process that has ended
                stream.close()
    try:
        child.wait(PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
    log.close()


# -- the kernels that a file needs -------------------------------------------------------------------------------------

WITHOUT_REFERENCE = frozenset(
    (
        *("CEIL", "ELU", "ROUND", "SEGMENT_SUM"),
        *("HASHTABLE", "HASHTABLE_FIND", "HASHTABLE_IMPORT", "HASHTABLE_SIZE"),
        *("STABLEHLO_AND", "STABLEHLO_CASE", "STABLEHLO_SHIFT_LEFT"),
    )
)
"""Operators that LiteRT 2.3.0's reference resolver (BUILTIN_REF) lacks and BUILTIN_WITHOUT_DEFAULT_DELEGATES has."""


def beyond_reference(model: Any) -> bool:
    """Return whether a model needs LiteRT's optimized kernels (BUILTIN_WITHOUT_DEFAULT_DELEGATES).

    It does if the reference kernels lack one of its operators, or compute one wrongly: LiteRT's reference kernel
    computes a SUM of int8 or int16 as if the values were uint8.
    """
    return any(
        operator_name(model, operator) in WITHOUT_REFERENCE or _sums_signed(model, subgraph, operator)
        for subgraph in model.subgraphs
        for operator in subgraph.operators or ()
    )


def _sums_signed(model: Any, subgraph: Any, operator: Any) -> bool:
    first = operator.inputs[0] if operator_name(model, operator) == "SUM" and len(operator.inputs) else -1
    return bool(first >= 0 and subgraph.tensors[first].type in (schema.TensorType.INT8, schema.TensorType.INT16))
