# SPDX-License-Identifier: BSD-3-Clause
"""Processors without an NPU: the same programs, with a cost model and memory regions of their own."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench import boards
from openneutron import litert, targets
from openneutron.compiler import Compiled, CompileOptions, compile_graph
from openneutron.compiler.cost.cycles import FILE, issue_cycles, table
from openneutron.compiler.rewrite.jobs import RECURRENT
from openneutron.device.simulator import Simulator
from openneutron.errors import BudgetError, InvalidOptionError, InvalidTargetError
from openneutron.ir import Graph
from openneutron.isa import decode
from openneutron.isa import rows as isa_rows
from openneutron.isa.kernels.row import CostClass
from openneutron.isa.rows import BASES, KERNELS
from openneutron.options import CALLER, region_bytes
from openneutron.targets.target import DSP, HELIUM, NEON, PORTABLE
from tests.fuzz import cpus
from tests.support.chip_files import three_regions
from tests.support.oracle import random_inputs, reference_outputs, simulated_outputs

KIB = 1024


@pytest.fixture(scope="module")
def vww(shared_models: Path) -> Graph:
    return litert.read(shared_models / "mlperf_tiny_vww96_int8.tflite").graph


def compiled(graph: Graph, name: str, **options: object) -> Compiled:
    return compile_graph(graph, targets.get(name), CompileOptions(target=name, **options))  # type: ignore[arg-type]


def assert_equal_to_litert(graph: Graph, result: Compiled) -> None:
    inputs = random_inputs(graph, 0)
    wanted = reference_outputs(litert.write(graph), inputs)
    for got, want in zip(simulated_outputs(result, inputs), wanted, strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", targets.CPUS)
@pytest.mark.parametrize("model", ["mlperf_tiny_kws_int8", "mlperf_tiny_ad01_int8"])
def test_every_processor_computes_what_litert_does(model: str, name: str, shared_models: Path) -> None:
    graph = litert.read(shared_models / f"{model}.tflite").graph
    result = compiled(graph, name)
    assert_equal_to_litert(graph, result)
    # Weights stay where they are: nothing is copied in a run.
    assert (result.report.fetched_bytes, result.report.copy_cycles) == (0, 0)


def test_each_instruction_set_has_instructions() -> None:
    known = json.loads(FILE.read_text())
    sets = {cpu.instruction_set.value[0] for name in targets.CPUS if (cpu := targets.get(name).cpu) is not None}
    assert sets <= set(known) <= {PORTABLE, DSP, HELIUM, NEON}
    kernels = {row.name for row in KERNELS} | {kind.name for kind in CostClass}
    for name in known:
        found = table(name)
        assert {kernel.removesuffix(":1") for kernel in found} <= kernels and {
            "conv_2d_s8",
            "depthwise_conv_2d_s8",
            CostClass.UNKNOWN.name,
        } <= set(found)
        # A recurrent kernel leaves products to jobs, and has fewer instructions for each.
        least = {kernel: min(each[:4] if kernel in RECURRENT.values() else each) for kernel, each in found.items()}
        assert all(least[kernel] >= 0 < max(each) for kernel, each in found.items())


REGIONS = {"dtcm": 20 * KIB, "sram": 40 * KIB}


@pytest.mark.parametrize("place", ["arena", CALLER])
def test_each_buffer_has_a_region(vww: Graph, place: str) -> None:
    sizes = REGIONS if place == "arena" else {"dtcm": 20 * KIB, "sram": 60 * KIB}
    result = compiled(vww, "cortex-m7", sram_budget=sizes, io_place=place)
    near, far = result.report.arena_bytes, result.report.prefetch_bytes
    outside = 0 if place == "arena" else 96 * 96 * 3 + 2
    assert 0 < near <= sizes["dtcm"] and 0 < far <= sizes["sram"] - outside
    assert {item.region for item in result.report.memory} == {"dtcm", "sram"}
    header = decode(result.program)
    assert (header.scratch_size, header.prefetch_size) == (near, far)
    bases = {BASES[buffer["base"] & 0xFF] for buffer in header.buffers}
    assert {"SCRATCH", "PREFETCH"} <= bases
    assert_equal_to_litert(vww, result)


def test_a_third_region_has_what_the_others_cannot_hold(vww: Graph, tmp_path: Path) -> None:
    target = targets.get(str(three_regions(tmp_path)))
    assert len(target.regions) == len(isa_rows.REGIONS) == targets.MOST_REGIONS
    sizes = {"dtcm": 20 * KIB, "sram": 16 * KIB, "psram": 60 * KIB}
    result = compile_graph(vww, target, CompileOptions(sram_budget=sizes, check=True))
    report, header = result.report, decode(result.program)
    found = report.arena_bytes, report.prefetch_bytes, report.far_bytes
    assert found == (header.scratch_size, header.prefetch_size, header.far_size) and sum(found) == report.sram_bytes
    assert all(0 < size <= most for size, most in zip(found, sizes.values(), strict=True))
    assert {item.region for item in report.memory} == set(sizes)
    assert_equal_to_litert(vww, result)
    more = {**sizes, "sram": 40 * KIB}
    assert compile_graph(vww, target, CompileOptions(sram_budget=more)).report.cycles < report.cycles
    with pytest.raises(BudgetError) as caught:
        compile_graph(vww, target, CompileOptions(sram_budget=dict.fromkeys(sizes, 12 * KIB)))
    assert str(caught.value).startswith(
        f"'{vww.name}': its buffers do not fit 12.0 KiB (12288 bytes) of dtcm, 12.0 KiB (12288 bytes) of sram and 12.0 KiB (12288 bytes) "
        "of psram; in one region they take 27.4 KiB (28032 bytes). Give psram at least 28 KiB"
    )


def test_one_number_is_shared_among_regions_the_fastest_first(vww: Graph) -> None:
    target = targets.get("cortex-m7")
    assert region_bytes(None, target) == (128 * KIB, 512 * KIB)
    assert region_bytes(200 * KIB, target) == (128 * KIB, 72 * KIB)
    assert region_bytes((("sram", KIB),), target) == (0, KIB)
    whole = compiled(vww, "cortex-m7").report
    assert (whole.arena_bytes, whole.prefetch_bytes) == (54 * KIB, 0)
    slow = compiled(vww, "cortex-m7", sram_budget={"sram": 60 * KIB}).report
    assert (slow.arena_bytes, slow.prefetch_bytes) == (0, 54 * KIB)
    assert 1.001 * whole.cycles < slow.cycles < 1.1 * whole.cycles


def test_buffers_that_no_division_fits_are_an_error(vww: Graph) -> None:
    with pytest.raises(BudgetError) as caught:
        compiled(vww, "cortex-m7", sram_budget={"dtcm": 14 * KIB, "sram": 14 * KIB})
    assert caught.value.least_bytes == 28032
    assert str(caught.value) == (
        f"'{vww.name}': its buffers do not fit 14.0 KiB (14336 bytes) of dtcm and 14.0 KiB (14336 bytes) of sram; in one region they "
        "take 27.4 KiB (28032 bytes). Give sram at least 28 KiB with --sram-budget, or a smaller input."
    )
    assert compiled(vww, "cortex-m7", sram_budget=28032).report.sram_bytes == 28032
    with pytest.raises(BudgetError) as caught:
        compile_graph(cpus.graph_of(42), cpus.target_of(42), CompileOptions(io_place=CALLER))
    assert str(caught.value) == (
        "'main': its buffers do not fit 0.4 KiB (407 bytes) of dtcm and 0.0 KiB (0 bytes) of sram; in one region they take 0.7 KiB "
        "(736 bytes) beside the 2.6 KiB (2665 bytes) of the caller's buffers and of states. The largest region of cortex-m85 has 2 KiB: "
        "give the model a target with more memory, or a smaller input."
    )


def test_a_region_that_the_target_lacks_is_an_error(vww: Graph) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        compiled(vww, "cortex-m7", sram_budget={"dtmc": KIB})
    assert str(caught.value) == ("sram_budget: cortex-m7 has no region 'dtmc'; it has dtcm, sram. Did you mean 'dtcm'?")
    with pytest.raises(InvalidOptionError) as caught:
        compiled(vww, "cortex-m7", sram_budget={"dtcm": 129 * KIB})
    assert str(caught.value) == "sram_budget: it is 129 KiB of dtcm; cortex-m7 has 128 KiB. Give at most that."
    with pytest.raises(InvalidOptionError) as caught:
        CompileOptions(sram_budget={"dtcm": 0})
    assert str(caught.value) == "sram_budget of dtcm: it is 0 bytes; a budget is above 0."
    with pytest.raises(BudgetError):
        compiled(vww, "cortex-m7", sram_budget={"dtcm": 4 * KIB, "sram": 4 * KIB})
    with pytest.raises(BudgetError):  # less than the caller's buffers
        compiled(vww, "cortex-m7", sram_budget={"dtcm": 4 * KIB, "sram": 4 * KIB}, io_place=CALLER)


@pytest.mark.parametrize("chip", targets.NPUS)
def test_the_host_core_of_each_chip_is_a_target(vww: Graph, chip: str) -> None:
    options = CompileOptions(target=chip, npu="none")
    assert options.target == f"{chip}-cpu" and CompileOptions(target="cortex-m7", npu="none").target == "cortex-m7"
    host, npu = targets.get(options.target), targets.get(chip)
    assert host.cpu is not None and host.clock == npu.host.clock and host.obstacle is None
    assert targets.with_checksum(targets.checksum(host.name)) == host
    result = compile_graph(vww, host, options)
    assert_equal_to_litert(vww, result)
    assert result.report.cycles / host.clock.value > 2 * compile_graph(vww, npu).report.cycles / npu.clock.value


def test_options_with_regions_survive_json() -> None:
    options = CompileOptions(sram_budget=REGIONS)
    assert options.sram_budget == (("dtcm", 20 * KIB), ("sram", 40 * KIB))
    assert CompileOptions.from_dict(json.loads(json.dumps(options.to_dict()))) == options


def test_a_processor_has_no_facts_of_an_npu(tmp_path: Path) -> None:
    text = targets.CPUS["cortex-m33"].read_text().replace('name = "cortex-m33"', 'name = "mine"')
    path = tmp_path / "mine.toml"
    path.write_text(text + "\n[npu]\n")
    with pytest.raises(InvalidTargetError) as caught:
        targets.get(str(path))
    assert str(caught.value).endswith("npu: it is unknown. Did you mean 'cpu'?")
    path.write_text(text.replace('value = ["dsp"]', 'value = ["sse"]'))
    with pytest.raises(InvalidTargetError) as caught:
        targets.get(str(path))
    assert "cpu.instruction_set: its value is ['sse']; it is a list of words from portable, dsp, helium, neon." in str(
        caught.value
    )


def test_the_cycles_of_an_instruction_are_those_of_published_boards() -> None:
    """``python -m bench boards`` states what the figures are."""
    for core, value in boards.instruction_cycles().items():
        cpu = targets.get(core).cpu
        assert cpu is not None and cpu.instruction_cycles.value == round(value, 2)
    errors = [abs(error) for error in boards.left_out().values()]
    assert len(errors) == 8 and max(errors) < 0.13
    assert round(100 * sum(errors) / 8) == 6


def test_threads_share_each_call(vww: Graph) -> None:
    """The largest share of a call, the start of the threads, and the memory that they share; calls of little work are not divided."""
    options = [CompileOptions(target="cortex-a55", threads=count) for count in (1, 2, 4)]
    one, two, four = (compile_graph(vww, targets.get(each.target), each) for each in options)
    assert options[2].target == "cortex-a55-4-threads" and targets.with_checksum(
        decode(four.program).target
    ) == targets.get("cortex-a55-4-threads")
    assert one.report.cycles > 1.4 * two.report.cycles > 1.4 * 1.3 * four.report.cycles
    start = 3 * 1800
    issue = issue_cycles(one.schedule.calls[0].row, targets.get("cortex-a55"))
    whole, shared = (made.report.operators for made in (one, four))
    assert [item.kernel for item in whole] == [item.kernel for item in shared]
    (first, *_), (its, *_) = whole, shared
    assert its.cycles - issue == -(-(first.cycles - issue) // 4) + start  # 48 rows, 12 for each thread
    assert whole[-1].cycles == shared[-1].cycles  # a softmax of two values
    inputs = random_inputs(vww, 2)
    with Simulator(four.program, threads=4) as simulator:
        got = simulator.run(inputs)
    for data, want in zip(got, reference_outputs(litert.write(vww), inputs), strict=True):
        np.testing.assert_array_equal(data.view(want.dtype), want.ravel())


def test_threads_in_little_memory(vww: Graph) -> None:
    target = targets.get("cortex-a55-4-threads")
    with pytest.raises(BudgetError) as caught:
        compile_graph(vww, target, CompileOptions(sram_budget=KIB))
    small = compile_graph(vww, target, CompileOptions(sram_budget=caught.value.least_bytes))
    assert small.report.cycles > compile_graph(vww, target).report.cycles


def test_a_target_without_threads_is_an_error() -> None:
    with pytest.raises(InvalidTargetError) as caught:
        CompileOptions(target="cortex-m33", threads=2)
    assert str(caught.value) == (
        "Target `cortex-m33` has no threads that share a kernel call. Compile for it without threads, or for a core such as cortex-a55."
    )
    with pytest.raises(InvalidTargetError) as caught:
        CompileOptions(target="cortex-a55", threads=8)
    assert str(caught.value) == "Target `cortex-a55` has 6 cores; 8 threads share them. Give at most 6."
    with pytest.raises(InvalidOptionError) as wrong:
        CompileOptions(target="cortex-a55", threads=0)
    assert str(wrong.value) == "threads: it is 0; it is a number of threads from 1 to 16."
    driver = CompileOptions(target="imx95", converter="driver", threads=6)
    assert driver.target == replace(driver, sram_budget=KIB).target == "imx95-driver-6-threads"
    assert targets.get(driver.target).thread_count == 6
