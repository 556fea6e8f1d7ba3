# SPDX-License-Identifier: BSD-3-Clause
"""Kernel calls that several threads compute: the same bytes for any number and order of parts, and no data race."""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Sequence
from ctypes import byref
from pathlib import Path

import numpy as np

from openneutron.device.simulator import Moment, Simulator
from openneutron.device.simulator.simulator import library
from openneutron.errors import DriverError
from openneutron.isa import Program, decode
from openneutron.isa.rows import KERNELS
from tests.driver.sanitized import FLAGS, RUNTIME
from tests.support.c_api import Parallel, Part, Threads, memory_at
from tests.support.fuzz_seeds import seeds
from tests.support.objects import compiled
from tests.support.runtime_builds import driver_sources, kernel_sources
from tests.support.tools import sanitizing_compiler

HOST = RUNTIME / "ports" / "host"
DIVIDED = {row.name for row in KERNELS if row.shared_axes}


class Divided(Simulator):
    """A simulator that computes the parts of calls in one thread, the last part first, and knows which kernels were divided."""

    def __init__(self, program: Program, count: int, least_work: int = 1) -> None:
        super().__init__(program)
        self.kernels: set[str] = set()
        self._parts = 0

        @Parallel
        def backwards(parts: int, part: Part, context: int) -> None:
            self._parts = parts
            for number in reversed(range(parts)):
                part(context, number)

        size = library().neutronGetThreadScratchSize(self._handle)
        self._memory, self._raw = memory_at(0, size * (count - 1))
        self._threads = Threads(count, least_work, backwards, self._memory.ctypes.data, size)
        assert library().neutronSetThreads(self._handle, byref(self._threads)) == 0

    def results(self, inputs: Sequence[np.ndarray]) -> list[bytes] | str:
        """Return the outputs of a run, or the driver's words."""

        def after(moment: Moment) -> None:
            if self._parts > 1:
                self.kernels.add(moment.microcode.operators[moment.operator].row.name)
            self._parts = 0

        return results(self, inputs, after)


def results(simulator: Simulator, inputs: Sequence[np.ndarray], trace: object = None) -> list[bytes] | str:
    """Return the outputs of a run from the first state on, or the driver's words."""
    simulator.reset()
    try:
        return [output.tobytes() for output in simulator.run(inputs, trace)]  # type: ignore[arg-type]
    except DriverError as error:
        return str(error)


def random_inputs(simulator: Simulator, seed: int) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    return [random.integers(0, 256, binding["size"], np.uint8) for binding in simulator.microcode.inputs]


def test_every_kernel_in_two_to_four_parts() -> None:
    kernels: set[str] = set()
    for number, program in enumerate(seeds()):
        whole = Simulator(program)
        inputs = random_inputs(whole, number)
        wanted = results(whole, inputs)
        for count in (2, 3, 4):
            divided = Divided(program, count)
            assert divided.results(inputs) == wanted, (number, count)
            kernels |= divided.kernels
    assert kernels == DIVIDED


def covering() -> list[Program]:
    """Return few programs that call every kernel."""
    chosen: list[Program] = []
    missing = {row.name for row in KERNELS}
    for program in sorted(seeds(), key=lambda program: -len({call.row for call in decode(program).operators})):
        called = {call.row.name for call in decode(program).operators}
        if called & missing:
            chosen.append(program)
            missing -= called
    assert not missing
    return chosen


def test_no_data_race(tmp_path: Path) -> None:
    compiler = sanitizing_compiler(("-fsanitize=thread",))
    flags = [*FLAGS, "-DNEUTRON_THREADS", "-DNEUTRON_LEAST_SHARED_WORK=1", f"-I{HOST}"]
    own = [HOST / "host_threads.c", Path(__file__).parent / "parts_of_calls.c"]
    objects = compiled(tmp_path, compiler, flags, [*own, *driver_sources(), *kernel_sources()])
    subprocess.run([compiler, *FLAGS, *objects, "-o", tmp_path / "parts"], check=True)
    command = [str(tmp_path / "parts")]
    for number, program in enumerate(covering()):
        path = tmp_path / f"program{number}"
        path.write_bytes(
            struct.pack("<2I", len(program.microcode), len(program.weights)) + program.microcode + program.weights
        )
        command.append(str(path))
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "unexpected memory mapping" in done.stderr:
        done = subprocess.run(["setarch", "-R", *command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
