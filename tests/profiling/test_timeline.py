# SPDX-License-Identifier: BSD-3-Clause
"""The modelled schedule: its totals are those of the compiler's report, and the trace shows it."""

from __future__ import annotations

import itertools
import json
import re
import sqlite3
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from openneutron import targets
from openneutron.compiler import Compiled, CompileOptions, Report, compile_graph
from openneutron.features.profile.timeline import Kind, Slice, Track, chrome_trace, overlap_cycles, timeline
from openneutron.isa import decode
from openneutron.isa.microcode import facts_of
from scripts.published_networks import cifarnet, mobilenet_v1
from tests.support.oracle import TARGET
from tests.support.tools import required

BY_TRACK = """
SELECT slice.category AS kind, thread.name AS track, SUM(cycles.int_value) AS cycles
FROM slice JOIN thread_track ON slice.track_id = thread_track.id JOIN thread USING (utid)
JOIN args AS cycles ON cycles.arg_set_id = slice.arg_set_id AND cycles.key = 'args.cycles'
GROUP BY kind, track
"""
"""The exact cycles of each kind of slice. A wait has cycles, too."""

OPTIONS = CompileOptions(prefetch_constants=True, profile=True)

ROOT = Path(__file__).parents[2]
TRACE_PROCESSOR = ROOT / "build" / "trace_processor"

(OVERLAP,) = re.findall(r"^```sql\n(.*?)^```", (ROOT / "docs/how-to/profile-a-model.md").read_text(), re.M | re.S)
"""The query of the page. Perfetto's trace processor is SQLite with these columns of ``slice``."""


@cache
def compiled(name: str) -> Compiled:
    return compile_graph({"cifarnet": cifarnet, "mobilenet_v1": mobilenet_v1}[name](), TARGET, OPTIONS)


def slices_of(name: str) -> list[Slice]:
    program = compiled(name).program
    return timeline(decode(program), [item.layer for item in facts_of(program)], TARGET)


def copied_cycles(report: Report) -> int:
    """Return the cycles of all copies. In tiles ``copy_cycles`` are those in which kernels wait for them."""
    return report.engine_cycles if TARGET.moves_tiles else report.copy_cycles


def hidden_cycles(report: Report) -> int:
    """Return the cycles of copies that kernels hide."""
    return report.engine_cycles - report.copy_cycles if TARGET.moves_tiles else report.cycles - report.overlapped_cycles


@pytest.mark.parametrize("name", ["cifarnet", "mobilenet_v1"])
def test_totals_are_those_of_the_report(name: str) -> None:
    report, slices = compiled(name).report, slices_of(name)
    spent = {kind: sum(item.cycles for item in slices if item.kind is kind) for kind in Kind}
    assert spent[Kind.COPY] == copied_cycles(report) > 0
    assert spent[Kind.KERNEL] + spent[Kind.DISPATCH] == report.cycles - report.copy_cycles
    assert max(item.end for item in slices) == report.overlapped_cycles
    assert spent[Kind.KERNEL] + spent[Kind.DISPATCH] + spent[Kind.WAIT] == report.overlapped_cycles


@pytest.mark.parametrize("name", ["cifarnet", "mobilenet_v1"])
def test_copies_overlap_with_kernels_as_the_report_states(name: str) -> None:
    report = compiled(name).report
    assert overlap_cycles(slices_of(name)) == hidden_cycles(report) > 0


def test_each_track_does_one_thing_at_a_time_and_names_the_layer() -> None:
    slices = slices_of("cifarnet")
    for track in Track:
        mine = [item for item in slices if item.track is track]
        assert all(before.end <= after.start for before, after in itertools.pairwise(mine))
    layers = {item.layer for item in facts_of(compiled("cifarnet").program)}
    moved = {item.name for item in slices if item.track is Track.DATA_MOVER}
    assert {item.name for item in slices if item.kind is Kind.KERNEL} == layers - moved
    copied = {item.name.removeprefix("constants of ") for item in slices if item.track is Track.COPY_ENGINE}
    assert copied and copied < layers


