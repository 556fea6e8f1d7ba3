# SPDX-License-Identifier: BSD-3-Clause
"""Define the results of a search within a budget: a schedule with addresses, the memory that would suffice, or the error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from openneutron.compiler.place.place import Layout
from openneutron.compiler.place.prefetch import ENDLESS
from openneutron.compiler.schedule.schedule import Fetch, Schedule, calls_in, fetched_sizes, overlapped_cycles
from openneutron.compiler.select.calls import Storages
from openneutron.errors import BudgetError, Suggestions
from openneutron.ir import Graph
from openneutron.targets import Target


@dataclass(frozen=True, slots=True)
class Fitted:
    """A schedule whose storages have addresses."""

    schedule: Schedule
    layout: Layout
    storages: Storages

    @property
    def sram_bytes(self) -> int:
        """Return the bytes of SRAM that the arena, the prefetch buffer and the buffers of a third region take together."""
        return self.layout.scratch_bytes + self.schedule.prefetch_bytes + self.layout.third_bytes

    def cycles(self, target: Target) -> int:
        """Return the modelled cycles of a run, with a port that copies in the background."""
        sizes = fetched_sizes(self.schedule, self.storages)
        return overlapped_cycles(self.schedule, sizes, target)


@dataclass(frozen=True, slots=True)
class Infeasible:
    """The result of a search that found no schedule for a budget.

    ``floor_bytes`` is a lower bound of the memory of all schedules. ``least_below(below)`` searches the smallest budget
    with a schedule.
    """

    floor_bytes: int
    least_below: Callable[[int], int]

    def least_bytes(self, below: int = ENDLESS) -> int:
        """Return the smallest budget in bytes for which the search finds a schedule, but at most ``below``. This may
        take as long as a compile."""
        return self.least_below(below) if self.floor_bytes < below else below


MOST_NAMED = 3
"""The maximum number of layers that a message names."""


def layers_at_peak(graph: Graph, schedule: Schedule, layout: Layout, storages: Storages) -> tuple[str, ...]:
    """Return the names of the nodes that run in the step with the most live bytes, in the order of their calls. Live
    bytes are those of tensors and of copied constants.

    The result is empty if no step has a kernel call.
    """
    steps = schedule.steps
    live = [0] * len(steps)
    for item in layout.items:
        for place in range(max(item.first, 0), min(item.last + 1, len(steps))):
            live[place] += item.size
    last_use = {call: index for index, step in enumerate(steps) for call in calls_in(step)}
    sizes = fetched_sizes(schedule, storages)
    for index, step in enumerate(steps):
        if isinstance(step, Fetch):
            for place in range(index, last_use[step.call] + 1):
                live[place] += sizes[step.call]
    running = [
        index for index, step in enumerate(steps) if any(not call.is_transfer for call in schedule.calls_of(step))
    ]
    if not running:
        return ()
    peak = max(running, key=lambda index: (live[index], -index))
    nodes = frozenset(node.name for node in graph.nodes)
    names = (call.name for call in schedule.calls_of(steps[peak]) if not call.is_transfer)
    return tuple(dict.fromkeys(_node(name, nodes) for name in names))


def _node(call: str, nodes: frozenset[str]) -> str:
    """Return the name of the node that a call computes or computes a part of. Example: the call "a/1" belongs to the
    node "a"."""
    name = call
    while name not in nodes and "/" in name:
        name = name.rpartition("/")[0]
    return name if name in nodes else call


def in_words(layers: tuple[str, ...]) -> str:
    """Return a sentence that names the first ``MOST_NAMED`` layers, for the message of a budget error; an empty text
    without layers."""
    # A converter joins the names of the operators that it fuses. The last name is that of the result.
    named, more = [f"'{name.rpartition(';')[2]}'" for name in layers[:MOST_NAMED]], len(layers) - MOST_NAMED
    if not named:
        return ""
    if more > 0:
        named.append(f"{more} more layer{'' if more == 1 else 's'}")
    listed = named[0] if len(named) == 1 else f"{', '.join(named[:-1])} and {named[-1]}"
    return f" {listed} need{'s' if len(layers) == 1 else ''} the most memory."


WITHOUT_PREFETCH = "without --prefetch-constants"


@dataclass(frozen=True, slots=True)
class Shortfall:
    """The need of a graph without a feasible schedule: the bytes of SRAM that would suffice, suggestions, and the
    layers at the peak (``layers_at_peak``)."""

    least_bytes: int
    suggestions: Suggestions
    layers: tuple[str, ...] = ()


def over_budget(
    name: str, graphs: Sequence[Shortfall | BudgetError], count: int, budget: int, target: Target
) -> BudgetError:
    """Return the error for a model of ``count`` partitions. ``graphs`` has those partitions that need more than
    ``budget`` bytes.

    The message advises a larger budget if the chip has the memory. It names only suggestions that all of ``graphs``
    have. If other partitions fit, it names only the suggestion to leave out constant prefetch, which never takes more
    memory.
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


def indivisible(name: str, least: int, outside: int, sizes: Sequence[int], target: Target) -> BudgetError:
    """Return the error for a graph whose buffers can't be divided between memory regions of these ``sizes`` in bytes.

    ``least`` bytes would suffice in a single region. ``outside`` are the bytes of other data, such as the caller's
    buffers; ``sizes`` do not include them.
    """
    listed = [f"{_kib(size)} of {region.name}" for region, size in zip(target.regions, sizes, strict=True)]
    regions = f"{', '.join(listed[:-1])} and {listed[-1]}"
    largest = max(target.regions, key=lambda region: region.size.value)
    kib = -(-(least + outside) // 1024)
    advice = (
        f"Give {largest.name} at least {kib} KiB with --sram-budget"
        if kib <= largest.size.value
        else f"The largest region of {target.name} has {largest.size.value:g} KiB: give the model a target with more memory"
    )
    beside = f" beside the {_kib(outside)} of the caller's buffers and of states" if outside else ""
    return BudgetError(
        f"'{name}': its buffers do not fit {regions}; in one region they take {_kib(least)}{beside}. "
        f"{advice}, or a smaller input.",
        least + outside,
    )


def _advice(least: int, target: Target) -> str:
    kib, there = -(-least // 1024), int(target.sram.value)
    if kib > there:
        return f"{target.name} has {there} KiB in all: give the model a target with more memory"
    return f"Give it at least {kib} KiB with --sram-budget (sram_budget={kib * 1024} in Python)"


def _kib(size: int) -> str:
    return f"{size / 1024:.1f} KiB ({size} bytes)"
