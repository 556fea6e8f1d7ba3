# SPDX-License-Identifier: BSD-3-Clause
"""``openneutron profile`` of a .tflite, and of what a device recorded."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import openneutron as package
from openneutron import targets
from openneutron.features.report.latency import latency_text, parts_text
from openneutron.isa import decode
from openneutron.isa.microcode import calls
from tests.cli.conftest import Command
from tests.support.chip_files import changed_chip


@pytest.fixture
def profiled(openneutron: Command) -> Command:
    assert openneutron("compile", "mixed.tflite", "--profile").code == 0
    assert openneutron("compile", "mixed.tflite", "--profile", "--sram-budget", "1", "-o", "other.tflite").code == 0
    return openneutron


def recorded(file: str, runs: int = 1, time: int = 100) -> str:
    """Return the output of a bundle's example: each kernel call with its time."""
    rows = [
        f"{index},{program.header['microcode_crc']},{call},0,{time + step.operator}"
        for index, (_, program) in enumerate(package.load(file).programs)
        for call, step in enumerate(calls(decode(program)))
    ] * runs
    body = "".join(f"{row}\n" for row in rows)
    return (
        f"mixed\nopenneutron-profile,1,cycles\nprogram,checksum,call,kernel,time\n{body}"
        f"openneutron-profile,end,{len(rows)}\npassed\n"
    )


def assert_same_latency(out: str) -> None:
    """Compare the latency that a profile shows with that of the file, whose kernels and copies are a part of it."""
    latency = package.load("mixed_neutron.tflite").report.latency
    assert latency is not None and latency.parts()["NPU"].milliseconds > 0
    rows = {
        line[2:].split("  ")[0]: line[2:].partition("  ")[2].strip()
        for line in out.splitlines()
        if line.startswith("  ")
    }
    assert (rows["Latency"], rows["Time on"]) == (latency_text(latency), parts_text(latency))


def test_the_table_has_each_layer_with_both_times(profiled: Command, folder: Path) -> None:
    ended = profiled("profile", "mixed_neutron.tflite", "--random", "0")
    lines = ended.out.splitlines()
    assert (ended.code, ended.err) == (0, "")
    assert lines[0] == "mixed_neutron.tflite  for imxrt700 (NXP i.MX RT700, eIQ Neutron N3-64)"
    assert_same_latency(ended.out)
    (heading,) = (line for line in lines if line.startswith("layer"))
    assert heading.split() == ["layer", "kernel", "simulator", "NPU", "cycles", "share", "calls", "bytes"]
    assert any(line.startswith("on the CPU") for line in lines)


def test_the_rows_add_up_to_the_report(profiled: Command) -> None:
    report = package.load("mixed_neutron.tflite").report
    for by in ("layer", "module", "kernel"):
        data = json.loads(profiled("profile", "mixed_neutron.tflite", "--random", "0", "--by", by, "--json").out)
        assert sum(row["cycles"] for row in data["rows"]) == data["npu_cycles"] == report.delegate_cycles
        assert (
            data["npu_cycles"] + data["copy_cycles"] + data["host_cycles"] == data["modelled_cycles"] == report.cycles
        )
        assert sum(row["calls"] for row in data["rows"]) == sum(call.calls for call in report.calls)
        assert all(row["time"] > 0 and row["bytes"] > 0 for row in data["rows"])
        assert data["by"] == by and data["unit_of_time"] == "host nanoseconds"


def test_a_data_mover_copies_beside_the_kernels(openneutron: Command) -> None:
    compiled = json.loads(openneutron("compile", "mixed.tflite", "--profile", "--target", "imx95", "--json").out)
    data = json.loads(openneutron("profile", "mixed_neutron.tflite", "--random", "0", "--json").out)
    loaded = package.load("mixed_neutron.tflite").report
    assert data["modelled_cycles"] == data["overlapped_cycles"] == loaded.cycles == compiled["modelled_cycles"]
    assert data["copy_cycles"] == compiled["copy_cycles"]
    assert sum(row["cycles"] for row in data["rows"]) < sum(program.header["cycles_low"] for program in loaded.programs)
    out = openneutron("profile", "mixed_neutron.tflite", "--random", "0").out
    assert f"in parallel to the kernels, which wait {data['copy_cycles']:,} cycles for them" in out
    assert_same_latency(out)


