# SPDX-License-Identifier: BSD-3-Clause
"""Traces and nested runs: what the hook hears, and what it may do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from ctypes import byref

import pytest

from openneutron.device.simulator import KERNEL_LEVEL, CallHook, Simulator, TraceConfig, library
from tests.support import programs
from tests.support.altered_programs import CODES
from tests.support.c_api import Buffers, Counter, Port, Prepared

LOOKUP = 12
JOB_LEVEL = 2
Heard = list[tuple[int, int, int]]


def trace_of(hook: Callable[[int, int, int], None], level: int = KERNEL_LEVEL) -> TraceConfig:
    return TraceConfig(level, None, 0, CallHook(lambda _user, *call: hook(*call)), None)


def listening(heard: Heard, level: int = KERNEL_LEVEL) -> TraceConfig:
    return trace_of(lambda *call: heard.append(call), level)


def set_trace(model: Prepared, trace: TraceConfig | None) -> None:
    assert library().neutronSetTrace(model.handle, byref(trace) if trace else None) == 0


@pytest.fixture
def other() -> Iterator[Prepared]:
    """A second model: stripes, so that it makes more calls."""
    model = Prepared(programs.striped((1, 6, 5, 3)))
    yield model
    model.close()


TWICE = [(0, LOOKUP, 100), (1, LOOKUP, 50)]
STRIPES = [(0, LOOKUP, 10), (1, LOOKUP, 10)] * 3


def test_order_and_modelled_cycles(prepared: Prepared, other: Prepared, port: Port) -> None:
    """As the program's calls follow each other; the port's counter goes into profiles, not here."""
    port.now_cycles = Counter(lambda: 12345)
    library().neutronSetPort(byref(port))
    for model, wanted in ((prepared, TWICE), (other, STRIPES)):
        heard: Heard = []
        trace = listening(heard)
        set_trace(model, trace)
        assert Buffers().run(model) == 0
        assert heard == wanted
        set_trace(model, None)


def test_calls_clipped_to_nothing_are_not_heard() -> None:
    heard: list[int] = []
    with Simulator(programs.striped((1, 1, 4, 2))) as simulator:
        simulator.run([Buffers(8).x], lambda moment: heard.append(moment.operator))
    assert heard == [0, 1]


def test_one_models_trace_is_its_own(prepared: Prepared, other: Prepared) -> None:
    first: Heard = []
    second: Heard = []
    traces = listening(first), listening(second)
    set_trace(prepared, traces[0])
    assert Buffers().run(other) == 0
    assert first == []
    set_trace(other, traces[1])
    assert Buffers().run(prepared) == 0
    assert (first, second) == (TWICE, [])
    set_trace(prepared, None)
    assert Buffers().run(prepared) == 0
    assert Buffers().run(other) == 0
    assert (first, second) == (TWICE, STRIPES)


@pytest.mark.parametrize("level", [0, JOB_LEVEL])
def test_levels_without_a_hook(prepared: Prepared, level: int) -> None:
    """Only kernel level calls the hook; another level ends the trace before."""
    heard: Heard = []
    traces = listening(heard), listening(heard, level)
    for trace in traces:
        set_trace(prepared, trace)
    assert Buffers().run(prepared) == 0
    assert heard == []
    set_trace(prepared, TraceConfig(KERNEL_LEVEL, None, 0, CallHook(), None))
    assert Buffers().run(prepared) == 0


def test_a_prepared_model_has_no_trace() -> None:
    """Also where its context lies in the memory of one that had."""
    heard: Heard = []
    trace = listening(heard)
    for _ in range(4):
        model = Prepared(programs.inverted_twice())
        assert Buffers().run(model) == 0
        set_trace(model, trace)
        model.close()
    assert heard == []


def test_a_hook_that_ends_its_trace(prepared: Prepared) -> None:
    heard: Heard = []

    def hook(*call: int) -> None:
        heard.append((call[0], call[1], call[2]))
        set_trace(prepared, None)

    trace = trace_of(hook)
    set_trace(prepared, trace)
    buffers = Buffers()
    assert buffers.run(prepared) == 0
    assert buffers.right()
    assert heard == TWICE[:1]


def test_runs_inside_a_hook(prepared: Prepared, other: Prepared) -> None:
    """Another model, traced too, and the same one with other buffers: each gives its own result."""
    heard: list[str] = []
    inner, same = Buffers(seed=1), Buffers(seed=2)
    depth = 0

    def outer_hook(operator: int, *_: int) -> None:
        nonlocal depth
        heard.append(f"{'same' if depth else 'outer'} {operator}")
        if depth == 0:
            depth = 1
            assert inner.run(other) == 0
            assert same.run(prepared) == 0
            depth = 0

    traces = trace_of(outer_hook), trace_of(lambda operator, *_: heard.append(f"inner {operator}"))
    set_trace(prepared, traces[0])
    set_trace(other, traces[1])
    outer = Buffers()
    assert outer.run(prepared) == 0
    assert outer.right()
    assert inner.right()
    assert same.right()
    nested = ["inner 0", "inner 1"] * 3 + ["same 0", "same 1"]
    assert heard == ["outer 0", *nested, "outer 1", *nested]
    set_trace(prepared, None)


def test_two_models_in_turns(prepared: Prepared, other: Prepared) -> None:
    """Over one scratch buffer: nothing of a run is in it that another run needs."""
    buffers = Buffers()
    for turn in range(6):
        buffers.x[:] = turn
        buffers.scratch[:] = 0xAA
        assert buffers.run((prepared, other)[turn % 2]) == 0
        assert buffers.right()


def test_the_call_that_fails_is_heard_too() -> None:
    """An index outside its tensor ends the run; the hook has heard of that call, and of none after it."""
    heard: Heard = []
    table = programs.dense("WEIGHTS", 0, (1, 1, 4, 2))
    program = programs.program(
        inputs=(programs.binding("INPUT", 0, 4),),
        outputs=(programs.binding("OUTPUT", 0, 2),),
        buffers=(
            table,
            programs.dense("INPUT", 0, (1, 1, 1, 4)),
            programs.dense("OUTPUT", 0, (1, 1, 1, 2)),
        ),
        operators=(programs.kernel("gather_s8", input=0, indices=1, output=2),),
        code=(programs.call(0), programs.call(0), programs.END),
        weights=bytes(range(8)),
    )
    model = Prepared(program)
    assert model.status == 0
    trace = listening(heard)
    set_trace(model, trace)
    buffers = Buffers()
    for index, error, calls in ((3, 0, 2), (4, CODES["INDEX"], 1), (1, 0, 2)):
        heard.clear()
        buffers.x[:4] = [index, 0, 0, 0]
        assert buffers.run(model) == error
        assert len(heard) == calls
    assert buffers.y[:2].tolist() == [2, 3]
    model.close()
