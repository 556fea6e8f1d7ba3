# SPDX-License-Identifier: BSD-3-Clause
"""A program that quantizes one float model with AI Edge Quantizer, in a process that LiteRT may crash.

    python -m openneutron.litert.quantizer_child

Messages have the form of ``interpreter_child``. The first request is ``{"activations": "int8" or "int16", "ends": boolean, "floats":
[names], "arrays": [model]}``. A name in ``floats`` is that of an operator that stays float: its outputs, each with a semicolon. The model has one signature, ``main``, with the inputs ``input0``, ``input1`` ... Each
further request has the arrays of one calibration sample, and the end of stdin ends them. The answer is ``{"error": words or null,
"missing": a module that is not installed, or null, "arrays": [model]}``.
"""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Iterator
from itertools import islice
from typing import IO, Any

import numpy as np

from openneutron.litert.interpreter_child import receive, send

SIGNATURE = "main"

KEPT = b"openneutron kept/"
"""The first part of the names of tensors whose operators stay float."""

SAMPLES_AT_ONCE = 32
"""The samples that are in memory at once. The number is our own choice; the ranges do not depend on it."""

BITS = {"int8": 8, "int16": 16}


def main() -> None:
    """Answer one request."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # the quantizer prints
    error, missing, made = None, None, []
    try:
        made = [np.frombuffer(_quantized(sys.stdin.buffer), np.uint8)]
    except ModuleNotFoundError as caught:
        missing = caught.name
    except (RuntimeError, ValueError, MemoryError, KeyError, IndexError, NotImplementedError) as caught:
        error = " ".join(str(caught).split()) or type(caught).__name__
    send(answers, {"error": error, "missing": missing}, made)


def _quantized(requests: IO[bytes]) -> bytes:
    """Return the quantized model of the requests. Raises whatever the quantizer raises."""
    from ai_edge_quantizer import quantizer
    from ai_edge_quantizer.qtyping import TFLOperationName

    warnings.simplefilter("ignore")
    asked, (model,) = receive(requests)
    tool = quantizer.Quantizer(model.tobytes())
    tool.add_static_config(".*", TFLOperationName.ALL_SUPPORTED, BITS[asked["activations"]], 8)
    no = quantizer.AlgorithmName.NO_QUANTIZE
    if not asked["ends"]:
        for end in (TFLOperationName.INPUT, TFLOperationName.OUTPUT):
            tool.update_quantization_recipe(".*", end, algorithm_key=no)
    for pattern in (f"^{re.escape(KEPT.decode())}", *(f"^{re.escape(scope)}$" for scope in asked["floats"])):
        tool.update_quantization_recipe(pattern, TFLOperationName.ALL_SUPPORTED, algorithm_key=no)
    ranges: dict[str, Any] = {}
    samples = _samples(requests)
    while some := list(islice(samples, SAMPLES_AT_ONCE)):
        ranges = tool.calibrate({SIGNATURE: some}, ranges or None, num_threads=1)
    return bytes(tool.quantize(ranges, enable_progress_report=False).quantized_model or b"")


def _samples(requests: IO[bytes]) -> Iterator[dict[str, np.ndarray]]:
    while True:
        try:
            _, arrays = receive(requests)
        except EOFError:
            return
        yield {f"input{place}": array for place, array in enumerate(arrays)}


if __name__ == "__main__":
    main()
