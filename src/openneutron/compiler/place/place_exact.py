# SPDX-License-Identifier: BSD-3-Clause
"""Find the smallest arena with CP-SAT. The search is deterministic: it has one worker, and its limits are work units, not seconds.

The model places rectangles: time (steps) to the right, addresses upwards. Example: a (2 units) is live in steps 0 to 1, b (3) in
steps 1 to 2, c (2) in step 2. One placement of 5 units::

    4  . b b          starts: a = 0, b = 2, c = 0
    3  . b b
    2  . b b
    1  a a c
    0  a a c
       0 1 2

A buffer is such a rectangle where its size and steps are the same for every candidate of the parts, and it may not overlap another
one. A single constraint forbids overlaps of all rectangles. Each other pair of buffers that are live together has a disjunction: one
buffer is below the other, or the two overlap as far as a chosen candidate allows.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

from ortools.sat.python import cp_model

from openneutron.compiler.place.place import Parts, Placement, live_bound
from openneutron.isa.rows import ALIGNMENT

METHOD = "exact search"

PROOF_WORK = 0.05
"""CP-SAT's deterministic time limit of ``is_infeasible``. Proofs for networks of 200 calls take about 0.003."""

_Chosen = Sequence[Sequence[cp_model.IntVar]]
_Pair = tuple[str, str]
_Ranges = Mapping[str, tuple[int, int, int]]
"""The first and the last step of each buffer, numbered over all parts, and its size in units of the alignment."""


