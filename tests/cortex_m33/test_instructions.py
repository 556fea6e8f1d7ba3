# SPDX-License-Identifier: BSD-3-Clause
"""Instruction counts: the instrument, and what it shows."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from openneutron.ir import Graph, Node, constant, per_tensor
from tests.cortex_m33.boards import BOARDS, Board
from tests.cortex_m33.firmware import HERE, RUNTIME, SIZE, SPEED, execute, image, library
from tests.cortex_m33.instructions import BUILDS, instructions
from tests.cortex_m33.models import NAMES, model, random_inputs
from tests.support import oracle

LEAST_DSP_RATIO = 2.5
LEAST_WIDE_RATIO = 2


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.core)
def test_the_timer_counts_instructions(board: Board) -> None:
    """Two instructions a round, and a few around the loop."""
    firmware = image(library(only=(RUNTIME / "kernels" / "check.c",)), (HERE / "loop.c", HERE / "board.c"), board=board)
    results = [execute(firmware, {}, count=True) for _ in range(2)]
    assert results[0] == results[1]
    ticks = struct.unpack("<3I", results[0].files["results"])
    for rounds, counted in zip((1000, 100_000, 10_000_000), ticks, strict=True):
        assert 0 <= board.instructions(counted) - 2 * rounds <= 2 * board.instructions(1)


@pytest.mark.parametrize("name", NAMES)
def test_a_models_instructions_are_those_of_its_kernels(name: str) -> None:
    """All but a thousandth, or a thousand: the driver looks things up for each call, and no more."""
    library()  # first: skips where the compiler is absent
    program = model(name).program
    for build, flags in BUILDS.items():
        counted = instructions(program, random_inputs(program, 1)[0], flags)
        print(f"{name}, {build} kernels: {counted.total:,} instructions")
        of_kernels = sum(counted.kernels.values())
        assert abs(counted.total - of_kernels) <= max(1000, counted.total // 1000)


def test_mobilenet_v1_takes_the_dsp_kernels_two_fifths_of_the_instructions(shared_models: Path) -> None:
    """The DSP extension multiplies two pairs of 16 bits at once; the rest is fewer loads and less looping."""
    program = model("MobileNetV1 0.25").program
    (inputs,) = random_inputs(program, 1)
    portable, dsp = (instructions(program, inputs, BUILDS[build]).total for build in ("portable", "DSP"))
    assert LEAST_DSP_RATIO * dsp <= portable


def test_a_build_for_speed_takes_no_more_instructions_than_one_for_size(shared_models: Path) -> None:
    """gcc's scheduling before register allocation is off for the DSP kernels, where it would cost a third more."""
    program = model("MobileNetV1 0.25").program
    (inputs,) = random_inputs(program, 1)
    assert instructions(program, inputs, SPEED).total <= instructions(program, inputs, SIZE).total


def _wide_layer(op: str, filters: int, kernel: int) -> Graph:
    """A convolution of 16 int16 channels with SAME padding."""
    random = np.random.default_rng(0)
    depthwise = op == "depthwise_conv_2d"
    shape = (1, kernel, kernel, 16) if depthwise else (filters, kernel, kernel, 16)
    weights = constant("w", random.integers(-127, 128, shape, np.int8), per_tensor(1e-4, 0))
    bias = constant("b", np.zeros(filters, np.int64), per_tensor(1e-7, 0))
    window = {"padding": "SAME", "stride_h": 1, "stride_w": 1, "dilation_h": 1, "dilation_w": 1}
    extra = {"depth_multiplier": 1} if depthwise else {}
    node = Node(op, ("x", "w", "b"), ("y",), {**window, "activation": "NONE", **extra})
    source, result = (oracle.wide_activation(name, (1, 8, 8, 16 if name == "x" else filters)) for name in "xy")
    return oracle.graph_of([source], [node], [weights, bias, result])


@pytest.mark.int16
@pytest.mark.without_tiles("the core of a Neutron-S is no Cortex-M33; transfers are instructions of this core too")
@pytest.mark.parametrize(("op", "kernel"), [("conv_2d", 3), ("conv_2d", 1), ("depthwise_conv_2d", 3)])
def test_convolutions_on_int16_take_the_dsp_kernels_half_the_instructions(op: str, kernel: int) -> None:
    graph = _wide_layer(op, 16, kernel)
    program = oracle.compile_graph(graph, oracle.TARGET).program
    inputs = oracle.random_inputs(graph, 0)[0].tobytes()
    portable, dsp = (instructions(program, inputs, BUILDS[build]).total for build in ("portable", "DSP"))
    assert LEAST_WIDE_RATIO * dsp <= portable
