# SPDX-License-Identifier: BSD-3-Clause
"""``openneutron compile`` of a .tflite: the file, the summary, and what it does without."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from openneutron import litert
from tests.cli.conftest import Command

SUMMARY = """\
mixed.tflite  for imxrt700 (NXP i.MX RT700, eIQ Neutron N3-64)
  On the NPU   5 of 9 operators, in 2 partitions of 4 kernel calls
               2 CONV_2D, 1 MAX_POOL_2D, 1 ADD, 1 RELU
  MACs         32.3 k
  Latency      at least 95 us (66 to 138) at 324 MHz, estimated
  Time on      NPU 45 us (25 to 79), host 51 us (29 to 87), not modelled: 2 operators on the CPU
  Range        for NXP's software since 2025; hangs most on the dispatch of a call (costs.issue_cycles)
  Assumed      12 of 34 facts about imxrt700 are assumed; `openneutron targets` lists them
  Utilisation  2.3 % of 64 MACs per cycle
  Bound by     dispatch 100.0 % of the time
  SRAM         2.8 KiB of the chip's 7.50 MiB: a run 1.5 KiB, weights 1.3 KiB
  Peak SRAM    1.5 KiB of 7.50 MiB (0.0 %): arena 1.5 KiB, input and output inside
  Weights      1.3 KiB beside the budget, in memory that the NPU reads
  Microcode    1.1 KiB
  File         mixed_neutron.tflite, 5.0 KiB

Partitions, one after the other in the same SRAM
partition    operators    kernel calls      MACs             latency       SRAM    weights
0                    2               2    18.4 k    24 us (14 to 40)      768 B      672 B
1                    3               2    13.8 k    21 us (11 to 39)    1.5 KiB      672 B

