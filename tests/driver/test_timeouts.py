# SPDX-License-Identifier: BSD-3-Clause
"""timeoutSeconds against a clock that the test turns, and transfers that a run leaves open."""

from __future__ import annotations

import ctypes
from ctypes import byref

import pytest

from openneutron.device.simulator import KERNEL_LEVEL, CallHook, Simulator, TraceConfig, library
from openneutron.errors import DriverError
from openneutron.isa import Program, base
from tests.support import programs
from tests.support.altered_programs import CODES
from tests.support.c_api import Buffers, Config, Copy, Counter, Port, Prepared, Wait, memory_at


class Clock:
    """A clock that stands still but for what a hook adds; ``reads`` counts how often the driver looked."""

    def __init__(self, port: Port, start: int = 0) -> None:
        self.now = start
        self.reads = 0
        port.now_seconds = Counter(self._read)
        library().neutronSetPort(byref(port))

    def _read(self) -> int:
        self.reads += 1
        return self.now & 0xFFFFFFFF


def run_with_calls_that_take(seconds: int, clock: Clock, model: Prepared, buffers: Buffers) -> tuple[int, list[int]]:
    """The run's error and the operators that were called."""
    calls: list[int] = []

    def hook(_user: int | None, operator: int, _kernel: int, _cycles: int) -> None:
        calls.append(operator)
        clock.now += seconds

    trace = TraceConfig(KERNEL_LEVEL, None, 0, CallHook(hook), None)
    library().neutronSetTrace(model.handle, byref(trace))
    error = buffers.run(model)
    library().neutronSetTrace(model.handle, None)
    return error, calls


@pytest.mark.parametrize("start", [0, 7, 0xFFFFFFFE])
@pytest.mark.parametrize(
    ("timeout", "seconds", "calls"),
    [
        (2, 0, [0, 1]),
        (2, 2, [0, 1]),  # as long as allowed, and the last call may end later: nothing follows it
        (2, 3, [0]),
        (1, 2, [0]),
        (0, 1 << 30, [0, 1]),  # no limit
        (0xFFFFFFFF, 0xFFFFFFFF, [0, 1]),  # nothing is longer
        (0xFFFFFFFE, 0xFFFFFFFF, [0]),
    ],
)
def test_more_seconds_than_allowed(start: int, timeout: int, seconds: int, calls: list[int], port: Port) -> None:
    """From any reading of the clock, across its wrap too; the next run is as ever."""
    model, buffers = Prepared(programs.inverted_twice(), timeout), Buffers()
    clock = Clock(port, start)
    error, called = run_with_calls_that_take(seconds, clock, model, buffers)
    assert called == calls
    assert error == (0 if len(calls) == 2 else CODES["TIMEOUT"])
    assert buffers.right() == (error == 0)
    assert buffers.run(model) == 0
    assert buffers.right()
    model.close()


def test_when_the_clock_is_read(port: Port) -> None:
    """At the beginning and before each kernel call; without a limit, at the beginning alone."""
    for timeout, reads in ((1, 3), (0, 1)):
        model = Prepared(programs.inverted_twice(), timeout)
        clock = Clock(port)
        assert Buffers().run(model) == 0
        assert clock.reads == reads
        model.close()


def test_a_port_without_a_clock(port: Port) -> None:
    library().neutronSetPort(byref(port))
    model = Prepared(programs.inverted_twice(), 1)
    assert Buffers().run(model) == 0
    model.close()


def test_each_model_has_its_own_limit(port: Port) -> None:
    short, long = Prepared(programs.inverted_twice(), 1), Prepared(programs.inverted_twice(), 9)
    clock, buffers = Clock(port), Buffers()
    assert run_with_calls_that_take(5, clock, short, buffers) == (CODES["TIMEOUT"], [0])
    assert run_with_calls_that_take(5, clock, long, buffers) == (0, [0, 1])
    short.close()
    long.close()


def test_what_the_user_reads(port: Port) -> None:
    """The clock wraps during the run, and the time is up before the second call."""
    times = iter([0xFFFFFFFF, 1, 2])
    port.now_seconds = Counter(lambda: next(times))
    library().neutronSetPort(byref(port))
    with Simulator(programs.inverted_twice(), timeout_seconds=2) as simulator, pytest.raises(DriverError) as caught:
        simulator.run([Buffers().x])
    assert caught.value.code == CODES["TIMEOUT"]
    assert str(caught.value) == "run: the driver says that the run took longer than timeoutSeconds; error 0xf53."


