# SPDX-License-Identifier: BSD-3-Clause
"""What a user may ask of the compiler."""

from __future__ import annotations

from dataclasses import dataclass
from typing import SupportsIndex

from openneutron.errors import InvalidOptionError

ARENA = "arena"
CALLER = "caller"
IO_PLACES = (ARENA, CALLER)
"""The places of inputs and outputs: inside the arena, where their memory is reused after their last use and a run copies
them, or in the caller's buffers."""

DEFAULT_EFFORT = "default"
HIGH_EFFORT = "high"
EFFORTS = (DEFAULT_EFFORT, HIGH_EFFORT)
"""The efforts of the search for a schedule."""


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """``sram_budget`` is bytes, for the arena, inputs and outputs, and the prefetch buffer; None is the target's SRAM.

    ``io`` is where inputs and outputs lie, see ``IO_PLACES``. ``fetch_constants_to_sram`` copies each operator's
    constants to SRAM ahead of their use, for constants that lie in flash; the budget bounds the memory for them too.
    ``profile`` makes room for an event for each kernel call of a run. ``effort`` is how far to look for a good schedule, see
    ``EFFORTS``.
    ``check`` goes through each program byte by byte before it is handed out (compiler/emit/audit).
    """

    sram_budget: int | None = None
    io: str = ARENA
    fetch_constants_to_sram: bool = False
    profile: bool = False
    check: bool = False
    effort: str = DEFAULT_EFFORT

    def __post_init__(self) -> None:
        if self.io not in IO_PLACES:
            raise InvalidOptionError(f"io: '{self.io}' is no place for inputs and outputs; there are {IO_PLACES}.")
        if self.effort not in EFFORTS:
            known = " and ".join(repr(each) for each in EFFORTS)
            raise InvalidOptionError(f"effort: '{self.effort}' is none; there are {known}.")
        if self.sram_budget is not None and not _is_whole(self.sram_budget):
            raise InvalidOptionError(f"sram_budget: it is {self.sram_budget!r}; a budget is a whole number of bytes.")
        if self.sram_budget is not None and self.sram_budget <= 0:
            raise InvalidOptionError(f"sram_budget: it is {self.sram_budget} bytes; a budget is above 0.")


def kib_in_bytes(sram_budget: int | None) -> int | None:
    """A budget in KiB as bytes. Raises InvalidOptionError where it is no whole number above 0."""
    if sram_budget is None:
        return None
    if not _is_whole(sram_budget) or sram_budget <= 0:
        raise InvalidOptionError(f"sram_budget: it is {sram_budget!r}; a budget is a whole number of KiB above 0.")
    return sram_budget * 1024


def _is_whole(number: object) -> bool:
    return isinstance(number, SupportsIndex) and not isinstance(number, bool)
