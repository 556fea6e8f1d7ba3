# SPDX-License-Identifier: BSD-3-Clause
"""Compute a normalization over all rows in two passes: its statistics by blocks of rows, then its output by rows.

A group norm needs all of its input before it writes an element. In two passes both are part of cascades: the call in front of the norm
computes some rows, of which the first pass takes the sums, and computes them again for the second pass. Neither its result nor that of
the norm is then in memory whole. The second pass and the table behind it, such as that of an activation, are one call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from openneutron.compiler.schedule.batches import CallList
from openneutron.compiler.select.calls import Extents, KernelCall, Storage, Storages, View, dense_pitches
from openneutron.compiler.select.joining import joined_call
from openneutron.compiler.select.uses import Uses
from openneutron.isa import rows
from openneutron.isa.kernels.several import Passes


def in_two_passes(given: CallList, again_from_bytes: int) -> CallList | None:
    """Return the calls with each norm over all rows in two passes; None where there is no such norm.

    The call in front of a norm is computed again where its result has at least ``again_from_bytes``, and nothing else reads it.
    """
    uses = Uses.of(given.storages, given.calls)
    norms = {place: call.traits.passes for place, call in enumerate(given.calls) if _takes_passes(call)}
    if not norms:
        return None
    ahead: dict[int, list[KernelCall]] = {}
    instead: dict[int, Sequence[KernelCall]] = {}
    pieces, of = dict(given.storages.storages), dict(given.storages.of)
    for place, passes in norms.items():
        assert passes is not None
        call = uses[place]
        source = uses.storages[call.views["input"].tensor]
        first, second = _both(call, passes, uses.unused(f"{call.name}/{passes.statistics}"))
        statistics = first.views["output"]
        pieces[statistics.tensor] = Storage(statistics.tensor, statistics.size_bytes)
        of[statistics.tensor] = statistics.tensor
        joined = _joined(uses, place, second)
        instead[place] = (second,) if joined is None else ()
        if joined is not None:
            instead[place + 1] = (joined,)
            del pieces[uses.storages.of[call.views["output"].tensor]]
        before = _before(uses, place) if source.size_bytes >= again_from_bytes else None
        if before is None:
            ahead[place] = [first]
            continue
        name = uses.unused(f"{source.name}/{passes.statistics}")
        pieces[name], of[name] = Storage(name, source.size_bytes), name
        output = replace(uses[before].views["output"], tensor=name)
        once = replace(uses[before], name=f"{uses[before].name}/0", views={**uses[before].views, "output": output})
        ahead[before] = [
            once,
            replace(first, views={**first.views, "input": replace(first.views["input"], tensor=name)}),
        ]
    made: list[KernelCall] = []
    cuts: set[int] = set()
    for place, call in enumerate(given.calls):
        cuts |= {len(made)} if place in given.cuts else set()
        made += [*ahead.get(place, ()), *instead.get(place, (call,))]
    of = {tensor: name for tensor, name in of.items() if name in pieces}
    return CallList(tuple(made), Storages(pieces, of), frozenset(cuts))


def _joined(uses: Uses, place: int, second: KernelCall) -> KernelCall | None:
    """Return the second pass and the call behind the norm as one call; None where no kernel runs both, or another call reads the norm."""
    reader = uses.only_reader(place)
    return joined_call(second, uses[place + 1], reader[1]) if reader is not None and reader[0] == place + 1 else None


def norm_bytes(calls: Sequence[KernelCall], storages: Storages) -> list[int]:
    """Return the bytes of the input of each norm that can be computed in two passes."""
    return [storages[call.views["input"].tensor].size_bytes for call in calls if _takes_passes(call)]


def _takes_passes(call: KernelCall) -> bool:
    return call.traits.passes is not None and call.views["input"].extents[0] == 1 and call.views["input"].extents[1] > 1


def _both(call: KernelCall, passes: Passes, tensor: str) -> tuple[KernelCall, KernelCall]:
    """Return the calls of both passes; ``tensor`` is that of the statistics."""
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


def _before(uses: Uses, place: int) -> int | None:
    """Return the call whose result the norm alone reads, where it can be computed again; else None."""
    writer = uses.writer(uses[place].views["input"].tensor)
    if writer is None or writer >= place or uses[writer].has_states or uses.only_reader(writer) is None:
        return None
    read = [uses.storages.of[view.tensor] for name, view in uses[writer].views.items() if uses[writer].reads(name)]
    written = uses.storages.of[uses[writer].views["output"].tensor]
    in_place = written in read
    late = any(writer <= at for name in read for at in uses.writers.get(name, ()))
    scratch = any(uses[writer].is_scratch(name) for name in uses[writer].views)
    return None if in_place or late or scratch else writer
