# SPDX-License-Identifier: BSD-3-Clause
"""ONNX's own cases of operators, compiled and run.

    python -m tests.onnx_models.node_cases [--float] [--into FILE] [NAME ...]

The cases are those of ``onnx.backend.test`` whose inputs are float32 tensors of fixed shapes. Inputs that decide shapes, weights, scales and
exponents become constants, as they are in files of exporters. A case is calibrated with its own inputs. A result of less than 30 dB is compared
with the int8 file that onnxruntime's ``quantize_static`` makes of the same case with the same samples (QDQ, per channel), and with the float
operator between inputs and outputs that are rounded to 256 values. ``--float`` compares the imported module alone, without quantization.
``--into`` appends each result to a file, and leaves out the cases that the file has. Prints a line for each case that is not whole on the NPU,
and the counts. Takes about 6 CPU-minutes.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import io
import json
import logging
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
from onnx.reference import ReferenceEvaluator

import openneutron
from openneutron.errors import OpenNeutronError
from openneutron.options import DelegationOptions
from openneutron.pytorch.onnx.read import module_of

_CONSTANTS = {
    "Resize": range(1, 4), "Upsample": (1,), "LSTM": (1, 2, 3, 4, 7), "GRU": (1, 2, 3, 4), "RNN": (1, 2, 3, 4), "OneHot": (1, 2),
    "Range": (0, 1, 2), "Conv": (1, 2), "ConvTranspose": (1, 2), "DeformConv": (1, 3), "CausalConvWithState": (1, 2), "BatchNormalization": range(1, 5), "Pow": (1,),
    "QuantizeLinear": (1, 2), "DequantizeLinear": (1, 2),
}  # fmt: skip

ENOUGH = 30.0
"""Decibels of signal to error that an int8 result should have."""

CLOSE = 1.0
"""Decibels by which a result may be worse than the better of the two int8 results that it is compared with."""


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
    """Return the ratio of the signal to the error: infinite for equal arrays, minus infinity for another shape. Sequences are their elements."""
    if isinstance(right, list):
        found = found if isinstance(found, (list, tuple)) else [found]
        if len(found) != len(right):
            return float("-inf")
        return min((decibels(one, value) for one, value in zip(found, right, strict=True)), default=float("inf"))
    right, found = np.asarray(right, np.float64), np.asarray(found, np.float64)
    if found.size != right.size:
        return float("-inf")
    found = found.reshape(right.shape)
    finite = np.isfinite(right)
    error = ((found - right)[finite] ** 2).sum()
    return float("inf") if error == 0 else float(10 * np.log10(max((right[finite] ** 2).sum(), 1e-30) / error))


def _rounded(array: Any) -> Any:
    """Return a float array rounded to 256 values between its ends and 0; others as they are."""
    array = np.asarray(array)
    finite = array[np.isfinite(array)] if array.dtype.kind == "f" else array[:0]
    if not finite.size:
        return array
    low, high = min(float(finite.min()), 0.0), max(float(finite.max()), 0.0)
    step = (high - low) / 255 or 1.0
    return (np.round(np.clip(array, low, high) / step) * step).astype(array.dtype)


def of_int8(model: onnx.ModelProto, inputs: list[np.ndarray[Any, Any]], right: list[Any]) -> tuple[float, float]:
    """Return the dB of onnxruntime's int8 file, and of the float operator between rounded inputs and outputs. A figure is NaN without such a result."""
    names = [item.name for item in model.graph.input if item.name not in {one.name for one in model.graph.initializer}]
    given = dict(zip(names, inputs, strict=True))
    static = ideal = float("nan")
    with contextlib.suppress(Exception):
        found = ReferenceEvaluator(model).run(None, {name: _rounded(value) for name, value in given.items()})
        ideal = min(decibels(_rounded(one), value) for one, value in zip(found, right, strict=True))
    with contextlib.suppress(Exception):
        found = _by_onnxruntime(model, given)
        static = min(decibels(one, value) for one, value in zip(found, right, strict=True))
    return static, ideal


