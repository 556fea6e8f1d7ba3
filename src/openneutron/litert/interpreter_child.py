# SPDX-License-Identifier: BSD-3-Clause
"""A standalone program: LiteRT's interpreter in a process that may crash.

    python -P interpreter_child.py

Messages have the same form on stdin and stdout: 8 bytes with the length of a JSON text, little-endian, the text, and
the bytes of the arrays, concatenated. A request is ``{"model": index, "new": boolean, "optimized": boolean, "shapes":
boolean, "arrays": [...]}``. If ``new`` is true, the first array is the model, and ``optimized`` selects its kernels. ``shapes`` asks for
the shapes of all tensors in place of the outputs. An answer is
``{"error": words or null, "arrays": [...]}``. The program imports nothing of this project, so that it starts in 0.2 s.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import struct
import sys
from collections.abc import Mapping, Sequence
from typing import IO, Any

import numpy as np

LENGTH = struct.Struct("<Q")


def run(model: bytes, inputs: Sequence[np.ndarray], optimized: bool = False) -> list[np.ndarray]:
    """Return the outputs of a model, in the model's order, computed on one thread. An input with another shape than the
    model states resizes the model's input.

    ``optimized`` selects LiteRT's optimized kernels in place of its reference kernels (``interpret.beyond_reference``).

    Raises RuntimeError or ValueError where the interpreter can't run the model.
    """
    interpreter = _ran(model, inputs, optimized)
    return [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]


def shapes(model: bytes, inputs: Sequence[np.ndarray], optimized: bool = False) -> list[np.ndarray]:
    """Return the shapes of all tensors for these inputs, as a flat list of arrays. For each subgraph the list has the
    indices of its tensors in one array, and then an array for each tensor's shape.

    The model is run, since some shapes depend on computed values. Raises as ``run`` does.
    """
    interpreter = _ran(model, inputs, optimized)
    made: list[np.ndarray] = []
    for subgraph in itertools.count():
        try:
            details = interpreter.get_tensor_details(subgraph)
        except ValueError:  # there are no more
            return made
        made.append(np.array([detail["index"] for detail in details], np.int32))
        made += [np.asarray(detail["shape"], np.int32) for detail in details]
    raise AssertionError


def _ran(model: bytes, inputs: Sequence[np.ndarray], optimized: bool) -> Any:
    """Return LiteRT's interpreter after a run."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    kernels = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES if optimized else OpResolverType.BUILTIN_REF
    # Without preserved tensors LiteRT 2.3.0 lets an operator overwrite an operand that a reshape still shares.
    interpreter = Interpreter(
        model_content=model,
        experimental_op_resolver_type=kernels,
        experimental_preserve_all_tensors=True,
        num_threads=1,
    )
    details = interpreter.get_input_details()
    for detail, value in zip(details, inputs, strict=True):
        if tuple(detail["shape"]) != value.shape:
            interpreter.resize_tensor_input(detail["index"], value.shape)
    interpreter.allocate_tensors()
    for detail, value in zip(details, inputs, strict=True):
        interpreter.set_tensor(detail["index"], value)
    interpreter.invoke()
    return interpreter


def send(stream: IO[bytes], message: Mapping[str, Any], arrays: Sequence[np.ndarray]) -> None:
    """Write a message. An array of dtype object holds LiteRT's strings."""
    described: list[dict[str, Any]] = []
    for array in arrays:
        row: dict[str, Any] = {"shape": array.shape, "dtype": array.dtype.str}
        if array.dtype.hasobject:
            items = (item if isinstance(item, bytes) else str(item).encode() for item in array.reshape(-1))
            row["items"] = [base64.b64encode(item).decode() for item in items]
        described.append(row)
    text = json.dumps({**message, "arrays": described}).encode()
    stream.write(LENGTH.pack(len(text)) + text)
    for array in arrays:
        if not array.dtype.hasobject:
            stream.write(array.tobytes())
    stream.flush()


def receive(stream: IO[bytes]) -> tuple[dict[str, Any], list[np.ndarray]]:
    """Read a message and its arrays from the stream. A tensor of strings is returned as an array of dtype object,
    with bytes as elements. Raises EOFError where the other end is closed before the message is complete."""
    message: dict[str, Any] = json.loads(_exactly(stream, LENGTH.unpack(_exactly(stream, LENGTH.size))[0]))
    arrays = []
    for row in message.pop("arrays"):
        shape = tuple(row["shape"])
        if "items" in row:
            array = np.empty(shape, object)
            array.reshape(-1)[:] = [base64.b64decode(item) for item in row["items"]]
        else:
            dtype = np.dtype(row["dtype"])
            content = _exactly(stream, int(np.prod(shape, dtype=np.int64)) * dtype.itemsize)
            array = np.frombuffer(bytearray(content), dtype).reshape(shape)
        arrays.append(array)
    return message, arrays


def _exactly(stream: IO[bytes], size: int) -> bytes:
    content = stream.read(size)
    if len(content) < size:
        raise EOFError
    return content


def main() -> None:
    """Answer requests until stdin ends."""
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing that LiteRT prints may get between the answers
    models: dict[int, tuple[bytes, bool]] = {}
    while True:
        try:
            request, arrays = receive(requests)
        except EOFError:
            return
        if request["new"]:
            models[request["model"]] = arrays.pop(0).tobytes(), request["optimized"]
        error, results = None, []
        try:
            model, optimized = models[request["model"]]
            results = (shapes if request["shapes"] else run)(model, arrays, optimized)
        except (RuntimeError, ValueError, MemoryError) as caught:
            error = " ".join(str(caught).split()) or type(caught).__name__
        send(answers, {"error": error}, results)


if __name__ == "__main__":
    main()
