# SPDX-License-Identifier: BSD-3-Clause
"""Runs of hand-made programs, through the simulator and through the C API itself."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_uint32, c_void_p

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openneutron.device.simulator import DataConfig, ModelConfig, Simulator, library
from openneutron.isa import Program
from tests.support import programs
from tests.support.altered_programs import CODES
from tests.support.c_api import Cache, Config, Copy, Counter, Port, Prepared, Wait, memory_at


def random_bytes(size: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-128, 128, size).astype(np.int8)


def outputs_of(program: Program, *inputs: np.ndarray) -> list[np.ndarray]:
    with Simulator(program) as simulator:
        return [output.view(np.int8) for output in simulator.run(inputs)]


def test_whole_tensors() -> None:
    x = random_bytes(90)
    assert np.array_equal(outputs_of(programs.inverted_twice(), x)[0], x)


@pytest.mark.parametrize("height", range(1, 9))
def test_stripes_through_a_ring(height: int) -> None:
    x = random_bytes(height * 8)
    assert np.array_equal(outputs_of(programs.striped((1, height, 4, 2)), x)[0], x)


def test_inputs_and_outputs_inside_scratch() -> None:
    x = random_bytes(128)
    assert np.array_equal(outputs_of(programs.through_scratch(), x)[0], ~x)


@pytest.mark.parametrize("to", ["PREFETCH", "SCRATCH"])
def test_constants_fetched(to: str) -> None:
    x = random_bytes(128)
    assert np.array_equal(outputs_of(programs.fetched(to=to), x)[0], ~x)


def test_several_inputs_and_outputs() -> None:
    a, b = random_bytes(30), random_bytes(48, 1)
    got = outputs_of(programs.two_ports(), a, b)
    assert np.array_equal(got[0], ~a)
    assert np.array_equal(got[1], ~b)


BOUND = st.integers(-3, 12) | st.sampled_from([-(2**31), 2**31 - 1])


@given(row0=BOUND, row1=BOUND, step=BOUND, count=st.integers(1, 5), col0=BOUND, col1=BOUND, batch0=BOUND, batch1=BOUND)
def test_windows_are_clipped(
    row0: int, row1: int, step: int, count: int, col0: int, col1: int, batch0: int, batch1: int
) -> None:
    """Exactly the clipped window of each iteration is written, and the rest of the output is left alone."""
    shape = (2, 7, 6, 1)
    window = programs.instruction(
        "WINDOW",
        operator=0,
        cycles=1,
        row0=row0,
        row1=row1,
        step=step,
        batch0=batch0,
        batch1=batch1,
        col0=col0,
        col1=col1,
        channel0=0,
        channel1=1,
    )
    program = programs.program(
        inputs=(programs.binding("INPUT", 0, 84),),
        outputs=(programs.binding("OUTPUT", 0, 84),),
        buffers=(programs.dense("INPUT", 0, shape), programs.dense("OUTPUT", 0, shape)),
        operators=(programs.lookup(0, 1),),
        code=(programs.instruction("LOOP", count=count, body_words=12), window, programs.END),
    )
    wanted = np.zeros(shape, np.int8)
    for i in range(count):
        rows = slice(max(row0 + i * step, 0), max(row1 + i * step, 0))
        wanted[max(batch0, 0) : max(batch1, 0), rows, max(col0, 0) : max(col1, 0)] = -1
    assert np.array_equal(outputs_of(program, np.zeros(84, np.int8))[0], wanted.ravel())


# ---- the C API --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shift", [1, 3, 8])
def test_inputs_and_outputs_may_be_unaligned(prepared: Prepared, shift: int) -> None:
    x, keep_x = memory_at(shift, 90)
    y, keep_y = memory_at(16 - shift, 90)
    scratch, keep_scratch = memory_at(0, 112)
    x[:] = random_bytes(90).view(np.uint8)
    assert prepared.run([x.ctypes.data], [y.ctypes.data, scratch.ctypes.data, None, None]) == 0
    assert np.array_equal(x, y)
    del keep_x, keep_y, keep_scratch


def test_null_and_unaligned_pointers(prepared: Prepared) -> None:
    x, _x = memory_at(0, 90)
    scratch, _scratch = memory_at(0, 112)
    data, place = x.ctypes.data, scratch.ctypes.data
    assert prepared.run([None], [data, place, None, None]) == CODES["NULL"]
    assert prepared.run([data], [None, place, None, None]) == CODES["NULL"]
    assert prepared.run([data], [data, None, None, None]) == CODES["NULL"]
    assert prepared.run([data], [data, place + 8, None, None]) == CODES["ALIGNMENT"]
    assert library().neutronRunBlocking(prepared.handle, None) == CODES["NULL"]


def test_no_inputs() -> None:
    """The program reads constants alone: the table through itself. The caller may name no array of inputs."""
    shape = (1, 1, 16, 16)
    model = Prepared(
        programs.program(
            inputs=(),
            outputs=(programs.binding("OUTPUT", 0, 256),),
            buffers=(programs.dense("WEIGHTS", 0, shape), programs.dense("OUTPUT", 0, shape)),
            operators=(programs.lookup(0, 1),),
            code=(programs.call(0), programs.END),
        )
    )
    assert model.status == 0
    y, _y = memory_at(0, 256)
    pointers = (c_void_p * 4)(y.ctypes.data, None, None, None)
    assert library().neutronRunBlocking(model.handle, byref(DataConfig(None, pointers, None, None))) == 0
    assert np.array_equal(y.view(np.int8), np.arange(-128, 128))
    model.close()


def test_far_pointer() -> None:
    """The far buffer comes behind scratch and profile. Programs without one need no such entry."""
    model = Prepared(programs.through_far())
    x, _x = memory_at(0, 128)
    y, _y = memory_at(0, 128)
    far, _far = memory_at(0, 144)
    x[:] = np.arange(128)
    sources, outputs = [x.ctypes.data], [y.ctypes.data, None, None]
    assert model.run(sources, [*outputs, None]) == CODES["NULL"]
    assert model.run(sources, [*outputs, far.ctypes.data + 4]) == CODES["ALIGNMENT"]
    assert model.run(sources, [*outputs, far.ctypes.data]) == 0
    assert np.array_equal(far[16:], y) and len(set(y)) == 128
    model.close()


def test_prefetch_pointer() -> None:
    model = Prepared(programs.fetched())
    x, _x = memory_at(0, 128)
    y, _y = memory_at(0, 128)
    prefetch, _prefetch = memory_at(0, 320)
    assert model.run([x.ctypes.data], [y.ctypes.data, None, None, None]) == CODES["NULL"]
    assert model.run([x.ctypes.data], [y.ctypes.data, None, None, None], prefetch.ctypes.data + 4) == CODES["ALIGNMENT"]
    assert model.run([x.ctypes.data], [y.ctypes.data, None, None, None], prefetch.ctypes.data) == 0
    assert (y == 0xFF).all()
    model.close()


def test_profile_pointer() -> None:
    model = Prepared(programs.inverted_twice(profile_size=32))
    x, _x = memory_at(0, 90)
    scratch, _scratch = memory_at(0, 112)
    profile, _profile = memory_at(1, 32)
    pointers = [x.ctypes.data, scratch.ctypes.data]
    assert model.run([x.ctypes.data], [*pointers, None, None]) == CODES["NULL"]
    assert model.run([x.ctypes.data], [*pointers, profile.ctypes.data, None]) == 0
    assert profile[[1, 9, 17, 25]].tolist() == [12, 6, 12, 6]
    model.close()


def test_scratch_binding_in_its_place_is_not_copied() -> None:
    """The caller may use the scratch buffer's own address for an input or output that lives there."""
    model = Prepared(programs.through_scratch())
    scratch, _scratch = memory_at(0, 256)
    x = random_bytes(128).view(np.uint8)
    scratch[:128] = x
    place = scratch.ctypes.data
    assert model.run([place], [place + 128, place, None, None]) == 0
    assert np.array_equal(scratch[128:], ~x)
    model.close()


