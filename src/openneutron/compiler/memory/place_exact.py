# SPDX-License-Identifier: BSD-3-Clause
"""The smallest arena by CP-SAT; one worker and limits in work, not in seconds, keep it deterministic."""

from __future__ import annotations

from collections.abc import Container, Sequence

from ortools.sat.python import cp_model

from openneutron.compiler.memory.placement import Parts, Placement, live_bound
from openneutron.isa.rows import ALIGNMENT

METHOD = "exact search"


def place_exactly(parts: Parts, best: Placement, work: float) -> tuple[Placement, tuple[int, ...]]:
    """The smallest placement over all ways to run the parts that is found with so much ``work``, and each part's way.

    ``best``, which is of the first ways, if nothing is smaller. The bound is what the search has proved of all ways together.
    """
    model = cp_model.CpModel()
    ways = [_one_of(model, len(part)) for part in parts]
    ceiling = best.size // ALIGNMENT
    floor = max(min(live_bound(way.items, way.overlaps) for way in part) for part in parts)
    arena = model.new_int_var(min(floor // ALIGNMENT, ceiling), ceiling, "arena")
    sizes = _sizes(parts, ways)
    starts = {}
    for name, size in sizes.items():
        start = starts[name] = model.new_int_var(0, ceiling, "")
        model.add(start + size <= arena)
        model.add_hint(start, best.offsets[name] // ALIGNMENT)
    lives, times, places = _lives(parts), [], []
    for name, (first, last, units) in lives.items():
        times.append(model.new_fixed_size_interval_var(first, last - first + 1, ""))
        places.append(model.new_fixed_size_interval_var(starts[name], units, ""))
    model.add_no_overlap_2d(times, places)
    allowed = _allowed(parts)
    for (one, other), when in _together(parts, lives).items():
        choices = []
        for low, high in ((one, other), (other, one)):
            apart = model.new_bool_var("")
            model.add(starts[low] + sizes[low] <= starts[high]).only_enforce_if(apart)
            choices.append(apart)
            for part, way, furthest in allowed.get((low, high), ()):
                taken = model.new_bool_var("")
                model.add(starts[low] <= starts[high] + furthest // ALIGNMENT).only_enforce_if(taken)
                model.add_implication(taken, ways[part][way])
                choices.append(taken)
        always = any(sum(part == each for each, _ in when) == len(parts[part]) for part, _ in when)
        for part, way in when[:1] if always else when:
            model.add_bool_or([*choices] if always else [*choices, ~ways[part][way]])
    model.minimize(arena)
    solver, found, proved = _solved(model, work)
    bound = max(floor, proved)
    if not found or round(solver.objective_value) * ALIGNMENT >= best.size:
        return Placement(best.offsets, best.size, min(bound, best.size), best.method), (0,) * len(parts)
    offsets = {name: solver.value(start) * ALIGNMENT for name, start in starts.items()}
    arena_bytes = max(offsets[name] + solver.value(size) * ALIGNMENT for name, size in sizes.items())
    taken_ways = tuple(next(i for i, each in enumerate(part) if solver.value(each)) for part in ways)
    return Placement(offsets, arena_bytes, bound, METHOD), taken_ways


def _one_of(model: cp_model.CpModel, count: int) -> list[cp_model.IntVar]:
    """A boolean for each of so many ways, of which one is true."""
    ways = [model.new_bool_var("") for _ in range(count)]
    model.add_exactly_one(ways)
    return ways


def _sizes(parts: Parts, ways: Sequence[Sequence[cp_model.IntVar]]) -> dict[str, cp_model.LinearExpr]:
    """The size of each item in units of the alignment; it may depend on the way of the one part that has it."""
    sizes: dict[str, cp_model.LinearExpr] = {}
    for part, literals in zip(parts, ways, strict=True):
        held = [{item.name: item.size // ALIGNMENT for item in way.items} for way in part]
        for name in held[0]:
            each = [way[name] for way in held]
            sizes[name] = cp_model.LinearExpr.weighted_sum(literals, each)
    return sizes


def _lives(parts: Parts) -> dict[str, tuple[int, int, int]]:
    """First and last step over all parts, and units, of what is the same whichever way they run, and overlaps nothing."""
    lives: dict[str, tuple[int, int, int]] = {}
    depends: set[str] = set()
    before = 0
    for part in parts:
        same = set.intersection(*({*way.items} for way in part))
        depends |= {item.name for way in part for item in way.items if item not in same}
        depends |= {name for way in part for pair in way.overlaps for name in pair}
        for item in same:
            first, _, size = lives.get(item.name, (before + item.first, 0, item.size // ALIGNMENT))
            lives[item.name] = first, before + item.last, size
        before += max((item.last + 1 for way in part for item in way.items), default=0)
    return {name: lives[name] for name in sorted(lives.keys() - depends)}


def _together(parts: Parts, lives: Container[str]) -> dict[tuple[str, str], list[tuple[int, int]]]:
    """Items that are live together, one of them at least not in ``lives``, and in which (part, way)."""
    found: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for index, part in enumerate(parts):
        for number, way in enumerate(part):
            ordered = sorted(way.items, key=lambda item: (item.name in lives, item.name))
            for at, one in enumerate(ordered):
                if one.name in lives:
                    break
                for other in ordered[at + 1 :]:
                    if one.overlaps(other):
                        pair = (min(one.name, other.name), max(one.name, other.name))
                        found.setdefault(pair, []).append((index, number))
    return found


def _allowed(parts: Parts) -> dict[tuple[str, str], list[tuple[int, int, int]]]:
    """What may overlap: in which part and way, and how far."""
    found: dict[tuple[str, str], list[tuple[int, int, int]]] = {}
    for index, part in enumerate(parts):
        for number, way in enumerate(part):
            for pair, furthest in way.overlaps.items():
                found.setdefault(pair, []).append((index, number, furthest))
    return found


def _solved(model: cp_model.CpModel, work: float) -> tuple[cp_model.CpSolver, bool, int]:
    """The solver, whether it found anything, and the bytes below which it proved nothing to lie."""
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    solver.parameters.max_deterministic_time = work
    found = solver.solve(model) in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    return solver, found, round(solver.best_objective_bound) * ALIGNMENT if found else 0
