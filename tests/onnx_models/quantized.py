# SPDX-License-Identifier: BSD-3-Clause
"""Files that onnxruntime quantizes, compiled and compared with onnxruntime's own results.

    python -m tests.onnx_models.quantized [--folder FOLDER] [NAME ...]

Random weights alone make deep networks chaotic: convolution, batch normalization and ReLU together enlarge any difference by 1.7 dB a layer, so that
the steps of int8 at the input move every output. ``calm`` makes them as indifferent to small differences as trained networks are.
Each network is exported by ``torch.onnx.export`` and quantized by ``quantize_static`` per channel with random samples: QDQ with int8, uint8
and int16 activations, and the operators with integers (QOperator) with uint8. Nothing is quantized anew: the outputs for the samples are those of
onnxruntime's CPU result up to rounding. onnxruntime computes a graph as it is written, or with the kernels that its optimizer puts in the place
of several nodes (its default), which round otherwise. Prints for each file its operators on the NPU and on the CPU; the part of outputs that are
within one step of the last quantization, ours of the default, the default of the graph as written, ours of the graph as written, and the graph as written of itself
with inputs that are 0.1% larger; our largest difference from the default in steps; and ratios of signal to difference in dB: ours of the default, and the
default and ours of the float network. ``--folder`` keeps the files.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import numpy_helper
from onnxruntime import quantization
from onnxruntime.quantization import QuantFormat, QuantType
from torch import nn

import openneutron
from openneutron.device.third_party import suppressed
from openneutron.errors import OpenNeutronError
from openneutron.options import DelegationOptions
from openneutron.pytorch.source import models as own
from tests.suites.architectures import models

Array = np.ndarray[Any, Any]

OWN = ("ds_cnn", "resnet8", "mobilenet_v2", "transformer_encoder", "lstm_kws")
"""The built-in networks that are quantized."""

OTHERS = ("bert", "resnet18", "mobilenetv3_large_100", "regnetx_002", "convnext_atto", "vit_tiny_patch16")
"""The networks of ``tests/suites/architectures`` that are quantized."""

FORMS = {
    "int8": (QuantFormat.QDQ, QuantType.QInt8),
    "uint8": (QuantFormat.QDQ, QuantType.QUInt8),
    "int16": (QuantFormat.QDQ, QuantType.QInt16),
    "QOperator": (QuantFormat.QOperator, QuantType.QUInt8),
}

SAMPLES = 5


class _Samples(quantization.CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, samples: list[dict[str, Array]]) -> None:
        self._waiting: Iterator[dict[str, Array]] = iter(samples)

    def get_next(self) -> dict[str, Array] | None:
        return next(self._waiting, None)


SETTLED_WITH = 32
"""Random samples, in one batch, of which batch normalizations take their statistics."""

OFFSET = 1.0
"""The offset of batch normalizations, in deviations. Behind it 84% of the values pass a ReLU unchanged, and a layer enlarges a difference
by 0.5 dB; without an offset half of them do, and it is 1.7 dB (E[f'^2] / Var[f] of f(x) = ReLU(x + offset) for normal x)."""

LAYER_SCALE = 0.1
"""The factor of residual branches that start with one of at most 0.01, which would not be seen in the results. It is the one from which
Touvron et al. (Going deeper with Image Transformers, 2021) train networks of up to 18 blocks."""


def calm(module: nn.Module, batch: torch.Tensor | None) -> None:
    """Make the weights of a random network such that small differences of its inputs stay small.

    Batch normalizations have the offset ``OFFSET`` and the statistics of ``batch``, layer after layer. Scales of residual branches that start near zero
    become ``LAYER_SCALE``, and tokens and positions that are added to the embedding of an image have its magnitude.
    """
    norms = [one for one in module.modules() if isinstance(one, nn.modules.batchnorm._BatchNorm)]
    with torch.no_grad():
        for parameter in module.parameters():
            first = parameter.reshape(-1)[0]
            if parameter.numel() > 1 and 0 < first.abs() <= 0.01 and (parameter == first).all():
                parameter.fill_(LAYER_SCALE)
        for name, parameter in module.named_parameters():
            if name in ("cls_token", "pos_embed"):
                parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0)))
        for norm in norms:
            norm.train()
            norm.momentum = None  # the plain mean over all batches
            norm.reset_running_stats()
            if norm.bias is not None:
                norm.bias.fill_(OFFSET)
        if norms and batch is not None:
            module(batch)
    module.eval()


def exported(name: str, folder: Path) -> tuple[Path, list[tuple[torch.Tensor, ...]]]:
    """Return the float file of a network, and samples."""
    module, given = models.get(name) if name in models.ARCHITECTURES else own.get(name)
    if name in models.ARCHITECTURES:
        row, random = models.ARCHITECTURES[name], torch.Generator().manual_seed(0)
        calm(module, torch.cat([row.inputs(random)[0] for _ in range(SETTLED_WITH)]) if row.settles else None)
    else:
        given = [
            (sample,) if isinstance(sample, torch.Tensor) else tuple(sample) for sample in own.samples(name, SAMPLES)
        ]
    path = folder / f"{name}.onnx"
    if not path.exists():
        with suppressed(50):
            torch.onnx.export(module.eval(), given[0], str(path), dynamo=True, verbose=False, external_data=False)
    return path, given


