# SPDX-License-Identifier: BSD-3-Clause
"""Figures of a compile as text and as data."""

from __future__ import annotations

import dataclasses
import json
import re

import pytest

from openneutron import litert, targets
from openneutron.compiler import CompileOptions
from openneutron.compiler.cost.estimate import calibration
from openneutron.device.mixed import compile_file
from openneutron.errors import BudgetError
from openneutron.features.report import Summary, of_compiled_file
from openneutron.features.report.latency import latency_text
from openneutron.features.report.table import count_text, duration_text, number_text, range_text, short_name, size_text
from openneutron.features.report.text import calls_table, memory_table, on_cpu_table, plain, summary_rows
from openneutron.features.sweep.command import sweep_table
from openneutron.ir.graph import OnCpu
from tests.support.litert_files import mixed_file
from tests.support.oracle import TARGET
from tests.support.random_images import image_graph


def summary(options: CompileOptions = CompileOptions()) -> Summary:
    return of_compiled_file(compile_file(litert.read(mixed_file()), "mixed.tflite", options), "out.tflite", 4800)


def test_totals_are_those_of_the_partitions() -> None:
    made = summary()
    first, second = (part.report for part in made.partitions)
    assert made.delegate_cycles == first.cycles + second.cycles
    assert (
        made.cycles == made.npu_cycles + made.copy_cycles + made.host_cycles == made.delegate_cycles + made.host_cycles
    )
    assert made.macs == first.macs + second.macs == 32256
    assert made.sram_bytes == max(first.sram_bytes, second.sram_bytes)
    assert made.weights_bytes == first.weights_bytes + second.weights_bytes
    assert made.milliseconds == pytest.approx(sum(part.milliseconds for part in made.latency.parts().values()))
    assert made.milliseconds > sum(report.estimate(TARGET).milliseconds for report in (first, second))
    assert made.utilisation == pytest.approx(32256 / (made.delegate_cycles * 64))
    assert made.operators == 9


def test_data_is_json_and_details_are_optional() -> None:
    made = summary()
    assert json.loads(json.dumps(made.to_dict())) == made.to_dict()
    assert "calls" not in made.to_dict()["partitions"][0]
    first = json.loads(json.dumps(made.to_dict(details=True)))["partitions"][0]
    assert len(first["calls"]) == first["kernel_calls"] == 2
    call = {
        "name",
        "kernel",
        "output",
        "macs",
        "cycles",
        "utilisation",
        "parallel",
        "bottleneck",
        "idle",
        "losses",
        "stripes",
    }
    moved = {"reads", "writes", "read_bytes", "written_bytes", "weights_bytes", "on_cpu", "is_exact"}
    times = {"modelled_milliseconds", "expected_milliseconds", "hangs_on"}
    assert call | moved | times | {"module"} == first["calls"][0].keys()
    assert {"name", "size_bytes", "offset", "first", "last", "rows_held", "rows", "region"} == first["memory"][0].keys()
    assert {"kind", "calls", "times", "cycles", "offset", "size_bytes"} == first["steps"][0].keys()


def test_sram_says_what_it_is_made_of() -> None:
    def sram(options: CompileOptions) -> str:
        return dict(summary_rows(summary(options)))["Peak SRAM"]

    assert sram(CompileOptions()) == "1.5 KiB of 7.50 MiB (0.0 %): arena 1.5 KiB, input and output inside"
    outside = sram(CompileOptions(io_place="caller", sram_budget=4096))
    assert outside == "1.7 KiB of 4.0 KiB (42.2 %): arena 512 B, input and output 1.2 KiB"
    fetched = sram(CompileOptions(io_place="caller", sram_budget=4096, prefetch_constants=True))
    assert fetched == "2.3 KiB of 4.0 KiB (58.6 %): arena 512 B, prefetch 672 B, input and output 1.2 KiB"


