# SPDX-License-Identifier: BSD-3-Clause
"""``openneutron pareto``."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from openneutron import litert
from openneutron.features.report.advice import BudgetPoint, pareto_table
from openneutron.features.report.text import plain
from scripts.published_networks import Chain
from tests.cli.conftest import Command
from tests.support.litert_files import int16_file


@pytest.mark.parametrize("options", [(), ("--io-place", "caller"), ("--prefetch-constants",)])
def test_each_point_is_what_compiling_with_it_gives(
    openneutron: Command, folder: Path, options: tuple[str, ...]
) -> None:
    model = ("mixed.tflite", *options)
    said = json.loads(openneutron("pareto", *model, "--json", "--plot", "mixed.svg").out)
    points = said["points"]
    assert said["prefetch_constants"] == ("--prefetch-constants" in options)
    cycles = [point["modelled_cycles"] for point in points]
    assert points
    assert cycles == sorted(cycles, reverse=True)
    for point in points:
        kib = point["sram_budget_kib"]
        made = json.loads(openneutron("compile", *model, "--json", "--sram-budget", str(kib)).out)
        assert (made["peak_sram_bytes"], made["modelled_milliseconds"]) == (point["sram_bytes"], point["modelled_ms"])
        for name in ("total_sram_bytes", "modelled_cycles", "npu_cycles", "copy_cycles", "host_cycles"):
            assert made[name] == point[name]
    drawing = ElementTree.fromstring((folder / "mixed.svg").read_text())
    marks = [item for item in drawing.iter() if item.get("aria-roledescription") == "point"]
    assert len(marks) == len(points)


def test_the_table_has_a_line_for_each_point(openneutron: Command) -> None:
    lines = openneutron("pareto", "mixed.tflite").out.splitlines()
    assert lines[0] == "mixed.tflite: SRAM against modelled latency on imxrt700"
    assert lines[1].split() == [
        "--sram-budget",
        "SRAM",
        "with",
        "weights",
        "latency",
        "NPU",
        "host",
        "times",
        "the",
        "fastest",
    ]
    assert lines[-1].split()[-2] == "1.00"
    lines = openneutron("pareto", "mixed.tflite", "--prefetch-constants").out.splitlines()
    assert lines[0] == "mixed.tflite, constants from flash: SRAM against modelled latency on imxrt700"


def test_what_can_not_be_drawn_or_does_not_run_is_refused(openneutron: Command, folder: Path) -> None:
    (folder / "none.tflite").write_bytes(int16_file())
    for arguments, message in (
        (("mixed.tflite", "--plot", "x.pdf"), "error: --plot: 'x.pdf' is no .png or .svg; nothing else is drawn.\n"),
        (
            ("none.tflite",),
            "error: 'none.tflite': none of it runs on the NPU. `openneutron explain` gives the reasons.\n",
        ),
    ):
        ended = openneutron("pareto", *arguments)
        assert (ended.code, ended.out, ended.err) == (2, "", message)


def test_no_budget_is_larger_than_the_chips_memory(openneutron: Command, tmp_path: Path) -> None:
    chain = Chain("large", (1, 192, 192, 8))
    for _ in range(3):
        chain.conv(8, 3)
    path = tmp_path / "large.tflite"
    path.write_bytes(litert.write(chain.graph()))
    arguments = str(path), "--target", "mcxn94x"
    points = json.loads(openneutron("pareto", *arguments, "--json").out)["points"]
    assert points[-1]["sram_budget_kib"] == 416 < 2 * 192 * 192 * 8 / 1024
    (made,) = [json.loads(openneutron("compile", *arguments, "-o", str(tmp_path / "made.tflite"), "--json").out)]
    assert points[-1]["modelled_ms"] == made["modelled_milliseconds"]


def test_memory_is_rounded_up() -> None:
    points = [
        BudgetPoint(kib, size, size, ms, ms, 0, 0, ms)
        for kib, size, ms in ((1, 676, 5), (4, 4096, 4), (5, 4100, 3), (12, 12288, 2), (1619, 1656837, 1))
    ]
    lines = plain(pareto_table(points)).splitlines()
    assert [line.split()[:5] for line in lines] == [
        ["--sram-budget", "SRAM", "latency", "times", "the"],
        ["1", "676", "B", "5.00", "ms"],
        ["4", "4.0", "KiB", "4.00", "ms"],
        ["5", "4.1", "KiB", "3.00", "ms"],
        ["12", "12.0", "KiB", "2.00", "ms"],
        ["1619", "1.59", "MiB", "1.00", "ms"],
    ]


def test_a_latency_without_operators_on_the_cpu_is_a_lower_bound() -> None:
    points = [BudgetPoint(4, 4096, 4096, 1, 1, 0, 0, 1.0, host_operators_not_modelled=1)]
    assert "at least 1.00 ms" in plain(pareto_table(points))
