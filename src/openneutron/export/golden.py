# SPDX-License-Identifier: BSD-3-Clause
"""Inputs to check a bundle with, and their outputs from the simulator."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from openneutron.errors import DriverError
from openneutron.export.deployment import Deployment, IoTensor, Place, Where
from openneutron.simulator import Simulator

SEED = 0


@dataclass(frozen=True, slots=True)
class Golden:
    """Bytes of each input and of each output, in the order in memory of a run."""

    inputs: tuple[bytes, ...] = field(repr=False)
    outputs: tuple[bytes, ...] = field(repr=False)


def golden(deployment: Deployment) -> Golden:
    """Return seeded random inputs and the outputs of the simulator, the same for the same model.

    Integers other than int8 may be indices of a table: they are zeros where random ones are outside of the table. Raises
    DriverError where the driver refuses a program.
    """
    generator = np.random.default_rng(SEED)
    inputs = [_random(generator, tensor) for tensor in deployment.inputs]
    try:
        outputs = _run(deployment, inputs)
    except DriverError:
        if all(tensor.dtype == "int8" for tensor in deployment.inputs):
            raise
        inputs = [
            values if tensor.dtype == "int8" else np.zeros_like(values)
            for values, tensor in zip(inputs, deployment.inputs, strict=True)
        ]
        outputs = _run(deployment, inputs)
    return Golden(tuple(values.tobytes() for values in inputs), tuple(values.tobytes() for values in outputs))


def _random(generator: np.random.Generator, tensor: IoTensor) -> NDArray[np.uint8]:
    if tensor.dtype == "bool":
        return generator.integers(0, 2, tensor.elements, np.uint8)
    return generator.integers(0, 256, tensor.size_bytes, np.uint8)


def _run(deployment: Deployment, inputs: list[NDArray[np.uint8]]) -> list[NDArray[np.uint8]]:
    values: dict[Place, NDArray[np.uint8]] = {Place(Where.INPUT, index): data for index, data in enumerate(inputs)}
    for call in deployment.calls:
        with Simulator(call.program) as simulator:
            results = simulator.run([values[place] for place in call.inputs])
        values.update(zip(call.outputs, results, strict=True))
    return [values[Place(Where.OUTPUT, index)] for index in range(len(deployment.outputs))]
