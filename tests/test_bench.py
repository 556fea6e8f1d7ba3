# SPDX-License-Identifier: BSD-3-Clause
"""The parts of the benchmarks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bench import arena, attention_budgets, child, ethos_u65, neutron_s, utilisation
from bench.__main__ import SECTIONS
from openneutron import targets
from openneutron.compiler import compile_graph
from openneutron.compiler.place.place import Item, live_bound
from openneutron.litert import write
from scripts.published_networks import Chain
from tests.support.attention_graphs import block

MEASURED_FROM_A_SMALL_PROCESS = """
import sys
from bench import child
for megabytes in (1, 300):
    cost, output = child.run([sys.executable, "-c", f"held = b'x' * {megabytes}_000_000; print(len(held))"])
    print(output.strip(), cost.peak_rss_mb, cost.cpu_seconds > 0)
"""


def test_a_child_is_measured_and_its_output_kept(root: Path) -> None:
    """Not from here: this process is large, and Linux would count that."""
    command = [sys.executable, "-c", MEASURED_FROM_A_SMALL_PROCESS]
    lines = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout.splitlines()
    (small, small_peak, small_time), (large, large_peak, large_time) = (line.split() for line in lines)
    assert (small, large) == ("1000000", "300000000")
    assert 290 < float(large_peak) - float(small_peak) < 310
    assert small_time == large_time == "True"


def test_a_failing_child_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="exits with 3:\nwhy"):
        child.run([sys.executable, "-c", "import sys; sys.stderr.write('why'); sys.exit(3)"])


def test_greedy_by_size_is_a_placement() -> None:
    items = [Item("a", 64, 0, 2), Item("b", 32, 1, 1), Item("c", 48, 3, 4), Item("d", 96, 2, 3)]
    assert live_bound(items) <= arena.greedy_by_size(items) <= sum(item.size for item in items)
    assert arena.greedy_by_size([]) == 0


def test_a_table_leaves_out_what_is_not_installed() -> None:
    cost = {"cpu_seconds": 1.5, "peak_rss_mb": 100.0}
    heads, lines = SECTIONS["compile_cost"].rows({"mlperf_tiny_kws_int8": {"openneutron": cost}})
    assert lines == [("kws", "1.50", "100", "-", "-")] and len(heads) == len(lines[0])


def test_layers_stand_below_their_model() -> None:
    ours = {"total": 1000, "layers": {"a": 300, "b": 600}, "code_bytes": 7000, "ram_bytes": 1234, "flash_bytes": 10000}
    theirs = {"layers": {"a": 500, "b": 1500}, "code_bytes": 9000, "largest_difference": 0}
    cell = {
        "builds": {"M33 gcc -O2": {"ours": ours, "theirs": theirs}, "M33 gcc -Os": {"ours": ours, "theirs": None}},
        "kinds": {"a": "add 8x8x4"},
    }
    none = ("",) * 4
    _, lines = SECTIONS["cortex_m"].rows({"mlperf_tiny_kws_int8": cell})
    assert lines == [
        ("kws", "M33 gcc -O2", "1,000", "2,000", "0.50", "7,000", "9,000", "1,234", "10,000"),
        ("  add 8x8x4", "", "300", "500", "0.60", *none),
        ("  b", "", "600", "1,500", "0.40", *none),
        ("kws", "M33 gcc -Os", "1,000", "-", "-", "7,000", "-", "1,234", "10,000"),
        ("geometric mean", "M33 gcc -O2", "", "", "0.500", *none),
    ]
    helium = {"total": 250, "layers": {"a": 100, "b": 120}, "code_bytes": 9000, "ram_bytes": 1234, "flash_bytes": 12000}
    builds = {"M33 gcc -O2": {"ours": ours, "theirs": theirs}, "M55 gcc -O2": {"ours": helium, "theirs": theirs}}
    results = {"mlperf_tiny_kws_int8": {**cell, "builds": builds}}
    text = SECTIONS["cortex_m"].page(results, {})
    assert "| M33 gcc -O2 | 0.00, 0.50 | 0.50 |\n" in text
    assert "| kws | 0.00 | 0.00 | 0.250 |\n" in text
    assert "| kws | M33 gcc -O2 | 7,000 | 9,000 | 1,234 | 10,000 |\n" in text
    assert "| kws | add 8x8x4 | 300 | 500 | 0.60 | 100 | 500 | 0.20 |\n" in text
    assert text.endswith("| kws | b | 600 | 1,500 | 0.40 | 120 | 1,500 | 0.08 |\n")
    assert SECTIONS["cortex_m"].plot(results, {"gcc": "12"}).startswith("<svg")
    _, lines = SECTIONS["cortex_m"].rows({})
    assert lines == [("left out: it takes arm-none-eabi-gcc and qemu-system-arm", *("-",) * 8)]


def test_cortex_a_stands_beside_litert() -> None:
    theirs = {"total": 900, "largest_difference": 1}
    section = SECTIONS["cortex_a"]
    cells = {"mlperf_tiny_kws_int8": {"portable": 12000, "ours": 990, "theirs": theirs}}
    _, lines = section.rows({**cells, "mlperf_tiny_ad01_int8": {"portable": 500, "ours": 100, "theirs": None}})
    assert lines == [("kws", "12,000", "990", "900", "1.10", "1"), ("ad01", "500", "100", "-", "-", "-")]
    assert section.rows({})[1] == [("left out: it takes aarch64-linux-gnu-gcc and qemu-aarch64", *("-",) * 5)]


def test_layers_say_what_bounds_them() -> None:
    """The depthwise layer by hand: 8 x 8 points of 9 taps, two in a cycle, and 8 channels take 320 cycles, beside the call's issue."""
    graph = Chain("two", (1, 8, 8, 8)).depthwise(1).max_pool().graph()
    target = targets.get("imxrt700")
    cell = utilisation.of_report(compile_graph(graph, target).report, target)
    issue = 5010
    assert cell["macs"] == 8 * 8 * 9 * 8 and cell["cycles"] == 320 + issue + 64 + issue
    assert cell["layers"][0]["utilisation"] == cell["macs"] / ((320 + issue) * 64)
    _, lines = utilisation.rows({"mlperf_tiny_two_int8": cell})
    assert lines == [
        ("two", "4,608", "10,404", "0.7 %", "", "time bound by: dispatch 100.0 %"),
        (
            "  depthwise_conv_2d_s8 8x8x8",
            "4,608",
            "5,330",
            "1.4 %",
            "dispatch",
            "its dispatch takes longer than computing; a depthwise convolution uses 2 multipliers of 8 in each pipeline",
        ),
        ("  max_pool_2d_s8 4x4x8", "", "5,074", "", "dispatch", "nothing to multiply"),
    ]


