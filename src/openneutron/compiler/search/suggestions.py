# SPDX-License-Identifier: BSD-3-Clause
"""Which other options let a graph run within a budget that it does not fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from openneutron.compiler.search.fit import Fitted, Wanted, fit
from openneutron.compiler.select.calls import KernelCall
from openneutron.compiler.select.storage import Storages
from openneutron.errors import WaysOut
from openneutron.options import ARENA, CALLER

WITHOUT_COPIES = "without --prefetch-constants"
ELSEWHERE = {ARENA: "with --io-place caller", CALLER: "with --io-place arena"}


def ways_out(
    calls: Sequence[KernelCall], storages: Storages, wanted: Wanted, budget: int, border_bytes: Sequence[int]
) -> WaysOut:
    """What to do about a budget that is too small, in words, and the bytes it then takes: what fits alone.

    ``border_bytes`` are those of the inputs and of the outputs, which none of it makes smaller. ``storages`` are those before
    ``in_place``.
    """
    found = {}
    elsewhere = ARENA if wanted.io == CALLER else CALLER
    if wanted.fetch_constants:
        found[WITHOUT_COPIES] = replace(wanted, fetch_constants=False)
    found[ELSEWHERE[wanted.io]] = replace(wanted, io=elsewhere)
    if wanted.fetch_constants:
        found[f"{WITHOUT_COPIES} and {ELSEWHERE[wanted.io]}"] = replace(wanted, fetch_constants=False, io=elsewhere)
    ways: dict[str, int] = {}
    for words, other in found.items():
        outside = sum(border_bytes) if other.io == CALLER else 0
        if max(outside, *border_bytes) > budget or any(way in words for way in ways):
            continue
        fitted = fit(calls, storages, other, budget - outside)
        if isinstance(fitted, Fitted):
            ways[words] = fitted.sram_bytes + outside
    return ways
