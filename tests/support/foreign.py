# SPDX-License-Identifier: BSD-3-Clause
"""Payloads as NXP's converter is publicly known to make them: none of its bytes are here, only the documented places."""

from __future__ import annotations

import numpy as np

from openneutron.isa.microcode import Program, aligned
from openneutron.isa.payload import Format, pack
from openneutron.isa.rows import FORMAT_VERSION, MAGIC

MICROCODE, WEIGHTS, KERNELS = 1024, 512, 64
PUBLIC = {
    0: {0: MAGIC, 6: MICROCODE, 7: WEIGHTS, 9: 256, 10: 0, 11: 1, 12: 1},
    1: {0: MAGIC, 6: MICROCODE, 7: WEIGHTS, 9: 256, 10: 0, 11: 0, 12: 0, 13: 1, 14: 1},
}
"""By the payload's version: the words that ExecuTorch's NXP delegate reads, by their places."""


def foreign_program(version: int, seed: int) -> Program:
    """Random blobs with the public words in place; the second word is any but one of ours."""
    random = np.random.default_rng(seed)
    words = random.integers(0, 1 << 32, MICROCODE // 4, np.uint32)
    while words[1] >> 16 == FORMAT_VERSION >> 16:
        words[1] = random.integers(0, 1 << 32)
    for place, value in PUBLIC[version].items():
        words[place] = value
    return Program(words.astype("<u4").tobytes(), random.bytes(WEIGHTS), random.bytes(aligned(KERNELS)))


def foreign_payload(version: int, seed: int) -> bytes:
    """One input, one output."""
    formats = (Format.CONTIGUOUS,)
    return pack(foreign_program(version, seed), formats, formats, (0,), (0,), 1, version)


def refusal(program: Program) -> str:
    """The message of our tools about foreign microcode."""
    word = int.from_bytes(program.microcode[4:8], "little")
    return (
        f"microcode: its version word is 0x{word:08x}, and OpenNeutron's start with 0x4f4e: another compiler made it, such as "
        "NXP's eIQ Neutron converter, and only NXP's firmware runs that. Compile the model with OpenNeutron to run it here."
    )
