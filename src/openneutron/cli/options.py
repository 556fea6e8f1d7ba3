# SPDX-License-Identifier: BSD-3-Clause
"""Options that several commands have, and what they become."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from openneutron.compiler import CompileOptions
from openneutron.compiler.layout import ARENA, CALLER


class IoPlace(StrEnum):
    """Where inputs and outputs lie."""

    ARENA = ARENA
    CALLER = CALLER


class Border(StrEnum):
    """Type of a ``.pte``'s inputs and outputs."""

    FLOAT32 = "float32"
    INT8 = "int8"


class ConverterName(StrEnum):
    """Who compiles a partition."""

    OPEN = "open"
    EIQ = "eiq"


def compile_options(sram_budget: int | None, io_place: IoPlace, fetch_constants_to_sram: bool) -> CompileOptions:
    """The compiler's options; ``sram_budget`` is KiB."""
    return CompileOptions(
        sram_budget=None if sram_budget is None else sram_budget * 1024,
        io=io_place.value,
        fetch_constants_to_sram=fetch_constants_to_sram,
    )


def names(given: Iterable[str] | None) -> list[str]:
    """Names from options that were repeated, separated by commas, or both."""
    return [name for item in given or () for name in (part.strip() for part in item.split(",")) if name]
