# SPDX-License-Identifier: BSD-3-Clause
"""The boards of QEMU that the tests' firmware runs on: one row each.

Sources: Arm's application notes DAI 0385, 0386, 0500, 0505 and 0547 (memory maps, clocks), and ``info mtree`` of QEMU 7.2.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

KIB, MIB = 1 << 10, 1 << 20
GUARDED = 64 * KIB
"""Bytes at the end of the data memory that the linker leaves free, for inputs whose last byte is the memory's last byte."""


@dataclass(frozen=True, slots=True)
class Memory:
    """A range of addresses."""

    origin: int
    length: int


@dataclass(frozen=True, slots=True)
class Board:
    """A machine of QEMU with its core, its memories and a timer that counts up to 2^32.

    ``flags`` follow those of the library for a Cortex-M33 and replace them. ``flash`` takes the part of a flash that a test may lock.
    ``guards`` are two addresses behind which there is no memory, the first of them behind the guarded bytes of ``data``, where
    ``data`` may be mapped a second time; behind the other one the same holds for ``flash``.
    """

    machine: str
    core: str
    flags: tuple[str, ...]
    code: Memory
    flash: Memory
    data: Memory
    large: Memory
    guards: tuple[int, int]
    timer: int
    timer_hertz: int
    counts_up: bool = False
    """The timer is the system counter of an SSE-300, else a dual timer of the CMSDK."""
    traps_unaligned: bool = False
    """CCR.UNALIGN_TRP is set."""

    def instructions(self, ticks: int) -> int:
        """Return the instructions in so many ticks, each of which takes one nanosecond with ``-icount shift=0``."""
        return ticks * 10**9 // self.timer_hertz

    def symbols(self) -> dict[str, int]:
        """Return the symbols that board.ld and board.c need."""
        memories = {name: getattr(self, name) for name in ("code", "flash", "data", "large")}
        return {
            **{f"{name}_origin": memory.origin for name, memory in memories.items()},
            **{f"{name}_length": memory.length for name, memory in memories.items()},
            "data_guard": self.guards[0],
            "flash_guard": self.guards[1],
            "board_timer": self.timer,
            "board_counts_up": int(self.counts_up),
            "board_traps_unaligned": int(self.traps_unaligned),
        }


CORTEX_M33 = Board(
    machine="mps2-an505",
    core="Cortex-M33",
    flags=(),
    code=Memory(0x10000000, 2 * MIB),
    flash=Memory(0x10200000, 2 * MIB),
    data=Memory(0x38000000, 4 * MIB - GUARDED),
    large=Memory(0x80000000, 16 * MIB),
    guards=(0x38400000, 0x10400000),
    timer=0x50002000,
    timer_hertz=20_000_000,
)
CORTEX_M3 = Board(
    machine="mps2-an385",
    core="Cortex-M3",
    flags=("-mcpu=cortex-m3",),
    code=Memory(0x00000000, 2 * MIB),
    flash=Memory(0x00200000, 2 * MIB),
    data=Memory(0x20000000, 4 * MIB - GUARDED),
    large=Memory(0x21000000, 16 * MIB),
    guards=(0x20800000, 0x00800000),
    timer=0x40002000,
    timer_hertz=25_000_000,
)
CORTEX_M4 = replace(CORTEX_M3, machine="mps2-an386", core="Cortex-M4", flags=("-mcpu=cortex-m4",))
CORTEX_M7 = replace(
    CORTEX_M3,
    machine="mps2-an500",
    core="Cortex-M7",
    flags=("-mcpu=cortex-m7",),
    large=Memory(0x60000000, 16 * MIB),
)
CORTEX_M55 = Board(
    machine="mps3-an547",
    core="Cortex-M55",
    flags=("-mcpu=cortex-m55+nofp", "-mfloat-abi=hard"),
    code=Memory(0x10000000, 512 * KIB),
    flash=Memory(0x11000000, 2 * MIB),
    data=Memory(0x31000000, 4 * MIB - GUARDED),
    large=Memory(0x70000000, 16 * MIB),
    guards=(0x31400000, 0x11200000),
    timer=0x58100000,
    timer_hertz=32_000_000,
    counts_up=True,
)
BOARDS = (CORTEX_M3, CORTEX_M4, CORTEX_M7, CORTEX_M33, CORTEX_M55)
TRAPPING_CORTEX_M4 = replace(CORTEX_M4, flags=(*CORTEX_M4.flags, "-mno-unaligned-access"), traps_unaligned=True)
"""A Cortex-M4 on which an access to an unaligned address is a fault."""
