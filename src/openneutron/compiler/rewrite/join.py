# SPDX-License-Identifier: BSD-3-Clause
"""Join, chain and merge neighbouring calls to one call with the same bytes, or compute calls twice.

Each call has a dispatch overhead on the host, which is longer than the work of a small call. A linear layer and the
table, sum or product that reads its result become one call. The second kernel computes in place, so that no memory is
added. Calls over images are not joined: cascades and prefetch can divide single calls in more ways.

The mean of an image and the two small layers after it, as in squeeze-excite blocks, become one call too::

    mean_s8           of each channel of the image
    conv_2d_1x1_s8    and lookup_s8, where its activation is no clamp
    conv_2d_1x1_s8    and lookup_s8

Weights of both layers are then constants of one call, which constant prefetch can't copy one after the other. So the
list of separate calls is compiled too, since it may take less memory. ``join_products`` also joins mul_s8, the product
with the image. That call can't be part of a cascade.

Linear layers that read one input, such as those of queries, keys and values, become one layer with side-by-side
results. Weights and requantization belong to output channels, so that no bit changes. If the results' zero points
differ, the call uses a kernel with a zero point for each block of channels.

A normalization or a linear layer is chained with the linear layer that reads its result. On a sequence of few positions
a call has little work, and its dispatch takes as long as the work. The result between the two kernels becomes scratch of
the chained call, so that no bit changes. Chained calls are never divided by channels; other selections keep the calls
apart. A cascade computes a chained call by rows, with scratch for as many rows.

A group norm needs all of its input before it writes an element. In two passes it can be part of cascades: one kernel
computes the sums of blocks of rows, and a second kernel computes rows of the output from these sums. The call before the
norm computes some rows for the first pass, and computes them again for the second. Neither its result nor that of the
norm is then in memory whole. The second pass and a table after it, such as that of an activation, become one call.

The result of a normalization before attention is read by the layers of keys, values and queries. It is as large as the
normalization's input, which the sum after the attention still needs. If the normalization is recomputed in the cascade
of each layer, only some rows of its result are in memory.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from openneutron.compiler.rewrite.call_list import Cause, Edit, Use
from openneutron.compiler.rewrite.shapes import goes_by_position
from openneutron.compiler.select.calls import (
    CHANNEL_AXES,
    Array,
    Constant,
    Extents,
    KernelCall,
    Storages,
    View,
    dense_pitches,
    four,
)
from openneutron.compiler.select.needs import row_needs
from openneutron.isa import rows
from openneutron.isa.kernels.combined import BETWEEN, FIRST, SECOND, THEN
from openneutron.isa.kernels.row import Passes, SameRow
from openneutron.isa.rows import LANES

JOINED: Mapping[tuple[str, str], str] = {
    row.traits.joins: row.name for row in rows.KERNELS if row.traits.joins is not None
}
"""Joined kernels that compute in place, by the pair of kernels that each of them runs."""

_FIRST = frozenset(first for first, _ in JOINED)

_EXCHANGEABLE = ("zero_point", "multiplier", "shift")
"""The parameters that a sum or a product has for each operand, with the prefix ``a_`` or ``b_``."""


def join(edit: Edit) -> None:
    """Join each pair of calls that a kernel of ``JOINED`` runs, if only the second call reads the result of the
    first. Results of several rows are left alone."""
    for place, first in enumerate(edit.given.calls):
        if edit.find(place) is not first or first.kernel not in _FIRST:
            continue
        reader = edit.only_reader(place)
        if reader is None:
            edit.skip(Cause.READ_BY_OTHERS, first)
            continue
        at, operand = reader
        second = edit[at]
        if (first.kernel, second.kernel) not in JOINED:
            edit.skip(Cause.NO_PARTNER, first)
            continue
        joined = None if first.views["output"].extents[1] > 1 else joined_call(first, second, operand)
        if joined is None:
            edit.skip(Cause.OVER_IMAGE if first.views["output"].extents[1] > 1 else Cause.LAYOUT, first, second)
        else:
            edit.replace({place: None, at: joined})


def joined_call(first: KernelCall, second: KernelCall, operand: str) -> KernelCall | None:
    """Return one call that runs both calls; None if no kernel can. ``operand`` names the operand of the second
    call that is the result of the first."""
    kernel = JOINED.get((first.kernel, second.kernel))
    between = first.views["output"]
    if kernel is None:
        return None
    second = _viewing(second, between)
    if second.views[operand].place != between.place or not second.views["output"].has_dense_channels:
        return None
    if second.views["output"].extents != between.extents:
        return None
    if operand == "input_b":
        exchanged = exchanged_operands(second)
        if exchanged is None:
            return None
        second = exchanged
    others = {f"{THEN}{name}": view for name, view in second.views.items() if name == "input_b"}
    views = {**first.views, "output": second.views["output"], **others}
    params = {**first.params, **{f"{THEN}{name}": value for name, value in second.params.items()}}
    constants = {**first.constants, **{f"{THEN}{name}": value for name, value in second.constants.items()}}
    return KernelCall(kernel, first.name, views, params, constants)


def _viewing(call: KernelCall, between: View) -> KernelCall:
    """Return an element-by-element call with its views restated in the shape of ``between``, the view that the writer
    of its input has. Return the call unchanged if a tensor has gaps or another number of elements than ``between``."""
    views = call.views.values()
    if any(math.prod(view.extents) != math.prod(between.extents) or not view.is_dense for view in views):
        return call
    if not between.is_dense:
        return call
    seen = {name: replace(view, extents=between.extents, pitches=between.pitches) for name, view in call.views.items()}
    return replace(call, views=seen)


def exchanged_operands(call: KernelCall) -> KernelCall | None:
    """Return the sum or product with its two operands exchanged; None for a difference, which depends on their order."""
    if call.params.get("b_multiplier", 1) < 0:
        return None
    pairs = [(f"a_{name}", f"b_{name}") for name in _EXCHANGEABLE if f"a_{name}" in call.params]
    params = dict(call.params)
    for a, b in pairs:
        params[a], params[b] = params[b], params[a]
    views = {**call.views, "input_a": call.views["input_b"], "input_b": call.views["input_a"]}
    return replace(call, views=views, params=params)


KERNEL = "excitation_s8"
BLOCK = "squeeze_excite_s8"

MEAN = rows.KERNEL_BY_NAME[KERNEL].traits.parts[0].kernel
"""The kernel of the first part of an excitation."""

_EMPTY = np.zeros(0, np.int8)


def join_excitations(edit: Edit) -> None:
    """Join the calls of each squeeze-and-excitation to one call: the mean of the image, the two layers after it, and
    the look-ups that follow the layers. A mean of several images is left alone."""
    parts = rows.KERNEL_BY_NAME[KERNEL].traits.parts
    for place, call in enumerate(edit.given.calls if parts else ()):
        if call.kernel != parts[0].kernel or call.views["input"].extents[0] != 1:
            continue
        found = _pattern(edit, place)
        if found is None:
            edit.skip(Cause.LAYOUT, call)
            continue
        gone = [at for at in found if at is not None]
        edit.replace({**dict.fromkeys(gone), max(gone): _call(edit, found)})


def join_products(edit: Edit) -> None:
    """Join each excitation with the product of its result and its image. The joined call computes in place."""
    if not rows.KERNEL_BY_NAME[BLOCK].traits.parts:
        return
    for place, call in enumerate(edit.given.calls):
        if call.kernel != KERNEL:
            continue
        product = _product_behind(edit, place)
        if product is None:
            edit.skip(Cause.LAYOUT, call)
            continue
        at, behind = product
        edit.replace({place: None, at: _block(edit, call, behind)})


def _product_behind(edit: Edit, place: int) -> tuple[int, KernelCall] | None:
    """Return the place and the call of the product that multiplies the result of the excitation at ``place`` by its
    image. The returned call has the excitation's result as second operand. Return None if there is no such product,
    or if the result has other readers."""
    image, gate, reader = edit[place].views["input"], edit[place].views["output"], edit.only_reader(place)
    if reader is None or edit[reader[0]].kernel != "mul_s8":
        return None
    call = edit[reader[0]] if reader[1] == "input_b" else exchanged_operands(edit[reader[0]])
    if call is None:
        return None
    own, read, result = (call.views[name] for name in ("input_a", "input_b", "output"))
    same = own.place == image.place and edit.storages.of[own.tensor] == edit.storages.of[image.tensor]
    repeated = math.prod(image.extents[1:3]) == 1 or (read.pitches[1] == 0 and read.pitches[2] == 0)
    flat = edit.is_flat(gate) and read.offset == gate.offset and read.pitches[3] == gate.pitches[3]
    fits = result.extents == image.extents == read.extents and gate.extents[3] == image.extents[3]
    return (reader[0], call) if same and repeated and flat and fits else None


def _block(edit: Edit, excitation: KernelCall, product: KernelCall) -> KernelCall:
    """Return one call that computes an excitation and the product with its image. The excitation's result becomes the
    scratch buffer ``gate``."""
    prefix = rows.KERNEL_BY_NAME[BLOCK].traits.parts[1].prefix
    extents = four((1, 1, 1, excitation.views["output"].extents[3]))
    gate = View(edit.store(f"{product.name}/gate", extents[3]), extents, dense_pitches(extents))
    views = {**excitation.views, "gate": gate, "output": product.views["output"]}
    _, height, width, channels = views["input"].extents
    # A stripe of one row computes the whole excitation too.
    hidden, outputs = views["hidden"].extents[3], width * channels
    read = height * width * channels + 2 * channels * hidden
    params = {**excitation.params, **{prefix + name: value for name, value in product.params.items()}}
    params["work"] = -(-read // outputs) + 2
    return KernelCall(BLOCK, product.name, views, params, excitation.constants)


def _pattern(edit: Edit, place: int) -> list[int | None] | None:
    """Return the places of the parts of the excitation whose mean is at ``place``, with None for an optional look-up
    that is missing. Return None if there is no excitation there."""
    found: list[int | None] = [place]
    at = place
    for part in rows.KERNEL_BY_NAME[KERNEL].traits.parts[1:]:
        behind = _behind(edit, at, part.kernel)
        if behind is None and not part.flag:
            return None
        found.append(behind)
        at = at if behind is None else behind
    return found


def _behind(edit: Edit, at: int, kernel: str) -> int | None:
    """Return the place of the call of ``kernel`` that reads the result of the call at ``at``. Return None if there is
    no such call, or if another call reads the result too. The operand and the result of the call found are each one
    line of channels; a look-up may access such a line in any shape."""
    reader = edit.only_reader(at)
    if reader is None or edit[reader[0]].kernel != kernel or reader[1] != "input":
        return None
    place, written = reader[0], edit[at].views["output"]
    read, result = edit[place].views["input"], edit[place].views["output"]
    lines = edit.is_flat(written) and edit.is_flat(read) and result.is_dense
    if edit[place].traits.function is None:
        return place if lines and _is_line(read) and _is_line(result) else None
    return place if lines and math.prod(result.extents) == math.prod(read.extents) else None


def _is_line(view: View) -> bool:
    return math.prod(view.extents[:3]) == 1


def _call(edit: Edit, found: Sequence[int | None]) -> KernelCall:
    """Return one call that runs all parts, with new scratch."""
    parts = rows.KERNEL_BY_NAME[KERNEL].traits.parts
    params: dict[str, int] = {}
    constants: dict[str, Constant] = {}
    views: dict[str, View] = {}
    for part, at in zip(parts, found, strict=True):
        if part.flag:
            params[part.flag] = int(at is not None)
        if at is None:
            constants[f"{part.prefix}table"] = _EMPTY
            continue
        call = edit[at]
        params |= {part.prefix + name: value for name, value in call.params.items()}
        constants |= {part.prefix + name: value for name, value in call.constants.items()}
        (_, source), (_, result) = part.buffers
        if source == "input":
            views[source] = call.views["input"]
        # A table may access a line in any shape; the joined call has the shape in which the layer before it writes the
        # line.
        written = call.views["output"]
        views[result] = replace(views[result], tensor=written.tensor, offset=written.offset) if part.flag else written
    name = edit[max(at for at in found if at is not None)].name
    for buffer in rows.KERNEL_BY_NAME[KERNEL].scratch:
        extents = four((1, 1, 1, views[buffer].extents[3]))
        views[buffer] = View(edit.store(f"{name}/{buffer}", extents[3]), extents, dense_pitches(extents))
    _, height, width, channels = views["input"].extents
    hidden, outputs = views["hidden"].extents[3], views["output"].extents[3]
    params["work"] = -(-(height * width * channels + channels * hidden) // outputs) + hidden
    return KernelCall(KERNEL, name, views, params, constants)


def in_two_passes(edit: Edit, again_from_bytes: int | None = None) -> None:
    """Compute each norm whose statistics need all rows in two passes, if it has one batch and several rows. A call
    directly after the norm is joined to the second pass if only this call reads the norm's result and a kernel runs
    both.

    With ``again_from_bytes``, the call before a norm is computed again for the second pass. Its result must have at
    least that many bytes and no other reader, and the call must be repeatable (``_before``).
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
    """Return the calls of the first and the second pass of a norm. ``tensor`` is the name of the tensor with the
    statistics, which the first one writes."""
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
    """Return the place of the call that computes the norm's input, if the norm is its only reader and the call can be
    computed again; otherwise None."""
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
    """Compute each pointwise call without weights again for each group of its readers, if there are several groups
    (``_groups``). Its result then need not stay in memory from one group to the next.

    The inputs of the call must be live until the last group anyway, so that no memory is added for them.
    """
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
    """Return the readers of a call's result, divided into groups. Readers form one group if they are neighbours in
    the list and the whole result of each is needed at once. Return no groups if the call can't be recomputed, or if
    that saves no memory."""
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


