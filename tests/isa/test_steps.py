# SPDX-License-Identifier: BSD-3-Clause
"""The steps of a run as the driver takes them."""

from __future__ import annotations

import numpy as np

from openneutron.device.simulator import Simulator
from openneutron.isa import base, decode
from openneutron.isa.microcode import CallStep, CopyStep, WaitStep, calls, steps
from tests.support import programs
from tests.support.fuzz_seeds import seeds


def test_a_loop_is_unrolled_and_its_windows_are_clipped() -> None:
    wanted = [(operator, first) for first in (0, 2, 4, 6) for operator in (0, 1)]
    ends = {0: 2, 2: 4, 4: 6, 6: 7}
    assert calls(decode(programs.striped())) == [CallStep(call, 10, (first, ends[first])) for call, first in wanted]


def test_copies_and_waits_are_steps() -> None:
    assert list(steps(decode(programs.fetched()))) == [
        CopyStep(256, 3, base("PREFETCH"), 64),
        WaitStep(3),
        CallStep(0, 10, (0, 2)),
    ]


def test_the_calls_are_those_of_the_driver() -> None:
    for number, program in enumerate(seeds()):
        made: list[tuple[int, int]] = []
        with Simulator(program) as simulator:
            inputs = [np.zeros(item["size"], np.uint8) for item in simulator.microcode.inputs]
            simulator.run(inputs, lambda moment, made=made: made.append((moment.operator, moment.cycles)))  # type: ignore[misc]
        assert [(step.operator, step.cycles) for step in calls(decode(program))] == made, number
