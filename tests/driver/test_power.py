# SPDX-License-Identifier: BSD-3-Clause
"""neutronInit, Deinit, Suspend and Resume: in any order, with models prepared and in the middle of a run."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import byref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openneutron.device.simulator import KERNEL_LEVEL, CallHook, TraceConfig, library
from tests.support import programs
from tests.support.altered_programs import CODES
from tests.support.c_api import Buffers, Config, Copy, Counter, Port, Power, Prepared, memory_at

STEPS = ("Init", "Deinit", "Suspend", "Resume")
AFTER = {"Init": "on", "Deinit": "off", "Suspend": "suspended", "Resume": "on"}


def call(step: str) -> int:
    return int(getattr(library(), f"neutron{step}")())


@given(st.lists(st.sampled_from(STEPS), max_size=12))
def test_any_order_of_calls(steps: list[str]) -> None:
    """Only the last accepted call counts: nothing is counted up, and no step disturbs what is prepared."""
    switched: list[bool] = []
    port = Port(power=Power(switched.append))
    driver = library()
    call("Init")
    model, buffers = Prepared(programs.inverted_twice()), Buffers()
    driver.neutronSetPort(byref(port))
    state, wanted = "on", []
    try:
        for step in steps:
            refused = state == "off" and step in ("Suspend", "Resume")
            assert call(step) == (CODES["STATE"] if refused else 0)
            before, state = state, state if refused else AFTER[step]
            if (before == "on") != (state == "on"):
                wanted.append(state == "on")
            assert buffers.run(model) == (0 if state == "on" else CODES["STATE"])
            assert buffers.right() == (state == "on")
        assert switched == wanted
    finally:
        driver.neutronSetPort(driver.neutron_host_port())
        model.close()  # in any state
        call("Init")


def test_prepare_and_check_need_no_power() -> None:
    """A model can be loaded while the NPU is suspended, but not before neutronInit."""
    try:
        call("Suspend")
        model, buffers = Prepared(programs.inverted_twice()), Buffers()
        assert model.status == 0
        assert buffers.run(model) == CODES["STATE"]
        call("Resume")
        assert buffers.run(model) == 0
        model.close()
        call("Deinit")
        assert Prepared(programs.inverted_twice()).status == CODES["STATE"]
    finally:
        call("Init")


@pytest.mark.parametrize("step", ["Suspend", "Deinit"])
def test_power_taken_in_the_middle_of_a_run(prepared: Prepared, step: str) -> None:
    """The run ends before its next kernel call; the next run, with power, is as ever."""
    calls: list[int] = []

    def hook(_user: int | None, operator: int, _kernel: int, _cycles: int) -> None:
        calls.append(operator)
        call(step)

    buffers = Buffers()
    trace = TraceConfig(KERNEL_LEVEL, None, 0, CallHook(hook), None)
    library().neutronSetTrace(prepared.handle, byref(trace))
    try:
        assert buffers.run(prepared) == CODES["STATE"]
        assert calls == [0]
        assert not buffers.y.any()  # the second call would write it
    finally:
        library().neutronSetTrace(prepared.handle, None)
        call("Init")
    assert buffers.run(prepared) == 0
    assert buffers.right()


@pytest.mark.parametrize("after", [lambda: call("Suspend"), lambda: call("Deinit")])
def test_power_taken_after_the_last_call(after: Callable[[], int]) -> None:
    """A run whose calls are done needs no more power: it succeeds."""
    model, buffers = Prepared(programs.inverted_twice()), Buffers()

    def hook(_user: int | None, operator: int, _kernel: int, _cycles: int) -> None:
        if operator == 1:
            after()

    trace = TraceConfig(KERNEL_LEVEL, None, 0, CallHook(hook), None)
    library().neutronSetTrace(model.handle, byref(trace))
    try:
        assert buffers.run(model) == 0
        assert buffers.right()
        assert buffers.run(model) == CODES["STATE"]
    finally:
        model.close()
        call("Init")


def test_a_port_set_while_the_power_is_on_hears_of_the_next_change(port: Port) -> None:
    switched: list[bool] = []
    port.power = Power(switched.append)
    library().neutronSetPort(byref(port))
    call("Init")
    assert switched == []
    call("Suspend")
    library().neutronSetPort(None)
    call("Resume")
    assert switched == [False]


@pytest.mark.parametrize("without", ["Suspend", "Deinit"])
def test_what_needs_no_power(without: str, port: Port, config: Config) -> None:
    """Checks, settings, traces and the end of a model; all of it is there when the power is back."""
    heard: list[int] = []
    fetched: list[int] = []
    driver, program = library(), programs.fetched()
    model, other = Prepared(program), Prepared(programs.inverted_twice())
    trace = TraceConfig(KERNEL_LEVEL, None, 0, CallHook(lambda _user, operator, *_: heard.append(operator)), None)
    port.now_cycles = Counter(lambda: 7)
    config.copy = Copy(lambda _to, _source, size, _channel: fetched.append(size))
    call(without)
    try:
        assert driver.neutronSetPort(byref(port)) == 0
        assert driver.neutronSetConfig(byref(config)) == 0
        assert driver.neutronSetTrace(model.handle, byref(trace)) == 0
        assert driver.neutronModelCheck(byref(model.config), len(program.microcode), len(program.weights), None) == 0
        other.close()
    finally:
        call("Init")
    buffers, (prefetch, _prefetch) = Buffers(320), memory_at(0, 320)
    places = [buffers.x.ctypes.data], [buffers.y.ctypes.data, None, None, None]
    assert model.run(*places, prefetch.ctypes.data) == 0
    assert (heard, fetched) == ([0], [256])
    model.close()
