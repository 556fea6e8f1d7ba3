# SPDX-License-Identifier: BSD-3-Clause
"""Compute calls twice, so that their result is never in memory whole.

A group norm needs all of its input before it writes an element. In two passes it can be part of cascades: one kernel
computes the sums of blocks of rows, and a second kernel computes rows of the output from these sums. The call before the
norm computes some rows for the first pass, and computes them again for the second. Neither its result nor that of the
norm is then in memory whole. The second pass and a table after it, such as that of an activation, become one call.

The result of a normalization before attention is read by the layers of keys, values and queries. It is as large as the
normalization's input, which the sum after the attention still needs. If the normalization is recomputed in the cascade
of each layer, only some rows of its result are in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from openneutron.compiler.rewrite.call_list import Edit, Use
from openneutron.compiler.rewrite.join import joined_call
from openneutron.compiler.rewrite.rows import goes_by_position
from openneutron.compiler.select.calls import Extents, KernelCall, Storages, View, dense_pitches
from openneutron.compiler.select.needs import row_needs
from openneutron.isa import rows
from openneutron.isa.kernels.row import Passes


def in_two_passes(edit: Edit, again_from_bytes: int | None = None) -> None:
    """Compute each norm over all rows in two passes.

    The call before a norm is computed again for the second pass if its result has at least ``again_from_bytes`` and
    only the norm reads it; None: it is never computed again.
    """
    ahead: dict[int, list[KernelCall]] = {}
    instead: dict[int, list[KernelCall]] = {}
    for place, call in enumerate(edit.given.calls):
        passes = call.traits.passes
        if passes is None or not _takes_passes(call):
            continue
        source = edit.storages[call.views["input"].tensor]
        first, second = _both(call, passes, edit.unused(f"{call.name}/{passes.statistics}"))
        edit.store(first.views["output"].tensor, first.views["output"].size_bytes)
        joined = _joined(edit, place, second)
        instead[place] = [second] if joined is None else []
        if joined is not None:
            instead[place + 1] = [joined]
        again = again_from_bytes is not None and source.size_bytes >= again_from_bytes
        before = _before(edit, place) if again else None
        if before is None:
            ahead[place] = [first]
            continue
        name = edit.store(f"{source.name}/{passes.statistics}", source.size_bytes)
        output = replace(edit[before].views["output"], tensor=name)
        once = replace(edit[before], name=f"{edit[before].name}/0", views={**edit[before].views, "output": output})
        ahead[before] = [
            once,
            replace(first, views={**first.views, "input": replace(first.views["input"], tensor=name)}),
        ]
    edit.replace({at: [*ahead.get(at, ()), *instead.get(at, edit.at(at))] for at in sorted({*ahead, *instead})})


def _joined(edit: Edit, place: int, second: KernelCall) -> KernelCall | None:
    """Return one call that runs the second pass and the call after the norm; None if no kernel can, or if another
    call reads the norm's result."""
    reader = edit.only_reader(place)
    return joined_call(second, edit[place + 1], reader[1]) if reader is not None and reader[0] == place + 1 else None


def norm_bytes(calls: Sequence[KernelCall], storages: Storages) -> list[int]:
    """Return the size in bytes of the input of each norm that can be computed in two passes."""
    return [storages[call.views["input"].tensor].size_bytes for call in calls if _takes_passes(call)]


def _takes_passes(call: KernelCall) -> bool:
    return call.traits.passes is not None and call.views["input"].extents[0] == 1 and call.views["input"].extents[1] > 1


def _both(call: KernelCall, passes: Passes, tensor: str) -> tuple[KernelCall, KernelCall]:
    """Return the calls of both passes. ``tensor`` is the name of the tensor for the statistics."""
    source = call.views["input"]
    _, height, width, channels = source.extents
    size = -(-height // passes.blocks)
    group = call.params[passes.group]
    extents: Extents = (1, -(-height // size), 1, channels // group * passes.bytes)
    statistics = View(tensor, extents, dense_pitches(extents))
    params = {**call.params, passes.rows: size, passes.count: height * width * group}
    made: list[KernelCall] = []
    for kernel, views in (
        (passes.first, {"input": source, "output": statistics}),
        (passes.second, {**call.views, passes.statistics: statistics}),
    ):
        names = {field.name for field in rows.KERNEL_BY_NAME[kernel].fields}
        constants = {key: constant for key, constant in call.constants.items() if f"{key}_base" in names}
        own = {name: value for name, value in params.items() if name in names}
        made.append(KernelCall(kernel, f"{call.name}/{len(made)}", views, own, constants))
    return made[0], made[1]


def _before(edit: Edit, place: int) -> int | None:
    """Return the place of the call whose result only the norm reads, if that call can be computed again;
    otherwise None."""
    writer = edit.writer(edit[place].views["input"].tensor)
    if writer is None or writer >= place or edit[writer].has_states or edit.only_reader(writer) is None:
        return None
    read = [edit.storages.of[view.tensor] for name, view in edit[writer].views.items() if edit[writer].reads(name)]
    written = edit.storages.of[edit[writer].views["output"].tensor]
    in_place = written in read
    late = any(writer <= at for name in read for at in edit.writers(name))
    scratch = any(edit[writer].is_scratch(name) for name in edit[writer].views)
    return None if in_place or late or scratch else writer


def computed_again(edit: Edit) -> None:
    """Compute each pointwise call without weights again before each group of its readers, if it has several
    groups. Its inputs must be live until the last group, so that no memory is added for them."""
    ahead: dict[int, KernelCall] = {}
    for place in range(len(edit)):
        groups = _groups(edit, place)
        if len(groups) < 2 or any(group[0][0] in ahead for group in groups):
            continue
        call = edit[place]
        storage = edit.storages[call.views["output"].tensor]
        for number, group in enumerate(groups):
            name = edit.store(f"{storage.name}/{number}", storage.size_bytes)
            output = replace(call.views["output"], tensor=name)
            ahead[group[0][0]] = replace(call, name=f"{call.name}/{number}", views={**call.views, "output": output})
            for use in group:
                edit.rename(use, name)
        edit.replace({place: None})
    edit.replace({place: (call, *edit.at(place)) for place, call in ahead.items()})


def _groups(edit: Edit, place: int) -> list[list[Use]]:
    """Return the readers of a call's result in groups. Readers that follow one another and whose own results are
    needed whole are one group. The list is empty if the call can't be recomputed, or if that gains nothing."""
    call = edit[place]
    readers = edit.readers_of_result(place)
    if not readers or call.traits.channels is not None or not goes_by_position(call):
        return []
    last = readers[-1][0]
    for name, view in call.views.items():
        storage = edit.storages[view.tensor]
        if not call.reads(name) or storage.constant is not None:
            continue
        kept = storage.is_kept or max(at for at, _ in edit.readers(storage.name)) > last
        if not kept or any(place < at <= last for at in edit.writers(storage.name)):
            return []
    groups: list[list[Use]] = []
    for use in readers:
        before = groups[-1][-1][0] if groups else -1
        together = groups and use[0] == before + 1 and _is_needed_whole(edit, use[0]) and _is_needed_whole(edit, before)
        if together or use[0] == before:
            groups[-1].append(use)
        else:
            groups.append([use])
    return groups


def _is_needed_whole(edit: Edit, place: int) -> bool:
    """Return whether the call's result has readers, and each of them needs all of its rows."""
    readers = edit.readers_of_result(place)
    return bool(readers) and all(row_needs(edit[at], name) is None for at, name in readers)
