# SPDX-License-Identifier: BSD-3-Clause
"""The Cortex-M33 build in QEMU: the kernels on a 32-bit machine give the bytes that the host's fast ones do."""

from __future__ import annotations

import numpy as np

from openneutron.errors import DriverError
from openneutron.simulator import Simulator
from tests.cortex_m33.cases import Case, run
from tests.cortex_m33.firmware import image, library
from tests.fuzz.test_fuzz import seeds


def _host_run(simulator: Simulator, random: np.random.Generator) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Random inputs, zeros where those can't be the indices that some are, and what the host makes of them."""
    inputs = [random.integers(0, 256, item["size"], np.uint8) for item in simulator.microcode.inputs]
    try:
        return inputs, simulator.run(inputs)
    except DriverError:
        inputs = [np.zeros_like(values) for values in inputs]
        return inputs, simulator.run(inputs)


def test_same_bytes_as_on_the_host() -> None:
    random = np.random.default_rng(0)
    cases, wanted = [], []
    for program in seeds():
        with Simulator(program) as simulator:
            given, want = (b"".join(x.tobytes() for x in tensors) for tensors in _host_run(simulator, random))
        cases.append(Case(program, (given,)))
        wanted.append(want)
    for number, (done, want) in enumerate(zip(run(image(library()), cases), wanted, strict=True)):
        assert (done.prepare, done.runs[0].error) == (0, 0), number
        assert done.runs[0].outputs == want, number
