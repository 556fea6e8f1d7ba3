# SPDX-License-Identifier: BSD-3-Clause
"""Operators that the NPU can't run become kernel calls of the host core in the same program."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import openneutron
from openneutron import litert, targets
from openneutron.compiler import CompileOptions, compile_graph
from openneutron.compiler.cost.cycles import call_cost, cpu_rows, host_of, table
from openneutron.compiler.legalize.partition import partition, type_reason
from openneutron.compiler.rewrite.passes import select_calls
from openneutron.device.mixed import CompiledFile, FileSimulator, compile_file
from openneutron.errors import InvalidModelError, InvalidOptionError
from openneutron.features.explorer.nodes import nodes_of, nodes_of_report
from openneutron.features.profile.profile import modelled, profile_table
from openneutron.features.profile.timeline import Kind, Track, timeline
from openneutron.features.report import of_compiled_file
from openneutron.features.report.loaded import loaded_table
from openneutron.features.report.page.collect import report_data
from openneutron.features.report.page.graph import graph_table
from openneutron.features.report.text import explanation, one_line, plain, summary_rows
from openneutron.ir import Node
from openneutron.isa import decode, listing
from openneutron.isa.rows import KERNELS
from openneutron.targets import Target
from tests.support import oracle
from tests.support.host_calls import CHIP, REASON, with_wide_middle
from tests.support.random_wide import several


def compiled(host_calls: bool = True, **options: object) -> CompiledFile:
    given = CompileOptions(target=CHIP, host_calls=host_calls, **options)  # type: ignore[arg-type]
    return compile_file(litert.read(litert.write(with_wide_middle())), "net.tflite", given)


def int8_alone(name: str) -> Target:
    """Return a chip whose NPU computes on int8 alone."""
    chip = targets.get(name)
    return replace(chip, npu=replace(chip.npu, data_types=replace(chip.npu.data_types, value=("int8",))))


def test_a_network_that_was_cut_is_one_program_with_the_same_bytes() -> None:
    cut, whole = compiled(False), compiled()
    assert [len(made.parts) for made in (cut, whole)] == [2, 1]
    assert [item.reason for item in cut.partitioning.on_cpu] == [REASON] * 3
    assert whole.partitioning.on_cpu == ()
    inputs = oracle.random_inputs(with_wide_middle(), 1)
    want = oracle.reference_outputs(with_wide_middle(), inputs)
    for made in (cut, whole):
        np.testing.assert_array_equal(FileSimulator(made.to_bytes()).run(inputs)[0], want[0])


def test_the_report_shows_calls_of_the_host_core_with_their_reason() -> None:
    summary = of_compiled_file(compiled())
    calls = summary.partitions[0].report.operators
    assert {item.name: item.on_cpu for item in calls} == {
        "first": "", "to_int16": REASON, "middle": REASON, "to_int8": REASON, "last": "",
    }  # fmt: skip
    assert (summary.cpu_calls, summary.host_operators_not_modelled) == (3, 0)
    assert summary.npu_cycles + summary.cpu_call_cycles == summary.cycles == sum(item.cycles for item in calls)
    assert summary.cpu_call_macs == 9 * 8 * 8 * 8 * 8
    assert one_line(summary).startswith("net.tflite for mcxn94x: 5 of 5 operators in the program, ")
    text = plain(explanation(summary, False))
    assert "In the program  5 of 5 operators, in 1 partition of 2 NPU calls and 3 CPU calls\n" in text
    assert (
        f"On the CPU, in the program\ncalls    name                         why\n    3    to_int16, middle, to_int8    {REASON}.\n"
        in text
    )


def test_a_program_without_the_npu_has_a_warning() -> None:
    x, y = oracle.wide_activation("x", (1, 4, 4, 8)), oracle.wide_activation("y", (1, 4, 4, 8))
    graph = oracle.graph_of([x], [Node("add", ("x", "x"), ("y",), {"activation": "NONE"})], [y])
    made = compile_file(litert.read(litert.write(graph)), "net.tflite", CompileOptions(target=CHIP))
    rows = dict(summary_rows(of_compiled_file(made)))
    assert rows["Warning"] == f"all of the program is on the CPU: {REASON}"
    assert rows["In the program"] == "1 of 1 operator, in 1 partition of 0 NPU calls and 1 CPU call"


def test_the_page_and_the_explorer_show_the_place() -> None:
    made = compiled()
    data = report_data(of_compiled_file(made), made.to_bytes())
    assert [node.reason for node in data.graph if node.layer is not None] == ["", REASON, REASON, REASON, ""]
    (finding,) = [row for row in data.section("findings") if row.label == "Kernel calls on the host core"]
    assert finding.text.startswith("3 layers ('middle', 'to_int8', 'to_int16') take 93% ")
    assert finding.text.endswith(f"of the latency on the CPU, in the program: {REASON}.")
    text = graph_table(data, "Graph")
    assert text.count('<td class="where">CPU, in NPU 0</td>') == 3 and text.count('<td class="where">NPU 0</td>') == 2
    assert [node.attributes.get("why on the CPU") for node in nodes_of_report(data)[1:-1]] == [
        None, REASON, REASON, REASON, None,
    ]  # fmt: skip
    for layer in data.layers:
        assert layer.compute_cycles + layer.memory_cycles + layer.dispatch_cycles == layer.cycles


def test_a_loaded_file_has_the_same_parts_of_the_latency(tmp_path: Path) -> None:
    made = compiled()
    path = tmp_path / "net.tflite"
    path.write_bytes(made.to_bytes())
    loaded, summary = openneutron.load(path).report, of_compiled_file(made)
    assert loaded.latency is not None
    assert (loaded.latency.npu_cycles, loaded.latency.cpu_call_cycles) == (summary.npu_cycles, summary.cpu_call_cycles)
    assert "1 delegate call, 2 NPU calls and 3 CPU calls" in plain(loaded_table(loaded))
    nodes = [node.attributes.get("runs on") for node in nodes_of(path) if "cycles" in node.attributes]
    assert nodes == [None, *["CPU, in the program"] * 3, None]


def test_listing_profile_and_timeline_show_the_place() -> None:
    made = compiled(profile=True)
    target, program = targets.get(CHIP), made.parts[0].program
    code = decode(program)
    marked = [line.split(":")[0] for line in listing(code, cpu_rows(target)).splitlines() if "(on the CPU)" in line]
    assert marked == [
        "operator 1 to_int16 (on the CPU)", "operator 2 middle (on the CPU)", "operator 3 to_int8 (on the CPU)",
    ]  # fmt: skip
    slices = timeline(code, list(code.names), target)
    kernels = [(item.track, item.name) for item in slices if item.kind is Kind.KERNEL]
    assert [name for track, name in kernels if track is Track.HOST] == ["to_int16", "middle", "to_int8"]
    assert [name for track, name in kernels if track is Track.NPU] == ["first", "last"]
    assert max(item.end for item in slices) == code.cycles
    profile = modelled("net.tflite", [("net", program)], target)
    assert profile.cpu_call_cycles == of_compiled_file(made).cpu_call_cycles > 0
    assert profile.latency.cycles == code.cycles
    assert [line.split()[2] for line in plain(profile_table(profile, "layer")).splitlines()[-5:]] == [
        "NPU", "CPU", "CPU", "CPU", "NPU",
    ]  # fmt: skip


@pytest.mark.parametrize("ratio", [1.0, 0.5])
def test_a_call_costs_what_the_host_core_takes(ratio: float) -> None:
    chip = targets.get(CHIP)
    clock = replace(chip.host.clock, value=chip.clock.value / ratio)
    target = replace(chip, host=replace(chip.host, clock=clock))
    host = targets.host_beside(target)
    assert host is not None and host.cpu is not None
    _, calls = select_calls(with_wide_middle())
    for call in calls:
        cost = call_cost(call, target)
        if host_of(call.row, target) is None:
            assert cost == call_cost(call, chip)
            continue
        alone = call_cost(replace(call), host)
        assert cost.cycles == pytest.approx(alone.cycles * ratio, abs=2)
        rows = call.views["output"].extents[1]
        stripes = [call_cost(call, target, count).compute_cycles for count in (1, rows - 1)]
        assert sum(stripes) >= cost.compute_cycles
    assert sum(host_of(call.row, target) is not None for call in calls) == 3


def test_random_graphs_of_int16_are_equal_and_within_tight_budgets() -> None:
    target = targets.get(CHIP)
    for seed in range(6):
        graph = several(seed)
        inputs = oracle.random_inputs(graph, seed)
        want = oracle.reference_outputs(graph, inputs)
        least = oracle.least_budget(graph, target=target)
        for budget in (None, least):
            made = compile_graph(graph, target, CompileOptions(sram_budget=budget, check=True))
            assert not made.report.faults
            assert any(item.on_cpu for item in made.report.operators)
            for name, got, expected in zip(graph.outputs, oracle.simulated_outputs(made, inputs), want, strict=True):
                np.testing.assert_array_equal(got, expected, f"{name}, seed {seed}, budget {budget}")


def test_without_the_option_int16_leaves_the_program() -> None:
    graph, target = with_wide_middle(), targets.get(CHIP)
    reasons = [item.reason for item in partition(graph, (), target, host_calls=False).on_cpu]
    assert reasons == [REASON] * 3
    with pytest.raises(InvalidModelError) as caught:
        compile_graph(graph, target, CompileOptions(target=CHIP, host_calls=False))
    assert str(caught.value) == f"quantize 'to_int16': {REASON}."
    assert not CompileOptions(target=CHIP, converter="eiq").takes_int16
    with pytest.raises(InvalidOptionError) as refused:
        CompileOptions(converter="eiq", host_calls=False)
    assert str(refused.value) == (
        "host_calls: it is False; NXP's converter has no such option. Leave it out with converter='eiq'."
    )


def test_a_compile_with_other_operators_in_the_programs_is_a_new_one(tmp_path: Path) -> None:
    path = tmp_path / "net.tflite"
    path.write_bytes(litert.write(with_wide_middle()))
    whole = openneutron.compile(path, options=CompileOptions(target=CHIP))
    with pytest.raises(InvalidOptionError) as caught:
        whole.recompile(host_calls=False)
    assert str(caught.value) == (
        "host_calls: its operators of int16 are in the programs with True, and outside with False. Compile the model again."
    )
    cut = openneutron.compile(path, options=CompileOptions(target=CHIP, host_calls=False))
    with pytest.raises(InvalidOptionError) as caught:
        cut.recompile(target="imxrt700")
    assert str(caught.value) == (
        "target: its operators of int16 are in the programs with 'imxrt700', and outside with 'mcxn94x'. Compile the model again."
    )
    assert whole.recompile(sram_budget=whole.report.sram_bytes).buffer == whole.buffer


def test_no_host_core_reaches_the_memory_of_a_neutron_s() -> None:
    target, graph = int8_alone("imx95"), with_wide_middle()
    assert targets.host_beside(target) is None
    reason = partial(type_reason, graph, graph.nodes[1], target)
    words = "its activations are int16; imx95 computes on int8 activations"
    assert reason(True) == reason(False) == words


def test_wide_kernels_are_those_with_operands_of_int16() -> None:
    """Kernels whose states are of int16 run on every NPU."""
    names = {row.name for row in KERNELS if row.is_wide}
    assert {row.name for row in KERNELS if "s16" in row.name} == names


def test_the_instructions_of_wide_kernels_were_counted() -> None:
    known = {name.partition(":")[0] for name in table("dsp")}
    assert {row.name for row in KERNELS if row.is_wide} <= known
