# SPDX-License-Identifier: BSD-3-Clause
"""Small programs made by hand, record by record, with nothing of the compiler."""

from __future__ import annotations

import numpy as np

from openneutron.isa import Microcode, Program, Record, aligned, base, encode, record
from openneutron.isa.rows import BINDING, BUFFER, INSTRUCTION_BY_NAME, KERNEL_BY_NAME

TABLE = np.arange(-128, 128).astype(np.int8)[::-1].copy()
"""A lookup table that turns x into -1 - x."""


def binding(kind: str, index: int, size: int, offset: int = 0) -> Record:
    return record(BINDING, base=base(kind, index), offset=offset, size=size)


def dense(kind: str, index: int, shape: tuple[int, int, int, int], offset: int = 0, **changes: int) -> Record:
    """A whole tensor without gaps; ``changes`` replace single fields."""
    n, h, w, c = shape
    fields = {
        "base": base(kind, index),
        "offset": offset,
        "batches": n,
        "rows": h,
        "cols": w,
        "channels": c,
        "batch_pitch": h * w * c,
        "row_pitch": w * c,
        "col_pitch": c,
        "channel_pitch": 1,
        "ring": h,
        "col0": 0,
        "cols_held": w,
        "channel0": 0,
        "channels_held": c,
    }
    return record(BUFFER, **{**fields, **changes})


def kernel(name: str, **fields: int) -> Record:
    return record(KERNEL_BY_NAME[name], **fields)


def lookup(source: int, output: int) -> Record:
    return kernel("lookup_s8", input=source, output=output, table_base=base("WEIGHTS"), table_offset=0)


def instruction(name: str, **fields: int) -> Record:
    return record(INSTRUCTION_BY_NAME[name], **fields)


def call(operator: int, cycles: int = 10) -> Record:
    return instruction("CALL", operator=operator, cycles=cycles)


def rows(operator: int, row0: int, row1: int, step: int = 0, cycles: int = 10) -> Record:
    return instruction("ROWS", operator=operator, cycles=cycles, row0=row0, row1=row1, step=step)


END = instruction("END")


def program(
    inputs: tuple[Record, ...],
    outputs: tuple[Record, ...],
    buffers: tuple[Record, ...],
    operators: tuple[Record, ...],
    code: tuple[Record, ...],
    scratch_size: int = 0,
    prefetch_size: int = 0,
    profile_size: int = 0,
    weights: bytes = TABLE.tobytes(),
    states: tuple[Record, ...] = (),
    state_size: int = 0,
    far_size: int = 0,
) -> Program:
    names = tuple(f"{operator.row.name} {i}" for i, operator in enumerate(operators))
    weights += bytes(aligned(len(weights)) - len(weights))
    sizes = scratch_size, prefetch_size, profile_size
    made = Microcode(
        inputs,
        outputs,
        buffers,
        operators,
        code,
        *sizes,
        names=names,
        states=states,
        state_size=state_size,
        far_size=far_size,
    )
    return encode(made, weights)


def inverted_twice(shape: tuple[int, int, int, int] = (1, 6, 5, 3), profile_size: int = 0) -> Program:
    """Two lookups after each other, through a scratch tensor at offset 16: the output is the input."""
    size = int(np.prod(shape))
    return program(
        inputs=(binding("INPUT", 0, size),),
        outputs=(binding("OUTPUT", 0, size),),
        buffers=(dense("INPUT", 0, shape), dense("SCRATCH", 0, shape, 16), dense("OUTPUT", 0, shape)),
        operators=(lookup(0, 1), lookup(1, 2)),
        code=(call(0, 100), call(1, 50), END),
        scratch_size=aligned(16 + size),
        profile_size=profile_size,
    )


