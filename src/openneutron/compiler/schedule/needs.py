# SPDX-License-Identifier: BSD-3-Clause
"""Which rows of its inputs each kernel needs for rows of its output: one rule a kernel."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import accumulate

from openneutron.compiler.select.calls import KernelCall, View

NEVER = 1 << 30
"""A row beyond every tensor's last: what outputs without a need need first."""


@dataclass(frozen=True, slots=True)
class RowNeeds:
    """Rows of an input that output rows need.

    ``low[r]`` is the first input row that output row r or a later one needs (``low[rows]`` is ``NEVER``), ``high[q]`` the
    end of those that output rows [0, q) need. Both never fall.
    """

    low: tuple[int, ...]
    high: tuple[int, ...]

    def moved(self, rows: int) -> RowNeeds:
        """The same needs, counted from ``rows`` rows earlier."""
        return RowNeeds((*(row + rows for row in self.low[:-1]), NEVER), (0, *(row + rows for row in self.high[1:])))

    def mirrored(self, rows: int) -> RowNeeds:
        """The same needs where both the output and the input, of ``rows`` rows, are counted from the last row on."""
        low = (*(rows - end for end in reversed(self.high[1:])), NEVER)
        high = (0, *(rows - first for first in reversed(self.low[:-1])))
        return RowNeeds(low, high)

    def joined(self, other: RowNeeds) -> RowNeeds:
        """What either needs."""
        return RowNeeds(tuple(map(min, self.low, other.low)), tuple(map(max, self.high, other.high)))


Rule = Callable[[KernelCall, str], RowNeeds | None]
"""(call, name of one of its inputs) to its needs; None where every row of the output may need every row of the input."""


def _window(call: KernelCall, name: str) -> RowNeeds:
    p = call.params
    extent = (p["kernel_h"] - 1) * p.get("dilation_h", 1) + 1
    return _strided(call, name, p["stride_h"], p["pad_top"], extent)


def _strided(call: KernelCall, name: str, stride: int, before: int, extent: int) -> RowNeeds:
    held, rows = call.views[name].extents[1], call.views["output"].extents[1]
    low = tuple(min(held, max(0, row * stride - before)) for row in range(rows))
    high = tuple(min(held, max(0, row * stride - before + extent)) for row in range(rows))
    return RowNeeds((*low, NEVER), (0, *high))


def _same_rows(call: KernelCall, name: str) -> RowNeeds | None:
    view = call.views[name]
    if view.extents[1] != call.views["output"].extents[1] or (view.pitches[1] == 0 and view.extents[1] > 1):
        return None
    return _strided(call, name, 1, 0, 1)


def _padded(call: KernelCall, name: str) -> RowNeeds:
    return _strided(call, name, 1, call.params["pad_top"], 1)


def _mapped(call: KernelCall, name: str, maps: int) -> RowNeeds:
    """``maps`` int32 for each output row, one map behind the other, name the input rows it reads."""
    held, rows = call.views[name].extents[1], call.views["output"].extents[1]
    named = struct.unpack_from(f"<{maps * rows}i", call.constants["map"])
    read = [[min(max(row, 0), held - 1) for row in named[i::rows]] for i in range(rows)]
    low = tuple(accumulate((min(each) for each in reversed(read)), min))[::-1]
    high = tuple(accumulate((max(each) + 1 for each in read), max))
    return RowNeeds((*low, NEVER), (0, *high))


def _nearest(call: KernelCall, name: str) -> RowNeeds:
    return _mapped(call, name, 1)


def _bilinear(call: KernelCall, name: str) -> RowNeeds:
    return _mapped(call, name, 2)


def _first_operand(call: KernelCall, name: str) -> RowNeeds | None:
    return _same_rows(call, name) if name in ("input", "input_a") else None


def _everything(_call: KernelCall, _name: str) -> None:
    return None


RULES: dict[str, Rule] = {
    "conv_2d_s8": _window,
    "conv_2d_1x1_s8": _window,
    "depthwise_conv_2d_s8": _window,
    "average_pool_2d_s8": _window,
    "max_pool_2d_s8": _window,
    "add_s8": _same_rows,
    "mul_s8": _same_rows,
    "maximum_s8": _same_rows,
    "prelu_s8": _same_rows,
    "squared_difference_s8": _same_rows,
    "compare_s8": _same_rows,
    "select_s8": _same_rows,
    "lookup_s8": _same_rows,
    "copy_s8": _same_rows,
    "pad_s8": _padded,
    "resize_nearest_neighbor_s8": _nearest,
    "resize_bilinear_s8": _bilinear,
    "softmax_s8": _same_rows,
    "log_softmax_s8": _same_rows,
    "l2_normalization_s8": _same_rows,
    "arg_max_s8": _same_rows,
    "batch_matmul_s8": _first_operand,
    "gather_s8": _first_operand,
    "mean_s8": _everything,
    "reduce_max_s8": _everything,
}
"""One rule for each kernel of the microcode."""

ELEMENT_BY_ELEMENT = frozenset(
    (
        "add_s8",
        "mul_s8",
        "maximum_s8",
        "prelu_s8",
        "squared_difference_s8",
        "compare_s8",
        "select_s8",
        "lookup_s8",
        "copy_s8",
    )
)
"""Kernels that read an element of an input before they write that element of the output, in ascending order, and never look
at it again (runtime/kernels/elements.h): where both are laid out alike, the output may lie on the input or before it."""


def row_needs(call: KernelCall, name: str) -> RowNeeds | None:
    """The rows that a call needs of its input ``name``, in rows of that view; None: all, for any of its output."""
    return RULES[call.kernel](call, name)


def written_in_place(call: KernelCall, name: str, of: Mapping[str, str]) -> bool:
    """Whether the call's output may take the memory of its input ``name`` element by element.

    Everything that the call reads of that memory, by whatever tensor's name, then lies as the output does. ``of``: the
    storage of each tensor.
    """
    storage = of[call.views[name].tensor]
    return call.kernel in ELEMENT_BY_ELEMENT and all(
        _place(view) == _place(call.views["output"])
        for field, view in call.views.items()
        if field != "output" and of[view.tensor] == storage
    )


def _place(view: View) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    return view.extents, view.pitches, view.offset
