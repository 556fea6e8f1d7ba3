# SPDX-License-Identifier: BSD-3-Clause
"""Quantized ``.tflite`` files that take a camera's frames: uint8 in place of int8, and blue first in place of red first."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import ai_edge_litert.schema_py_generated as schema
import numpy as np

from openneutron.errors import InvalidOptionError
from openneutron.ir import DType
from openneutron.litert.read import LiteRTModel, operator_name, places, read_model
from openneutron.litert.write import constant_object, copied, operator_object, tensor_object

OPTION = "input_format"


def with_frames(model: LiteRTModel, name: str, blue_first: bool = False) -> LiteRTModel:
    """Return a model whose picture is a frame of bytes in NHWC.

    A byte is the stored value of the file's input plus 128, and has the same real value. An operator QUANTIZE makes the file's input of
    the frame, without a rounding. With ``blue_first`` the frame has blue first, and the filters of the first convolutions get the other order of channels.
    Raises InvalidOptionError for a file without a quantized picture, and for another first operator than CONV_2D with constant filters
    where the order of the channels changes.
    """
    given = [model.graph[each] for each in model.graph.inputs]
    pictures = [
        each for each in given if len(each.shape) == 4 and each.dtype in (DType.INT8, DType.UINT8) and each.quant
    ]
    if len(pictures) != 1:
        raise InvalidOptionError(
            f"{OPTION}: '{name}' has {len(pictures)} quantized inputs of 4 axes; a camera's frame replaces 1. Leave it out."
        )
    (picture,) = pictures
    made = copied(model.model)
    main = made.subgraphs[0]
    place = model.tensor_index[picture.name]
    if blue_first:
        _reverse(made, place, picture.shape[-1], name)
    if picture.dtype is DType.INT8:
        assert picture.quant is not None
        points = tuple(point + 128 for point in picture.quant.zero_points)
        frame = tensor_object(
            made, replace(picture, dtype=DType.UINT8, quant=replace(picture.quant, zero_points=points))
        )
        frame.name = main.tensors[place].name
        main.tensors[place] = copy.copy(main.tensors[place])
        main.tensors[place].name = frame.name + b"_int8"
        main.tensors.append(frame)
        last = len(main.tensors) - 1
        main.operators.insert(0, operator_object(made, "QUANTIZE", [last], [place]))
        main.inputs = np.array([last if each == place else each for each in places(main.inputs)], np.int32)
        made.signatureDefs = [_of_frame(each, place, last) for each in made.signatureDefs or ()] or None
    return replace(read_model(made), changed=True, appended=model.appended)


def _of_frame(signature: Any, before: int, after: int) -> Any:
    """Return a signature that names the tensor ``after`` in place of ``before`` among its inputs."""
    twin = copy.copy(signature)
    twin.inputs = [copy.copy(each) for each in signature.inputs or ()]
    for each in twin.inputs:
        each.tensorIndex = after if each.tensorIndex == before else each.tensorIndex
    return twin


def _reverse(model: Any, place: int, channels: int, name: str) -> None:
    """Reverse the channels of the filters that read the tensor ``place``."""
    main = model.subgraphs[0]
    if channels != 3:
        raise InvalidOptionError(f"{OPTION}: bgr is for 3 channels; '{name}' has {channels}. Leave bgr out.")
    for number, operator in enumerate(main.operators):
        inputs = places(operator.inputs)
        if place not in inputs:
            continue
        operation = operator_name(model, operator)
        filters = main.tensors[inputs[1]] if len(inputs) > 1 else None
        data = None if filters is None else model.buffers[filters.buffer].data
        if operation != "CONV_2D" or filters is None or data is None or filters.type != schema.TensorType.INT8:
            raise InvalidOptionError(
                f"{OPTION}: '{name}' begins with {operation}; bgr changes the constant int8 filters of CONV_2D. Leave bgr out, and give "
                "frames with red first."
            )
        values = np.asarray(data, np.uint8).reshape(tuple(filters.shape))[..., ::-1]
        main.tensors.append(constant_object(model, filters, values, (filters.name or b"filters").decode() + "_bgr"))
        twin = copy.copy(operator)
        twin.inputs = np.array([inputs[0], len(main.tensors) - 1, *inputs[2:]], np.int32)
        main.operators[number] = twin
