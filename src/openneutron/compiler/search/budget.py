# SPDX-License-Identifier: BSD-3-Clause
"""The fastest schedule within the SRAM budget, or the error that names the least budget and other options."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from openneutron.compiler.memory.layout import io_outside
from openneutron.compiler.search.fit import Fitted, Infeasible, fit
from openneutron.compiler.select.calls import KernelCall, Storages
from openneutron.compiler.select.select import Selection
from openneutron.errors import BudgetError, InvalidOptionError, Suggestions
from openneutron.ir import Graph
from openneutron.options import ARENA, CALLER, CompileOptions
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


WITHOUT_PREFETCH = "without --prefetch-constants"
ELSEWHERE = {ARENA: "with --io-place caller", CALLER: "with --io-place arena"}


def suggestions(
    graph: Graph,
    calls: Sequence[KernelCall],
    storages: Storages,
    target: Target,
    options: CompileOptions,
    budget: int,
) -> Suggestions:
    """Return the other options under which a graph fits ``budget`` bytes, in words, and the bytes it then takes.

    A combination of two options is a suggestion only where neither option suffices alone. ``storages`` are those before
    ``in_place``.
    """
    # No option makes the inputs or the outputs smaller.
    io_bytes = [sum(graph[name].size_bytes for name in names) for names in (graph.inputs, graph.outputs)]
    found: dict[str, int] = {}
    for words, other in _others(options).items():
        outside = io_outside(graph, other.place)
        if max(outside, *io_bytes) > budget or any(each in words for each in found):
            continue
        fitted = fit(calls, storages, target, other, budget - outside)
        if isinstance(fitted, Fitted):
            found[words] = fitted.sram_bytes + outside
    return found


def _others(options: CompileOptions) -> dict[str, CompileOptions]:
    """Return the options that are tried instead, in words, single changes before their combination."""
    elsewhere = replace(options, io_place=ARENA if options.place == CALLER else CALLER)
    if not options.prefetch_constants:
        return {ELSEWHERE[options.place]: elsewhere}
    return {
        WITHOUT_PREFETCH: replace(options, prefetch_constants=False),
        ELSEWHERE[options.place]: elsewhere,
        f"{WITHOUT_PREFETCH} and {ELSEWHERE[options.place]}": replace(elsewhere, prefetch_constants=False),
    }


def within_budget(graph: Graph, selected: Sequence[Selection], target: Target, options: CompileOptions) -> Fitted:
    """Return the fastest feasible schedule of all selections of a graph. Raises BudgetError where there is no such schedule."""
    budget = budget_bytes(options.sram_budget, target)
    outside = io_outside(graph, options.place)
    found = [fit(calls, storages, target, options, budget - outside) for storages, calls in selected]
    feasible = [each for each in found if not isinstance(each, Infeasible)]
    if feasible:
        return min(feasible, key=lambda each: (each.cycles(target), each.sram_bytes))
    too_little = [(each, pair) for each, pair in zip(found, selected, strict=True) if isinstance(each, Infeasible)]
    least, (storages, calls) = _least(too_little)
    others = suggestions(graph, calls, storages, target, options, budget)
    raise over_budget(graph.name, [Shortfall(least + outside, others)], 1, budget)


def _least(found: Sequence[tuple[Infeasible, Selection]]) -> tuple[int, Selection]:
    """Return the smallest sufficient size in bytes and its selection; of equal sizes the first selection."""
    best: tuple[int, int] | None = None
    for index in sorted(range(len(found)), key=lambda index: found[index][0].floor_bytes):
        # One byte more: an earlier selection of the same size wins.
        least = found[index][0].least_bytes() if best is None else found[index][0].least_bytes(best[0] + 1)
        best = (least, index) if best is None else min(best, (least, index))
    assert best is not None
    return best[0], found[best[1]][1]
