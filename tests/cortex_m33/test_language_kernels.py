# SPDX-License-Identifier: BSD-3-Clause
"""The products of language models give the host's bytes on a Cortex-M33, with the DSP extension and without it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from openneutron import targets
from openneutron.device import neutron_jobs as jobs
from openneutron.isa.kernel_selection import KernelSelection, called_kernels
from openneutron.language.decoder import Matrix
from tests.cortex_m33.boards import CORTEX_M33
from tests.cortex_m33.cases import Case, run
from tests.cortex_m33.firmware import RUNTIME, SPEED, image, library
from tests.cortex_m33.models import on_the_host
from tests.language.kernel_calls import ONE_PART, PARTS, linear_call, random_matrix

BOARD = replace(CORTEX_M33, flags=("-mfpu=fpv5-sp-d16", "-mfloat-abi=hard"))
FLAGS = {"dsp": SPEED, "portable": (*SPEED, "-DNEUTRON_PORTABLE_ONLY")}
SOURCES = (
    *sorted(RUNTIME.glob("driver/*.c")),
    *(RUNTIME / "kernels" / name for name in ("check.c", "elements_16.c", "dynamic_linear/dynamic_linear_f32.c")),
)
"""Of all kernels the one that is run."""

COUNTS = (1, 3, 4, 10)
ROWS, MEMORY, CHANNELS, COLUMNS = 10, 9, 87, 329
"""Of int4 weights, the last group of columns has zeros behind it."""


def any_scales(group: int) -> Matrix:
    """Return int4 weights with decode scales and biases of any bits: integers that saturate, round to 0 or have other biases than 0 and 1."""
    random = np.random.default_rng(group)
    groups = jobs.padded_k(COLUMNS, group) // group
    codes = random.integers(-8, 8, (CHANNELS, groups * group), np.int8)
    codes[:, COLUMNS:] = 0
    shifts = random.choice([0, 1, 4, 6, 7, 8, 13, 14, 15, 31, 63], (CHANNELS, groups))
    scales = (shifts << 10 | random.integers(0, 1024, (CHANNELS, groups))).astype(np.uint16).view(np.int16)
    biases = random.choice([0, 0, 1, 1, -1, 2, -128, 127], (CHANNELS, groups)).astype(np.int8)
    weights = jobs.Int4Weights(codes, scales, biases, group)
    return Matrix(weights.values[:, :COLUMNS], random.random(CHANNELS, np.float32), weights)


def cases() -> list[Case]:
    """Return runs of several numbers of rows for each form of weights, with weights of one core and of four."""
    random, target, made = np.random.default_rng(7), targets.described("cortex-m33"), []
    for group in (0, *jobs.GROUPS):
        for release, sizes in (("third", ONE_PART), ("first", PARTS)):
            for matrix in (random_matrix(group, CHANNELS, COLUMNS, group), *([any_scales(group)] if group else [])):
                program = linear_call(matrix, release, sizes, ROWS, MEMORY, add=1).program(target)
                x = random.normal(size=(ROWS, COLUMNS)).astype(np.float32)
                residual = random.normal(size=(ROWS, CHANNELS)).astype(np.float32)
                spans = [np.array([0, count], np.int64) for count in COUNTS]
                made.append(Case(program, tuple(x.tobytes() + residual.tobytes() + each.tobytes() for each in spans)))
    return made


@pytest.mark.parametrize("flags", FLAGS)
def test_linear_layers_give_the_hosts_bytes(flags: str) -> None:
    made = cases()
    selection = KernelSelection("OpenNeutron", called_kernels([made[0].program])).text()
    firmware = image(library(FLAGS[flags], only=SOURCES, board=BOARD), selection=selection, board=BOARD)
    for number, (case, done) in enumerate(zip(made, run(firmware, made), strict=True)):
        assert (done.prepare, [once.error for once in done.runs]) == (0, [0] * len(COUNTS)), number
        for count, once, expected in zip(COUNTS, done.runs, on_the_host(case.program, case.inputs), strict=True):
            size = 4 * count * CHANNELS
            assert once.outputs[:size] == expected[:size], (number, count)
