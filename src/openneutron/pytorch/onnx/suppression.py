# SPDX-License-Identifier: BSD-3-Clause
"""The suppression of boxes at the end of a detector that Ultralytics exported with ``nms=True``.

Its results have a number that depends on data, until they are filled up to a fixed number. A program has a suppression of a fixed number of steps in
its place, with the same results.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import numpy_helper

MOVES = ("Gather", "ReduceMax", "Slice", "Split", "Transpose")
"""The operators between a decoded tensor and the comparison of its scores with the least score."""


@dataclass(frozen=True, slots=True)
class Found:
    """A non-maximum suppression (NMS). ``decoded`` is the tensor before it, (1, 4 + classes + others, anchors).
    ``confidence`` and ``iou`` are its thresholds. ``detections`` is the number of its results."""

    decoded: str
    confidence: float
    iou: float
    detections: int


def found(graph: onnx.GraphProto) -> Found | None:
    """Return the non-maximum suppression (NMS) at the end of a graph, in the form in which Ultralytics exports it.
    Return None if there is no NMS, if it ignores classes, or if it has any other form."""
    makers = {name: node for node in graph.node for name in node.output}
    suppression = next((node for node in graph.node if node.op_type == "NonMaxSuppression"), None)
    places = next((node for node in graph.node if node.op_type == "NonZero"), None)
    above = None if places is None else makers.get(places.input[0])
    if (
        suppression is None
        or len(suppression.input) < 4
        or above is None
        or above.op_type != "Greater"
        or not graph.output
    ):
        return None
    confidence, iou = (_number(graph, makers, name) for name in (above.input[1], suppression.input[3]))
    size = [one.dim_value for one in graph.output[0].type.tensor_type.shape.dim]
    name, kinds = above.input[0], list[str]()
    while name in makers and makers[name].op_type in MOVES:
        kinds.append(makers[name].op_type)
        name = makers[name].input[0]
    regards_classes = any(node.op_type == "ArgMax" for node in before(graph, [suppression.input[0]]))
    if confidence is None or iou is None or len(size) != 3 or kinds[-1:] != ["Transpose"] or not regards_classes:
        return None
    return Found(name, confidence, iou, size[1])


def before(graph: onnx.GraphProto, names: Iterable[str]) -> list[onnx.NodeProto]:
    """Return the nodes that compute tensors, in the graph's order."""
    needed, nodes = set(names), list[onnx.NodeProto]()
    for node in reversed(graph.node):
        if needed.intersection(node.output):
            needed.update(node.input)
            nodes.append(node)
    return nodes[::-1]


def without(model: onnx.ModelProto, suppression: Found) -> onnx.ModelProto:
    """Return the model with the tensor before its suppression in the place of its first result."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    names = [suppression.decoded, *(item.name for item in model.graph.output[1:])]
    del made.graph.node[:], made.graph.output[:]
    made.graph.node.extend(before(model.graph, names))
    made.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    return made


def _number(graph: onnx.GraphProto, makers: dict[str, onnx.NodeProto], name: str) -> float | None:
    """Return the number in a constant; None for anything else."""
    maker = makers.get(name)
    if maker is not None and maker.op_type == "Constant" and maker.attribute and maker.attribute[0].HasField("t"):
        value = numpy_helper.to_array(maker.attribute[0].t)
    else:
        tensor = next((item for item in graph.initializer if item.name == name), None)
        if tensor is None:
            return None
        value = numpy_helper.to_array(tensor)
    return float(value.reshape(-1)[0]) if value.size == 1 and np.issubdtype(value.dtype, np.number) else None
