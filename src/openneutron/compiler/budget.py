# SPDX-License-Identifier: BSD-3-Clause
"""What to say of a model that needs more SRAM than it may take."""

from __future__ import annotations

from collections.abc import Sequence

from openneutron.errors import BudgetError, InvalidOptionError
from openneutron.targets import Target


def budget_bytes(given: int | None, target: Target) -> int:
    """The budget in bytes, the target's whole SRAM where none is given. Raises InvalidOptionError where the target has less."""
    there = int(target.sram.value * 1024)
    if given is None:
        return there
    if given > there:
        raise InvalidOptionError(
            f"sram_budget: it is {-(-given // 1024)} KiB; {target.name} has {there // 1024} KiB of SRAM. Give at most that."
        )
    return given


def over_budget(name: str, least_bytes: Sequence[int], count: int, budget: int) -> BudgetError:
    """The error for a model of ``count`` partitions, of which some need ``least_bytes``: more than ``budget`` bytes each."""
    least = max(least_bytes)
    where = "" if count == 1 else f" for the largest of its {count} partitions, which run one after the other"
    return BudgetError(
        f"'{name}': it needs {least / 1024:.1f} KiB ({least} bytes) of SRAM{where}; the budget is {budget / 1024:.1f} KiB "
        f"({budget} bytes). Give it at least {-(-least // 1024)} KiB with --sram-budget (or sram_budget=), or a smaller input.",
        least,
    )