def striped(shape: tuple[int, int, int, int] = (1, 7, 4, 2)) -> Program:
    """The same through a rolling buffer of two rows, in a loop of two-row stripes that overhangs the last row."""
    _, h, w, c = shape
    size = h * w * c
    return program(
        inputs=(binding("INPUT", 0, size),),
        outputs=(binding("OUTPUT", 0, size),),
        buffers=(
            dense("INPUT", 0, shape),
            dense("SCRATCH", 0, shape, ring=min(2, h)),
            dense("OUTPUT", 0, shape),
        ),
        operators=(lookup(0, 1), lookup(1, 2)),
        code=(
            instruction("LOOP", count=(h + 1) // 2, body_words=12),
            rows(0, 0, 2, 2),
            rows(1, 0, 2, 2),
            END,
        ),
        scratch_size=aligned(2 * w * c),
    )


def through_scratch(shape: tuple[int, int, int, int] = (1, 2, 8, 8)) -> Program:
    """Input and output live inside the scratch buffer, where the driver copies them."""
    size = int(np.prod(shape))
    return program(
        inputs=(binding("SCRATCH", 0, size, 0),),
        outputs=(binding("SCRATCH", 0, size, aligned(size)),),
        buffers=(dense("SCRATCH", 0, shape), dense("SCRATCH", 0, shape, aligned(size))),
        operators=(lookup(0, 1),),
        code=(call(0), END),
        scratch_size=2 * aligned(size),
    )


def through_far(shape: tuple[int, int, int, int] = (1, 2, 8, 8)) -> Program:
    """The output lives inside the far buffer, from where the driver copies it."""
    size = int(np.prod(shape))
    return program(
        inputs=(binding("INPUT", 0, size),),
        outputs=(binding("FAR", 0, size, 16),),
        buffers=(dense("INPUT", 0, shape), dense("FAR", 0, shape, 16)),
        operators=(lookup(0, 1),),
        code=(call(0), END),
        far_size=16 + aligned(size),
    )


def fetched(shape: tuple[int, int, int, int] = (1, 2, 8, 8), to: str = "PREFETCH") -> Program:
    """The table comes to SRAM first: to the prefetch buffer, or to the scratch buffer."""
    size = int(np.prod(shape))
    operator = kernel("lookup_s8", input=0, output=1, table_base=base(to), table_offset=64)
    return program(
        inputs=(binding("INPUT", 0, size),),
        outputs=(binding("OUTPUT", 0, size),),
        buffers=(dense("INPUT", 0, shape), dense("OUTPUT", 0, shape)),
        operators=(operator,),
        code=(
            instruction("FETCH", source=0, base=base(to), destination=64, size=256, channel=3),
            instruction("WAIT", channel=3),
            call(0),
            END,
        ),
        **{"PREFETCH": {"prefetch_size": 320}, "SCRATCH": {"scratch_size": 320}}[to],
    )


Shape = tuple[int, int, int, int]


def two_ports(shapes: tuple[Shape, Shape] = ((1, 3, 2, 5), (1, 4, 4, 3))) -> Program:
    """Two inputs and two outputs of different sizes; each output is its input through the table."""
    sizes = tuple(int(np.prod(shape)) for shape in shapes)
    return program(
        inputs=tuple(binding("INPUT", i, size) for i, size in enumerate(sizes)),
        outputs=tuple(binding("OUTPUT", i, size) for i, size in enumerate(sizes)),
        buffers=(
            *(dense("INPUT", i, shape) for i, shape in enumerate(shapes)),
            *(dense("OUTPUT", i, shape) for i, shape in enumerate(shapes)),
        ),
        operators=(lookup(0, 2), lookup(1, 3)),
        code=(call(0), call(1), END),
    )


RELATIONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")


def comparison(relation: str) -> Program:
    """Return a program that compares (relation) 90 bytes with a constant: -128 to -39, where the input of no_heap.c is 0 to 89."""
    shape, scale = (1, 6, 5, 3), {"a_multiplier": 1 << 30, "b_multiplier": 1 << 30, "a_shift": 0, "b_shift": 0}
    operator = kernel(
        "compare_s8",
        input_a=0,
        input_b=1,
        output=2,
        a_zero_point=0,
        b_zero_point=0,
        relation=RELATIONS.index(relation),
        **scale,
    )
    return program(
        inputs=(binding("INPUT", 0, 90),),
        outputs=(binding("OUTPUT", 0, 90),),
        buffers=(
            dense("INPUT", 0, shape),
            dense("WEIGHTS", 0, shape, base=base("WEIGHTS")),
            dense("OUTPUT", 0, shape),
        ),
        operators=(operator,),
        code=(call(0), END),
        scratch_size=16,
        weights=bytes((place + 128) % 256 for place in range(96)),
    )