On the CPU
operator      name    why
QUANTIZE      q       it turns float32 into int8. A model with int8 inputs has none.
SCATTER_ND    r       its indices name a place twice; the sum of what is written there is not computed.
DEQUANTIZE    f       it turns int8 into float32. A model with int8 outputs has none.
LOGISTIC      y       input 'f' is float32; the NPU computes on int8. Quantize the model.
"""


def test_it_writes_the_file_and_ends_with_a_summary(openneutron: Command, folder: Path) -> None:
    ended = openneutron("compile", "mixed.tflite")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out == SUMMARY
    made = litert.read(folder / "mixed_neutron.tflite").graph
    assert [node.op for node in made.nodes].count("CUSTOM NeutronGraph") == 2
    assert sorted(path.name for path in folder.iterdir()) == ["float.tflite", "mixed.tflite", "mixed_neutron.tflite"]


def test_json_says_the_same(openneutron: Command, folder: Path) -> None:
    said = json.loads(openneutron("compile", "mixed.tflite", "-o", "out.tflite", "--json").out)
    assert said["file"] == "out.tflite"
    assert said["file_bytes"] == (folder / "out.tflite").stat().st_size
    assert [item["operator"] for item in said["delegated"]] == ["CONV_2D", "MAX_POOL_2D", "ADD", "CONV_2D", "RELU"]
    assert [item["operator"] for item in said["on_cpu"]] == ["QUANTIZE", "SCATTER_ND", "DEQUANTIZE", "LOGISTIC"]
    assert said["peak_sram_bytes"] == max(part["sram_bytes"] for part in said["partitions"]) == 1536
    parts = sum(part["modelled_cycles"] for part in said["partitions"])
    assert said["modelled_cycles"] == parts + said["host_cycles"] > parts


def test_quiet_says_nothing(openneutron: Command) -> None:
    ended = openneutron("compile", "mixed.tflite", "--quiet")
    assert (ended.code, ended.out, ended.err) == (0, "", "")


def test_intermediates_are_stock_models_and_listings(openneutron: Command, folder: Path) -> None:
    openneutron("compile", "mixed.tflite", "--intermediates", "kept/here")
    names = ["neutron_graph_0.tflite", "neutron_graph_0.txt", "neutron_graph_1.tflite", "neutron_graph_1.txt"]
    assert sorted(path.name for path in (folder / "kept" / "here").iterdir()) == names
    stock = litert.read(folder / "kept" / "here" / "neutron_graph_0.tflite").graph
    assert [node.op for node in stock.nodes] == ["conv_2d", "max_pool_2d"]
    assert "CALL operator=1" in (folder / "kept" / "here" / "neutron_graph_0.txt").read_text()


def test_options_reach_the_compiler(openneutron: Command) -> None:
    def compiled(*options: str) -> dict:
        return json.loads(openneutron("compile", "mixed.tflite", "--json", *options).out)

    plain = compiled()
    assert compiled("--prefetch-constants")["partitions"][0]["fetched_bytes"] > 0
    assert compiled("--io-place", "caller")["partitions"][0]["arena_bytes"] < plain["partitions"][0]["arena_bytes"]
    for budget, size in (("2", 2048), ("2KiB", 2048), ("2 kib", 2048), ("1.5MiB", 1536 * 1024)):
        assert compiled("--sram-budget", budget)["sram_budget_bytes"] == size
    left = compiled("--operators-not-to-delegate", "ADD,RELU", "--operators-not-to-delegate", "p")
    assert [item["operator"] for item in left["delegated"]] == ["CONV_2D", "CONV_2D"]


def test_a_budget_that_is_no_size_says_how_to_write_one(openneutron: Command) -> None:
    for budget in ("0", "1.5", "12K", "0.5KiB", "many", "4194304", "4096MiB"):
        refused = openneutron("compile", "mixed.tflite", "--sram-budget", budget)
        assert refused.code == 2
        assert refused.err.endswith(
            f"'{budget}' is no size above 0 and up to 4194303 in whole KiB. Write 287, 287KiB or 1.5MiB.\n"
        )


@pytest.mark.parametrize("digits", ["9", "0", "0." + "0"])
def test_a_budget_of_400_digits(openneutron: Command, digits: str) -> None:
    refused = openneutron("compile", "mixed.tflite", "--sram-budget", digits * 400)
    assert refused.code == 2
    assert f"'{(digits * 400)[:24]}...' is no size above 0 and up to 4194303" in refused.err


def test_the_least_budget_it_names_does(openneutron: Command) -> None:
    arguments = ("compile", "mixed.tflite", "--prefetch-constants", "--sram-budget")
    refused = openneutron(*arguments, "1")
    assert (refused.code, refused.out) == (2, "")
    assert refused.err == (
        "error: 'mixed.tflite': it needs 1.3 KiB (1376 bytes) of SRAM for the largest of its 2 partitions, which run one "
        "after the other; the budget is 1.0 KiB (1024 bytes). 's' needs the most memory. Give it at least 2 KiB with --sram-budget "
        "(sram_budget=2048 in Python), or a smaller input. Without --prefetch-constants it takes 1.0 KiB (1024 bytes).\n"
    )
    assert openneutron(*arguments, "2").code == 0


@pytest.mark.parametrize("command", ["compile", "explain"])
def test_a_tflite_needs_neither_torch_nor_executorch(command: str, folder: Path) -> None:
    """In a process where importing them fails."""
    program = (
        "import sys\n"
        "for name in ('torch', 'torchao', 'executorch'): sys.modules[name] = None\n"
        "from openneutron.cli import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    arguments = [command, str(folder / "mixed.tflite")]
    if command == "compile":
        arguments += ["-o", str(folder / "out.tflite")]
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "On the NPU" in done.stdout


def test_the_compiler_itself_needs_no_command_line() -> None:
    program = (
        "import sys\n"
        "for name in ('rich', 'typer'): sys.modules[name] = None\n"
        "import openneutron.compiler, openneutron.litert, openneutron.device.mixed, openneutron.device.simulator\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
