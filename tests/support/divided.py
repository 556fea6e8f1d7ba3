# SPDX-License-Identifier: BSD-3-Clause
"""Simulators that compute even the smallest kernel calls in parts: one part after the other in one thread, or in threads."""

from __future__ import annotations

import ctypes
from ctypes import byref

from openneutron.device.simulator import Simulator, library
from openneutron.isa import Program
from tests.support.c_api import Parallel, Part, Threads, memory_at


class Divided(Simulator):
    """A simulator that computes each call in up to ``count`` parts, the last part first. ``parts`` has the number of parts of the latest
    call that was divided, until the test changes it."""

    def __init__(self, program: Program, count: int, least_work: int = 1) -> None:
        super().__init__(program)
        self.parts = 0

        @Parallel
        def backwards(parts: int, part: Part, context: int) -> None:
            self.parts = parts
            for number in reversed(range(parts)):
                part(context, number)

        size = library().neutronGetThreadScratchSize(self._handle)
        self._memory, self._raw = memory_at(0, size * (count - 1))
        self._threads = Threads(count, least_work, backwards, self._memory.ctypes.data, size)
        assert library().neutronSetThreads(self._handle, byref(self._threads)) == 0


class Together(Simulator):
    """A simulator that computes each call in ``count`` threads of the host."""

    def __init__(self, program: Program, count: int) -> None:
        super().__init__(program, threads=count)
        size = library().neutronGetThreadScratchSize(self._handle)
        parallel = ctypes.cast(library().neutron_host_threads_parallel, Parallel)
        self._together = Threads(count, 1, parallel, self._thread_scratch.ctypes.data, size)
        assert library().neutronSetThreads(self._handle, byref(self._together)) == 0
