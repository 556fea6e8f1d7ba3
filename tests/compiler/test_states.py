# SPDX-License-Identifier: BSD-3-Clause
"""States last from run to run, at one place for the whole program, and are written once nobody reads the old value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from openneutron import litert
from openneutron.compiler import Compiled, CompileOptions, compile_graph
from openneutron.compiler.driver import checked
from openneutron.compiler.schedule.schedule import Whole
from openneutron.device.simulator import Simulator
from openneutron.errors import BudgetError, CompilerFaultError
from openneutron.ir import Graph, Node, State
from openneutron.isa import base, decode, encode, listing
from tests.support import oracle, random_graphs
from tests.support.random_images import batched_graph
from tests.support.stateful_graphs import delayed, small, streaming_convolution, without_states

NONE = {"activation": "NONE"}
CHECK = CompileOptions(check=True)


def frames(graph: Graph, count: int, seed: int = 0) -> list[list[np.ndarray]]:
    generator = np.random.default_rng(seed)
    return [oracle.random_inputs(graph, generator) for _ in range(count)]


def wanted(graph: Graph, given: Sequence[list[np.ndarray]]) -> list[list[bytes]]:
    """Return what LiteRT's reference kernels compute for each frame, with the states handed from run to run here."""
    plain = without_states(graph)
    model = litert.write(plain)
    held = [
        np.zeros(graph[s.tensor].shape, graph[s.tensor].dtype.numpy) if s.initial is None else s.initial
        for s in graph.states
    ]
    found = []
    for inputs in given:
        values = dict(zip(plain.outputs, oracle.reference_outputs(model, [*inputs, *held]), strict=True))
        known = {**values, **dict(zip(plain.inputs, [*inputs, *held], strict=True))}
        held = [known[state.update] for state in graph.states]
        found.append([known[name].tobytes() for name in graph.outputs])
    return found


def assert_same_frames(compiled: Compiled, given: Sequence[list[np.ndarray]], want: Sequence[list[bytes]]) -> None:
    with Simulator(compiled.program) as simulator:
        for _ in range(2):
            for place, (inputs, outputs) in enumerate(zip(given, want, strict=True)):
                got = [each.tobytes() for each in simulator.run(inputs)]
                assert got == outputs, f"frame {place} of\n{compiled.graph}\n{compiled.schedule}"
            simulator.reset()


def assert_stateful(graph: Graph, options: CompileOptions = CHECK, count: int = 4) -> Compiled:
    compiled = compile_graph(graph, oracle.TARGET, options)
    given = frames(graph, count)
    assert_same_frames(compiled, given, wanted(graph, given))
    return compiled


def test_a_streaming_convolution_keeps_its_ring_of_frames() -> None:
    compiled = assert_stateful(streaming_convolution(), count=20)
    assert compiled.report.state_bytes == 32 and compiled.report.states == ("ring",)
    assert compiled.report.sram_bytes == compiled.report.arena_bytes + 32
    code = decode(compiled.program)
    assert [dict(zip(("offset", "size", "source", "fill"), each.values, strict=True)) for each in code.states] == [
        {"offset": 0, "size": 24, "source": 0xFFFFFFFF, "fill": 3}
    ]
    assert "state 0: STATE+0x0 24 B, at first 0x03\n" in listing(code)


def test_two_instances_of_a_model_keep_two_states() -> None:
    graph = streaming_convolution()
    program = compile_graph(graph, oracle.TARGET, CHECK).program
    one, other = frames(graph, 6, 1), frames(graph, 6, 2)
    with Simulator(program) as first, Simulator(program) as second:
        found = [(first.run(a), second.run(b)) for a, b in zip(one, other, strict=True)]
    for side, given in enumerate((one, other)):
        assert [[each.tobytes() for each in pair[side]] for pair in found] == wanted(graph, given)


def add(a: str, b: str, result: str) -> Node:
    return Node("add", (a, b), (result,), NONE)


SMALL = {
    "a sum over all runs, in place": ((add("a", "x", "y"),), ("y",), (State("a", "y"),)),
    "the value of the run before": ((add("a", "x", "y"),), ("y",), (State("a", "x"),)),
    "a delay line of two runs": ((add("a", "b", "y"),), ("y",), (State("a", "b"), State("b", "x"))),
    "two states that change places": (
        (add("a", "x", "y"), add("b", "y", "z")),
        ("z",),
        (State("a", "b", np.full((1, 2, 2, 8), 9, np.int8)), State("b", "a")),
    ),
    "an old value that is an output": ((add("a", "x", "y"),), ("a", "y"), (State("a", "y"),)),
    "an old value that is read after the new one is known": (
        (add("a", "x", "y"), add("a", "y", "z")),
        ("z",),
        (State("a", "y"),),
    ),
    "one new value for two states": (
        (add("a", "x", "y"), add("b", "y", "z")),
        ("z",),
        (State("a", "z"), State("b", "z")),
    ),
    "a state that never changes": (
        (add("a", "x", "y"),),
        ("y",),
        (State("a", "a", np.arange(32, dtype=np.int8).reshape(1, 2, 2, 8)),),
    ),
}