def test_the_time_is_shared_out_among_what_bounds_the_calls() -> None:
    made = summary(CompileOptions(prefetch_constants=True))
    issue = sum(call.cycles for part in made.partitions for call in part.report.operators)
    assert {call.bottleneck for part in made.partitions for call in part.report.operators} == {"dispatch"}
    shares = [f"{100 * cycles / made.delegate_cycles:.1f} %" for cycles in (issue, made.copy_cycles)]
    assert dict(summary_rows(made))["Bound by"] == f"dispatch {shares[0]}, copies {shares[1]} of the time"


def test_the_sum_of_run_and_weights_is_stated_where_they_share_a_memory() -> None:
    made = summary()
    assert made.total_sram_bytes == made.sram_bytes + made.weights_bytes == made.to_dict()["total_sram_bytes"]
    assert dict(summary_rows(made))["SRAM"] == "2.8 KiB of the chip's 7.50 MiB: a run 1.5 KiB, weights 1.3 KiB"
    for elsewhere in (CompileOptions(prefetch_constants=True), CompileOptions(target="mcxn94x")):
        made = summary(elsewhere)
        assert made.total_sram_bytes == made.sram_bytes and "SRAM" not in dict(summary_rows(made))


def test_a_model_on_the_cpu_has_no_latency() -> None:
    made = summary()
    more = dataclasses.replace(made, on_cpu=(*made.on_cpu, *(OnCpu("ADD", f"a{i}", "it is float") for i in range(9))))
    assert (made.is_on_cpu, more.is_on_cpu, more.to_dict()["is_on_cpu"]) == (False, True, True)
    assert summary_rows(more)[0] == (
        "Warning",
        "most of the model is on the CPU, 11 of 18 operators: for 9 of them, it is float",
    )
    assert dict(summary_rows(more))["Latency"] == (
        "not known: 11 of 18 operators are on the CPU, whose time is not modelled"
    )
    alone = dataclasses.replace(more, partitions=(), delegated=(), on_cpu=more.on_cpu[-9:])
    assert summary_rows(alone)[0] == ("Warning", "all of the model is on the CPU, 9 of 9 operators: it is float")
    point = {
        "state": "done",
        "options": {"activations": "int16"},
        "sram_bytes": 0,
        "total_sram_bytes": 0,
        "modelled_ms": alone.milliseconds,
        "expected_ms": list(alone.band),
        "is_on_cpu": alone.is_on_cpu,
        "host_operators_not_modelled": alone.host_operators_not_modelled,
        "file_bytes": 1024,
        **dict.fromkeys(("npu_cycles", "copy_cycles", "host_cycles"), 0),
    }
    assert plain(sweep_table("net: 1 point, in net.sqlite", [point])).splitlines()[1:] == [
        "SRAM       time     file",
        " 0 B  not known  1.0 KiB  too much of the model is on the CPU",
    ]
    point |= {"is_on_cpu": False, "modelled_ms": 2.5, "expected_ms": [2.1, 3.0], "host_operators_not_modelled": 1}
    shown = plain(sweep_table("net: 1 point, in net.sqlite", [point])).splitlines()[2]
    assert shown == " 0 B  at least 2.50 ms (2.1 to 3.0)  1.0 KiB"
    costly = dataclasses.replace(made, on_cpu=(*made.on_cpu, OnCpu("CONV_2D", "d", "it is float", macs=4000)))
    label, words = summary_rows(costly)[0]
    assert label == "Warning" and words.startswith(
        "11.0 % of the MACs are on the CPU, in 3 of 10 operators: for 1 of them, "
    )
    assert dict(summary_rows(costly))["Latency"] == (
        "not known: 3 of 10 operators, with 11.0 % of the MACs, are on the CPU, whose time is not modelled"
    )


def test_an_npu_has_one_row_of_its_operators() -> None:
    """The row of matrix products that NXP's driver computes is for programs of the CPU beside this NPU."""
    labels = [label for label, _ in summary_rows(summary(CompileOptions(target="imx95")))]
    assert labels.count("On the NPU") == 1


