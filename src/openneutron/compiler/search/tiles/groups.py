# SPDX-License-Identifier: BSD-3-Clause
"""Divide calls where the memory of the NPU holds neither all tensors of a call nor all of its constants.

A convolution is divided by output channels. An elementwise call whose tensors are not in the order of rows, such as the transpose at an
output, is divided along its longest axis. A call of several batches is divided between batches. For calls of few long rows, rows and
columns are exchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from openneutron.compiler.rewrite.batches import batches_apart
from openneutron.compiler.rewrite.rows import turned
from openneutron.compiler.schedule.schedule import Cuttable, edges, fetched_bytes
from openneutron.compiler.search.tiles.streams import compact
from openneutron.compiler.search.tiles.tuning import TUNING
from openneutron.compiler.select.calls import KernelCall, Storage, Storages, View, copied_whole, four
from openneutron.compiler.select.needs import columns_of
from openneutron.isa.kernels.row import SameElement, SameRow
from openneutron.isa.rows import LANES
from openneutron.targets import Target


def gathered(calls: Sequence[KernelCall], storages: Storages) -> tuple[tuple[KernelCall, ...], Storages]:
    """Return the calls and storages, with a copy for each output whose parts are interleaved.

    A transfer copies all bytes from the first to the last of a row. Several calls may write interleaved parts of an output, such as the
    columns that a TILE repeats. A transfer of one part would then write over the other parts. Such calls write to a tensor in the memory
    of the NPU instead, and a copy after the last of these calls writes the output.
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
    """Return whether a transfer of a view copies no bytes other than those of the view."""
    return compact(view, "").size_bytes == view.size_bytes


def _renamed(call: KernelCall, names: dict[str, str]) -> KernelCall:
    views = {name: replace(view, tensor=names.get(view.tensor, view.tensor)) for name, view in call.views.items()}
    return replace(call, views=views)


Divisions = dict[tuple[object, ...], tuple[KernelCall, ...]]
"""The parts of each divided call, followed by the call itself. The key has the identity of the call and the ranges of the parts."""


def in_groups(
    calls: Sequence[KernelCall], storages: Storages, target: Target, budget: int, made: Divisions | None = None
) -> tuple[KernelCall, ...]:
    """Return the calls, with each call divided that a memory of ``budget`` bytes can't run as one.

    A call in stripes has all of its constants in memory; a whole call has all of its tensors there. Where neither fits, each group of
    channels becomes a call of its own, which reads the input again. ``made`` has the parts of earlier divisions and receives those of this
    one: a call that is divided again in the same way gives the same objects.
    """
    known: Divisions = {} if made is None else made
    turned = (_by_short_rows(call, budget, known) for call in calls)
    return tuple(part for call in turned for part in _parts(call, storages, target, budget, known))


def _once(
    call: KernelCall, ranges: tuple[object, ...], made: Divisions, parts: Iterable[KernelCall]
) -> tuple[KernelCall, ...]:
    """Return the parts of ``call`` from ``made``. If it has none for these ranges, first add those that ``parts`` yields."""
    key = id(call), *ranges
    if key not in made:
        made[key] = (*parts, call)  # the reference keeps the call alive, so that its identity stays unique
    return made[key][:-1]


def _by_short_rows(call: KernelCall, budget: int, made: Divisions) -> KernelCall:
    """Return the call, with rows and columns exchanged if its rows are few and long and its kernel permits the exchange."""
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
    """Return the call divided along an axis into ``count`` parts, or into one part for each index if there are fewer."""
    extent = call.views["output"].extents[axis]
    ranges = tuple(edges(extent, min(count, extent)))
    return _once(call, (axis, *ranges), made, _pieces(call, axis, ranges))


def _pieces(call: KernelCall, axis: int, ranges: Sequence[tuple[int, int]]) -> Iterator[KernelCall]:
    """Yield a call for each range of an axis. Views with another extent on that axis, such as scratch for one batch, do not change."""
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
    """Return the number of groups of columns in which the operands that a row needs whole fit; 1 where the call is not divided.

    Such operands are the keys and values of attention, whose columns are heads. Example: 1,500 keys and values of 6 heads with 64 channels
    are 1,152,000 bytes; half of 1 MiB holds those of 2 heads. The number divides the number of heads of each operand.
    """
    if not call.traits.columns_apart:
        return 1
    views = {each: call.views[each.name] for each in call.traits.operands if not call.is_scratch(each.name)}
    whole = sum(view.distinct_bytes for each, view in views.items() if not isinstance(each.access, SameRow))
    columns = min(view.extents[2] for view in views.values())
    least = -(-whole // max(1, int(TUNING.whole_share * budget)))
    return next((count for count in range(least, columns) if columns % count == 0), columns)


def _of_columns(call: KernelCall, count: int) -> Iterator[KernelCall]:
    """Yield ``count`` calls, each with as many columns of each operand and of the output."""
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
    """Return the range [first, end) of blocks of output channels of each group; empty where the call is not divided."""
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