def quantized(path: Path, form: str, given: list[tuple[torch.Tensor, ...]]) -> tuple[Path, list[dict[str, Array]]]:
    """Return the file that onnxruntime quantizes from a float one, and its samples by names. Raises whatever onnxruntime raises."""
    names = [item.name for item in onnx.load(path, load_external_data=False).graph.input]
    samples = [dict(zip(names, (one.numpy() for one in sample), strict=True)) for sample in given]
    made, (kind, activations) = path.with_name(f"{path.stem}-{form}.onnx"), FORMS[form]
    if not made.exists():
        quantization.quantize_static(
            str(path), str(made), _Samples(samples), quant_format=kind, per_channel=True, activation_type=activations,
            weight_type=QuantType.QInt8, extra_options={"ActivationSymmetric": activations is QuantType.QInt16},
        )  # fmt: skip
    return made, samples


def step_of(model: onnx.ModelProto, values: Array) -> float:
    """Return the step of the last quantization before the first output; a 255th of the values' range if nothing quantizes the output."""
    output = model.graph.output[0].name
    makers = {name: node for node in model.graph.node for name in node.output}
    held = {tensor.name: tensor for tensor in model.graph.initializer}
    while output in makers and makers[output].op_type in ("Reshape", "Transpose", "Flatten", "Squeeze"):
        output = makers[output].input[0]
    last = makers.get(output)
    if last is not None and last.op_type == "DequantizeLinear":
        return float(numpy_helper.to_array(held[last.input[1]]).reshape(-1)[0])
    return float(np.ptp(values)) / 255


@dataclass(frozen=True, slots=True)
class Compared:
    """The results of a file for all samples, of onnxruntime and of ours."""

    name: str
    form: str
    on_npu: int
    on_cpu: int
    step: float
    floats: Array
    """Those of the float file."""
    theirs: Array
    as_written: Array
    moved: Array
    """Those of the graph as written with inputs that are 0.1% larger."""
    ours: Array

    def within(self, one: Array, other: Array) -> float:
        """Return the part of values that are within one step."""
        return float((np.abs(one - other) <= 1.001 * self.step).mean())

    def __str__(self) -> str:
        """Return the line that ``main`` prints."""
        theirs, written = self.theirs, self.as_written
        pairs = (self.ours, theirs), (theirs, written), (self.ours, written), (self.moved, written)
        parts = " ".join(f"{self.within(*pair):8.2%}" for pair in pairs)
        most = np.abs(self.ours - theirs).max() / self.step
        ratios = ratio(theirs, self.ours), ratio(self.floats, theirs), ratio(self.floats, self.ours)
        return f"{self.name:24} {self.form:10} {self.on_npu:4} {self.on_cpu:4}  {parts}  {most:6.2f} " + " ".join(
            f"{one:7.1f}" for one in ratios
        )


def ratio(right: Array, found: Array) -> float:
    """Return the ratio of signal to difference in dB."""
    noise = float(((right - found) ** 2).sum())
    return float(10 * np.log10((right**2).sum() / noise)) if noise else float("inf")


def compared(name: str, form: str, folder: Path) -> Compared | str:
    """Return the results of a file, or a line that says why there are none."""
    path, given = exported(name, folder)
    plain = onnxruntime.SessionOptions()
    plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        made, samples = quantized(path, form, given)
        theirs, written, floats = (
            onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
            for file, options in ((made, None), (made, plain), (path, None))
        )
        moved = [{name: _moved(value) for name, value in sample.items()} for sample in samples]
        runs = (floats, samples), (theirs, samples), (written, samples), (written, moved)
        results = [stacked(session.run(None, sample)[0] for sample in inputs) for session, inputs in runs]
    except Exception as error:
        return f"{name:24} {form:10} onnxruntime can't quantize or run it: {str(error).partition(chr(10))[0][:120]}"
    try:
        program = openneutron.compile(made, calibration=given, delegation=DelegationOptions(must_delegate=False))
        ours = stacked(program.run(*sample)[0] for sample in given)
    except OpenNeutronError as error:
        return f"{name:24} {form:10} refused: {error}"
    report, step = program.report, step_of(onnx.load(made), results[1])
    return Compared(name, form, report.operators - len(report.on_cpu), len(report.on_cpu), step, *results, ours)


def _moved(values: Array) -> Array:
    """Return floats 0.1% larger, and integers as they are."""
    return (values * np.float32(1.001)).astype(values.dtype) if values.dtype.kind == "f" else values


def stacked(outputs: Iterable[Any]) -> Array:
    """Return the outputs for all samples as one array of float64."""
    return np.stack([np.asarray(output) for output in outputs]).astype(np.float64)


def main(arguments: list[str]) -> int:
    """Print a line for each file."""
    parser = argparse.ArgumentParser(prog="python -m tests.onnx_models.quantized", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--form", choices=FORMS, action="append")
    given = parser.parse_args(arguments)
    importlib.import_module("transformers.models.auto.processing_auto")  # before timm's stand-in for torchvision
    torch.set_num_threads(1)
    print(f"{'network':24} {'form':10}  NPU  CPU      ours  default     ours    moved    most      dB   float   float")
    print(f"{'':35}            default  written  written  written   steps          default    ours")
    with tempfile.TemporaryDirectory() as made, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in given.names or (*OWN, *OTHERS):
            for form in given.form or FORMS:
                print(compared(name, form, given.folder or Path(made)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
