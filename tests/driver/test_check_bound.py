# SPDX-License-Identifier: BSD-3-Clause
"""The windows that prepare checks bound its work, and compiled programs stay far below the bound."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from openneutron.compiler import CompileOptions, compile_graph
from openneutron.device.simulator import Simulator
from openneutron.errors import DriverError
from openneutron.ir import Graph
from openneutron.isa import Program, Record, decode
from scripts.published_networks import cifarnet
from tests.support import programs, random_graphs
from tests.support.altered_programs import altered
from tests.support.oracle import TARGET, least_budget
from tests.support.random_images import convolution, image_graph

MOST_CHECKS = 1 << 20
"""NEUTRON_MAX_CHECKS of runtime/driver/driver.h."""

MOST_LOOPS = 65535
"""NEUTRON_MAX_LOOP_COUNT of runtime/driver/driver.h."""


def windows(code: tuple[Record, ...], left_out: Collection[int] = ()) -> int:
    """Return the number of windows that prepare checks (docs/microcode.md), but for those of the operators ``left_out``."""
    count, iterations, words = 0, 1, 0
    for item in code:
        kind = item.row.name
        if kind == "LOOP":
            iterations, words = item["count"], item["body_words"]
            continue
        if kind in ("CALL", "ROWS", "WINDOW") and item["operator"] not in left_out:
            count += iterations if kind != "CALL" and item["step"] else 1
        words -= 1 + len(item.row.fields)
        iterations = iterations if words > 0 else 1
    return count


def looped(loops: int, step: int) -> Program:
    """Return a program of loops with one small call each, with the largest loop count."""
    row = programs.rows(0, 0, 1, step)
    body = (programs.instruction("LOOP", count=MOST_LOOPS, body_words=1 + len(row.row.fields)), row)
    return altered(programs.inverted_twice(), lambda _: {"code": (*body * loops, programs.END)})


def test_loops_are_checked_up_to_a_bound_and_refused_above_it() -> None:
    most = MOST_CHECKS // MOST_LOOPS
    accepted = looped(most, 1)
    assert windows(decode(accepted).code) <= MOST_CHECKS
    Simulator(accepted).close()
    refused = looped(700, 1)
    assert len(refused.microcode) > 24_000
    with pytest.raises(DriverError) as caught:
        Simulator(refused)
    # The first call beyond the bound is named; the driver checked no call behind it.
    instruction = refused.header["code_offset"] + most * 9 + 3
    assert str(caught.value) == (
        "program: the driver says that a run of the microcode, or checking it, would take longer than this driver was built to "
        f"allow (NEUTRON_MAX_WORK, NEUTRON_MAX_CHECKS) (detail 0x{instruction:x}); error 0x1013."
    )


def test_a_window_that_does_not_move_is_checked_once() -> None:
    program = looped(600, 0)
    assert windows(decode(program).code) == 600
    Simulator(program).close()


def long_sequence() -> Graph:
    """The sequence has more steps than a loop of microcode can count."""
    b = random_graphs.Builder(1)
    value = b.input((1, 1, MOST_LOOPS + 5, 2))
    for _ in range(2):
        value = convolution(b, value, 2, (1, 3))
    return b.graph([value])


@pytest.mark.parametrize(
    "graph", [cifarnet(), image_graph(1), image_graph(5), long_sequence()], ids=["cifarnet", "1", "5", "long"]
)
def test_programs_of_the_compiler_stay_far_below_the_bound(graph: Graph) -> None:
    budget = least_budget(graph, False, "caller")
    compiled = compile_graph(graph, TARGET, CompileOptions(sram_budget=budget, io_place="caller"))
    code, calls = decode(compiled.program).code, compiled.schedule.calls
    kernels = windows(code, [number for number, call in enumerate(calls) if call.is_transfer])
    assert kernels <= MOST_CHECKS / 64
    # With tiles, a window of a kernel needs at most one transfer for each of its operands, the output included.
    most_operands = max(len(call.views) for call in calls) if TARGET.moves_tiles else 0
    assert windows(code) <= kernels * (1 + most_operands)
    Simulator(compiled.program).close()
