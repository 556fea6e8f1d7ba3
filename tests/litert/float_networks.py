# SPDX-License-Identifier: BSD-3-Clause
"""Compare compiled float ``.tflite`` files with AI Edge Quantizer's own int8 and 16x8 files in LiteRT's reference kernels.

    python -m tests.litert.float_networks [FILE.tflite ...]

Without files, litert-torch makes five from PyTorch, for which it must be installed: a CNN, a CNN with residuals and depthwise
convolutions, a transformer, a recurrent network and one with a segmentation head. The exit code is 1 where a byte differs.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from ai_edge_litert import schema_py_generated as schema

import openneutron
from openneutron import CompileOptions, DelegationOptions, QuantizationOptions, litert
from openneutron.litert.interpret import interpret
from openneutron.litert.write import pack

SAMPLES, IMAGES = 8, 4


def directly_quantized(data: bytes, calibration: list[tuple[np.ndarray, ...]], activations: str = "int8") -> bytes:
    """Return what AI Edge Quantizer makes of a file by itself, with quantized inputs and outputs.

    A file without a signature gets one, which the quantizer needs.
    """
    from ai_edge_quantizer import quantizer, recipe

    model = litert.read(data).model
    if not model.signatureDefs:
        signature = schema.SignatureDefT()
        signature.signatureKey, signature.subgraphIndex = b"serve", 0
        signature.inputs = [_entry(f"x{n}", place) for n, place in enumerate(model.subgraphs[0].inputs)]
        signature.outputs = [_entry(f"y{n}", place) for n, place in enumerate(model.subgraphs[0].outputs)]
        model.signatureDefs = [signature]
        data = pack(model)
    signature = model.signatureDefs[0]
    names = {int(entry.tensorIndex): entry.name.decode() for entry in signature.inputs}
    order = [names[int(place)] for place in model.subgraphs[signature.subgraphIndex].inputs]
    tool = quantizer.Quantizer(data, {"int8": recipe.static_wi8_ai8, "int16": recipe.static_wi8_ai16}[activations]())
    feeds = [dict(zip(order, sample, strict=True)) for sample in calibration]
    ranges = tool.calibrate({signature.signatureKey.decode(): feeds}, num_threads=1)
    return bytes(tool.quantize(ranges, enable_progress_report=False).quantized_model or b"")


def _entry(name: str, place: int) -> schema.TensorMapT:
    entry = schema.TensorMapT()
    entry.name, entry.tensorIndex = name.encode(), int(place)
    return entry


def inputs_of(data: bytes, generator: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Return random inputs of a file: the whole range of int8 and int16, normal numbers, and indices from 0 to 15."""
    graph = litert.read(data).graph
    made = []
    for name in graph.inputs:
        tensor = graph[name]
        dtype = tensor.dtype.numpy
        if dtype.kind == "f":
            made.append(generator.standard_normal(tensor.shape).astype(dtype))
        elif tensor.quant is not None:
            limits = np.iinfo(dtype)
            made.append(generator.integers(limits.min, limits.max + 1, tensor.shape, dtype))
        else:
            made.append(generator.integers(0, 16, tensor.shape, dtype))
    return tuple(made)


def differences(path: Path, activations: str) -> tuple[str, int]:
    """Return a row about a file, and the number of output values that differ from the quantizer's own file."""
    data, generator = path.read_bytes(), np.random.default_rng(0)
    calibration = [inputs_of(data, generator) for _ in range(SAMPLES)]
    reference = directly_quantized(data, calibration, activations)
    program = openneutron.compile(
        path,
        calibration=calibration,
        options=CompileOptions(target="imxrt700"),
        quantization=QuantizationOptions(io_dtype=activations, activations=activations),
        delegation=DelegationOptions(must_delegate=False),
    )
    wrong = total = 0
    for _ in range(IMAGES):
        image = inputs_of(reference, generator)
        for ours, theirs in zip(program.run(*image), interpret(reference, image), strict=True):
            wrong += (
                int(np.sum(ours != theirs))
                if ours.shape == theirs.shape and ours.dtype == theirs.dtype
                else theirs.size
            )
            total += theirs.size
    report = program.report
    cpu: dict[str, int] = {}
    for item in report.on_cpu:
        cpu[item.operator] = cpu.get(item.operator, 0) + 1
    others = ", ".join(f"{count} {name}" for name, count in sorted(cpu.items())) or "none"
    row = f"{path.stem:24} {activations:6} {report.operators_on_npu:4} of {report.operators:4} on the NPU, {len(report.partitions)} calls"
    return f"{row}; {wrong} of {total} values differ; CPU: {others}", wrong


def made_by_litert_torch(folder: Path) -> Iterator[Path]:
    """Write five networks, and yield their paths."""
    import litert_torch
    import torch

    from tests.litert.float_networks_torch import networks

    for name, (module, inputs) in networks().items():
        path = folder / f"{name}.tflite"
        with torch.no_grad():
            litert_torch.convert(module.eval(), inputs).export(str(path))
        yield path


def main(arguments: list[str]) -> int:
    """Print a row for each file and type of activations."""
    import tempfile

    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        wrong = 0
        for path in map(Path, arguments) if arguments else made_by_litert_torch(Path(folder)):
            for activations in ("int8", "int16"):
                row, count = differences(path, activations)
                print(row, flush=True)
                wrong += count
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
