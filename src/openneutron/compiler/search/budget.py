# SPDX-License-Identifier: BSD-3-Clause
"""The SRAM budget in bytes, and the error for a model that needs more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from openneutron.compiler.search.suggestions import WITHOUT_PREFETCH
from openneutron.errors import BudgetError, InvalidOptionError, Suggestions
from openneutron.targets import Target


def budget_bytes(given: int | None, target: Target) -> int:
    """Return the budget in bytes; without one, the target's whole SRAM. Raises InvalidOptionError where the target has less."""
    there = int(target.sram.value * 1024)
    if given is None:
        return there
    if given > there:
        raise InvalidOptionError(
            f"sram_budget: it is {-(-given // 1024)} KiB; {target.name} has {there // 1024} KiB of SRAM. Give at most that."
        )
    return given


class OverBudget(Protocol):
    """A graph that needs more SRAM than its budget, see ``BudgetError``."""

    @property
    def least_bytes(self) -> int: ...
    @property
    def suggestions(self) -> Suggestions: ...


@dataclass(frozen=True, slots=True)
class Shortfall:
    """The bytes of SRAM that would suffice for a graph without a feasible schedule, and its suggestions."""

    least_bytes: int
    suggestions: Suggestions


def over_budget(name: str, graphs: Sequence[OverBudget], count: int, budget: int) -> BudgetError:
    """Return the error for a model of ``count`` partitions, of which ``graphs`` need more than ``budget`` bytes each.

    The message names only suggestions that all of ``graphs`` have. Where another partition fits as it is, the message names only
    the suggestion that never takes more memory: to leave out the constant prefetch.
    """
    least = max(each.least_bytes for each in graphs)
    kib = -(-least // 1024)
    where = "" if count == 1 else f" for the largest of its {count} partitions, which run one after the other"
    sizes = {
        words: max(each.suggestions[words] for each in graphs)
        for words in graphs[0].suggestions
        if all(words in each.suggestions for each in graphs) and (len(graphs) == count or words == WITHOUT_PREFETCH)
    }
    others = ", ".join(f"{words} it takes {_kib(size)}" for words, size in sizes.items())
    others = f" {others[0].upper()}{others[1:]}." if others else ""
    return BudgetError(
        f"'{name}': it needs {_kib(least)} of SRAM{where}; the budget is {_kib(budget)}. "
        f"Give it at least {kib} KiB with --sram-budget (sram_budget={kib * 1024} in Python), or a smaller input.{others}",
        least,
        sizes,
    )


def _kib(size: int) -> str:
    return f"{size / 1024:.1f} KiB ({size} bytes)"
