# SPDX-License-Identifier: BSD-3-Clause
"""Variants of kernels on the Cortex-M33: the host's bytes, and the errors of calls that are not theirs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from openneutron.device.simulator import require
from openneutron.errors import DriverError
from openneutron.isa import Program, aligned, base
from openneutron.isa.kernel_selection import KernelSelection, called_kernels
from tests.cortex_m33.cases import Case, run
from tests.cortex_m33.firmware import image, library
from tests.cortex_m33.models import on_the_host, random_inputs
from tests.support import programs
from tests.support.programs import RELATIONS, comparison

CASES, RUNS = 60, 2
LANES = 8


@dataclass(frozen=True, slots=True)
class Layer:
    """A program, and which of its output's bytes it writes."""

    program: Program
    written: slice


def layer(random: np.random.Generator, **changes: int) -> Layer:
    """A fully connected layer of any size, with any weights and table; of some the last outputs alone are computed."""
    inputs, outputs = (int(random.integers(1, limit)) for limit in (70, 40))
    lead, pitch = int(random.integers(0, 5)), int(random.integers(1, 4))
    blocks = -(-outputs // LANES)
    weights = random.integers(-128, 128, blocks * -(-inputs // LANES) * LANES * LANES, np.int8).tobytes()
    table = np.empty((blocks, 3, LANES), np.int32)
    table[:, 0] = random.integers(-(2**20), 2**20, (blocks, LANES))
    table[:, 1] = random.integers(2**30, 2**31, (blocks, LANES))
    table[:, 2] = random.integers(-12, 1, (blocks, LANES)) & 0xFF | random.integers(0, 2**20, (blocks, LANES)) << 8
    wild = random.random((blocks, 2, LANES)) < 0.1
    table[:, 1:][wild] = random.integers(-(2**31), 2**31, int(wild.sum()))
    low, high = sorted(random.integers(-128, 128, 2).tolist())
    operator = {
        "input": 0,
        "output": 1,
        "weights_base": base("WEIGHTS"),
        "weights_offset": 0,
        "requant_base": base("WEIGHTS"),
        "requant_offset": len(weights),
        "constant_channel0": 0,
        "constant_channels": outputs,
        **dict.fromkeys(("kernel_h", "kernel_w", "stride_h", "stride_w", "dilation_h", "dilation_w"), 1),
        "pad_top": 0,
        "pad_left": 0,
        "group_inputs": inputs,
        "group_outputs": outputs,
        "input_zero_point": int(random.integers(-128, 128)),
        "single_rounding": 1,
        "output_zero_point": int(random.integers(-128, 128)),
        "clamp_min": low,
        "clamp_max": high,
        **changes,
    }
    first = int(random.integers(0, blocks)) * LANES if random.random() < 0.5 else 0
    window = dict.fromkeys(("row0", "col0", "batch0", "step"), 0) | dict.fromkeys(("row1", "col1", "batch1"), 1)
    call = programs.instruction("WINDOW", operator=0, cycles=1, **window, channel0=first, channel1=outputs)
    program = programs.program(
        inputs=(programs.binding("SCRATCH", 0, inputs, lead),),
        outputs=(programs.binding("OUTPUT", 0, outputs * pitch),),
        buffers=(
            programs.dense("SCRATCH", 0, (1, 1, 1, inputs), lead),
            programs.dense("OUTPUT", 0, (1, 1, 1, outputs), channel_pitch=pitch, col_pitch=outputs * pitch),
        ),
        operators=(programs.kernel("conv_2d_1x1_s8", **operator),),
        code=(call, programs.END),
        scratch_size=aligned(lead + inputs),
        weights=weights + table.tobytes(),
    )
    return Layer(program, slice(first * pitch, None, pitch))


def selected(*kernels: str) -> str:
    return KernelSelection("OpenNeutron 1", kernels).text()


def test_fully_connected_layers_alone() -> None:
    random = np.random.default_rng(3)
    made = [layer(random) for _ in range(CASES)]
    assert {called_kernels([item.program]) for item in made} == {("conv_2d_1x1_s8:vector",)}
    cases = [Case(item.program, random_inputs(item.program, RUNS, seed)) for seed, item in enumerate(made)]
    firmware = image(library(), selection=selected("conv_2d_1x1_s8:vector"))
    for item, case, done in zip(made, cases, run(firmware, cases), strict=True):
        assert (done.prepare, [once.error for once in done.runs]) == (0, [0] * RUNS)
        wanted = on_the_host(case.program, case.inputs)
        assert [once.outputs[item.written] for once in done.runs] == [data[item.written] for data in wanted]


def refusal(kernels: str, program: Program) -> str:
    """Return the result of prepare on firmware with these kernels."""
    (done,) = run(image(library(), selection=selected(kernels)), [Case(program)])
    assert done.check == done.prepare
    with pytest.raises(DriverError) as caught:
        require("program", done.prepare)
    return str(caught.value)


def test_other_calls_of_the_kernel_are_refused() -> None:
    assert refusal("conv_2d_1x1_s8:vector", layer(np.random.default_rng(0), single_rounding=0).program) == (
        "program: a variant that the program calls of kernel conv_2d_1x1_s8 (2) is not registered: link the kernel selection "
        "of this model; error 0x40020613."
    )
    assert refusal("compare_s8:less", comparison("equal")) == (
        "program: a variant that the program calls of kernel compare_s8 (24) is not registered: link the kernel selection "
        "of this model; error 0x40180613."
    )
    assert refusal("compare_s8:less", layer(np.random.default_rng(0)).program) == (
        "program: kernel conv_2d_1x1_s8 (2) is not registered: link the kernel selection of this model; error 0x20613."
    )


def test_comparisons() -> None:
    """Each with its own variant, in firmware with that one alone."""
    for relation in RELATIONS:
        program = comparison(relation)
        inputs = random_inputs(program, RUNS)
        firmware = image(library(), selection=selected(f"compare_s8:{relation}"))
        (done,) = run(firmware, [Case(program, inputs)])
        assert [item.outputs for item in done.runs] == on_the_host(program, inputs)
