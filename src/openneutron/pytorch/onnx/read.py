# SPDX-License-Identifier: BSD-3-Clause
"""Read an ONNX file, and make a program of PyTorch of it."""

from __future__ import annotations

import ast
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx
import onnx.inliner
import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from openneutron.device.third_party import suppressed
from openneutron.errors import InvalidModelError
from openneutron.litert.input_shapes import check_names
from openneutron.pytorch.onnx import suppression
from openneutron.pytorch.onnx.graph import Importer, OnnxModule, array_of, dense, inlined
from openneutron.pytorch.onnx.operators.elementwise import TYPES, type_name
from openneutron.pytorch.onnx.operators.table import Refused
from openneutron.pytorch.source.exported_file import example_input
from openneutron.pytorch.source.exporting import METADATA, Staged

OLDEST = 7
"""The oldest version of ONNX's operators (opset) that is read: the first one whose operators broadcast as NumPy does."""


def read_onnx(path: Path, input_shapes: Mapping[str, Sequence[int]] | None = None) -> ExportedProgram | Staged:
    """Return the program of an ONNX file, with random example inputs. For a detector that ends with a non-maximum
    suppression (NMS) of boxes, return a ``Staged``: the module without the NMS, and the NMS as a later float step.

    ``input_shapes`` maps the names of inputs to shapes, for inputs whose shapes are not fixed in the file.

    The result has the file's ``metadata_props``, which the compiled file keeps. Raises InvalidModelError for a file
    that can't be used, and InvalidOptionError for a shape that does not fit the file.
    """
    model = checked(path)
    metadata = {item.key: item.value for item in model.metadata_props}
    boxes = suppression.found(model.graph)
    if boxes is not None:
        module, inputs = module_of(suppression.without(model, boxes), path.name, input_shapes or {})
        return _with_suppression(module, inputs, boxes, metadata, path.name)
    module, inputs = module_of(model, path.name, input_shapes or {})
    with suppressed(), torch.no_grad():
        program = torch.export.export(module, tuple(inputs), strict=False)
    setattr(program, METADATA, metadata)
    return program


def _with_suppression(
    module: OnnxModule, inputs: Sequence[Tensor], boxes: suppression.Found, metadata: Mapping[str, Any], name: str
) -> Staged:
    """Return a detector with the suppression of its boxes as a step that stays float."""
    from openneutron.pytorch.yolo import Suppression

    names = _value(str(metadata.get("names", "")))
    with torch.no_grad():
        decoded = module(*inputs)[0]
    if not isinstance(names, dict) or decoded.dim() != 3 or decoded.shape[1] < 4 + len(names):
        raise InvalidModelError(
            f"'{name}' ends with a suppression of boxes, and its metadata do not state the classes. Export it without nms=True."
        )
    later = Suppression(len(names), decoded.shape[2], boxes.confidence, boxes.iou, boxes.detections)
    return Staged(module, inputs, _OfCorners(later), metadata)


