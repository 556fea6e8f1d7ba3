# SPDX-License-Identifier: BSD-3-Clause
"""Join neighbouring calls to one call of a kernel that runs them with the same bytes.

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
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from openneutron.compiler.rewrite.call_list import Cause, Edit
from openneutron.compiler.select.calls import Constant, KernelCall, View, dense_pitches, four
from openneutron.isa import rows
from openneutron.isa.kernels.combined import THEN

JOINED: Mapping[tuple[str, str], str] = {
    row.traits.joins: row.name for row in rows.KERNELS if row.traits.joins is not None
}
"""Joined kernels that compute in place, by the pair of kernels that each of them runs."""

_FIRST = frozenset(first for first, _ in JOINED)

_EXCHANGEABLE = ("zero_point", "multiplier", "shift")
"""The parameters that a sum or a product has for each operand, with the prefix ``a_`` or ``b_``."""


def join(edit: Edit) -> None:
    """Join each pair of calls where only the second call reads the result of the first."""
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
    second = _seen_as(second, between)
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


def _seen_as(call: KernelCall, between: View) -> KernelCall:
    """Return an element-by-element call in the shape in which its input was written, if its tensors have no gaps;
    otherwise return the call unchanged."""
    views = call.views.values()
    if any(math.prod(view.extents) != math.prod(between.extents) or not view.is_dense for view in views):
        return call
    if not between.is_dense:
        return call
    seen = {name: replace(view, extents=between.extents, pitches=between.pitches) for name, view in call.views.items()}
    return replace(call, views=seen)


def exchanged_operands(call: KernelCall) -> KernelCall | None:
    """Return the sum or product with its two operands exchanged; None for a difference."""
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
    """Join the mean of each image and the two layers after it."""
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
    """Return the place and the call of the product of an excitation's image and result, with the result as second
    operand; None if no such product is the only reader of the result."""
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
    """Return one call of an excitation and the product. The excitation's result is its scratch ``gate``."""
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
    """Return the places of the parts of the excitation whose mean is at ``place``; a place is None if its
    optional table is missing. Return None if there is no such excitation."""
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
    """Return the place of the call of ``kernel`` that is the only reader of a call's result; None if there is
    none. Its operand and its result must be lines of channels."""
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