def _by_onnxruntime(model: onnx.ModelProto, given: dict[str, np.ndarray[Any, Any]]) -> Any:
    """Return the results of the file that quantize_static makes. Raises whatever onnxruntime raises."""
    import onnxruntime
    from onnxruntime import quantization

    class Samples(quantization.CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.waiting = [given]

        def get_next(self) -> Any:
            return self.waiting.pop() if self.waiting else None

    made = onnx.ModelProto()
    made.CopyFrom(model)
    made.ir_version = min(made.ir_version, 10)
    with tempfile.TemporaryDirectory() as folder:
        source, result = Path(folder) / "net.onnx", Path(folder) / "int8.onnx"
        source.write_bytes(made.SerializeToString())
        quantization.quantize_static(
            str(source), str(result), Samples(), quant_format=quantization.QuantFormat.QDQ, per_channel=True,
            activation_type=quantization.QuantType.QInt8, weight_type=quantization.QuantType.QInt8,
        )  # fmt: skip
        return onnxruntime.InferenceSession(str(result), providers=["CPUExecutionProvider"]).run(None, given)


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
            program = openneutron.compile(
                path, calibration=[tuple(tensors)], delegation=DelegationOptions(must_delegate=False)
            )
        found = program.run(*tensors)
    except OpenNeutronError as error:
        return "refused", str(error)
    except Exception as error:
        return "raw", f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
    if len(found) != len(outputs) and len(outputs) == 1:
        found = [list(found)]  # a sequence is several outputs of a program
    least = min((decibels(one, right) for one, right in zip(found, outputs, strict=True)), default=0.0)
    on_cpu = [f"{item.operator}: {item.reason}" for item in program.report.on_cpu]
    where = "whole" if not on_cpu and program.partitions else "split" if program.partitions else "CPU"
    words = f"{least:.1f} dB {on_cpu[0] if on_cpu else ''}"
    if least >= ENOUGH:
        return where, words
    if not all(
        np.isfinite(np.asarray(part, np.float64)).all()
        for right in outputs
        for part in (right if isinstance(right, list) else [right])
    ):
        return f"{where}, infinite", f"{words}; the right result has infinite values, and int8 has none"
    static, ideal = of_int8(model, inputs, outputs)
    is_close = least >= np.nanmin([static, ideal, np.inf]) - CLOSE
    words = f"{words}; onnxruntime's int8 {static:.1f} dB, rounded inputs and outputs {ideal:.1f} dB"
    return (f"{where}, as good as int8" if is_close else f"{where}, wrong"), words


def main(arguments: list[str]) -> int:
    """Run the cases. Return the number of raw exceptions and wrong results."""
    parser = argparse.ArgumentParser(prog="python -m tests.onnx_models.node_cases", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--float", action="store_true", dest="in_float")
    parser.add_argument("--into", type=Path, metavar="FILE")
    given = parser.parse_args(arguments)
    done: dict[str, tuple[str, str]] = {}
    if given.into and given.into.exists():
        done = {row[0]: (row[1], row[2]) for row in map(json.loads, given.into.read_text().splitlines())}
    counts: collections.Counter[str] = collections.Counter()
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    for name, model, inputs, outputs in cases(given.names):
        if name not in done:
            with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
                warnings.simplefilter("ignore")
                done[name] = judged(name, model, inputs, outputs, given.in_float)
            if given.into:
                with given.into.open("a") as file:
                    file.write(json.dumps([name, *done[name]]) + "\n")
        kind, words = done[name]
        counts[kind] += 1
        if kind not in ("whole", "equal"):
            print(f"{kind}: {name}: {words}", flush=True)
    print(dict(counts))
    return sum(count for kind, count in counts.items() if kind == "raw" or kind.endswith("wrong"))


if __name__ == "__main__":
    sys.exit(1 if main(sys.argv[1:]) else 0)
