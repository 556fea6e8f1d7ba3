# SPDX-License-Identifier: BSD-3-Clause
"""The driver keeps a persistent area between runs, resets it, and has one clear error for each misuse of it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np
import pytest

from openneutron.device.simulator import Moment, Simulator, library, require
from openneutron.errors import DriverError
from openneutron.isa import Program, record
from openneutron.isa.rows import NO_SOURCE, STATE
from tests.support import programs
from tests.support.altered_programs import CODES, refusal, with_header


def state(offset: int, size: int, source: int = NO_SOURCE, fill: int = 0) -> dict[str, int]:
    return {"offset": offset, "size": size, "source": source, "fill": fill}


def counting(*states: dict[str, int], state_size: int = 32) -> Program:
    """Return a program that copies its state to the output and then its input to the state."""
    shape = (1, 1, 1, 8)
    return programs.program(
        inputs=(programs.binding("INPUT", 0, 8),),
        outputs=(programs.binding("OUTPUT", 0, 8),),
        buffers=(
            programs.dense("INPUT", 0, shape),
            programs.dense("STATE", 0, shape),
            programs.dense("OUTPUT", 0, shape),
        ),
        operators=(programs.kernel("copy_s8", input=1, output=2), programs.kernel("copy_s8", input=0, output=1)),
        code=(programs.call(0), programs.call(1), programs.END),
        states=tuple(record(STATE, **each) for each in states),
        state_size=state_size,
    )


TWO = (state(0, 8, fill=7), state(16, 8, source=0))


def test_a_state_lasts_until_a_reset() -> None:
    with Simulator(counting(*TWO)) as simulator:
        for _ in range(2):
            first, second = (simulator.run([np.full(8, value, np.int8)])[0] for value in (1, 2))
            assert (first == 7).all() and (second == 1).all()
            simulator.reset()
        assert simulator._state.tolist() == [7] * 8 + [0] * 8 + list(programs.TABLE.view(np.uint8)[:8]) + [0] * 8


def test_suspending_keeps_the_state() -> None:
    driver = library()
    with Simulator(counting(*TWO)) as simulator:
        simulator.run([np.full(8, 5, np.int8)])
        driver.neutronSuspend()
        driver.neutronResume()
        driver.neutronDeinit()
        driver.neutronInit()
        assert (simulator.run([np.zeros(8, np.int8)])[0] == 5).all()


@pytest.mark.parametrize(
    ("states", "state_size", "name"),
    [
        ([state(25, 8)], 32, "BUFFER"),
        ([state(0xFFFFFFFF, 8)], 32, "BUFFER"),
        ([state(0, 33)], 32, "BUFFER"),
        ([state(0, 8, source=0xFFFFFFF0)], 32, "BUFFER"),
        ([state(0, 8, source=249)], 32, "BUFFER"),
        ([], 7, "BUFFER"),
        ([], 0, "BUFFER"),
    ],
)
def test_states_and_buffers_are_inside_the_area(states: list[dict[str, int]], state_size: int, name: str) -> None:
    assert refusal(counting(*states, state_size=state_size)) == name


@pytest.mark.parametrize(("word", "value"), [("states_offset", 0x7FFFFFFF), ("state_count", 0x40000000)])
def test_the_states_are_inside_the_microcode(word: str, value: int) -> None:
    assert refusal(with_header(counting(*TWO), **{word: value})) == "LAYOUT"


def code(status: int) -> str:
    return next((name for name, each in CODES.items() if each == status), "NONE" if status == 0 else str(status))


def test_a_program_with_state_runs_with_memory_for_it_alone() -> None:
    driver = library()
    with Simulator(counting(*TWO)) as simulator:
        handle, memory = simulator._handle, simulator._state
        give: Callable[[int | None, int], int] = driver.neutronSetState
        assert code(give(handle, memory.ctypes.data, 31)) == "STATE_SIZE"
        assert code(give(handle, memory.ctypes.data + 1, 32)) == "ALIGNMENT"
        assert code(give(handle, None, 32)) == "NULL"
        assert (simulator.run([np.zeros(8, np.int8)])[0] == 7).all(), "the memory given before is kept"
    with pytest.raises(DriverError) as raised:
        require("run", CODES["NO_STATE"])
    assert str(raised.value) == (
        "run: the driver says that the model keeps a state between runs and has no memory for it; call neutronSetState with "
        "state_size bytes; error 0x1323."
    )


def test_a_program_without_state_takes_any_memory_and_every_reset() -> None:
    driver = library()
    with Simulator(programs.inverted_twice()) as simulator:
        assert not simulator.keeps_state
        simulator.reset()
        assert driver.neutronSetState(simulator._handle, None, 0) == 0
    assert code(driver.neutronReset(ctypes.c_void_p())) == "HANDLE"


@pytest.mark.parametrize("act", ["reset", "run", "memory"])
def test_a_model_in_a_run_refuses_what_touches_its_state(act: str) -> None:
    with Simulator(counting(*TWO)) as simulator, Simulator(counting(*TWO)) as other:

        def misuse(_moment: Moment) -> None:
            other.reset()
            other.run([np.zeros(8, np.int8)])
            if act == "reset":
                simulator.reset()
            elif act == "run":
                simulator.run([np.zeros(8, np.int8)])
            else:
                memory = simulator._state
                require("memory", library().neutronSetState(simulator._handle, memory.ctypes.data, memory.size))

        with pytest.raises(DriverError) as raised:
            simulator.run([np.full(8, 3, np.int8)], misuse)
        assert str(raised.value) == (
            f"{act}: the driver says that the model keeps a state and is in a run; it can be reset, get other memory and run "
            "again after that run; error 0x150b."
        )
        assert (simulator.run([np.zeros(8, np.int8)])[0] == 3).all(), "the run was not disturbed"
