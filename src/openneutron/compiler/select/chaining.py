# SPDX-License-Identifier: BSD-3-Clause
"""Chain a normalization or a linear layer and the linear layer behind it to one call of a kernel that runs both.

A sequence of some positions is short work for one call, whose dispatch then takes as long. The result between the two kernels
becomes scratch of the call, so that no bit changes. Chained calls are never divided by channels; other
selections have the calls apart. A cascade computes a chained call by rows, with scratch for as many rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace

from openneutron.compiler.select.calls import KernelCall, Storages, View, dense_pitches
from openneutron.compiler.select.states import in_order
from openneutron.compiler.select.uses import Uses
from openneutron.isa import rows
from openneutron.isa.kernels.chained import BETWEEN, FIRST, SECOND
from openneutron.isa.kernels.row import SameRow

CHAINED: Mapping[tuple[str, str], str] = {
    row.traits.chain: row.name for row in rows.KERNELS if row.traits.chain is not None
}
"""Kernels that run two others through a scratch buffer, by the pair of kernels."""

_PARTS = frozenset(kernel for pair in CHAINED for kernel in pair)
_ENDS = ("input", "output")
_STRIDES = ("stride_h", "stride_w")


def chain(storages: Storages, calls: Sequence[KernelCall], last_first: bool = True) -> list[KernelCall]:
    """Return the calls, with each pair chained where only the second call reads the result of the first.

    Kernels that are parts of other ones come first, so that these can follow. ``last_first``: of two pairs that share a call, the last one is
    chained. A normalization between two feed-forward blocks is then chained to the block in front of it, whose call has the block's input and
    the residual sum's operand in memory; otherwise it is chained to the block behind it, whose call has one tensor.
    """
    own = {kernel for kernel in CHAINED.values() if kernel in _PARTS}
    return _with(set(CHAINED.values()), storages, _with(own, storages, calls, last_first), last_first)


def _with(kernels: Set[str], storages: Storages, calls: Sequence[KernelCall], last_first: bool) -> list[KernelCall]:
    """Return the calls with pairs chained to one of these kernels."""
    uses = Uses.of(storages, calls)
    for at in reversed(range(len(calls))) if last_first else range(len(calls)):
        second = uses.calls[at]
        place = uses.writer(second.views["input"].tensor) if second is not None and "input" in second.views else None
        if second is None or place is None or uses.only_reader(place) != (at, "input"):
            continue
        chained = _chained(uses, uses[place], second)
        if chained is None or chained.kernel not in kernels:
            continue
        tried = uses.replaced({place: None, at: chained})
        if in_order(storages, tried.calls):
            uses = tried
    return uses.left


def _chained(uses: Uses, first: KernelCall, second: KernelCall) -> KernelCall | None:
    """Return the one call, or None where no kernel runs both or where the second call is over an image."""
    kernel = CHAINED.get((first.kernel, second.kernel))
    source = second.views["input"]
    if kernel is None or source.extents[1] > 1 or any(_strides(second)):
        return None
    first = _seen_as(first, source)
    if first.views["output"].place != source.place or not uses.is_flat(source):
        return None
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
    """Return the multiply-accumulates of a call for each output channel of a position."""
    taps = rows.KERNEL_BY_NAME[call.kernel].taps
    product = 1
    for name in taps:
        product *= call.params[name]
    return product


def _seen_as(call: KernelCall, source: View) -> KernelCall:
    """Return a call that computes each position from the same position of its only operand, in the shape in which its result is read."""
    views = (call.views["input"], call.views["output"])
    same = all(view.is_dense and view.extents[3] == source.extents[3] for view in views)
    if len(call.views) > len(views) or not same or not isinstance(call.traits.access("input"), SameRow):
        return call
    pitches = dense_pitches(source.extents)
    seen = {name: replace(call.views[name], extents=source.extents, pitches=pitches) for name in ("input", "output")}
    return replace(call, views=seen)
