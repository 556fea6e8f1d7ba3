# SPDX-License-Identifier: BSD-3-Clause
"""Join a linear layer and the table, sum or product behind it to one call of a kernel that runs both.

Each call has a dispatch overhead on the host, which is longer than the work of a small call. The second kernel computes in place,
so that no bit changes and no memory is added. Calls over images are not joined: cascades and prefetch can divide single calls in more
ways.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from openneutron.compiler.select.calls import KernelCall, Storages, View
from openneutron.compiler.select.states import in_order
from openneutron.isa import rows
from openneutron.isa.kernels.joined import THEN

JOINED: Mapping[tuple[str, str], str] = {
    row.traits.joins: row.name for row in rows.KERNELS if row.traits.joins is not None
}
"""Joined kernels that compute in place, by the pair of kernels that each of them runs."""

_EXCHANGEABLE = ("zero_point", "multiplier", "shift")
"""A sum has these parameters for each operand."""


def join(storages: Storages, calls: Sequence[KernelCall]) -> list[KernelCall]:
    """Return the calls, with each pair joined where only the second call reads the result of the first."""
    left: list[KernelCall | None] = list(calls)
    writers: dict[str, list[int]] = {}
    readers: dict[str, list[tuple[int, str]]] = {}
    for place, call in enumerate(calls):
        for name, view in call.views.items():
            storage = storages.of[view.tensor]
            if call.writes(name):
                writers.setdefault(storage, []).append(place)
            if call.reads(name):
                readers.setdefault(storage, []).append((place, name))
    for storage, places in writers.items():
        uses = readers.get(storage, [])
        if len(places) != 1 or len(uses) != 1 or not storages.storages[storage].is_scratch:
            continue
        (place,), ((at, operand),) = places, uses
        first, second = left[place], left[at]
        if first is None or second is None or first.views["output"].extents[1] > 1:
            continue
        joined = joined_call(first, second, operand)
        if joined is None:
            continue
        before = list(left)
        left[place], left[at] = None, joined
        if not in_order(storages, left):
            left = before
    return [call for call in left if call is not None]


def joined_call(first: KernelCall, second: KernelCall, operand: str) -> KernelCall | None:
    """Return the one call of both; None where no kernel runs them. ``operand``: that of the second call that is the result of the first."""
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
    """Return an element-by-element call whose tensors have no gaps, in the shape in which its input was written."""
    views = call.views.values()
    if any(math.prod(view.extents) != math.prod(between.extents) or not view.is_dense for view in views):
        return call
    if not between.is_dense:
        return call
    seen = {name: replace(view, extents=between.extents, pitches=between.pitches) for name, view in call.views.items()}
    return replace(call, views=seen)


def exchanged_operands(call: KernelCall) -> KernelCall | None:
    """Return the same sum or product with operands exchanged; None for a difference."""
    if call.params.get("b_multiplier", 1) < 0:
        return None
    pairs = [(f"a_{name}", f"b_{name}") for name in _EXCHANGEABLE if f"a_{name}" in call.params]
    params = dict(call.params)
    for a, b in pairs:
        params[a], params[b] = params[b], params[a]
    views = {**call.views, "input_a": call.views["input_b"], "input_b": call.views["input_a"]}
    return replace(call, views=views, params=params)
