# SPDX-License-Identifier: BSD-3-Clause
"""What to say of a model that needs more SRAM than it may take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from openneutron.compiler.search.suggestions import WITHOUT_COPIES
from openneutron.errors import BudgetError, InvalidOptionError, WaysOut
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


class Short(Protocol):
    """What needs more than it may take, see ``BudgetError``."""

    @property
    def least_bytes(self) -> int: ...
    @property
    def ways_out(self) -> WaysOut: ...


def over_budget(name: str, short: Sequence[Short], count: int, budget: int) -> BudgetError:
    """The error for a model of ``count`` partitions, of which these need more than ``budget`` bytes each.

    Only ways out that all of them have are named; where some partition fits as it is, only those that ask for less.
    """
    least = max(each.least_bytes for each in short)
    where = "" if count == 1 else f" for the largest of its {count} partitions, which run one after the other"
    ways = {
        words: max(each.ways_out[words] for each in short)
        for words in short[0].ways_out
        if all(words in each.ways_out for each in short) and (len(short) == count or words == WITHOUT_COPIES)
    }
    kib = -(-least // 1024)
    others = ", ".join(f"{words} it takes {_kib(size)}" for words, size in ways.items())
    others = f" {others[0].upper()}{others[1:]}." if others else ""
    return BudgetError(
        f"'{name}': it needs {_kib(least)} of SRAM{where}; the budget is {_kib(budget)}. "
        f"Give it at least {kib} KiB with --sram-budget (sram_budget={kib * 1024} in Python), or a smaller input.{others}",
        least,
        ways,
    )


def _kib(size: int) -> str:
    return f"{size / 1024:.1f} KiB ({size} bytes)"
