# SPDX-License-Identifier: BSD-3-Clause
"""``openneutron pareto``."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from openneutron.compiler.search.pareto import Point
from openneutron.report.pareto import pareto_table
from openneutron.report.text import plain
from tests.cli.conftest import Command
from tests.support.oracle import TARGET


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
        assert 0 <= kib * 1024 - point["sram_bytes"] < 1024
        made = json.loads(openneutron("compile", *model, "--json", "--sram-budget", str(kib)).out)
        assert made["overlapped_cycles"] <= point["modelled_cycles"]
    drawing = ElementTree.fromstring((folder / "mixed.svg").read_text())
    marks = [item for item in drawing.iter() if item.get("aria-roledescription") == "point"]
    assert len(marks) == len(points)


def test_the_table_has_a_line_for_each_point(openneutron: Command) -> None:
    lines = openneutron("pareto", "mixed.tflite").out.splitlines()
    assert lines[0] == "mixed.tflite: SRAM against modelled time on imxrt700"
    assert lines[1].split() == ["SRAM", "time", "times", "the", "fastest", "--sram-budget"]
    assert lines[-1].split()[4] == "1.00"
    lines = openneutron("pareto", "mixed.tflite", "--prefetch-constants").out.splitlines()
    assert lines[0] == "mixed.tflite, constants from flash: SRAM against modelled time on imxrt700"


def test_what_can_not_be_drawn_or_does_not_run_is_refused(openneutron: Command) -> None:
    for arguments, message in (
        (("mixed.tflite", "--plot", "x.pdf"), "error: --plot: 'x.pdf' is no .png or .svg; nothing else is drawn.\n"),
        (
            ("float.tflite",),
            "error: 'float.tflite': none of it runs on the NPU. `openneutron explain` gives the reasons.\n",
        ),
    ):
        ended = openneutron("pareto", *arguments)
        assert (ended.code, ended.out, ended.err) == (2, "", message)


def test_memory_is_rounded_up() -> None:
    points = [Point(4096, 4000), Point(4100, 3000), Point(12288, 1000)]
    lines = plain(pareto_table("net", points, TARGET)).splitlines()[2:]
    assert [line.split()[:2] + line.split()[-2:-1] for line in lines] == [
        ["4.0", "KiB", "4"],
        ["4.1", "KiB", "5"],
        ["12.0", "KiB", "12"],
    ]
