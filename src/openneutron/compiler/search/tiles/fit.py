# SPDX-License-Identifier: BSD-3-Clause
"""Find the fastest schedule in tiles of all selections of a graph within a budget, and the least budget that has a schedule.

The size of the memory of the NPU decides how calls are divided. Sizes with equal divisions share a search. All searches share the
segments that were evaluated.

``in_groups`` divides calls where the memory of the NPU holds neither all tensors of a call nor all of its constants. A convolution is divided by output channels. An elementwise call whose tensors are not in the order of rows, such as the transpose at an
output, is divided along its longest axis. A call of several batches is divided between batches. For calls of few long rows, rows and
columns are exchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from openneutron.compiler.place.prefetch import ENDLESS
from openneutron.compiler.rewrite.call_list import CallList
from openneutron.compiler.rewrite.divide import batches_apart
from openneutron.compiler.rewrite.order import flow_of, order_by_depth, stays
from openneutron.compiler.rewrite.passes import ALL, Passes, of_one_order
from openneutron.compiler.rewrite.shapes import turned
from openneutron.compiler.schedule.schedule import Cuttable, edges, fetched_bytes, fetched_sizes, overlapped_cycles
from openneutron.compiler.search.fitted import Fitted, Infeasible
from openneutron.compiler.search.tiles.search import Segments, TiledSchedule, TileSearch, fastest_plan
from openneutron.compiler.search.tiles.streams import Streams, compact
from openneutron.compiler.search.tuning import TUNING
from openneutron.compiler.select.calls import KernelCall, Storage, Storages, View, copied_whole, four
from openneutron.compiler.select.needs import columns_of
from openneutron.compiler.select.select import Selection
from openneutron.isa import aligned
from openneutron.isa.kernels.row import SameElement, SameRow
from openneutron.isa.rows import ALIGNMENT, LANES
from openneutron.options import CALLER
from openneutron.targets import Target


def gathered(calls: Sequence[KernelCall], storages: Storages) -> tuple[tuple[KernelCall, ...], Storages]:
    """Return the calls and storages, changed for each output of which several calls write interleaved parts. Such an
    output is assembled in the memory of the NPU and copied whole.

    A transfer copies all bytes of a row from the first to the last. So where parts are interleaved, such as the
    columns that a TILE repeats, a transfer of one part would overwrite the others. The calls write to a new tensor in
    the memory of the NPU instead, and a copy after the last of them writes the output.
    """
    made = list(calls)
    for storage in [each for each in storages.storages.values() if each.output is not None]:
        writers = [at for at, call in enumerate(made) if _written(call, storage.name, storages)]
        views = [view for at in writers for view in _written(made[at], storage.name, storages)]
        if len(writers) < 2 or all(_is_compact(view) for view in views):
            continue
        whole = Storage(f"{storage.name}@parts", storage.size_bytes)
        renamed = {tensor: f"{tensor}@parts" for tensor, name in storages.of.items() if name == storage.name}
        made = [_renamed(call, renamed) for call in made]
        made.insert(writers[-1] + 1, copied_whole(whole, storage, views[0].pitches[1]))
        of = {**storages.of, **dict.fromkeys((*renamed.values(), whole.name), whole.name)}
        storages = Storages({**storages.storages, whole.name: whole}, of)
    return tuple(made), storages


def _written(call: KernelCall, name: str, storages: Storages) -> list[View]:
    results = (call.views[result] for result in call.results)
    return [view for view in results if storages.of.get(view.tensor) == name]


def _is_compact(view: View) -> bool:
    """Return whether a transfer of the view would copy only bytes of the view."""
    return compact(view, "").size_bytes == view.size_bytes


def _renamed(call: KernelCall, names: dict[str, str]) -> KernelCall:
    views = {name: replace(view, tensor=names.get(view.tensor, view.tensor)) for name, view in call.views.items()}
    return replace(call, views=views)


Divisions = dict[tuple[object, ...], tuple[KernelCall, ...]]
"""A cache of divided calls: the parts of a call, followed by the call itself (so that it stays alive). The key is the
identity of the call, and the ranges of the parts."""


def in_groups(
    calls: Sequence[KernelCall], storages: Storages, target: Target, budget: int, made: Divisions | None = None
) -> tuple[KernelCall, ...]:
    """Return the calls, in which each call that can't run within ``budget`` bytes of NPU memory is divided into
    several.

    A call in stripes needs all of its constants in memory; a whole call needs all of its tensors there. If neither
    fits, each group of output channels becomes a call of its own, which reads the input again. ``made`` caches
    divisions: dividing a call again in the same way gives the same objects.
    """
    known: Divisions = {} if made is None else made
    turned = (_by_short_rows(call, budget, known) for call in calls)
    return tuple(part for call in turned for part in _parts(call, storages, target, budget, known))


def _once(
    call: KernelCall, ranges: tuple[object, ...], made: Divisions, parts: Iterable[KernelCall]
) -> tuple[KernelCall, ...]:
    """Return the parts of ``call`` for these ranges from the cache ``made``. If they are not there, add those that
    ``parts`` yields."""
    key = id(call), *ranges
    if key not in made:
        made[key] = (*parts, call)  # the reference keeps the call alive, so that its identity stays unique
    return made[key][:-1]


def _by_short_rows(call: KernelCall, budget: int, made: Divisions) -> KernelCall:
    """Return the call with rows and columns exchanged, if its rows are few and long and its kernel permits that;
    otherwise the call itself."""
    _, rows, cols, channels = call.views["output"].extents
    long = cols * channels > TUNING.row_share * budget or any(
        view.extents[2] * view.extents[3] * view.element_bytes > TUNING.row_share * budget
        for view in call.views.values()
    )
    if not long or cols <= rows or call.traits.exchanged is None:
        return call
    return _once(call, ("turned",), made, (turned(call),))[0]


def _parts(
    call: KernelCall, storages: Storages, target: Target, budget: int, made: Divisions
) -> tuple[KernelCall, ...]:
    tensors = sum(view.distinct_bytes for view in call.views.values())
    count = -(-tensors // max(1, int(TUNING.part_share * budget)))
    if (
        tensors > budget
        and not all(compact(view, "").by_rows for view in call.views.values())
        and _is_elementwise(call)
    ):
        return _along(call, _longest(call), count, made)
    batches = batches_apart(call)
    if batches > count > TUNING.most_parts and tensors <= TUNING.most_parts * TUNING.whole_share * budget:
        count = TUNING.most_parts
    if tensors > budget and 1 < min(batches, count) <= TUNING.most_parts and not call.has_states:
        # A cascade has no calls of several batches: an undivided one has whole tensors in memory.
        of_batches = _along(call, 0, count, made)
        return tuple(part for each in of_batches for part in _parts(each, storages, target, budget, made))
    count = _column_groups(call, budget) if tensors > budget else 1
    if count > 1:
        return _once(call, ("columns", count), made, _of_columns(call, count))
    groups = _groups(call, storages, target, budget, tensors)
    cuttable = Cuttable(call, storages)
    parts = (cuttable.piece(*edge, f"{call.name}/{number}") for number, edge in enumerate(groups))
    return _once(call, groups, made, parts) if groups else (call,)


def _is_elementwise(call: KernelCall) -> bool:
    """Return whether each element of the output depends only on the elements at the same place of the operands."""
    names = [name for name in call.views if name != "output"]
    extents = call.views["output"].extents
    same = all(isinstance(call.traits.access(name), SameElement) for name in names)
    return same and not call.has_states and all(call.views[name].extents == extents for name in names)


def _longest(call: KernelCall) -> int:
    extents = call.views["output"].extents
    return max((1, 2, 3), key=lambda each: (extents[each], each))


def _along(call: KernelCall, axis: int, count: int, made: Divisions) -> tuple[KernelCall, ...]:
    """Return the call divided along an axis into ``count`` parts. If the axis has fewer positions, each position is a
    part."""
    extent = call.views["output"].extents[axis]
    ranges = tuple(edges(extent, min(count, extent)))
    return _once(call, (axis, *ranges), made, _pieces(call, axis, ranges))


def _pieces(call: KernelCall, axis: int, ranges: Sequence[tuple[int, int]]) -> Iterator[KernelCall]:
    """Yield a call for each range of an axis. A view with another extent on that axis, such as scratch for one batch,
    stays whole."""
    extent = call.views["output"].extents[axis]
    for number, (first, last) in enumerate(ranges):
        views = {
            name: _cut(view, axis, first, last) if view.extents[axis] == extent else view
            for name, view in call.views.items()
        }
        yield replace(call, name=f"{call.name}/{number}", views=views)


def _cut(view: View, axis: int, first: int, last: int) -> View:
    extents = four([last - first if each == axis else extent for each, extent in enumerate(view.extents)])
    return replace(view, extents=extents, offset=view.offset + first * view.pitches[axis])


def _column_groups(call: KernelCall, budget: int) -> int:
    """Return the number of groups of columns into which a call must be divided so that the operands that each row needs
    whole fit; 1 if it need not be divided, as without such operands.

    Such operands are the keys and values of attention, whose columns are heads. Example: 1,500 keys and values of 6
    heads with 64 channels are 1,152,000 bytes; half of 1 MiB holds those of 2 heads. The number divides the number of
    heads of each operand.
    """
    if not call.traits.columns_apart:
        return 1
    views = {each: call.views[each.name] for each in call.traits.operands if not call.is_scratch(each.name)}
    whole = sum(view.distinct_bytes for each, view in views.items() if not isinstance(each.access, SameRow))
    columns = min(view.extents[2] for view in views.values())
    least = max(1, -(-whole // max(1, int(TUNING.whole_share * budget))))
    return next((count for count in range(least, columns) if columns % count == 0), columns)


def _of_columns(call: KernelCall, count: int) -> Iterator[KernelCall]:
    """Yield ``count`` calls, each for an equal share of the columns of each operand and of the output."""
    for number in range(count):
        views = dict(call.views)
        for name, view in call.views.items():
            if not call.is_scratch(name):
                columns = view.extents[2] // count
                views[name] = columns_of(view, (number * columns, (number + 1) * columns))
        yield replace(call, name=f"{call.name}/{number}", views=views)


def _groups(
    call: KernelCall, storages: Storages, target: Target, budget: int, tensors: int
) -> tuple[tuple[int, int], ...]:
    """Return for each group of output channels its range [first, end) of blocks; an empty result if the call need not
    or can't be divided."""
    constants = fetched_bytes(call, storages)
    cuttable = Cuttable(call, storages)
    if constants <= TUNING.group_constants_share * budget or cuttable.blocks == 1:
        return ()
    if tensors + 2 * cuttable.piece_bytes(1) <= budget:
        return ()
    count = min(cuttable.blocks, -(-constants // max(1, int(TUNING.group_constants_share * budget))))
    full = -(-target.all_pipelines // LANES)
    if cuttable.piece_bytes(full) <= TUNING.full_group_constants_share * budget:
        # Each group but the last one has channels for all pipelines.
        width = full * max(1, cuttable.blocks // count // full)
        return tuple((first, min(first + width, cuttable.blocks)) for first in range(0, cuttable.blocks, width))
    return tuple(edges(cuttable.blocks, count))


@dataclass(slots=True, eq=False)
class Searches:
    """The cached searches of a graph's lists of calls. ``lists`` has for each selection its lists of calls, one for
    each order."""

    lists: tuple[tuple[CallList, ...], ...]
    target: Target
    _made: list[TileSearch] = field(default_factory=list)
    _segments: Segments = field(default_factory=Segments)
    _divisions: Divisions = field(default_factory=dict)

    @staticmethod
    def of(selected: Sequence[Selection], target: Target, passes: Passes = ALL) -> Searches:
        """Return the searches for each selection. Its calls are tried in the given order, and in the order that
        computes one branch after the other (``order_by_depth``) if that differs.

        In the given order, a detector's heads alternate between branches. So the calls of a branch, which could be a
        cascade, are not neighbours there.
        """
        made = []
        for storages, calls in selected:
            flow, given = flow_of(calls, storages, CALLER), tuple(range(len(calls)))
            orders = [given] if stays(flow) or "order" in passes.off else [given, order_by_depth(flow)]
            # The last list has sequences by rows and separate batches, so that all calls can run in tiles.
            made.append(
                tuple(
                    of_one_order([calls[at] for at in order], storages, passes)[-1] for order in dict.fromkeys(orders)
                )
            )
        return Searches(tuple(made), target)

    @property
    def are_few(self) -> bool:
        """Return whether the graph has few calls: at least one selection has no more than ``TUNING.few_calls``, in
        each of its orders.

        The smallest selection decides. The others compute the same; they only add calls that copy, or that run parts
        of a joined call.
        """
        return any(all(len(each.calls) <= TUNING.few_calls for each in given) for given in self.lists)

    def forget_many(self) -> None:
        """Discard all searches if they have more than ``kept_segments`` segments. Searches of other budgets then start from nothing."""
        if len(self._segments) > TUNING.kept_segments:
            self._made, self._segments = [], Segments()

    def is_divided(self, size: int) -> bool:
        """Return whether a memory of ``size`` bytes turns a graph of few calls into many, since calls must be divided.

        Such a memory is searched only if no larger one has a schedule: the search takes seconds, and the result is
        slow, since each call is dispatched and reads again what its neighbours read.
        """
        flat = chain.from_iterable(self.lists)
        divided = int(size * TUNING.divided_for_shares[0])
        return max(len(self._divided(each, divided)) - len(each.calls) for each in flat) > TUNING.few_calls

    def search(self, given: CallList, size: int) -> TileSearch:
        """Return the search of a list of calls, divided for a memory of ``size`` bytes."""
        divided = self._divided(given, size)
        for each in self._made:
            if each.streams.calls == divided:
                return each
        cuts = given.cuts if divided == given.calls else frozenset()
        self._made.append(TileSearch(Streams(divided, given.storages, self.target), cuts, self._segments))
        return self._made[-1]

    def _divided(self, given: CallList, size: int) -> tuple[KernelCall, ...]:
        return in_groups(given.calls, given.storages, self.target, size, self._divisions)


def divided_for(given: CallList, budget: int) -> list[int]:
    """Return the sizes of memory, in bytes, for which the calls of a list are divided.

    A list of few calls is divided for one size only, since smaller memories are searched separately.
    """
    shares = TUNING.divided_for_shares
    return [int(budget * share) for share in (shares if len(given.calls) > TUNING.few_calls else shares[:1])]


@dataclass(frozen=True, slots=True, eq=False)
class TiledTask:
    """The search for schedules of a graph on a chip whose kernels work on tiles, over all selections of its kernel
    calls."""

    fit: TileFit

    @staticmethod
    def of(selected: Sequence[Selection], target: Target, passes: Passes = ALL) -> TiledTask:
        """Return the search for the selections of a graph. Selections with chained calls are left out, since chained
        calls can't run in tiles.

        Selections with norms in two passes (``_in_two_passes``) come after the others. They are for norms whose input
        the memory of the NPU does not hold: both passes read the input in tiles.
        """
        made: list[Selection] = []
        for storages, calls in selected:
            if not any(call.traits.between for call in calls):
                parts, own = gathered(calls, storages)
                made.append((own, list(parts)))
        twice = [each for selection in made for each in _in_two_passes(*selection, passes)]
        return TiledTask(TileFit(Searches.of([*made, *twice], target, passes)))

    @property
    def target(self) -> Target:
        """Return the chip."""
        return self.fit.searches.target

    def within(self, budget: int) -> Fitted | Infeasible:
        """Return the fastest schedule found for ``budget`` bytes of NPU memory; ``Infeasible`` if none is found.
        Inputs and outputs are in external memory."""
        found = self.fit.fastest(budget)
        if found is None:
            # The caller subtracts the bytes of states, so that the budget may be negative.
            return Infeasible(budget, lambda below: self.fit.least(max(budget, 0), below))
        return Fitted(found.schedule, found.layout, found.storages)


def _in_two_passes(storages: Storages, calls: Sequence[KernelCall], passes: Passes) -> list[Selection]:
    """Return a list with one selection, in which each norm over all rows has two passes. Return an empty list if
    there is no such norm.

    No call before a norm is computed again for the second pass, since external memory holds the results of these
    calls.
    """
    made = passes.follow(("sequences", "two-passes"), CallList(tuple(calls), storages), {})
    return [] if made is None else [(made.storages, list(made.calls))]


@dataclass(slots=True, eq=False)
class TileFit:
    """The search for schedules in tiles of a graph, with a cache of the schedules that it has found.

    For a graph of few calls, ``_known`` has, for each size of memory, one schedule for each list of calls that has one.
    ``_feasible`` states for each size that was searched whether it has a schedule. ``_least`` has the smallest budget
    with a schedule up to a size. The sizes are those of ``sizes_up_to``.
    """

    searches: Searches
    _known: dict[int, list[TiledSchedule]] = field(default_factory=dict)
    _feasible: dict[int, bool] = field(default_factory=dict)
    _least: dict[int, int] = field(default_factory=dict)

    def fastest(self, budget: int) -> TiledSchedule | None:
        """Return the fastest schedule that is found for ``budget`` bytes of NPU memory; None if no schedule is found.

        A schedule is found if a size of ``sizes_up_to`` that is at most ``budget`` has one. Below the first size that
        has one, a schedule is found for all budgets from ``_refined`` on. For a graph of many calls, the first
        selection with a schedule is taken, since each search takes seconds, and the tiles of cascades are the same in
        the other selections. The other selections are needed if a joined call is too large, since it can't be divided
        into groups of channels.
        """
        budget -= budget % ALIGNMENT
        self.searches.forget_many()
        found = self._fastest_of_few(budget) if self.searches.are_few else self._fastest_of_many(budget)
        if found is not None or budget <= 0:
            return found
        # The least budget may be between two sizes of ``sizes_up_to``.
        larger = _next_size(budget)
        least = self._refined(larger) if self._is_feasible(larger) else larger
        return self._of_least(least, larger) if least <= budget else None

    def least(self, above: int, below: int) -> int:
        """Return the smallest budget in bytes above ``above`` that has a schedule, but at most ``below``.

        The search finds the first size of ``sizes_up_to`` with a schedule, and then the smallest budget between the
        previous size and this one.
        """
        size = _next_size(above)
        while size < below:
            if self._is_feasible(size):
                return min(self._refined(size), below)
            size = _next_size(size)
        return below

    def _refined(self, size: int) -> int:
        """Return, by bisection, the smallest budget with a schedule that is at most ``size`` and above the previous
        size of ``sizes_up_to``.

        The size ``size`` must have a schedule. The budget that is ``ALIGNMENT`` bytes smaller than the result has no
        known schedule, or is the previous size.
        """
        if size not in self._least:
            low, high = sizes_up_to(size - 1)[0] if size > ALIGNMENT else 0, size
            while high - low > ALIGNMENT:
                middle = (low + high) // 2 // ALIGNMENT * ALIGNMENT
                low, high = (low, middle) if self._of_least(middle, size, is_any=True) is not None else (middle, high)
            self._least[size] = high
        return self._least[size]

    def _is_feasible(self, size: int) -> bool:
        if size not in self._feasible:
            flat = chain.from_iterable(self.searches.lists)
            self._feasible[size] = (
                bool(self._of_few(size))
                if self.searches.are_few
                else any(self._fastest_of(given, size, ENDLESS, is_any=True) is not None for given in flat)
            )
        return self._feasible[size]

    def _of_least(self, budget: int, size: int, is_any: bool = False) -> TiledSchedule | None:
        """Return a schedule for a budget of at most ``size``, a feasible size of ``sizes_up_to``; None if no schedule
        is found.

        For a graph of few calls, the schedule is not faster than the one for ``size`` and does not move fewer bytes.
        With ``is_any``, the search of a graph of many calls ends with the first schedule.
        """
        if not self.searches.are_few:
            each = (self._fastest_of(given, budget, ENDLESS, is_any) for given in chain(*self.searches.lists))
            return next((one for one in each if one is not None), None)
        larger = min(self._of_few(size), key=_cost)
        found = [one for one in self._schedules(self.searches.lists, budget) if _is_no_worse(larger, one)]
        return min(found, key=_cost, default=None)

    def _fastest_of_many(self, budget: int) -> TiledSchedule | None:
        """Return the fastest schedule of a graph of many calls; None if no size of ``sizes_up_to`` up to the budget
        has a schedule.

        The budget itself is searched too, but is not feasible if it alone has a schedule. The search for a slightly
        larger budget may find no addresses, and a larger budget must not be refused where a smaller one is feasible.
        """
        each = (self._fastest_of_one(given, budget) for given in self.searches.lists)
        found = next((one for one in each if one is not None), None)
        size = next((size for size in sizes_up_to(budget) if self._is_feasible(size)), None)
        if size is None or found is not None:
            return None if size is None else found
        each = (self._fastest_of_one(given, size) for given in self.searches.lists)
        return next(one for one in each if one is not None)

    def _fastest_of_one(self, given: Sequence[CallList], budget: int) -> TiledSchedule | None:
        """Return the fastest schedule of one selection for the budget. If there is none, try the next smaller sizes of
        ``sizes_up_to``, down to about half of the budget. Return None if none of them has a schedule."""
        for size in dict.fromkeys((budget, *sizes_up_to(budget))):
            found = next(reversed(self._schedules([given], size)), None)
            if found is not None:
                self._feasible.setdefault(size, True)
            # A smaller memory may have addresses where a larger one has none, since its plan has smaller tensors and stripes.
            if found is not None or 2 * size < budget:
                return found
        return None

    def _fastest_of_few(self, budget: int) -> TiledSchedule | None:
        """Return the fastest schedule of a graph of few calls; None if no size of ``sizes_up_to`` has a schedule.

        A schedule for a smaller memory is valid in a larger one. So the graph is searched for each size of ``sizes_up_to``. A schedule for
        a larger size is taken only if it is not slower, and moves no more bytes, than the schedule for a smaller size.
        """
        found: list[list[TiledSchedule]] = []
        for size in sizes_up_to(budget):
            # A smaller memory may have addresses where a larger one has none, since its plan has smaller tensors and stripes.
            if found and self.searches.is_divided(size):
                break
            if self._of_few(size):
                found.append(self._of_few(size))
        best: TiledSchedule | None = None
        for each in reversed(found):
            no_worse = [one for one in each if best is None or _is_no_worse(one, best)]
            best = min(no_worse, key=_cost, default=best)
        return best

    def _of_few(self, size: int) -> list[TiledSchedule]:
        if size not in self._known:
            self._known[size] = self._schedules(self.searches.lists, size)
        return self._known[size]

    def _schedules(self, lists: Sequence[Sequence[CallList]], budget: int) -> list[TiledSchedule]:
        """Return one schedule for each list of calls that has one for the budget.

        For a graph of few calls, the cycles of each schedule are those of a simulation of its complete timeline,
        since the prefetch search only estimates them. For other graphs, a schedule that is not faster than all before
        it is left out.
        """
        made: list[TiledSchedule] = []
        are_few = self.searches.are_few
        for given in chain.from_iterable(lists):
            found = self._fastest_of(given, budget, made[-1].cycles if made and not are_few else ENDLESS)
            if found is not None and are_few:
                sizes = fetched_sizes(found.schedule, found.storages)
                found = replace(found, cycles=overlapped_cycles(found.schedule, sizes, self.searches.target))
            made += [] if found is None else [found]
        return made

    def _fastest_of(self, given: CallList, budget: int, limit: int, is_any: bool = False) -> TiledSchedule | None:
        """Return the fastest schedule that is found for one list of calls; None if no schedule takes fewer than ``limit`` cycles.

        With ``is_any``, the first schedule that is found is returned.
        """
        best: TiledSchedule | None = None
        is_medium = TUNING.few_calls < len(given.calls) <= TUNING.many_calls
        for number, size in enumerate(divided_for(given, budget)):
            search = self.searches.search(given, size)
            below = limit if best is None else best.cycles
            found, estimate = fastest_plan(
                search, self.searches.target, budget, below, is_medium, is_any, is_again=number > 0
            )
            best = found or best
            known = limit if best is None else best.cycles
            if known <= TUNING.divided_again_ratio * estimate or (is_any and best is not None):
                break
        return best


def sizes_up_to(budget: int) -> list[int]:
    """Return the sizes of memory up to ``budget`` bytes that a graph of few calls is searched for, in descending order."""
    octaves = range(ALIGNMENT.bit_length() - 1, budget.bit_length())
    sizes = {
        aligned((1 << octave) * (TUNING.sizes_in_octave + step) // TUNING.sizes_in_octave)
        for octave in octaves
        for step in range(TUNING.sizes_in_octave)
    }
    return sorted((size for size in sizes if size <= budget), reverse=True)


def _next_size(budget: int) -> int:
    """Return the smallest size of ``sizes_up_to`` that is larger than ``budget``."""
    return next(size for size in reversed(sizes_up_to(2 * max(budget, ALIGNMENT))) if size > budget)


def _is_no_worse(one: TiledSchedule, other: TiledSchedule) -> bool:
    return one.cycles <= other.cycles and one.moved_bytes <= other.moved_bytes


def _cost(one: TiledSchedule) -> tuple[int, int]:
    return one.cycles, one.moved_bytes