def test_weights_say_whether_the_budget_holds_them() -> None:
    def weights(made: Summary) -> str:
        return dict(summary_rows(made))["Weights"]

    assert weights(summary(CompileOptions(prefetch_constants=True))) == "1.3 KiB in flash, fetched ahead of use"
    made = summary()
    assert weights(made) == "1.3 KiB beside the budget, in memory that the NPU reads"
    assert weights(with_weights(made, 7680 * 1024 - 768)) == "7.50 MiB beside the budget, in memory that the NPU reads"


def with_weights(made: Summary, size: int) -> Summary:
    """Return the summary's first partition alone, with this many bytes of weights."""
    large = dataclasses.replace(made.partitions[0].report, weights_bytes=size)
    return dataclasses.replace(made, partitions=(dataclasses.replace(made.partitions[0], report=large),))


def test_weights_that_the_sram_does_not_hold_are_counted_as_copied() -> None:
    size = 7680 * 1024 - 752
    made = with_weights(summary(), size)
    (part,) = made.partitions
    copies = int(size / targets.get(CompileOptions().target).copy_engine.rate.value)
    assert (made.weights_fit, made.copy_cycles, made.delegate_cycles) == (False, copies, part.report.cycles + copies)
    assert made.total_sram_bytes == made.sram_bytes and "SRAM" not in dict(summary_rows(made))
    assert made.overlapped_cycles == made.cycles
    data = made.to_dict()
    assert (data["weights_fit_sram"], data["modelled_cycles"]) == (False, made.cycles)
    assert data["modelled_milliseconds"] == made.milliseconds > data["partitions"][0]["modelled_milliseconds"]
    rows = dict(summary_rows(made))
    assert rows["Latency"] == "at least 30.98 ms (21 to 45) at 324 MHz, estimated"
    assert (
        rows["Time on"]
        == "NPU 24 us (14 to 40), copies 30.91 ms (21 to 45), host 51 us (29 to 87), not modelled: 2 operators on the CPU"
    )
    assert rows["Copies"] == (
        "30.91 ms (21 to 45) from flash: the chip's 7.50 MiB of SRAM do not hold weights and run together"
    )
    assert rows["Weights"] == "7.50 MiB in flash, since they do not fit the chip's SRAM"
    assert rows["Bound by"].startswith("copies 99.9 %")


@pytest.mark.parametrize(
    ("name", "memory"), [("imxrt700", "flash of 1.0 KiB"), ("mcxn94x", "flash of 1.0 KiB"), ("imx95", "ddr of 1.0 KiB")]
)
def test_constants_that_the_chip_does_not_hold(name: str, memory: str) -> None:
    made = summary(CompileOptions(target=name))
    assert made.constants_fit and "does not hold" not in dict(summary_rows(made))["Weights"]
    chip = targets.get(name)
    home = chip.constants_home
    little = dataclasses.replace(home, size=dataclasses.replace(home.size, value=1))
    chip = dataclasses.replace(chip, memories=tuple(little if each is home else each for each in chip.memories))
    made = dataclasses.replace(made, target=chip)
    assert not made.constants_fit
    assert dict(summary_rows(made))["Weights"].endswith(f"; the chip's {memory} does not hold them")
    assert made.to_dict()["constants_fit_chip"] is False