def test_constants_are_copied_while_no_tile_is() -> None:
    """One engine copies both: no two copies at a time, and kernels hide all cycles in which they don't wait."""
    target = targets.get("imx943").with_sram(96)
    made = compile_graph(mobilenet_v1(), target, CompileOptions(target="imx943", profile=True))
    slices = timeline(decode(made.program), [item.layer for item in facts_of(made.program)], target)
    copies = sorted((item.start, item.end) for item in slices if item.kind is Kind.COPY)
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(copies))
    assert sum(end - start for start, end in copies) == made.report.engine_cycles
    assert overlap_cycles(slices) == made.report.engine_cycles - made.report.copy_cycles > 0


def test_a_query_of_the_trace_gives_the_overlap_of_the_report() -> None:
    report = compiled("mobilenet_v1").report
    trace = json.loads(chrome_trace("net.tflite", slices_of("mobilenet_v1"), TARGET))
    events = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE slice (ts INTEGER, dur INTEGER, name TEXT, category TEXT)")
    rows = [(round(item["ts"] * 1e3), round(item["dur"] * 1e3), item["name"], item["cat"]) for item in events]
    database.executemany("INSERT INTO slice VALUES (?, ?, ?, ?)", rows)
    ((nanoseconds,),) = database.execute(OVERLAP)
    # Times are rounded to nanoseconds: one for each end of a slice.
    assert abs(nanoseconds * TARGET.clock.value / 1e3 - hidden_cycles(report)) < len(events)
    assert {event["args"]["name"] for event in trace["traceEvents"] if event["name"] == "thread_name"} == {
        "NPU",
        "Copy engine",
        "Host core",
        *(["Data mover"] if TARGET.moves_tiles else []),
    }


def test_perfettos_trace_processor_gives_the_overlap_of_the_report(tmp_path: Path) -> None:
    """In Perfetto's own WebAssembly build. Cycles are arguments of a slice, so that they are exact there."""
    if not (TRACE_PROCESSOR / "engine.mjs").exists():
        pytest.skip("build/trace_processor is absent: `make build/trace_processor/trace_processor.wasm` fetches it")
    report, slices = compiled("mobilenet_v1").report, slices_of("mobilenet_v1")
    (tmp_path / "trace.json").write_bytes(chrome_trace("net.tflite", slices, TARGET))
    script = Path(__file__).with_name("trace_processor.mjs")
    command = [required("node"), str(script), str(TRACE_PROCESSOR), str(tmp_path / "trace.json")]

    def rows(query: str) -> list[dict[str, Any]]:
        done = subprocess.run(command, input=query, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        found: list[dict[str, Any]] = json.loads(done.stdout)
        return found

    ((nanoseconds,),) = (row.values() for row in rows(OVERLAP))
    assert abs(nanoseconds * TARGET.clock.value / 1e3 - hidden_cycles(report)) < len(slices)
    assert {(row["kind"], row["track"]): row["cycles"] for row in rows(BY_TRACK)} == {
        (kind.value, track.value): total
        for kind, track in {(item.kind, item.track) for item in slices}
        if (total := sum(item.cycles for item in slices if (item.kind, item.track) == (kind, track)))
    }


@pytest.mark.imxrt700
def test_the_text_of_a_small_trace() -> None:
    slices = [
        Slice(Track.HOST, Kind.DISPATCH, "conv", 0, 324, {"operator": 0}),
        Slice(Track.NPU, Kind.KERNEL, "conv", 324, 972, {"operator": 0}),
    ]
    trace = json.loads(chrome_trace("net.pte", slices, TARGET))
    assert trace["otherData"] == {"target": "imxrt700", "clock_mhz": 324}
    assert trace["traceEvents"][0]["args"] == {"name": "net.pte, modelled on NXP i.MX RT700, eIQ Neutron N3-64"}
    assert trace["traceEvents"][-1] == {
        "ph": "X",
        "pid": 1,
        "tid": 1,
        "name": "conv",
        "cat": "kernel",
        "ts": 1.0,
        "dur": 2.0,
        "args": {"start_cycle": 324, "cycles": 648, "operator": 0},
    }
