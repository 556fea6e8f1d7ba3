# SPDX-License-Identifier: BSD-3-Clause
"""The inputs that a bundle's example runs on, and their outputs from the simulator."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from openneutron.device import data
from openneutron.device.data import ModelInput
from openneutron.device.simulator import Simulator
from openneutron.errors import DriverError, InvalidOptionError
from openneutron.features.export.c_text import plain_name
from openneutron.features.export.deployment import STORED_RANGES, Deployment, IoTensor, Place, Where
from openneutron.options import DataOptions

SEED = 0

FRAMES = 16
"""The runs of a model with state that the example compares."""


@dataclass(frozen=True, slots=True)
class GoldenSample:
    """Arguments of the model to run the example on; ``title`` is their origin in words."""

    title: str
    arguments: tuple[np.ndarray | None, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Golden:
    """Bytes of each input and of each output, in the order in memory of a run, of ``frames`` runs one behind the other. ``title``
    is the origin of the inputs."""

    title: str
    inputs: tuple[bytes, ...] = field(repr=False)
    outputs: tuple[bytes, ...] = field(repr=False)
    frames: int = 1


def read_sample(given: str, deployment: Deployment, options: DataOptions, stated: str) -> GoldenSample:
    """Return the first sample of a source, such as a folder of pictures. ``stated`` is the preprocessing that the model was
    calibrated with, for data without another.

    Raises InvalidOptionError where the source has no sample that fits the model.
    """
    if not deployment.inputs:
        raise InvalidOptionError("--golden: the model takes no inputs. Leave it out.")
    inputs = [_wanted(tensor) for tensor in deployment.inputs]
    preprocess = stated or None if options.preprocess is None else options.preprocess
    source = data.source(
        given, inputs, preprocess=preprocess, sample_rate=options.sample_rate, limit=1, option="--golden"
    )
    sample = next(iter(source), None)
    if sample is None:
        raise InvalidOptionError(f"--golden: '{given}' has no samples in it.")
    arguments: list[np.ndarray | None] = [None] * (1 + max(tensor.model_index for tensor in deployment.inputs))
    for tensor, array in zip(deployment.inputs, sample.arrays, strict=True):
        arguments[tensor.model_index] = array
    steps = f" after `{plain_name(source.preprocessing)}`" if source.preprocessing else ""
    return GoldenSample(f"`{plain_name(sample.name)}`{steps}", tuple(arguments))


def _wanted(tensor: IoTensor) -> ModelInput:
    """Return a tensor as the input of a source: floats where the model, or its caller, quantizes them."""
    return ModelInput(tensor.shape, np.dtype(np.float32 if tensor.quantization is not None else tensor.dtype))


def golden(deployment: Deployment, sample: GoldenSample | None = None) -> Golden:
    """Return the sample, or seeded random inputs, and the outputs of the simulator, the same for the same model.

    Random integers other than int8 and int16 may be indices of a table: they are zeros where random ones are outside of the table.
    Raises DriverError where the driver refuses a program, InvalidOptionError where the sample does not fit the model.
    """
    if sample is not None:
        given = [_stored(sample, tensor) for tensor in deployment.inputs]
        return _golden(sample.title, [given], _run(deployment, [given]))
    generator = np.random.default_rng(SEED)
    count = FRAMES if deployment.state_bytes else 1
    frames = [[_random(generator, tensor) for tensor in deployment.inputs] for _ in range(count)]
    try:
        outputs = _run(deployment, frames)
    except DriverError:
        if all(tensor.dtype in STORED_RANGES for tensor in deployment.inputs):
            raise
        frames = [
            [
                values if tensor.dtype in STORED_RANGES else np.zeros_like(values)
                for values, tensor in zip(inputs, deployment.inputs, strict=True)
            ]
            for inputs in frames
        ]
        outputs = _run(deployment, frames)
    return _golden("random values", frames, outputs)


Frames = Sequence[Sequence[NDArray[np.uint8]]]
"""The tensors of each run."""


def _golden(title: str, inputs: Frames, outputs: Frames) -> Golden:
    def joined(frames: Frames) -> tuple[bytes, ...]:
        return tuple(b"".join(each.tobytes() for each in values) for values in zip(*frames, strict=True))

    return Golden(title, joined(inputs), joined(outputs), len(inputs))


def _stored(sample: GoldenSample, tensor: IoTensor) -> NDArray[np.uint8]:
    """Return an argument as the program takes it: quantized with ExecuTorch's rounding, in the order in memory."""
    index = tensor.model_index
    value = sample.arguments[index] if index < len(sample.arguments) else None
    if value is None or value.shape != tensor.shape:
        there = "nothing" if value is None else data.describe(value.dtype, value.shape)
        raise InvalidOptionError(
            f"golden: {sample.title} has {there} for input {index}; the program takes {tensor.dtype}{list(tensor.shape)}."
        )
    quantization = tensor.quantization
    if quantization is not None and value.dtype.kind == "f":
        inverse = np.float32(1) / np.float32(quantization.scale)
        stored = np.rint(value.astype(np.float32) * inverse) + np.float32(quantization.zero_point)
        value = np.clip(stored, quantization.least, quantization.most)
    arranged = np.ascontiguousarray(value.transpose(tensor.order).astype(tensor.dtype))
    return np.frombuffer(arranged.tobytes(), np.uint8)


def _random(generator: np.random.Generator, tensor: IoTensor) -> NDArray[np.uint8]:
    if tensor.dtype == "bool":
        return generator.integers(0, 2, tensor.elements, np.uint8)
    return generator.integers(0, 256, tensor.size_bytes, np.uint8)


def _run(deployment: Deployment, frames: Frames) -> list[list[NDArray[np.uint8]]]:
    """Return the outputs of runs one after the other, from the first state on."""
    found = []
    with ExitStack() as stack:
        calls = [(call, stack.enter_context(Simulator(call.program))) for call in deployment.calls]
        for inputs in frames:
            values: dict[Place, NDArray[np.uint8]] = {Place(Where.INPUT, i): data for i, data in enumerate(inputs)}
            for call, simulator in calls:
                results = simulator.run([values[place] for place in call.inputs])
                values.update(zip(call.outputs, results, strict=True))
            found.append([values[Place(Where.OUTPUT, index)] for index in range(len(deployment.outputs))])
    return found