VELA = """#!/bin/sh
echo "CPU operators = 3 (5.0%)"
printf 'cycles_total,cycles_npu,cycles_dram_access,dram_total_bytes,sram_memory_used\\n5000.0,4000,3000,2000000,384.0\\n' \\
    > "$3/model_summary_Dram.csv"
"""


def test_figures_of_vela_stand_below_those_of_the_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = Chain("chain", (1, 8, 8, 8)).conv(8, 1).graph()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert ethos_u65.measure(write(graph), str(tmp_path)) is None
    (tmp_path / "vela").write_text(VELA)
    (tmp_path / "vela").chmod(0o755)
    found = ethos_u65.measure(write(graph), str(tmp_path))
    assert found is not None
    _, lines = neutron_s.rows([{"network": "chain", "kib": 384, "compiler": "vela", **found}])
    assert lines[0][:-1] == ["  Vela, 3 on the CPU", "384", "5", "4", "3", "", "2.00", "", "", ""]


def test_a_network_that_vela_refuses_is_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    (tmp_path / "vela").write_text("#!/bin/sh\necho no >&2\nexit 1\n")
    (tmp_path / "vela").chmod(0o755)
    found = ethos_u65.measure(b"", str(tmp_path))
    assert found is not None and found["error"].endswith("no\n")
    _, lines = neutron_s.rows([{"network": "chain", "kib": 384, "compiler": "vela", **found}])
    assert lines == [["chain", "384", "Vela: error", *[""] * 8]]


def test_budgets_below_the_least_are_infeasible() -> None:
    """A small attention block: each program within a budget has LiteRT's bytes, which the measurement asserts."""
    places = attention_budgets.of_graph(block(0, 1, 16, 2, 8))
    _, lines = attention_budgets.rows({"block": places})
    assert [line[:2] for line in lines] == [("block", "arena"), ("block", "caller")]
    for cell, line in zip(places.values(), lines, strict=True):
        assert cell["io_bytes"] <= cell["least_bytes"] <= cell["whole_bytes"]
        for share, column in (("half", 6), ("0.4", 7)):
            fits = attention_budgets.SHARES[share] * cell["whole_bytes"] >= cell["least_bytes"]
            assert (cell[share] is not None) == fits and (line[column] not in ("infeasible", "below I/O")) == fits
            assert (line[column] == "below I/O") == (
                attention_budgets.SHARES[share] * cell["whole_bytes"] < cell["io_bytes"]
            )
