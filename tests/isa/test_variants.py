# SPDX-License-Identifier: BSD-3-Clause
"""Python, which chooses the variants of a kernel selection, and C, which the driver calls, agree on the variant of a call."""

from __future__ import annotations

import ctypes
import subprocess

import numpy as np
import pytest

from openneutron.errors import InvalidProgramError
from openneutron.isa import rows
from openneutron.isa.kernel_selection import variant_of
from openneutron.isa.kernels.row import Row
from openneutron.isa.microcode import Record
from tests.support.runtime_builds import INCLUDES, WARNINGS, c_compiler

TAKES = """
#include "kernel.h"
#define NEUTRON_KERNEL(...)
#define NEUTRON_VARIANT(id, name, variant, params, taps, condition)                            \\
    bool name##_##variant(const NeutronBuffer *buffers, const void *params_block);             \\
    bool name##_##variant(const NeutronBuffer *buffers, const void *params_block) {            \\
        const params *p = params_block;                                                        \\
        (void)buffers, (void)p;                                                                \\
        return (condition);                                                                    \\
    }
#include "kernels.def"
"""
WITH_VARIANTS = [row for row in rows.KERNELS if row.variants]
BUFFERS = 4


@pytest.fixture(scope="module")
def takes(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("takes")
    (folder / "takes.c").write_text(TAKES)
    library = folder / "takes.so"
    flags = [*WARNINGS, *INCLUDES, "-O1", "-shared", "-fPIC"]
    subprocess.run([c_compiler(), *flags, folder / "takes.c", "-o", library], check=True)
    return ctypes.CDLL(str(library))


@pytest.mark.parametrize("row", WITH_VARIANTS, ids=lambda row: row.name)
def test_the_driver_and_the_compiler_choose_alike(takes: ctypes.CDLL, row: Row) -> None:
    random = np.random.default_rng(row.code)
    compared = {item.value for variant in row.variants for item in variant.conditions}
    values = sorted({near for value in compared for near in (value - 1, value, value + 1)})
    chosen = set()
    for _ in range(400):
        words = random.choice(values, len(row.fields))
        for place, column in enumerate(row.fields):
            if column.refers == "buffer" or not column.signed:
                words[place] = random.integers(BUFFERS)
        if random.random() < 0.5:  # most conditions of one variant at once
            for condition in random.choice(row.variants).conditions:
                if condition.field in row.places and random.random() < 0.9:
                    words[row.places[condition.field]] = condition.value
        table = np.maximum(random.choice(values, (BUFFERS, len(rows.BUFFER.fields))), 0)
        buffers = tuple(Record(rows.BUFFER, tuple(map(int, line))) for line in table)
        wanted = variant_of(Record(row, tuple(map(int, words))), buffers)
        lines, block = table.astype("<i4"), words.astype("<i4")
        taken = [
            variant
            for variant in row.variants
            if getattr(takes, f"{row.name}_{variant.name}")(
                lines.ctypes.data_as(ctypes.c_void_p), block.ctypes.data_as(ctypes.c_void_p)
            )
            & 1
        ]
        assert wanted == (taken[0] if taken else None)
        chosen.add(None if wanted is None else wanted.name)
    assert chosen - {None} == {variant.name for variant in row.variants}


def test_a_buffer_that_is_not_there() -> None:
    row = rows.KERNEL_BY_NAME["conv_2d_1x1_s8"]
    words = tuple({"input": 7, "single_rounding": 1}.get(column.name, 0) for column in row.fields)
    with pytest.raises(InvalidProgramError) as caught:
        variant_of(Record(row, words), ())
    assert str(caught.value) == "microcode: conv_2d_1x1_s8 refers to buffer 7; there are 0."