LINEAR, _LINEAR_PARTS = "conv_2d_1x1_s8", "conv_2d_1x1_parts_s8"
_CHANNELS = rows.KERNEL_BY_NAME[LINEAR].traits.channels
_COUNTS = _CHANNELS.counts if _CHANNELS else ()
_OWN = ("output_zero_point", *_COUNTS)
"""The parameters that may differ between merged layers."""


def merge(edit: Edit) -> None:
    """Replace all linear layers that read the same sequence by one call.

    A layer is merged if it has a multiple of 8 output channels, and its result is no graph output and is read as rows
    or parts of rows.
    """
    for place, call in enumerate(edit.given.calls):
        if call.kernel != LINEAR or edit.find(place) is not call:
            continue
        readers = edit.readers(edit.storages.of[call.views["input"].tensor])
        group = [at for at, _ in readers if at >= place and _is_beside(edit, at, call)]
        changes = _merged(edit, group) if len(group) > 1 else None
        if changes is not None:
            edit.replace(changes)
        else:
            edit.skip(Cause.LAYOUT if len(group) > 1 else Cause.NO_PARTNER, *(edit[at] for at in group))


def _is_beside(edit: Edit, at: int, call: KernelCall) -> bool:
    """Return whether the call at index ``at`` is a linear layer of the same input as ``call`` whose result can be
    part of a wider result."""
    other = edit.find(at)
    if other is None or other.kernel != LINEAR or other.views["input"] != call.views["input"]:
        return False
    result = other.views["output"]
    same = all(other.params[name] == value for name, value in call.params.items() if name not in _OWN)
    return (
        same
        and result.extents[:3] == call.views["output"].extents[:3]
        and result.extents[1] == 1
        and result.extents[3] % LANES == 0
        and edit.writer(result.tensor) == at
        and edit.is_flat(result)
    )


