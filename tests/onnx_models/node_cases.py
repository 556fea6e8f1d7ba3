# SPDX-License-Identifier: BSD-3-Clause
"""ONNX's own cases of operators, compiled and run.

    python -m tests.onnx_models.node_cases [--float] [NAME ...]

The cases are those of ``onnx.backend.test`` whose inputs are float32 tensors of fixed shapes. Inputs that decide shapes, and weights of
recurrent layers, become constants, as they are in files of exporters. A case is calibrated with its own inputs. ``--float`` compares the
imported module alone, without quantization. Prints a line for each case that is not whole on the NPU, and the counts.
"""

from __future__ import annotations

import collections
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from onnx.backend.test.case.node import collect_testcases

import openneutron
from openneutron.errors import OpenNeutronError
from openneutron.pytorch.onnx.read import module_of

_CONSTANTS = {
    "Resize": range(1, 4), "Upsample": (1,), "LSTM": (1, 2, 3, 4, 7), "GRU": (1, 2, 3, 4), "RNN": (1, 2, 3, 4), "OneHot": (1, 2),
    "Range": (0, 1, 2),
}  # fmt: skip

ENOUGH = 30.0
"""Decibels of signal to error that an int8 result should have."""


def cases(names: list[str]) -> Iterator[tuple[str, onnx.ModelProto, list[np.ndarray[Any, Any]], list[Any]]]:
    """Yield the name, the model, the inputs and the right outputs of each case."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = collect_testcases(None)
    for case in found:
        kinds = [item.type for item in case.model.graph.input]
        if names and not any(name in case.name for name in names):
            continue
        if all(
            kind.WhichOneof("value") == "tensor_type"
            and kind.tensor_type.elem_type == onnx.TensorProto.FLOAT
            and all(dim.HasField("dim_value") for dim in kind.tensor_type.shape.dim)
            for kind in kinds
        ):
            inputs, outputs = case.data_sets[0]
            yield case.name, *_bound(case.model, list(map(_array, inputs))), list(map(_array, outputs))


def _array(value: Any) -> Any:
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    return value if isinstance(value, list) else np.array(value)


def _bound(
    model: onnx.ModelProto, inputs: list[np.ndarray[Any, Any]]
) -> tuple[onnx.ModelProto, list[np.ndarray[Any, Any]]]:
    fixed = {
        node.input[place]
        for node in model.graph.node
        for place in _CONSTANTS.get(node.op_type, ())
        if place < len(node.input)
    }
    made = onnx.ModelProto()
    made.CopyFrom(model)
    given = []
    for item, value in zip(model.graph.input, inputs, strict=True):
        if item.name in fixed:
            made.graph.initializer.append(numpy_helper.from_array(value, item.name))
        else:
            given.append(value)
    return made, given


def decibels(found: Any, right: Any) -> float:
    """Return the ratio of the signal to the error; infinite for equal arrays."""
    right = np.asarray(right, np.float64)
    found = np.asarray(found, np.float64).reshape(right.shape)
    finite = np.isfinite(right)
    error = ((found - right)[finite] ** 2).sum()
    return float("inf") if error == 0 else float(10 * np.log10(max((right[finite] ** 2).sum(), 1e-30) / error))


def judged(
    name: str, model: onnx.ModelProto, inputs: list[np.ndarray[Any, Any]], outputs: list[Any], in_float: bool
) -> tuple[str, str]:
    """Return what a case came to, and more words about it."""
    try:
        tensors = [torch.from_numpy(value) for value in inputs]
        if in_float:
            module, _ = module_of(model, name)
            with torch.no_grad():
                found = module(*tensors)
            near = all(
                np.allclose(np.asarray(one), right, rtol=1e-3, atol=1e-5, equal_nan=True)
                for one, right in zip(found, outputs, strict=True)
            )
            return ("equal" if near else "wrong"), ""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "net.onnx"
            path.write_bytes(model.SerializeToString())
            program = openneutron.compile(path, calibration=[tuple(tensors)])
        found = program.run(*tensors)
    except OpenNeutronError as error:
        return "refused", str(error)
    except Exception as error:
        return "raw", f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
    least = min((decibels(one, right) for one, right in zip(found, outputs, strict=True)), default=0.0)
    on_cpu = [f"{item.operator}: {item.reason}" for item in program.report.on_cpu]
    where = "whole" if not on_cpu else "split" if program.partitions else "CPU"
    return (
        where if least >= ENOUGH else f"{where}, below {ENOUGH:.0f} dB"
    ), f"{least:.1f} dB {on_cpu[0] if on_cpu else ''}"


def main(arguments: list[str]) -> int:
    """Run the cases. Return the number of raw exceptions and wrong results."""
    names = [name for name in arguments if not name.startswith("--")]
    counts: collections.Counter[str] = collections.Counter()
    for name, model, inputs, outputs in cases(names):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            kind, words = judged(name, model, inputs, outputs, "--float" in arguments)
        counts[kind] += 1
        if kind not in ("whole", "equal"):
            print(f"{kind}: {name}: {words}", flush=True)
    print(dict(counts))
    return counts["raw"] + counts["wrong"]


if __name__ == "__main__":
    sys.exit(1 if main(sys.argv[1:]) else 0)