@pytest.mark.parametrize("name", SMALL)
def test_small_graphs_with(name: str) -> None:
    graph = small(*SMALL[name])
    used = {*graph.given_tensors, *graph.kept_tensors, *(each for node in graph.nodes for each in node.outputs)}
    graph = replace(graph, tensors={name: tensor for name, tensor in graph.tensors.items() if name in used})
    graph.verify()
    assert_stateful(graph)
    assert_stateful(graph, replace(CHECK, io_place="caller"))


def test_a_sum_is_computed_in_the_memory_of_its_state() -> None:
    """The old value is read element by element where the new one is written: one call, without a copy."""
    graph = small((add("a", "x", "y"), Node("maximum", ("y", "x"), ("z",))), ("z",), (State("a", "y"),), "axyz")
    assert len(oracle.kernels_of(assert_stateful(graph))) == 3
    graph = small((add("a", "x", "y"),), (), (State("a", "y"),), "axy")
    assert len(oracle.kernels_of(assert_stateful(graph))) == 1


def test_a_first_value_of_different_bytes_is_among_the_constants() -> None:
    first = np.arange(32, dtype=np.int8).reshape(1, 2, 2, 8)
    compiled = assert_stateful(small((add("a", "x", "y"),), ("y",), (State("a", "y", first),), "axy"))
    (state,) = decode(compiled.program).states
    assert compiled.program.weights[state["source"] :][:32] == first.tobytes()


@pytest.mark.parametrize("seed", range(40))
def test_random_graphs_that_read_values_of_the_run_before(seed: int) -> None:
    made = batched_graph(seed, 1 + seed % 2) if seed % 3 == 0 else random_graphs.several(seed, 4, 10)
    graph = delayed(made, seed)
    if graph is None:
        return
    graph.verify()
    io, fetch = ("arena", "caller")[seed % 2], seed % 4 == 0
    options = CompileOptions(io_place=io, prefetch_constants=fetch, check=True)
    given = frames(graph, 3, seed)
    want = wanted(graph, given)
    unlimited = compile_graph(graph, oracle.TARGET, options)
    assert_same_frames(unlimited, given, want)
    try:
        compile_graph(graph, oracle.TARGET, replace(options, sram_budget=1))
    except BudgetError as error:
        least = compile_graph(graph, oracle.TARGET, replace(options, sram_budget=error.least_bytes))
        assert least.report.sram_bytes <= error.least_bytes
        assert_same_frames(least, given, want)


@pytest.mark.without_tiles("with tiles, a smaller budget than that of whole tensors is feasible")
def test_the_persistent_area_counts_in_the_budget() -> None:
    compiled = compile_graph(streaming_convolution(), oracle.TARGET, CHECK)
    with pytest.raises(BudgetError) as raised:
        compile_graph(
            streaming_convolution(), oracle.TARGET, CompileOptions(sram_budget=compiled.report.sram_bytes - 1)
        )
    assert raised.value.least_bytes == compiled.report.sram_bytes


@pytest.mark.without_tiles("the reversed steps would have transfers and waits among them")
def test_the_check_finds_a_state_that_is_read_after_it_was_written() -> None:
    compiled = compile_graph(small(*SMALL["a delay line of two runs"], "abxy"), oracle.TARGET, CHECK)
    steps = compiled.schedule.steps
    assert all(isinstance(step, Whole) for step in steps)
    code = decode(compiled.program)
    wrong = replace(code, code=(*reversed(code.code[:-1]), code.code[-1]))
    with pytest.raises(CompilerFaultError, match=r"hold 'the new [ab]' by now"):
        checked(replace(compiled, program=encode(wrong, compiled.program.weights)))


def test_no_buffer_of_the_arena_is_a_states() -> None:
    compiled = compile_graph(streaming_convolution(), oracle.TARGET, CHECK)
    assert compiled.layout.homes["ring"] == (base("STATE"), 0)
    assert "ring" not in {item.name for item in compiled.report.memory}


@pytest.mark.parametrize("factor", ["a", "b"])
def test_the_old_and_the_new_value_of_a_state_are_two_tensors(factor: str) -> None:
    """The magnitude of the old value, a, times that value or the new one, b."""
    nodes = [
        Node("abs", ("a",), ("z",)),
        Node("add", ("a", "x"), ("b",), NONE),
        Node("mul", (factor, "z"), ("y",), NONE),
    ]
    assert_stateful(small(nodes, ("y",), (State("a", "b"),)))