def test_a_chip_of_ones_own_is_given_by_its_file(
    openneutron: Command, refused: Callable[..., str], folder: Path
) -> None:
    changed_chip(folder, {"clock": 100})
    assert openneutron("compile", "mixed.tflite", "--profile", "--target", "changed.toml").code == 0
    words = "'mixed_neutron.tflite' was compiled for"
    assert refused("profile", "mixed_neutron.tflite", "--random", "0") == (
        f"{words} a chip that does not come with OpenNeutron. Give the chip's file: --target my_chip.toml."
    )
    assert refused("profile", "mixed_neutron.tflite", "--random", "0", "--target", "imx95") == (
        f"--target: {words} another chip, not for imx95."
    )
    ended = openneutron("profile", "mixed_neutron.tflite", "--random", "0", "--target", "changed.toml", "--json")
    assert (json.loads(ended.out)["target"], json.loads(ended.out)["clock_mhz"]) == ("changed", 100)


def test_the_trace_is_written(profiled: Command, folder: Path) -> None:
    assert profiled("profile", "mixed_neutron.tflite", "--random", "0", "--trace", "trace.json").code == 0
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]
    cycles = sum(event["args"]["cycles"] for event in events if event["ph"] == "X")
    assert cycles == package.load("mixed_neutron.tflite").report.delegate_cycles


def test_a_devices_csv_is_joined_with_the_layers(profiled: Command, folder: Path) -> None:
    (folder / "run.csv").write_text(recorded("mixed_neutron.tflite", runs=3))
    ended = profiled("profile", "--from", "run.csv", "mixed_neutron.tflite", "--json")
    data = json.loads(ended.out)
    assert data["unit_of_time"] == "cycles"
    assert [row["time"] for row in data["rows"]] == [
        call["calls"] * (100 + call["operator"]) for call in data["operators"]
    ]
    ended = profiled("profile", "--from", "run.csv", "mixed_neutron.tflite")
    assert "device cycles" in ended.out and "simulator" not in ended.out


def test_a_file_without_profiling_facts(profiled: Command, refused: Callable[..., str]) -> None:
    assert profiled("compile", "mixed.tflite", "-o", "plain.tflite").code == 0
    assert refused("profile", "plain.tflite", "--random", "0") == (
        "'plain.tflite' was compiled without profiling: neutron_graph_0 has no names of layers, and its runs leave no events. "
        "Compile the model again with --profile."
    )


def test_a_csv_of_another_build(profiled: Command, refused: Callable[..., str], folder: Path) -> None:
    (folder / "run.csv").write_text(recorded("other.tflite"))
    ours, others = (
        [program.header["microcode_crc"] for _, program in package.load(file).programs]
        for file in ("mixed_neutron.tflite", "other.tflite")
    )
    first = next(number for number in others if number not in ours)
    assert refused("profile", "--from", "run.csv", "mixed_neutron.tflite") == (
        "--from run.csv: it is the profile of another model, or of another build of it: 'mixed_neutron.tflite' has no program "
        f"with the checksum 0x{first:08x}. Give the file that ran."
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda text: "nothing\n",
            "--from run.csv: it is no profile: it is no ETDump, and no line of it begins with 'openneutron-profile,1,', as the "
            "profile of a bundle's example does.",
        ),
        (
            lambda text: text[: text.index("openneutron-profile,end")],
            "--from run.csv: the profile that begins in line 2 is incomplete. Record it again, up to the line that begins with "
            "'openneutron-profile,end,'.",
        ),
        (
            lambda text: text.replace(",0,0,100\n", ",9,0,100\n", 1),
            "--from run.csv: line 4 has kernel call 9 of a program that makes 2 calls a run. Record it again.",
        ),
        (
            lambda text: text.replace(",0,0,100\n", ",0,0,1e2\n", 1),
            "--from run.csv: line 4 is '@,1e2'; a row has 5 numbers: program, checksum, call, kernel, time. Record it again.",
        ),
    ],
)
def test_a_damaged_csv(
    change: Callable[[str], str], message: str, profiled: Command, refused: Callable[..., str], folder: Path
) -> None:
    text = change(recorded("mixed_neutron.tflite"))
    (folder / "run.csv").write_text(text)
    row = next((line for line in text.splitlines() if line.endswith(",1e2")), "").removesuffix(",1e2")
    assert refused("profile", "--from", "run.csv", "mixed_neutron.tflite") == message.replace("@", row)