class _OfCorners(nn.Module):
    """A suppression of boxes that are given by their corners, as the operator NonMaxSuppression takes them."""

    def __init__(self, suppression: nn.Module) -> None:
        super().__init__()
        self.suppression = suppression

    def forward(self, decoded: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
        first, last = decoded[:, :2], decoded[:, 2:4]
        found: tuple[Tensor, ...] = self.suppression(
            torch.cat(((first + last) / 2, last - first, decoded[:, 4:]), 1), *others
        )
        return found


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None


def checked(path: Path) -> onnx.ModelProto:
    """Return the model in a file, with external data loaded from the file's folder. Raises InvalidModelError if the
    file is no ONNX model, is damaged or has no output, or if its external data can't be read."""
    try:
        model = onnx.load(str(path), load_external_data=False)
    except Exception as error:  # protobuf has errors of its own for each way in which a file can be damaged
        raise InvalidModelError(f"'{path.name}' is no ONNX model, or is damaged: {_first(error)}.") from error
    if not model.graph.node and not model.graph.output:
        raise InvalidModelError(f"'{path.name}' has no graph.")
    if not model.graph.output:
        raise InvalidModelError(f"'{path.name}' has no output. Export it with the tensors that it computes as outputs.")
    for tensor in model.graph.initializer:
        _check_size(tensor, path.name)
    try:
        onnx.load_external_data_for_model(model, str(path.parent))
    except Exception as error:
        raise InvalidModelError(
            f"'{path.name}': its external data can't be read: {_first(error)}. The files it names must lie in its folder."
        ) from error
    return model


def _check_size(tensor: onnx.TensorProto, name: str) -> None:
    """Raise InvalidModelError for a tensor whose data does not have the size of its shape."""
    if tensor.data_location == onnx.TensorProto.EXTERNAL or not tensor.HasField("raw_data"):
        return
    count = 1
    for size in tensor.dims:
        if size < 0:
            raise InvalidModelError(f"'{name}': the shape of '{tensor.name}' has a negative size. The file is damaged.")
        count *= size
    try:
        kind = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
    except KeyError as error:
        raise InvalidModelError(f"'{name}': '{tensor.name}' has an unknown type. The file is damaged.") from error
    bits = (
        4
        if kind.name in ("int4", "uint4", "float4_e2m1fn")
        else 2
        if kind.name in ("int2", "uint2")
        else 8 * kind.itemsize
    )
    if len(tensor.raw_data) != -(-count * bits // 8):
        raise InvalidModelError(
            f"'{name}': '{tensor.name}' has {len(tensor.raw_data)} bytes of data; its shape takes {-(-count * bits // 8)}. The file is damaged."
        )


def module_of(
    model: onnx.ModelProto, name: str, input_shapes: Mapping[str, Sequence[int]] = {}
) -> tuple[OnnxModule, list[Tensor]]:
    """Return a model as a module, and example inputs of it. ``name`` is the model's name in messages."""
    versions = {"" if item.domain == "ai.onnx" else item.domain: item.version for item in model.opset_import}
    newest = onnx.defs.onnx_opset_version()
    if not OLDEST <= versions.get("", newest) <= newest:
        raise InvalidModelError(
            f"'{name}' has version {versions['']} of ONNX's operators; versions {OLDEST} to {newest} are known. Export it with one "
            "of these, or install a newer onnx."
        )
    try:
        model = inlined(model)
    except Refused as reason:
        raise InvalidModelError(f"'{name}' {reason}.") from reason
    except Exception as error:  # the inliner checks the model's functions, and has errors of its own
        raise InvalidModelError(f"'{name}': its functions can't be written out: {_first(error)}.") from error
    graph = model.graph
    importer = Importer(name, versions)
    for tensor in graph.initializer:
        try:
            importer.add_constant(tensor.name, array_of(tensor))
        except (ValueError, TypeError, KeyError) as error:
            raise InvalidModelError(
                f"'{name}': '{tensor.name}' can't be read: {_first(error)}. The file is damaged."
            ) from error
    for sparse in graph.sparse_initializer:
        try:
            importer.add_constant(sparse.values.name, dense(sparse))
        except Refused as reason:
            raise InvalidModelError(f"'{name}' {reason}.") from reason
        except (ValueError, TypeError, KeyError, IndexError) as error:
            raise InvalidModelError(
                f"'{name}': '{sparse.values.name}' can't be read: {_first(error)}. The file is damaged."
            ) from error
    given = [item for item in graph.input if item.name not in importer.constants]
    if not given:
        raise InvalidModelError(
            f"'{name}' has no input: its results are constants. Export it with its input as an input of the graph."
        )
    check_names(input_shapes, [item.name for item in given], name)
    examples = [_example(item, name, input_shapes.get(item.name)) for item in given]
    for item, example in zip(given, examples, strict=True):
        importer.add_input(item.name, example)
    for item in graph.output:
        importer.add_output(item.name)
    with suppressed(logging.CRITICAL):  # torch logs each error that it raises, and the message has the error
        importer.run(graph.node, {})
    outputs = [item.name for item in graph.output]
    if missing := [output for output in outputs if output not in importer.constants and output not in importer.shapes]:
        raise InvalidModelError(f"'{name}': no node computes the output '{missing[0]}'. The file is damaged.")
    return OnnxModule(importer, [item.name for item in given], outputs).eval(), examples


def _example(item: onnx.ValueInfoProto, name: str, shape: Sequence[int] | None) -> Tensor:
    """Return a random tensor for an input."""
    if item.type.WhichOneof("value") != "tensor_type":
        raise InvalidModelError(
            f"'{name}': the input '{item.name}' is no tensor. Export the model with tensors as inputs."
        )
    kind = item.type.tensor_type
    if kind.elem_type not in TYPES:
        raise InvalidModelError(
            f"'{name}': the input '{item.name}' has the type {type_name(kind.elem_type)}; "
            "inputs are float32, int8, int16, int32, int64, uint8 or bool."
        )
    if not kind.HasField("shape"):
        if shape is None:
            raise InvalidModelError(
                f"'{name}': the file has no shape for the input '{item.name}'. Give it, such as --input-shape {item.name}=1x3x224x224."
            )
        return example_input(item.name, name, [None] * len(shape), shape, TYPES[kind.elem_type])
    sizes = [dim.dim_value if dim.dim_value > 0 else dim.dim_param or None for dim in kind.shape.dim]
    return example_input(item.name, name, sizes, shape, TYPES[kind.elem_type])


def _first(error: Exception) -> str:
    return str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__