@pytest.mark.parametrize("name", targets.names())
def test_every_target_states_its_band_its_assumptions_and_bottlenecks_that_add_up(name: str) -> None:
    """The shares are rounded to 0.1 %. Copies beside the kernels are no part of them."""
    target = targets.get(name)
    made = summary(CompileOptions(target=name))
    rows = dict(summary_rows(made))
    clock = f"{target.clock.value:g} MHz, estimated"
    assert made.band[0] < made.milliseconds < made.band[1]
    assert rows["Latency"] == f"at least {range_text(made.milliseconds, *made.band)} at {clock}"
    known = dataclasses.replace(made.latency, host=())
    assert latency_text(known) == f"{range_text(known.milliseconds, *known.band)} at {clock}"
    assert rows["Range"].startswith("for NXP's software since 2025; hangs most on the ") and rows["Range"].endswith(")")
    assert made.latency.estimate.fact in {place for place, _, _ in target.facts()}
    assert rows["Assumed"] == f"{target.assumption}; `openneutron targets` lists them"
    assert ("in parallel to the kernels, which wait " in rows.get("Copies", "")) == target.moves_tiles
    data = made.to_dict()
    assert (data["assumed"], data["expected_milliseconds"]) == (list(target.assumed), list(made.band))
    shares = [float(share) for share in re.findall(r"([\d.]+) %", rows["Bound by"])]
    assert abs(sum(shares) - 100) < 0.1 * len(shares)


def test_nothing_on_the_npu_has_no_figures() -> None:
    none = dataclasses.replace(summary(), delegated=(), partitions=(), host=(), file=None)
    assert summary_rows(none) == [("On the NPU", "0 of 4 operators")]
    assert (none.milliseconds, none.utilisation, none.sram_bytes) == (0.0, 0.0, 0)


def test_operators_on_the_cpu_have_a_row_for_each_reason() -> None:
    alike = [OnCpu("GATHER", f"g{i}", "there is no kernel for GATHER", "Do without.") for i in range(4)]
    many = [*alike, *(OnCpu("ADD", f"a{i}", f"input {i} is float32") for i in range(14))]
    short = plain(on_cpu_table(many, 12)).splitlines()
    assert short[2].split("  ")[0] == "GATHER (4 operators)"
    assert "g0, g1, 2 more" in short[2] and "there is no kernel for GATHER. Do without." in short[2]
    assert short[-1] == "... and 3 more; `openneutron explain` lists all."
    assert len(short) == 15
    whole = plain(on_cpu_table(many)).splitlines()
    assert "g0, g1, g2, g3" in whole[2] and len(whole) == 17
    assert whole[-1].split() == "ADD a13 input 13 is float32.".split()  # noqa: SIM905


def test_calls_of_a_partition() -> None:
    assert plain(calls_table(summary().partitions[1], TARGET)) == (
        "Partition 1: 2 kernel calls, modelled\n"
        "operator  kernel      output     MACs  cycles                time  hangs on             share   used  parallel  bound by\n"
        "s         add_s8      1x8x8x8           5,106  9.9 us (4.6 to 22)  costs.issue_cycles  48.5 %         bytes     dispatch\n"
        "e         conv_2d_s8  1x8x8x3  13.8 k   5,418   11 us (5.5 to 22)  costs.issue_cycles  51.5 %  4.0 %  columns   dispatch\n"
        "Less than half of the multipliers at work\n"
        "  its dispatch takes longer than computing:\n"
        "    e\n"
        "  multipliers wait for their operands:\n"
        "    e\n"
    )


def test_memory_of_a_partition() -> None:
    assert plain(memory_table(summary().partitions[0])) == (
        "Partition 0: arena of 768 B, the lower bound of these buffers\n"
        "address   bytes  buffer  steps  0 to 2\n"
        "0x000000    512  c         0-2  ###\n"
        "0x000200    256  q         0-0  #..\n"
        "0x000200    128  p         1-2  .##\n"
    )


def test_memory_of_a_chip_with_tiles_has_loads_stores_and_constants() -> None:
    part = summary(CompileOptions(target="imx95")).partitions[0]
    lines = plain(memory_table(part)).splitlines()
    assert lines[0].endswith(f"above the lower bound of {size_text(part.report.bound_bytes)} without constants")
    rows = [line.split() for line in lines[2:]]
    end = max(int(row[0], 16) + int(row[1].replace(",", "")) for row in rows)
    assert part.report.arena_bytes - 16 < end <= part.report.arena_bytes
    assert {row[3] for row in rows if row[3].startswith("(")} == {"(load)", "(store)", "(constants)"}