def place_exactly(parts: Parts, best: Placement, work: float) -> tuple[Placement, tuple[int, ...]]:
    """Return the smallest placement that is found over all candidates of the parts, and the number of each part's chosen candidate.

    ``work`` is CP-SAT's deterministic time limit. ``best`` is a placement of each part's first candidate; the result has its offsets
    where no smaller placement is found. The bound of the result is proved for all candidates together.
    """
    floor = max(min(live_bound(each.items, each.overlaps) for each in part) for part in parts)
    made = _model_of(parts, floor, best.size)
    for name, start in made.starts.items():
        made.model.add_hint(start, best.offsets[name] // ALIGNMENT)
    made.model.minimize(made.arena)
    solver, status = _solved(made.model, work)
    found = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    bound = max(floor, round(solver.best_objective_bound) * ALIGNMENT) if found else floor
    if not found or round(solver.objective_value) * ALIGNMENT >= best.size:
        return Placement(best.offsets, best.size, min(bound, best.size), best.method), (0,) * len(parts)
    offsets = {name: solver.value(start) * ALIGNMENT for name, start in made.starts.items()}
    arena_bytes = max(offsets[name] + solver.value(size) * ALIGNMENT for name, size in made.sizes.items())
    choices = tuple(next(i for i, each in enumerate(part) if solver.value(each)) for part in made.chosen)
    return Placement(offsets, arena_bytes, bound, METHOD), choices


def is_infeasible(parts: Parts, ceiling: int) -> bool:
    """Return whether it is proved that no placement, with any candidates of the parts, takes ``ceiling`` bytes or less."""
    _, status = _solved(_model_of(parts, 0, ceiling).model, PROOF_WORK)
    return status == cp_model.INFEASIBLE


@dataclass(frozen=True, slots=True)
class _Model:
    """The CP-SAT model and its variables, in units of the alignment. ``chosen`` has a boolean for each candidate of
    each part; exactly one of a part is true."""

    model: cp_model.CpModel
    chosen: _Chosen
    arena: cp_model.IntVar
    starts: Mapping[str, cp_model.IntVar]
    sizes: Mapping[str, cp_model.LinearExpr]


def _model_of(parts: Parts, floor: int, ceiling: int) -> _Model:
    model = cp_model.CpModel()
    chosen = [[model.new_bool_var("") for _ in part] for part in parts]
    for literals in chosen:
        model.add_exactly_one(literals)
    most = ceiling // ALIGNMENT
    arena = model.new_int_var(min(floor // ALIGNMENT, most), most, "arena")
    sizes = _sizes(parts, chosen)
    starts = {}
    for name, size in sizes.items():
        start = starts[name] = model.new_int_var(0, most, "")
        model.add(start + size <= arena)
    ranges = _fixed_ranges(parts)
    _forbid_overlaps(model, ranges, starts)
    _allow_some_overlaps(model, parts, chosen, ranges, starts, sizes)
    return _Model(model, chosen, arena, starts, sizes)


def _sizes(parts: Parts, chosen: _Chosen) -> dict[str, cp_model.LinearExpr]:
    """Return the size of each item in units of the alignment. A size may depend on the chosen candidate if only one part has the item."""
    sizes: dict[str, cp_model.LinearExpr] = {}
    for part, literals in zip(parts, chosen, strict=True):
        held = [{item.name: item.size // ALIGNMENT for item in candidate.items} for candidate in part]
        for name in held[0]:
            each = [candidate[name] for candidate in held]
            sizes[name] = cp_model.LinearExpr.weighted_sum(literals, each)
    return sizes


def _fixed_ranges(parts: Parts) -> dict[str, tuple[int, int, int]]:
    """Return the live ranges and sizes of the items that are the same in every candidate and may not overlap another item."""
    ranges: dict[str, tuple[int, int, int]] = {}
    depends: set[str] = set()
    before = 0
    for part in parts:
        same = set.intersection(*({*each.items} for each in part))
        depends |= {item.name for each in part for item in each.items if item not in same}
        depends |= {name for each in part for pair in each.overlaps for name in pair}
        for item in same:
            first, _, size = ranges.get(item.name, (before + item.first, 0, item.size // ALIGNMENT))
            ranges[item.name] = first, before + item.last, size
        before += max((item.last + 1 for each in part for item in each.items), default=0)
    return {name: ranges[name] for name in sorted(ranges.keys() - depends)}


def _forbid_overlaps(model: cp_model.CpModel, ranges: _Ranges, starts: Mapping[str, cp_model.IntVar]) -> None:
    """Keep the items of fixed live ranges apart, as rectangles of steps and addresses."""
    steps, addresses = [], []
    for name, (first, last, units) in ranges.items():
        steps.append(model.new_fixed_size_interval_var(first, last - first + 1, ""))
        addresses.append(model.new_fixed_size_interval_var(starts[name], units, ""))
    model.add_no_overlap_2d(steps, addresses)


def _allow_some_overlaps(
    model: cp_model.CpModel,
    parts: Parts,
    chosen: _Chosen,
    ranges: Container[str],
    starts: Mapping[str, cp_model.IntVar],
    sizes: Mapping[str, cp_model.LinearExpr],
) -> None:
    """Keep each pair of items that are live together apart, except as far as a chosen candidate lets them overlap.
    Pairs of items that are both in ``ranges`` are left out.

    If a pair is live together only in some candidates of a part, the constraint holds only if one of these candidates
    is chosen.
    """
    allowed = _allowed(parts)
    for (one, other), when in _together(parts, ranges).items():
        choices = []
        for low, high in ((one, other), (other, one)):
            apart = model.new_bool_var("")
            model.add(starts[low] + sizes[low] <= starts[high]).only_enforce_if(apart)
            choices.append(apart)
            for part, candidate, furthest in allowed.get((low, high), ()):
                overlap = model.new_bool_var("")
                model.add(starts[low] <= starts[high] + furthest // ALIGNMENT).only_enforce_if(overlap)
                model.add_implication(overlap, chosen[part][candidate])
                choices.append(overlap)
        always = any(sum(part == each for each, _ in when) == len(parts[part]) for part, _ in when)
        for part, candidate in when[:1] if always else when:
            model.add_bool_or([*choices] if always else [*choices, ~chosen[part][candidate]])


def _together(parts: Parts, ranges: Container[str]) -> dict[_Pair, list[tuple[int, int]]]:
    """Return the (part, candidate) pairs in which two items are live together, by the pair of items. Pairs of items
    that are both in ``ranges`` are left out."""
    found: dict[_Pair, list[tuple[int, int]]] = {}
    for index, part in enumerate(parts):
        for number, candidate in enumerate(part):
            ordered = sorted(candidate.items, key=lambda item: (item.name in ranges, item.name))
            for at, one in enumerate(ordered):
                if one.name in ranges:
                    break
                for other in ordered[at + 1 :]:
                    if one.overlaps(other):
                        pair = (min(one.name, other.name), max(one.name, other.name))
                        found.setdefault(pair, []).append((index, number))
    return found


def _allowed(parts: Parts) -> dict[_Pair, list[tuple[int, int, int]]]:
    """Return for each pair of items that may overlap a list of (part, candidate, bytes), where the bytes are those of
    ``Overlaps``."""
    found: dict[_Pair, list[tuple[int, int, int]]] = {}
    for index, part in enumerate(parts):
        for number, candidate in enumerate(part):
            for pair, furthest in candidate.overlaps.items():
                found.setdefault(pair, []).append((index, number, furthest))
    return found


def _solved(model: cp_model.CpModel, work: float) -> tuple[cp_model.CpSolver, cp_model.CpSolverStatus]:
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    solver.parameters.max_deterministic_time = work
    return solver, solver.solve(model)
