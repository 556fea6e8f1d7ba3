# SPDX-License-Identifier: BSD-3-Clause
"""Make the calls that copy the accessed parts of tensors between external memory and the memory of the NPU.

The copy in the memory of the NPU is compact: rows outermost, without the bytes that the kernel does not touch. A row of a planar
image has a line of each plane. Where the bytes of a view are in another order, the copy has all bytes from the view's first to its last.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from openneutron.compiler.select.calls import Extents, KernelCall, Storage, View, four
from openneutron.isa.kernels import KERNELS

LOADS, STORES = 15, 14
"""Copies to the memory of the NPU have the first channel, copies from it the second."""

CONSTANT_CHANNELS = 14
"""Constants have channels 0 to 13."""

_MOVE = next(row.name for row in KERNELS if row.is_transfer)


@dataclass(frozen=True, slots=True)
class Copied:
    """A copy of a view's bytes in the memory of the NPU.

    ``outer`` and ``inner`` are the views of the transfer, in external memory and in the copy; ``view`` is the kernel's view of
    the copy. ``by_rows``: row r of the view is row r of the copy.
    """

    outer: View
    inner: View
    view: View
    by_rows: bool

    @property
    def size_bytes(self) -> int:
        """Return the bytes that a transfer copies, which the copy takes."""
        return self.inner.size_bytes


def compact(view: View, tensor: str) -> Copied:
    """Return a compact copy of the bytes of a view, in a tensor of its own."""
    size = view.element_bytes
    moved = [axis for axis in range(4) if view.pitches[axis] and view.extents[axis] > 1]
    moved.sort(key=lambda axis: (view.pitches[axis], axis))
    # No axis may be inside another one: windows that slide over a tensor share bytes.
    end, is_plain = size, True
    for axis in moved:
        is_plain = is_plain and view.pitches[axis] >= end
        end = (view.extents[axis] - 1) * view.pitches[axis] + end
    inside = [axis for axis in moved if axis > 1]
    if not is_plain or (inside and view.pitches[inside[0]] != size):
        return _covered(view, tensor)
    length = view.extents[inside[0]] * size if inside else size
    count, apart = (view.extents[inside[1]], view.pitches[inside[1]]) if len(inside) > 1 else (1, length)
    batches, rows = (view.extents[axis] if axis in moved else 1 for axis in (0, 1))
    row = count * length
    steps = view.pitches[0] if 0 in moved else rows * row, view.pitches[1] if 1 in moved else row
    pitches = [
        0 if extent > 1 else alone for extent, alone in zip(view.extents, (rows * row, row, row, size), strict=True)
    ]
    for axis, pitch in [
        *zip(inside, (size, length), strict=False),
        *((a, (rows * row, row)[a]) for a in moved if a < 2),
    ]:
        pitches[axis] = pitch
    extents: Extents = (batches, rows, count, length)
    return Copied(
        View(view.tensor, extents, (*steps, apart, 1), view.offset),
        View(tensor, extents, (rows * row, row, length, 1)),
        replace(view, tensor=tensor, offset=0, pitches=four(pitches)),
        batches == 1 and rows == view.extents[1],
    )


def _covered(view: View, tensor: str) -> Copied:
    size = view.reach(0)
    flat: Extents = (1, 1, 1, size)
    return Copied(
        View(view.tensor, flat, (0, 0, size, 1), view.offset),
        View(tensor, flat, (0, 0, size, 1)),
        replace(view, tensor=tensor, offset=0),
        False,
    )


def load(copied: Copied) -> KernelCall:
    """Return the transfer to the memory of the NPU."""
    return KernelCall(
        _MOVE, f"load {copied.outer.tensor}", {"input": copied.outer, "output": copied.inner}, {"channel": LOADS}
    )


def store(copied: Copied) -> KernelCall:
    """Return the transfer to external memory."""
    return KernelCall(
        _MOVE, f"store {copied.outer.tensor}", {"input": copied.inner, "output": copied.outer}, {"channel": STORES}
    )


def storage_of(copied: Copied) -> Storage:
    """Return the storage of a copy."""
    return Storage(copied.inner.tensor, copied.size_bytes)
