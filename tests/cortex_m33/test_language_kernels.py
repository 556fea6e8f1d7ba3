# SPDX-License-Identifier: BSD-3-Clause
"""The products and the attention of language models give the host's bytes on a Cortex-M33, with the DSP extension and without it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

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
from tests.language.arithmetic import Heads
from tests.language.kernel_calls import ONE_PART, PARTS, attention_call, linear_call, random_matrix, span

BOARD = replace(CORTEX_M33, flags=("-mfpu=fpv5-sp-d16", "-mfloat-abi=hard"))
FLAGS = {"dsp": SPEED, "portable": (*SPEED, "-DNEUTRON_PORTABLE_ONLY")}
SOURCES = (
    *sorted(RUNTIME.glob("driver/*.c")),
    *(RUNTIME / "kernels" / name for name in ("check.c", "elements_16.c")),
    *(RUNTIME / "kernels" / f"{name}/{name}_f32.c" for name in ("dynamic_linear", "cached_attention")),
)
"""Of all kernels those that are run."""

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


@dataclass(frozen=True, slots=True)
class Runs:
    """A program, and the bytes of its output that each run computes."""

    case: Case
    sizes: tuple[int, ...]


def linear_runs() -> Iterator[Runs]:
    """Yield runs of several numbers of rows for each form of weights, with weights of one core and of four."""
    random, target = np.random.default_rng(7), targets.described("cortex-m33")
    for group in (0, *jobs.GROUPS):
        for release, sizes in (("third", ONE_PART), ("first", PARTS)):
            for matrix in (random_matrix(group, CHANNELS, COLUMNS, group), *([any_scales(group)] if group else [])):
                program = linear_call(matrix, release, sizes, ROWS, MEMORY, add=1).program(target)
                x = random.normal(size=(ROWS, COLUMNS)).astype(np.float32)
                residual = random.normal(size=(ROWS, CHANNELS)).astype(np.float32)
                inputs = tuple(x.tobytes() + residual.tobytes() + span(0, count).tobytes() for count in COUNTS)
                yield Runs(Case(program, inputs), tuple(4 * count * CHANNELS for count in COUNTS))


def attention_runs() -> Iterator[Runs]:
    """Yield runs at several positions for heads whose sizes are multiples of 8, of 4, of 1, and the largest one."""
    random, target = np.random.default_rng(8), targets.described("cortex-m33")
    for size in (24, 20, 7, 512):
        facts = Heads(4, 2, size, size**-0.5, window=9)
        program = attention_call(facts, 24, 8).program(target)
        inputs = []
        for position, count in ((0, 8), (8, 1), (9, 3)):
            x = random.normal(size=(8, 8 * size)).astype(np.float32)
            inputs.append(x.tobytes() + span(position, count).tobytes())
        yield Runs(Case(program, tuple(inputs)), tuple(4 * count * 4 * size for count in (8, 1, 3)))


@pytest.mark.parametrize("flags", FLAGS)
def test_the_bytes_are_those_of_the_host(flags: str) -> None:
    made = [*linear_runs(), *attention_runs()]
    cases = [each.case for each in made]
    selection = KernelSelection("OpenNeutron", called_kernels([case.program for case in cases])).text()
    firmware = image(library(FLAGS[flags], only=SOURCES, board=BOARD), selection=selection, board=BOARD)
    for number, (runs, done) in enumerate(zip(made, run(firmware, cases), strict=True)):
        assert (done.prepare, [once.error for once in done.runs]) == (0, [0] * len(runs.sizes)), number
        for size, once, expected in zip(
            runs.sizes, done.runs, on_the_host(runs.case.program, runs.case.inputs), strict=True
        ):
            assert once.outputs[:size] == expected[:size], (number, size)
