# SPDX-License-Identifier: BSD-3-Clause
"""Models from PyTorch on a Neutron-S: the .pte in the delegate, its summary and its trace, and kernel selections."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import nn

import openneutron
from openneutron import CompileOptions, OutputOptions
from openneutron.api.pytorch import CompiledModel
from openneutron.device.simulator import Simulator
from openneutron.errors import InvalidOptionError
from openneutron.features.profile.timeline import Track, chrome_trace, timeline
from openneutron.isa import decode

OPTIONS = CompileOptions(target="imx95", sram_budget=16 * 1024, check=True)

NEEDS_NONE = (
    "kernel selection: imx95 does not use one. The controller of a Neutron-S runs kernels that are loaded with the "
    "microcode; the host core links no kernel. Leave the kernel selection out."
)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 8, 3, stride=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.second(torch.relu(self.first(x))))


def given() -> torch.Tensor:
    return torch.randn(1, 3, 64, 64, generator=torch.Generator().manual_seed(0))


@cache
def compiled(options: CompileOptions = OPTIONS) -> CompiledModel:
    torch.manual_seed(0)
    return openneutron.compile(Net().eval(), (given(),), calibration=[(given(),)], options=options)


def test_a_planar_image_comes_in_stripes_and_the_delegate_gives_the_bytes_of_another_chip() -> None:
    made = compiled()
    (part,) = [each.compiled for each in made.partitions]
    assert part.report.sram_bytes <= 16 * 1024 < part.report.io_bytes
    assert part.report.moved_bytes > part.report.io_bytes
    (result,) = made.run(given())
    assert torch.equal(result, compiled(CompileOptions()).run(given())[0])


def test_a_memory_that_holds_the_rows_between_layers_moves_inputs_and_outputs_alone() -> None:
    (part,) = [each.compiled for each in compiled(replace(OPTIONS, sram_budget=24 * 1024)).partitions]
    report = part.report
    assert report.moved_bytes == report.io_bytes == report.traffic_bound_bytes - report.fetched_bytes


def test_the_summary_states_traffic_and_assumptions() -> None:
    text = str(compiled().summary())
    assert "Traffic" in text and "between DDR and the NPU's memory in each inference" in text
    assert "facts about imx95 are assumed" in text
    assert "input and output in ddr" in text


def test_the_modelled_schedule_has_the_tiles_and_ends_with_the_report() -> None:
    made = compiled()
    (part,) = [each.compiled for each in made.partitions]
    program = part.program
    code = decode(program)
    slices = timeline(code, list(code.names), made.target)
    tiles = [item for item in slices if item.track is Track.DATA_MOVER]
    moved = sum(item.cycles for item in part.report.operators if item.kernel == "move_s8")
    assert sum(item.cycles for item in tiles) == moved > 0
    assert all(one.end <= other.start for one, other in itertools.pairwise(tiles))
    assert max(item.end for item in slices) == part.report.cycles
    trace = json.loads(chrome_trace("net", slices, made.target))
    assert "Data mover" in json.dumps(trace)
    with Simulator(program) as simulator:
        assert simulator.microcode.prefetch_size == part.report.arena_bytes


def test_a_kernel_selection_is_not_needed(tmp_path: Path) -> None:
    outputs = OutputOptions(kernel_selection=str(tmp_path / "net_kernel_selection.c"))
    with pytest.raises(InvalidOptionError) as caught:
        openneutron.compile(Net().eval(), (given(),), calibration=[(given(),)], options=OPTIONS, outputs=outputs)
    assert str(caught.value) == NEEDS_NONE
