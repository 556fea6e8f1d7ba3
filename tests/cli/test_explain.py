# SPDX-License-Identifier: BSD-3-Clause
"""``openneutron explain`` and ``openneutron disasm``."""

from __future__ import annotations

import json
from pathlib import Path

from openneutron.isa import payload
from openneutron.litert import read
from openneutron.litert.neutron_graph import find
from tests.cli.conftest import Command


def test_it_writes_nothing_and_shows_calls_and_reasons(openneutron: Command, folder: Path) -> None:
    before = sorted(folder.iterdir())
    ended = openneutron("explain", "mixed.tflite", "--memory")
    assert (ended.code, ended.err) == (0, "")
    assert sorted(folder.iterdir()) == before
    for line in (
        "Partition 0: 2 kernel calls, modelled",
        "c         conv_2d_s8      1x8x8x8  18.4 k   6,098   14 us (7.6 to 25)  costs.issue_cycles  54.6 %  4.7 %  channels  dispatch",
        "Partition 1: arena of 1.5 KiB, the lower bound of these buffers",
        "0x000200    256  q         0-0  #..",
        "LOGISTIC      y       input 'f' is float32; the NPU computes on int8. Quantize the model.",
    ):
        assert line in ended.out.splitlines()


def test_a_float_model_is_explained_too(openneutron: Command) -> None:
    ended = openneutron("explain", "float.tflite")
    assert ended.code == 0
    assert "\n  On the NPU   2 of 4 operators, in 1 partition of 2 kernel calls" in ended.out


def test_json_has_every_call_and_buffer(openneutron: Command) -> None:
    said = json.loads(openneutron("explain", "mixed.tflite", "--json").out)
    first = said["partitions"][0]
    assert [call["kernel"] for call in first["calls"]] == ["conv_2d_s8", "max_pool_2d_s8"]
    assert sum(call["cycles"] for call in first["calls"]) == first["modelled_cycles"]
    assert {item["name"] for item in first["memory"]} == {"q", "c", "p"}
    assert (said["file"], said["file_bytes"]) == (None, None)


def test_disasm_lists_a_files_programs_and_a_payloads(openneutron: Command, folder: Path) -> None:
    openneutron("compile", "mixed.tflite")
    ended = openneutron("disasm", "mixed_neutron.tflite")
    assert ended.code == 0
    titles = [line for line in ended.out.splitlines() if line.startswith("; operator")]
    assert titles == ["; operator 1: neutron_graph_0", "; operator 3: neutron_graph_1"]
    program = find(read(folder / "mixed_neutron.tflite").model)[0].program
    contents = payload.Payload(
        program, (payload.Format.CONTIGUOUS,), (payload.Format.CONTIGUOUS,) * 2, (0,), (0, 1), arguments=1
    )
    (folder / "payload.bin").write_bytes(contents.compose())
    alone = openneutron("disasm", "payload.bin")
    assert alone.code == 0
    assert alone.out.splitlines()[1:] == [*ended.out.split("\n; operator 3")[0].splitlines()[1:], ""]
