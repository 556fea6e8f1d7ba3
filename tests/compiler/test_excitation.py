# SPDX-License-Identifier: BSD-3-Clause
"""Squeeze-excite blocks in one call, or in two: the calls, and LiteRT's bytes."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from openneutron import targets
from openneutron.compiler import CompileOptions, compile_graph
from openneutron.ir import Graph, Node
from openneutron.isa import Program, decode, encode
from openneutron.isa.kernels import combined
from tests.support import oracle
from tests.support.altered_programs import changed, refusal
from tests.support.excitation_graphs import ACTIVATIONS, between_layers, squeeze_excite

BLOCK = ["squeeze_excite_s8"]


@pytest.mark.parametrize("gate", ["logistic", ""])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_one_call_of_the_same_bytes(activation: str, gate: str) -> None:
    made = oracle.assert_bit_exact(squeeze_excite(len(activation), activation, gate))
    assert oracle.kernels_of(made) == BLOCK


@pytest.mark.parametrize(("shape", "hidden"), [((1, 1, 1, 3), 1), ((1, 17, 2, 40), 130), ((1, 3, 9, 8), 8)])
def test_channels_of_any_count(shape: tuple[int, ...], hidden: int) -> None:
    made = oracle.assert_bit_exact(squeeze_excite(1, "gelu", "logistic", shape, hidden))
    assert oracle.kernels_of(made) == BLOCK


@pytest.mark.parametrize("outputs", [("z", "m"), ("z", "first"), ("z", "second")])
def test_results_that_another_operator_reads_stay(outputs: tuple[str, ...]) -> None:
    made = oracle.assert_bit_exact(squeeze_excite(2, "gelu", outputs=outputs))
    kernels = [call.kernel for call in made.report.operators]
    assert ("excitation_s8" in kernels) == (outputs[1] == "second")


def test_the_image_is_either_operand() -> None:
    made = oracle.assert_bit_exact(squeeze_excite(7, turned=True))
    assert oracle.kernels_of(made) == BLOCK


@pytest.mark.parametrize("outputs", [("z", "second/logistic"), ("second/logistic", "z")])
def test_a_gate_that_another_operator_reads_is_multiplied_apart(outputs: tuple[str, ...]) -> None:
    made = oracle.assert_bit_exact(squeeze_excite(8, outputs=outputs))
    assert oracle.kernels_of(made) == ["excitation_s8", "mul_s8"]


@pytest.mark.without_tiles("the memory of the NPU has constants too")
def test_the_product_is_in_place() -> None:
    """The image is scratch here, and nothing else reads it."""
    graph = squeeze_excite(9)
    image = oracle.activation("image", graph["x"].shape, 0.05, 3)
    nodes = [Node("gelu", ("image",), ("x",), {"approximate": False}), *graph.nodes]
    chain = oracle.graph_of([image], nodes, list(graph.tensors.values()))
    options = CompileOptions(io_place="caller")
    made = oracle.assert_bit_exact(chain, options=options)
    assert oracle.kernels_of(made) == ["lookup_s8", *BLOCK]
    assert made.report.arena_bytes < 2 * image.size_bytes


def test_several_images_stay_apart() -> None:
    made = oracle.assert_bit_exact(squeeze_excite(3, shape=(2, 4, 4, 8)))
    assert "excitation_s8" not in [call.kernel for call in made.report.operators]


@pytest.mark.parametrize("fetch", [False, True])
def test_within_the_smallest_budget(fetch: bool) -> None:
    graph = squeeze_excite(4, "hard_swish", shape=(1, 8, 8, 32), hidden=48)
    options = CompileOptions(sram_budget=oracle.least_budget(graph, fetch), prefetch_constants=fetch, check=True)
    inputs = oracle.random_inputs(graph, 2)
    oracle.assert_fits_and_is_exact(graph, options, inputs, oracle.reference_outputs(graph, inputs))


def test_between_layers_within_budgets() -> None:
    graph = between_layers(10)
    inputs = oracle.random_inputs(graph, 2)
    want = oracle.reference_outputs(graph, inputs)
    least, whole = oracle.least_budget(graph), compile_graph(graph, oracle.TARGET).report
    kernels = []
    for budget in (least, (least + whole.sram_bytes) // 2, whole.sram_bytes):
        made = oracle.assert_fits_and_is_exact(graph, CompileOptions(sram_budget=budget, check=True), inputs, want)
        kernels.append({call.kernel for call in made.report.operators})
    assert least < whole.sram_bytes
    assert kernels[-1].issuperset(BLOCK)


@pytest.mark.parametrize(
    ("graph", "kernels"),
    [
        (between_layers(11), {"move_s8", "squeeze_excite_s8"}),
        (squeeze_excite(6, "gelu", outputs=("second/logistic", "z")), {"move_s8", "excitation_s8", "mul_s8"}),
    ],
    ids=["in one call", "in two"],
)
def test_in_tiles_of_external_memory(graph: Graph, kernels: set[str]) -> None:
    made = compile_graph(graph, targets.get("imx95").with_sram(16), CompileOptions(check=True))
    inputs = oracle.random_inputs(graph, 2)
    for got, want in zip(oracle.simulated_outputs(made, inputs), oracle.reference_outputs(graph, inputs), strict=True):
        np.testing.assert_array_equal(got, want)
    assert kernels <= {call.kernel for call in made.report.operators}


@pytest.mark.without_tiles("the programs differ in the number of transfers, too")
def test_the_cycles_are_those_of_the_parts_with_one_dispatch() -> None:
    graph = squeeze_excite(5, "gelu")
    kept = dataclasses.replace(graph, outputs=(*graph.outputs, "m", "first", "first/gelu", "second"))
    together, apart = (compile_graph(each, oracle.TARGET).report for each in (graph, kept))
    dispatches = len(apart.operators) - len(together.operators)
    issue = int(oracle.TARGET.costs.issue_cycles.value)
    assert dispatches == 5 and together.cycles == apart.cycles - dispatches * issue
    assert together.macs == apart.macs


@pytest.mark.parametrize(("outputs", "kernel"), [(("z",), BLOCK[0]), (("second/logistic", "z"), "excitation_s8")])
def test_the_driver_refuses_words_that_a_part_would_refuse(outputs: tuple[str, ...], kernel: str) -> None:
    program: Program = compile_graph(squeeze_excite(6, "gelu", outputs=outputs), oracle.TARGET).program
    code = decode(program)
    (place,) = (at for at, each in enumerate(code.operators) if each.row.name == kernel)
    call = code.operators[place]

    def verdict(**words: int) -> str:
        operators = (*code.operators[:place], changed(call, **words), *code.operators[place + 1 :])
        return refusal(encode(dataclasses.replace(code, operators=operators), program.weights))

    words = {field.name for field in call.row.fields}
    assert verdict() == "accepted"
    assert verdict(work=3) == verdict(work=-1) == "CALL"
    assert (
        verdict(squeezed=call["hidden"]) == verdict(hidden=call["squeezed"]) == verdict(hidden=call["input"]) == "CALL"
    )
    assert verdict(first_table_offset=1 << 30) == verdict(second_table_base=1 << 30) == "CALL"
    assert verdict(first_table_offset=1 << 30, first_tabled=0) == "accepted"
    for part in combined.PARTS:
        for word in ("output_shift", "weights_offset", "group_inputs", "clamp_min", "stride_h"):
            if f"{part.prefix}{word}" in words:
                assert verdict(**{f"{part.prefix}{word}": 1 << 20}) == "CALL", (part, word)