def test_profile_of_a_run_out_of_time(port: Port) -> None:
    """The calls it made, and zeros behind them."""
    times = iter([0, 0, 5])
    port.now_seconds = Counter(lambda: next(times))
    library().neutronSetPort(byref(port))
    model = Prepared(programs.inverted_twice(profile_size=48), 1)
    buffers = Buffers()
    profile, _profile = memory_at(0, 48)
    profile[:] = 0xAA
    places = [buffers.y.ctypes.data, buffers.scratch.ctypes.data, profile.ctypes.data, None]
    assert model.run([buffers.x.ctypes.data], places) == CODES["TIMEOUT"]
    assert profile[:16].tolist() == [0, 12, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 100, 0, 0, 0]
    assert not profile[16:].any()
    model.close()


# ---- transfers --------------------------------------------------------------------------------------------------------


def three_transfers() -> Program:
    """Transfers on channels 5, 0 and 15, of which the program waits for channel 0's alone, and a call behind them."""
    operator = programs.kernel("lookup_s8", input=0, output=1, table_base=base("PREFETCH"), table_offset=0)
    shape = (1, 2, 8, 8)
    return programs.program(
        inputs=(programs.binding("INPUT", 0, 128),),
        outputs=(programs.binding("OUTPUT", 0, 128),),
        buffers=(programs.dense("INPUT", 0, shape), programs.dense("OUTPUT", 0, shape)),
        operators=(operator,),
        code=(
            *(
                programs.instruction("FETCH", source=0, base=base("PREFETCH"), destination=0, size=256, channel=channel)
                for channel in (5, 0, 15)
            ),
            programs.instruction("WAIT", channel=0),
            programs.call(0),
            programs.END,
        ),
        prefetch_size=256,
    )


@pytest.mark.parametrize("in_time", [True, False])
def test_no_transfer_outlives_its_run(in_time: bool, port: Port, config: Config) -> None:
    """A run waits once for each channel that still has transfers, also after an error."""
    calls: list[tuple[str, int]] = []
    times = iter([0, 0 if in_time else 9])
    port.now_seconds = Counter(lambda: next(times))
    library().neutronSetPort(byref(port))

    def copy(to: int, source: int, size: int, channel: int) -> None:
        calls.append(("copy", channel))
        ctypes.memmove(to, source, size)

    config.copy, config.wait = Copy(copy), Wait(lambda channel: calls.append(("wait", channel)))
    library().neutronSetConfig(byref(config))
    model, buffers = Prepared(three_transfers(), 1), Buffers(256)
    prefetch, _prefetch = memory_at(0, 256)
    places = [buffers.x.ctypes.data], [buffers.y.ctypes.data, None, None, None]
    assert model.run(*places, prefetch.ctypes.data) == (0 if in_time else CODES["TIMEOUT"])
    assert calls == [("copy", 5), ("copy", 0), ("copy", 15), ("wait", 0), ("wait", 5), ("wait", 15)]
    model.close()


def test_a_run_keeps_the_callbacks_it_began_with(port: Port, config: Config) -> None:
    """New ones, set by a callback of the run itself, hold from the next run on."""
    calls: list[str] = []
    second = Config(Copy(lambda *_: calls.append("second copy")), Wait(lambda _: calls.append("second wait")))

    def cycles() -> int:
        calls.append("second clock")
        return 0

    new_port = Port(now_cycles=Counter(cycles))

    def copy(*_: int) -> None:
        calls.append("first copy")
        library().neutronSetConfig(byref(second))
        library().neutronSetPort(byref(new_port))

    config.copy, config.wait = Copy(copy), Wait(lambda _: calls.append("first wait"))
    library().neutronSetConfig(byref(config))
    library().neutronSetPort(byref(port))
    model, buffers = Prepared(programs.fetched()), Buffers(128)
    prefetch, _prefetch = memory_at(0, 320)
    places = [buffers.x.ctypes.data], [buffers.y.ctypes.data, None, None, None], prefetch.ctypes.data
    assert model.run(*places) == 0
    assert calls == ["first copy", "first wait"]
    calls.clear()
    assert model.run(*places) == 0
    assert calls == ["second copy", "second wait", "second clock"]
    model.close()