def test_bad_handles() -> None:
    driver = library()
    assert driver.neutronRunBlocking(None, None) == CODES["HANDLE"]
    assert driver.neutronModelUnprepare(None) == CODES["HANDLE"]
    assert driver.neutronSetTrace(None, None) == CODES["HANDLE"]


def test_bad_model_configs() -> None:
    driver, handle, detail = library(), c_void_p(), c_uint32()
    program = programs.inverted_twice()
    model = Prepared(program)
    sizes = len(program.microcode), len(program.weights)
    microcode, weights = model.blobs
    for config, code in (
        (None, "NULL"),
        (ModelConfig(None, weights), "NULL"),
        (ModelConfig(microcode, None), "NULL"),
        (ModelConfig(microcode + 4, weights), "ALIGNMENT"),
        (ModelConfig(microcode, weights + 4), "ALIGNMENT"),
    ):
        given_config = byref(config) if config else None
        assert driver.neutronModelCheck(given_config, *sizes, byref(detail)) == CODES[code]
        assert driver.neutronModelPrepare(given_config, byref(handle)) == CODES[code]
    assert driver.neutronModelPrepare(byref(model.config), None) == CODES["NULL"]
    assert driver.neutronModelCheck(byref(model.config), *sizes, None) == 0
    assert not handle
    model.close()


def test_cache_maintenance(port: Port) -> None:
    cleaned: list[tuple[int, int]] = []
    invalidated: list[tuple[int, int]] = []
    port.clean_cache = Cache(lambda address, size: cleaned.append((address, size)))
    port.invalidate_cache = Cache(lambda address, size: invalidated.append((address, size)))
    library().neutronSetPort(byref(port))
    model = Prepared(programs.through_scratch())
    x, _x = memory_at(0, 128)
    y, _y = memory_at(0, 128)
    scratch, _scratch = memory_at(0, 256)
    assert model.run([x.ctypes.data], [y.ctypes.data, scratch.ctypes.data, None, None]) == 0
    assert cleaned == [(scratch.ctypes.data, 128)]
    assert invalidated == [(scratch.ctypes.data + 128, 128)]
    model.close()


def test_copy_callbacks(config: Config) -> None:
    calls: list[tuple[str, int, int]] = []

    def copy(to: int, source: int, size: int, channel: int) -> None:
        calls.append(("copy", size, channel))
        ctypes.memmove(to, source, size)

    config.copy, config.wait = Copy(copy), Wait(lambda channel: calls.append(("wait", 0, channel)))
    x = random_bytes(128)
    library().neutronSetConfig(byref(config))
    assert np.array_equal(outputs_of(programs.fetched(), x)[0], ~x)
    assert calls == [("copy", 256, 3), ("wait", 0, 3)]
    assert library().neutronSetConfig(None) == CODES["NULL"]


def test_cycle_counter_of_the_port(port: Port) -> None:
    times = iter([7, 20, 31, 45])
    port.now_cycles = Counter(lambda: next(times))
    library().neutronSetPort(byref(port))
    with Simulator(programs.inverted_twice(profile_size=32)) as simulator:
        events = simulator.profile([random_bytes(90)])
    assert [(e.start_cycles, e.stop_cycles) for e in events] == [(7, 20), (31, 45)]
