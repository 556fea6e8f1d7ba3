# SPDX-License-Identifier: BSD-3-Clause
"""The error of a model that needs more memory than its budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from openneutron.compiler.search.layers import in_words
from openneutron.errors import BudgetError, Suggestions
from openneutron.targets import Target

WITHOUT_PREFETCH = "without --prefetch-constants"


@dataclass(frozen=True, slots=True)
class Shortfall:
    """The bytes of SRAM that would suffice for a graph without a feasible schedule, its suggestions, and ``layers_at_peak``."""

    least_bytes: int
    suggestions: Suggestions
    layers: tuple[str, ...] = ()


def over_budget(
    name: str, graphs: Sequence[Shortfall | BudgetError], count: int, budget: int, target: Target
) -> BudgetError:
    """Return the error for a model of ``count`` partitions, of which ``graphs`` need more than ``budget`` bytes each.

    The message advises a larger budget where the chip has the memory. It names only suggestions that all of ``graphs`` have. Where
    another partition fits as it is, the message names only the suggestion that never takes more memory: to leave out the constant
    prefetch.
    """
    largest = max(graphs, key=lambda each: each.least_bytes)
    least = largest.least_bytes
    where = "" if count == 1 else f" for the largest of its {count} partitions, which run one after the other"
    sizes = {
        words: max(each.suggestions[words] for each in graphs)
        for words in graphs[0].suggestions
        if all(words in each.suggestions for each in graphs) and (len(graphs) == count or words == WITHOUT_PREFETCH)
    }
    others = ", ".join(f"{words} it takes {_kib(size)}" for words, size in sizes.items())
    others = f" {others[0].upper()}{others[1:]}." if others else ""
    return BudgetError(
        f"'{name}': it needs {_kib(least)} of SRAM{where}; the budget is {_kib(budget)}.{in_words(largest.layers)} "
        f"{_advice(least, target)}, or a smaller input.{others}",
        least,
        sizes,
        largest.layers,
    )


def _advice(least: int, target: Target) -> str:
    kib, there = -(-least // 1024), int(target.sram.value)
    if kib > there:
        return f"{target.name} has {there} KiB in all: give the model a target with more memory"
    return f"Give it at least {kib} KiB with --sram-budget (sram_budget={kib * 1024} in Python)"


def _kib(size: int) -> str:
    return f"{size / 1024:.1f} KiB ({size} bytes)"