def _merged(edit: Edit, group: Sequence[int]) -> dict[int, KernelCall | None] | None:
    """Return the changes that replace the calls of a group by one call; None if a reader can't read its operand
    as part of the merged result."""
    members = [edit[at] for at in group]
    name = edit.unused(f"{members[0].name}/merged")
    own = [call.views["output"].extents[3] for call in members]
    whole = (*members[0].views["output"].extents[:3], sum(own))
    changes: dict[int, KernelCall | None] = {}
    first = 0
    for at, channels in zip(group, own, strict=True):
        for reader, operand in edit.readers_of_result(at):
            call = changes.get(reader) or edit[reader]
            view = _part(call.views[operand], channels, whole[3], first)
            if view is None:
                return None
            changes[reader] = replace(call, views={**call.views, operand: replace(view, tensor=name)})
        changes[at] = None
        first += channels
    name = edit.store(name, dense_pitches(whole)[0])
    changes[group[0]] = side_by_side(members, own, View(name, whole, dense_pitches(whole)))
    return changes


def side_by_side(members: Sequence[KernelCall], own: Sequence[int], output: View) -> KernelCall:
    """Return one call that computes the linear layers ``members`` into adjacent channels of ``output``. ``own`` has the
    number of output channels of each layer."""
    row = rows.KERNEL_BY_NAME[LINEAR]
    constants: dict[str, Array] = {}
    for key in members[0].constants:
        arrays = [call.constants[key] for call in members]
        constants[key] = np.concatenate(
            [each for each in arrays if isinstance(each, np.ndarray)], CHANNEL_AXES[row.packing(key)]
        )
    zero_points = [call.params["output_zero_point"] for call in members]
    params = {**members[0].params, **dict.fromkeys(_COUNTS, sum(own))}
    views = {**members[0].views, "output": output}
    if len(set(zero_points)) == 1:
        return KernelCall(LINEAR, members[0].name, views, params, constants)
    blocks = np.repeat(np.array(zero_points, np.int8), [channels // LANES for channels in own])
    constants["zero_points"] = blocks
    return KernelCall(_LINEAR_PARTS, members[0].name, views, {**params, "output_zero_point": 0}, constants)


def _part(view: View, channels: int, of: int, first: int) -> View | None:
    """Restate a view of dense rows of ``channels`` channels for a wider tensor: rows of ``of`` channels, in which these
    channels begin at ``first``. Return None if no view describes the same elements there, or if an element has
    several bytes."""
    if view.element_bytes != 1:
        return None
    row, start = divmod(view.offset, channels)
    pitches = []
    last = start
    for extent, pitch in zip(view.extents, view.pitches, strict=True):
        steps, rest = divmod(pitch, channels)
        if extent > 1 and rest and steps:
            return None
        last += rest * (extent - 1) if not steps else 0
        pitches.append(rest if not steps else steps * of)
    if last >= channels:
        return None
    batch, line, col, channel = pitches
    return replace(view, pitches=(batch, line, col, channel), offset=row * of + first + start)


CHAINED: Mapping[tuple[str, str], str] = {
    row.traits.chain: row.name for row in rows.KERNELS if row.traits.chain is not None
}
"""The kernel that runs two kernels one after the other through a scratch buffer, by the names of the two."""

_PARTS = frozenset(kernel for pair in CHAINED for kernel in pair)
_ENDS = ("input", "output")
_STRIDES = ("stride_h", "stride_w")


def chain(edit: Edit, last_first: bool = True) -> None:
    """Chain each pair of calls that a kernel of ``CHAINED`` runs, if only the second call reads the result of the
    first. Calls over images and calls with strides are left alone.

    If two pairs share a call, ``last_first`` chains the last pair; otherwise the first pair is chained. So a
    normalization between two feed-forward blocks is chained to the block before it with ``last_first``, in a call
    that holds the block's input and the residual sum's operand in memory. Otherwise it is chained to the block after
    it, in a call that holds one tensor. Chained kernels that are parts of larger chained kernels are made first.
    """
    places = range(len(edit))
    for kernels in ({kernel for kernel in CHAINED.values() if kernel in _PARTS}, set(CHAINED.values())):
        for at in reversed(places) if last_first else places:
            second = edit.find(at)
            if second is None or "input" not in second.views:
                continue
            place = edit.writer(second.views["input"].tensor)
            if place is None:
                continue
            first = edit[place]
            if CHAINED.get((first.kernel, second.kernel)) not in kernels:
                edit.skip(Cause.NO_PARTNER, second)
                continue
            if edit.only_reader(place) != (at, "input"):
                edit.skip(Cause.READ_BY_OTHERS, first, second)
                continue
            chained = _chained(edit, first, second)
            if isinstance(chained, Cause):
                edit.skip(chained, first, second)
            else:
                edit.replace({place: None, at: chained})


def _chained(edit: Edit, first: KernelCall, second: KernelCall) -> KernelCall | Cause:
    """Return the call that runs both calls, or the cause why they stay apart: the second call is over an image, or it
    reads other positions than the first one writes."""
    kernel = CHAINED[first.kernel, second.kernel]
    source = second.views["input"]
    if source.extents[1] > 1 or any(_strides(second)):
        return Cause.OVER_IMAGE
    first = _reading_as(first, source)
    if first.views["output"].place != source.place or not edit.is_flat(source):
        return Cause.LAYOUT
    parts = ((FIRST, first), (SECOND, second))
    views = {
        f"{prefix}{name}": view for prefix, part in parts for name, view in part.views.items() if name not in _ENDS
    }
    views |= {"input": first.views["input"], BETWEEN: source, "output": second.views["output"]}
    params = {f"{prefix}{name}": value for prefix, part in parts for name, value in part.params.items()}
    constants = {f"{prefix}{name}": value for prefix, part in parts for name, value in part.constants.items()}
    work = macs_of_channel(second) + -(-macs_of_channel(first) * source.extents[3] // views["output"].extents[3])
    return KernelCall(kernel, first.name, views, {**params, "work": work}, constants)


def _strides(call: KernelCall) -> list[bool]:
    return [name.endswith(_STRIDES) and value != 1 for name, value in call.params.items()]


def macs_of_channel(call: KernelCall) -> int:
    """Return the multiply-accumulates of a call for one output channel of one position."""
    product = 1
    for name in call.row.taps:
        product *= call.params[name]
    return product


def _reading_as(call: KernelCall, source: View) -> KernelCall:
    """Return a call with its views restated in the shape of ``source``, the view that reads its result. The call must
    have a single operand, and compute each position from the same position. Return other calls unchanged."""
    views = (call.views["input"], call.views["output"])
    same = all(view.is_dense and view.extents[3] == source.extents[3] for view in views)
    if len(call.views) > len(views) or not same or not isinstance(call.traits.access("input"), SameRow):
        return call
    pitches = dense_pitches(source.extents)
    seen = {name: replace(call.views[name], extents=source.extents, pitches=pitches) for name in ("input", "output")}
    return replace(call, views=seen)