def test_an_incomplete_run(profiled: Command, refused: Callable[..., str], folder: Path) -> None:
    text = recorded("mixed_neutron.tflite", runs=2)
    rows = text.splitlines()
    end = next(line for line in rows if line.startswith("openneutron-profile,end"))
    fewer = text.replace(f"{rows[3]}\n", "", 1).replace(end, f"openneutron-profile,end,{len(rows) - 6}")
    (folder / "run.csv").write_text(fewer)
    assert refused("profile", "--from", "run.csv", "mixed_neutron.tflite") == (
        "--from run.csv: it has 1 call of operator 0, which 'mixed_neutron.tflite' calls 1 times a run, but 2 runs of another "
        "operator. Record it again, whole runs alone."
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--from", "x"), "--from: its times are those of an earlier run. Leave out --input and --random."),
        (("--etdump", "x"), "--etdump: it is for a run of a .pte. Leave it out."),
    ],
)
def test_options_that_contradict(
    arguments: tuple[str, str], message: str, profiled: Command, refused: Callable[..., str]
) -> None:
    assert refused("profile", "mixed_neutron.tflite", "--random", "0", *arguments) == message


def test_a_cpu_is_fitted_to_the_cycles_of_a_board(
    profiled: Command, refused: Callable[..., str], openneutron: Command, folder: Path
) -> None:
    made = openneutron("compile", "mixed.tflite", "-o", "cpu.tflite", "--profile", "--target", "cortex-m33")
    assert made.code == 0
    (folder / "run.csv").write_text(recorded("cpu.tflite"))
    assert "No core executes as many instructions in a cycle" in refused(
        "profile", "--from", "run.csv", "cpu.tflite", "--refit", "mine.toml"
    )
    (folder / "run.csv").write_text(recorded("cpu.tflite", time=50_000))
    before = json.loads(profiled("profile", "--from", "run.csv", "cpu.tflite", "--refit", "mine.toml", "--json").out)
    measured = sum(row["time"] for row in before["rows"])
    mine, known = targets.get(str(folder / "mine.toml")), targets.get("cortex-m33")
    assert mine.cpu is not None and known.cpu is not None
    ratio = mine.cpu.instruction_cycles.value / known.cpu.instruction_cycles.value
    assert ratio == pytest.approx(measured / sum(row["cycles"] for row in before["rows"]), rel=0.01)
    assert mine.cpu.instruction_cycles.source == "fitted: to the cycles in run.csv"
    assert mine.name == "mine" and mine.memories == known.memories and 1 <= mine.cpu.error.value <= 99
    assert refused("profile", "--from", "run.csv", "cpu.tflite", "--refit", "mine.txt") == (
        "--refit: it takes --from with the cycles of a board, and writes a .toml file."
    )
    (folder / "npu.csv").write_text(recorded("mixed_neutron.tflite"))
    assert refused("profile", "--from", "npu.csv", "mixed_neutron.tflite", "--refit", "mine.toml") == (
        "--refit: imxrt700 has an NPU, whose cost model has several constants. It is for a CPU, such as cortex-m33."
    )