def test_tables_on_a_narrow_terminal() -> None:
    part = summary().partitions[1]
    assert plain(calls_table(part, TARGET), 60).splitlines()[1:5] == [
        "operator  kernel      cycles                time   used",
        "s         add_s8       5,106  9.9 us (4.6 to 22)",
        "e         conv_2d_s8   5,418   11 us (5.5 to 22)  4.0 %",
        "Too wide for this terminal: output, MACs, hangs on, share,",
    ]
    names = ("conv1/very/long/name/Relu", "conv2/very/long/name/Relu")
    named = [dataclasses.replace(call, name=name) for call, name in zip(part.report.operators, names, strict=True)]
    longer = dataclasses.replace(part, report=dataclasses.replace(part.report, operators=tuple(named)))
    assert plain(calls_table(longer, TARGET), 58).splitlines()[1:4] == [
        "operator            kernel      cycles                time",
        ".../long/name/Relu  add_s8       5,106  9.9 us (4.6 to 22)",
        ".../long/name/Relu  conv_2d_s8   5,418   11 us (5.5 to 22)",
    ]
    assert all(len(line) <= 40 for line in plain(memory_table(summary().partitions[0]), 40).splitlines())


def test_a_placement_above_its_bound_says_so() -> None:
    part = summary().partitions[0]
    loose = dataclasses.replace(part, report=dataclasses.replace(part.report, arena_bytes=1792))
    assert plain(memory_table(loose)).splitlines()[0] == (
        "Partition 0: arena of 1.8 KiB, 1.0 KiB above the bound of 768 B"
    )


def test_words_for_figures() -> None:
    assert [size_text(size) for size in (1023, 1024, 1 << 20, 3 << 20)] == ["1023 B", "1.0 KiB", "1.00 MiB", "3.00 MiB"]
    assert [count_text(count) for count in (999, 1000, 12_345_678, 2 * 10**9)] == ["999", "1.0 k", "12.3 M", "2.0 G"]
    assert [duration_text(time) for time in (0.0201, 0.9, 1.0, 1234.5)] == ["20 us", "900 us", "1.00 ms", "1,234.50 ms"]
    assert [duration_text(time) for time in (0, 0.000406, 0.0094, 0.00996)] == ["0 us", "0.4 us", "9.4 us", "10 us"]
    assert [number_text(value) for value in (0, 3.84e-05, 0.0231, 4.005, 26, 3994.4)] == [
        "0",
        "0.0000384",
        "0.0231",
        "4.00",
        "26.0",
        "3,994",
    ]
    assert short_name("a/b/Relu;a/b/BiasAdd") == "a/b/BiasAdd"
    assert short_name("x" * 30 + "tail", 10) == "...xxxtail"


@pytest.mark.without_tiles("a call in tiles has no stripes")
def test_stripes_are_counted_and_what_they_cost_is_said() -> None:
    model = litert.read(litert.write(image_graph(5)))

    def made(budget: int | None) -> Summary:
        return of_compiled_file(compile_file(model, "image", CompileOptions(target=TARGET.name, sram_budget=budget)))

    assert "Stripes" not in dict(summary_rows(made(None)))
    with pytest.raises(BudgetError) as caught:
        made(1)
    small = made(caught.value.least_bytes)
    (part,) = small.partitions
    striped = [item.stripes for item in part.report.operators if item.stripes > 1]
    assert striped
    more = (sum(striped) - len(striped)) * TARGET.milliseconds(TARGET.costs.issue_cycles.value)
    more *= calibration(TARGET).factors[0]
    start = (
        f"{len(striped)} kernel calls in {sum(striped)} stripes, which saves memory and takes {duration_text(more)} ("
    )
    assert re.fullmatch(re.escape(start) + r"\d+ to \d+\) more", dict(summary_rows(small))["Stripes"])
    assert "stripes" in plain(calls_table(part, TARGET), 200).splitlines()[1]
    assert sum(item.cycles for item in part.report.operators) == part.report.cycles
