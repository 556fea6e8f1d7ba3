# SPDX-License-Identifier: BSD-3-Clause
"""What to say of a model that needs more SRAM than it may take."""

from __future__ import annotations

from collections.abc import Sequence

from openneutron.errors import BudgetError


def over_budget(name: str, least_bytes: Sequence[int], count: int, budget: int) -> BudgetError:
    """The error for a model of ``count`` partitions, of which some need ``least_bytes``: more than ``budget`` bytes each."""
    least = max(least_bytes)
    where = "" if count == 1 else f" for the largest of its {count} partitions, which run one after the other"
    return BudgetError(
        f"'{name}': it needs {least / 1024:.1f} KiB ({least} bytes) of SRAM{where}; the budget is {budget / 1024:.1f} KiB "
        f"({budget} bytes). Give it at least {-(-least // 1024)} KiB with --sram-budget (or sram_budget=), or a smaller input.",
        least,
    )
