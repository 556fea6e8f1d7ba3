# SPDX-License-Identifier: BSD-3-Clause
"""Write quantized PyTorch models as files of torch.export, LiteRT and ONNX."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch.export import ExportedProgram

from openneutron.api.pytorch import CompiledModel, Unquantized, compile_module
from openneutron.device import pte
from openneutron.device.third_party import suppressed
from openneutron.device.timings import step
from openneutron.errors import InvalidModelError, MissingToolError
from openneutron.features.quantize import QuantizedModel
from openneutron.ir import DType, Graph, Tensor
from openneutron.litert.write import unstated, with_float_ends, write
from openneutron.options import FLOAT32, DelegationOptions, QuantizationOptions, Request
from openneutron.pytorch.backend.neutron_target_spec import NeutronTargetSpec
from openneutron.pytorch.source.exporting import as_read, aten_graph, export, lifted


@dataclass(frozen=True, eq=False)
class QuantizedModule(QuantizedModel):
    """A quantized PyTorch model. ``program`` contains its quantize and dequantize operators. ``request`` is the request that it was made for."""

    name: str
    program: ExportedProgram = field(repr=False)
    request: Request = field(repr=False)

    def _written(self, suffix: str) -> bytes:
        if suffix == ".pt2":
            stream = io.BytesIO()
            with suppressed():
                torch.export.save(self.program, stream)
            return stream.getvalue()
        return _onnx(self.program, self.name) if suffix == ".onnx" else self._litert()

    def _litert(self) -> bytes:
        """Return the bytes of a ``.tflite``. Raises InvalidModelError where a part of the model stays float, where
        the model keeps state, and where LiteRT has no form of an operator."""
        io_dtype = self.request.quantization.io_dtype
        asked = replace(
            self.request,
            model=self.program,
            example_inputs=None,
            example_kwargs=None,
            calibration=None,
            options=replace(self.request.options, cut_by_cost=False),
            quantization=QuantizationOptions(io_dtype=self.request.quantization.activations),
            delegation=DelegationOptions(must_delegate=False, any_runtime=True),
        )
        graph = whole_graph(compile_module(asked), [node.name for node in _inputs(self.program)])
        if (node := unstated(graph)) is not None:
            raise InvalidModelError(
                f"'{self.name}': LiteRT has no operator for {node.op} '{node.name}'. Write a .pt2 or a .onnx."
            )
        return with_float_ends(write(graph)) if io_dtype == FLOAT32 else write(graph)


def quantized_module(request: Request) -> QuantizedModule:
    """Return the quantized model of a request, whose model is a module or an ExportedProgram. Raises as ``quantize`` does."""
    request = as_read(request)
    with suppressed(), step("Exporting"):
        source = aten_graph(request)
    asked = Unquantized.of(source, request, NeutronTargetSpec(request.options.target))
    if asked.is_quantized:
        raise InvalidModelError(f"'{request.name}' is quantized already. Pass the float model.")
    module = asked.quantized().module
    with suppressed(), step("Exporting the quantized model"):
        program = lifted(module, source.inputs) or export(module, source.inputs, request.name)
    return QuantizedModule(request.name, program, request)


def _inputs(program: ExportedProgram) -> list[torch.fx.Node]:
    names = set(program.graph_signature.user_inputs)
    return [node for node in program.graph.find_nodes(op="placeholder") if node.name in names]


ONNX_VERSION, ONNX_WITH_INT16 = 20, 21
"""The version of ONNX's operators of int8 programs, and of those with int16, which QuantizeLinear has since this version. Of int8 programs
with recurrent layers in version 21, ONNX Runtime 1.32 makes a QuantizeLinear of two types, and then refuses it."""


def _onnx(program: ExportedProgram, name: str) -> bytes:
    """Return the bytes of an ONNX file. Raises InvalidModelError where PyTorch can't export the program, and MissingToolError where a
    package of the extra ``onnx`` is not installed."""
    has_int16 = any(torch.int16 in node.args for node in program.graph.nodes)
    version = ONNX_WITH_INT16 if has_int16 else ONNX_VERSION
    try:
        with suppressed():
            made = torch.onnx.export(program, dynamo=True, verbose=False, opset_version=version)
        assert made is not None
        content: bytes = made.model_proto.SerializeToString()
        return content
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("onnx", "onnxscript"):
            raise
        raise MissingToolError(
            f"A .onnx takes onnx, onnxscript; '{error.name}' is not installed: pip install 'openneutron[onnx]'."
        ) from error
    except torch.onnx.OnnxExporterError as error:
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        raise InvalidModelError(
            f"'{name}': PyTorch's exporter can't write it as ONNX: {str(cause).strip().splitlines()[0]}. Write a .pt2."
        ) from error


def whole_graph(made: CompiledModel, names: Sequence[str]) -> Graph:
    """Return the graph of a compiled program that consists of one partition. Its inputs and outputs have the order of
    the program's, and ``names`` are the names of the program's inputs.

    Raises InvalidModelError for a program with other parts or with state.
    """
    end = "A .tflite has the whole model in integers. Write a .pt2 or a .onnx."
    for item in made.delegation.on_cpu:
        if item.computes:
            raise InvalidModelError(f"'{made.name}': {item.operator} '{item.name}' stays float: {item.reason}. {end}")
    method = pte.forward(made.buffer, made.name)
    calls = [each for each in method.instructions if isinstance(each, (pte.KernelCall, pte.DelegateCall))]
    if len(calls) != 1 or not isinstance(calls[0], pte.DelegateCall) or len(made.partitions) != 1:
        others = [each.operator for each in calls if isinstance(each, pte.KernelCall)]
        what = f"{others[0]} is between its integer parts" if others else f"its integer parts are {len(calls)}"
        raise InvalidModelError(f"'{made.name}': {what}. {end}")
    (part,) = made.partitions
    graph, arguments = part.graph, calls[0].arguments
    if graph.states:
        raise InvalidModelError(
            f"'{made.name}' keeps state from run to run, which a .tflite does not. Write a .pt2 or a .onnx."
        )
    value_of = {arguments[place]: tensor for tensor, place in part.interface.sources.items()}
    value_of |= {
        arguments[part.interface.arguments + place]: tensor for tensor, place in part.interface.results.items()
    }
    unused = {
        name: Tensor(name, tensor.shape, DType[tensor.dtype.upper()])
        for name, value in zip(names, method.inputs, strict=True)
        if value not in value_of and isinstance(tensor := method.values[value], pte.TensorValue)
    }
    inputs = [value_of.get(value, name) for name, value in zip(names, method.inputs, strict=True)]
    outputs = [value_of[value] for value in method.outputs]
    return replace(graph, tensors={**graph.tensors, **unused}, inputs=tuple(inputs), outputs=tuple(outputs))
