# SPDX-License-Identifier: BSD-3-Clause
"""The smallest arena by CP-SAT; one worker and limits in work, not in seconds, keep it deterministic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

from ortools.sat.python import cp_model

from openneutron.compiler.place import Item, Overlaps, Placement
from openneutron.isa.rows import ALIGNMENT

METHOD = "exact search"


def place_exactly(items: Sequence[Item], overlaps: Overlaps, best: Placement, work: float) -> Placement:
    """The smallest placement that is found with so much ``work``, ``best`` if none is smaller.

    Each two items that are live together are apart, or as they may be.
    """
    model = cp_model.CpModel()
    arena, starts = _variables(model, items, best)
    if overlaps:
        _apart_or_as_they_may(model, starts, items, overlaps)
    else:
        times, places = [], []
        for i, item in enumerate(items):
            size = item.size // ALIGNMENT
            times.append(model.new_fixed_size_interval_var(item.first, item.last - item.first + 1, f"t{i}"))
            places.append(model.new_fixed_size_interval_var(starts[item.name], size, f"p{i}"))
        model.add_no_overlap_2d(times, places)
    return _solved(model, work, arena, starts, items, best)


def _apart_or_as_they_may(
    model: cp_model.CpModel, starts: Mapping[str, cp_model.IntVar], items: Sequence[Item], overlaps: Overlaps
) -> None:
    for one, other in combinations(items, 2):
        if not one.overlaps(other):
            continue
        choices = []
        for low, high in ((one, other), (other, one)):
            choices.append((starts[low.name], starts[high.name] - low.size // ALIGNMENT))
            furthest = overlaps.get((low.name, high.name))
            if furthest is not None:
                choices.append((starts[low.name], starts[high.name] + furthest // ALIGNMENT))
        chosen = [model.new_bool_var("") for _ in choices]
        for taken, (start, limit) in zip(chosen, choices, strict=True):
            model.add(start <= limit).only_enforce_if(taken)
        model.add_bool_or(chosen)


def _variables(
    model: cp_model.CpModel, items: Sequence[Item], best: Placement
) -> tuple[cp_model.IntVar, Mapping[str, cp_model.IntVar]]:
    """The arena's size and where each item starts, in units of the alignment, with ``best`` as a hint."""
    ceiling = best.size // ALIGNMENT
    arena = model.new_int_var(best.bound // ALIGNMENT, ceiling, "arena")
    starts = {}
    for i, item in enumerate(items):
        start = starts[item.name] = model.new_int_var(0, ceiling - item.size // ALIGNMENT, f"s{i}")
        model.add(start + item.size // ALIGNMENT <= arena)
        model.add_hint(start, best.offsets[item.name] // ALIGNMENT)
    return arena, starts


def _solved(
    model: cp_model.CpModel,
    work: float,
    arena: cp_model.IntVar,
    starts: Mapping[str, cp_model.IntVar],
    items: Sequence[Item],
    best: Placement,
) -> Placement:
    model.minimize(arena)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    solver.parameters.max_deterministic_time = work
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE) or solver.value(arena) * ALIGNMENT >= best.size:
        return best
    offsets = {name: solver.value(start) * ALIGNMENT for name, start in starts.items()}
    size = max(offsets[item.name] + item.size for item in items)
    return Placement(offsets, size, best.bound, METHOD)
