# SPDX-License-Identifier: BSD-3-Clause
"""Check the shapes that a user gives for the inputs of a file, and give them to a LiteRT file with all shapes that follow."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from openneutron.errors import InvalidModelError, InvalidOptionError
from openneutron.litert.interpret import InterpreterProcess
from openneutron.litert.read import LiteRTModel, places, read_model
from openneutron.litert.write import pack

MOST_BYTES = 1 << 30
"""The most bytes of an input."""


def check_names(shapes: Mapping[str, Sequence[int]], names: Sequence[str], model: str) -> None:
    """Raise InvalidOptionError where shapes are given for an input that the model does not have."""
    if unknown := [name for name in shapes if name not in names]:
        raise InvalidOptionError(
            f"input_shapes: '{model}' has no input '{unknown[0]}'; its inputs are {', '.join(map(repr, names))}."
        )


def check_sizes(name: str, model: str, sizes: Sequence[int | str | None], given: Sequence[int]) -> None:
    """Raise InvalidOptionError where a given shape does not fit an input. ``sizes`` has a name or None for an open axis."""
    if len(given) != len(sizes):
        raise InvalidOptionError(
            f"input_shapes: '{name}' of '{model}' has {len(sizes)} axes; {len(given)} sizes are given."
        )
    for axis, size in enumerate(sizes):
        if isinstance(size, int) and size != given[axis]:
            raise InvalidOptionError(
                f"input_shapes: '{name}' of '{model}' has the size {size} on axis {axis}; {given[axis]} is given."
            )


def open_shape(name: str, model: str, sizes: Sequence[int | str | None], shape: Sequence[object]) -> InvalidModelError:
    """Return the error for an input whose shape is open and not given. ``shape`` has the sizes that are known, with a batch of 1."""
    spoken = "x".join(str(size or "?") for size in sizes)
    wanted = "x".join(str(size if isinstance(size, int) else 1) for size in shape)
    return InvalidModelError(
        f"'{model}': the shape {spoken} of the input '{name}' is not fixed. Give it: --input-shape {name}={wanted}, with your sizes."
    )


def with_shapes(model: LiteRTModel, given: Mapping[str, Sequence[int]], name: str) -> LiteRTModel:
    """Return a model with given shapes of inputs. ``name`` is the file's name in messages.

    An input without a given shape keeps that of the file. Raises InvalidModelError if the file leaves that shape open
    and has only a placeholder for it (``is_placeholder``), if an input is larger than MOST_BYTES, and where LiteRT
    can't compute with the shapes. Raises InvalidOptionError for shapes that do not fit the model.
    """
    check_names(given, model.graph.inputs, name)
    for each in model.graph.inputs:
        sizes = open_sizes(model, each)
        if each in given:
            check_sizes(each, name, sizes, given[each])
        elif is_placeholder(model, each):
            raise open_shape(each, name, sizes, [1, *sizes[1:]])
    return _resized(model, given, name) if given else model


def open_sizes(model: LiteRTModel, name: str) -> tuple[int | None, ...]:
    """Return the shape of an input, with None for each axis that the file leaves open (-1 in its ``shapeSignature``)."""
    item = model.model.subgraphs[0].tensors[model.tensor_index[name]]
    shape, signature = model.graph[name].shape, places(item.shapeSignature)
    if len(signature) != len(shape):
        return shape
    return tuple(None if stated < 0 else size for size, stated in zip(shape, signature, strict=True))


def is_placeholder(model: LiteRTModel, name: str) -> bool:
    """Return whether the file's shape of an input only stands for an open one: an open axis other than the first has the size 1."""
    sizes = open_sizes(model, name)
    return any(size is None and model.graph[name].shape[axis] == 1 for axis, size in enumerate(sizes) if axis)


def _resized(model: LiteRTModel, given: Mapping[str, Sequence[int]], name: str) -> LiteRTModel:
    """Return the model with these input shapes. LiteRT computes the shapes of all other tensors."""
    graph = model.graph
    inputs = []
    for each in graph.inputs:
        shape, dtype = tuple(given.get(each, graph[each].shape)), np.dtype(graph[each].dtype.numpy)
        if (size := int(np.prod(shape, dtype=object)) * dtype.itemsize) > MOST_BYTES:
            raise InvalidModelError(f"'{name}': the input '{each}' has {size} bytes; at most {MOST_BYTES} are taken.")
        inputs.append(np.zeros(shape, dtype))
    process = InterpreterProcess([(pack(model.model), "all operators")])
    try:
        found = process.run(0, inputs, shapes=True)
    except InvalidModelError as error:
        raise InvalidModelError(
            f"'{name}' can't be computed with these input shapes: {str(error).partition(': ')[2]}"
        ) from error
    finally:
        process.close()
    new = copy.deepcopy(model.model)
    _enter(new, found)
    return replace(read_model(new), changed=True, appended=model.appended)


def _enter(model: Any, found: Sequence[np.ndarray]) -> None:
    """Enter shapes, in the form of ``interpreter_child.shapes``, into the objects of a model."""
    rest = list(found)
    for subgraph in model.subgraphs:
        indices = rest.pop(0)
        for place, shape in zip(indices, rest, strict=False):
            if place < len(subgraph.tensors):  # LiteRT appends tensors of its own
                tensor = subgraph.tensors[place]
                is_constant = model.buffers[tensor.buffer].data is not None and len(model.buffers[tensor.buffer].data)
                if not is_constant:
                    tensor.shape, tensor.shapeSignature = shape, None
        del rest[: len(indices)]
