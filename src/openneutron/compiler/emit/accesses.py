# SPDX-License-Identifier: BSD-3-Clause
"""The windows that each kernel reads and writes to compute a window of its output: the audit's rules.

Rows, and the columns under sliding windows, are those of ``select/needs.py``, the one rule that stripes, rolling buffers, tiles and the
audit ask. Each kernel's row names the rule for all else (``Audited``): the operands that are read at all, batches, channels, other columns, scratch, and
in-place writing. Nothing that schedules uses these rules, so that the audit finds mistakes in traits.
"""

from __future__ import annotations

from collections.abc import Callable

from openneutron.compiler.select.calls import KernelCall
from openneutron.compiler.select.needs import Reads, Span, reads_along
from openneutron.isa.kernels import KERNELS
from openneutron.isa.kernels.row import Audited

Window = tuple[Span, Span, Span, Span]
"""Batches, rows, columns and channels of a view."""

Others = tuple[Span, Span, Span]
"""Batches, columns and channels of a view."""

Rule = Callable[[KernelCall, str, Window], Others | None]
"""(call, input, window of the output) to what is read of the input beside its rows; None: nothing."""


def whole_window(call: KernelCall, name: str) -> Window:
    """Return all of a view."""
    batches, rows, cols, channels = call.views[name].extents
    return (0, batches), (0, rows), (0, cols), (0, channels)


def _along(call: KernelCall, name: str, axis: int) -> Reads:
    """Return the rows (axis 1) or columns (axis 2) of an input that those of the output need."""
    whole = 0, call.views[name].extents[axis]
    return reads_along(call, name, axis) or (lambda _first, _end: whole)


def _channels(call: KernelCall, name: str) -> Span:
    return 0, call.views[name].extents[3]


def _convolution(call: KernelCall, name: str, window: Window) -> Others:
    inputs, outputs = call.params["group_inputs"], call.params["group_outputs"]
    first, last = window[3][0] // outputs, (window[3][1] - 1) // outputs
    return window[0], _along(call, name, 2)(*window[2]), (first * inputs, (last + 1) * inputs)


def _joined(call: KernelCall, name: str, window: Window) -> Others:
    """Return the accesses of the convolution, and of the other operand those of the joined kernel: the same elements as its output."""
    return _convolution(call, name, window) if name == "input" else _same(call, name, window)


def _chained(call: KernelCall, name: str, window: Window) -> Others:
    """Return all channels of the same places of the input, and of another operand the same elements as the output."""
    return (_lines if name == "input" else _same)(call, name, window)


def _sampled(call: KernelCall, name: str, window: Window) -> Others:
    """Return the same channels of the places under a sliding window or in a table."""
    return window[0], _along(call, name, 2)(*window[2]), window[3]


def _same(_call: KernelCall, _name: str, window: Window) -> Others:
    return window[0], window[2], window[3]


def _padded(call: KernelCall, name: str, window: Window) -> Others:
    batches, _, _, channels = call.views[name].extents

    def inside(span: Span, side: str, extent: int) -> Span:
        before = call.params[f"pad_{side}"]
        return max(0, min(span[0] - before, extent)), max(0, min(span[1] - before, extent))

    cols = _along(call, name, 2)(*window[2])
    return inside(window[0], "batch", batches), cols, inside(window[3], "channel", channels)


def _lines(call: KernelCall, name: str, window: Window) -> Others:
    """Return all channels of the same places."""
    return window[0], window[2], _channels(call, name)


def _groups(call: KernelCall, name: str, window: Window) -> Others:
    """Return all columns of the groups of channels."""
    size = call.params["group_channels"]
    channels = window[3][0] // size * size, -(-window[3][1] // size) * size
    return window[0], (0, call.views[name].extents[2]), channels


def _everything(call: KernelCall, name: str, window: Window) -> Others:
    """Return all columns and channels of the same batches."""
    return window[0], (0, call.views[name].extents[2]), _channels(call, name)


def _by_sums(call: KernelCall, name: str, window: Window) -> Others:
    """Return the same elements, and all sums of the same batches."""
    return (_everything if name == "sums" else _same)(call, name, window)


def _reduced(call: KernelCall, name: str, window: Window) -> Others:
    """Return all columns of the same batches and channels."""
    return window[0], (0, call.views[name].extents[2]), window[3]


def _product(call: KernelCall, name: str, window: Window) -> Others:
    """Return the whole depth of a, or the columns of b."""
    return window[0], (0, 1), (0, call.params["depth"]) if name == "input_a" else window[3]


def _gathered(call: KernelCall, name: str, window: Window) -> Others:
    """Return any column, by the indices of the same columns."""
    if name == "indices":
        return window[0], window[2], _channels(call, name)
    return window[0], (0, call.views[name].extents[2]), window[3]


def _looked_up(call: KernelCall, name: str, window: Window) -> Others:
    """Return any entry of the table, by the indices of the same columns."""
    if name == "indices":
        return _lines(call, name, window)
    return (0, 1), (0, call.views[name].extents[2]), window[3]


def _sequence(call: KernelCall, name: str, _window: Window) -> Others | None:
    """Return all steps; a state where it is not set at the start, to its first value or by the hidden state; nothing of the scratch."""
    starts = call.params["starts"]
    if name == "gates" or (name != "input" and starts == 1) or (name == "cell" and starts == 2):
        return None
    return (0, 1), (0, call.views[name].extents[2]), _channels(call, name)


def _attended(call: KernelCall, name: str, window: Window) -> Others:
    """Return the reads of attention: queries and mask; of the heads' groups all keys' depth, and all values' output channels."""
    batches, _, heads, channels = window
    depth = (0, call.params["depth"])
    if name == "query" or (name == "mask" and not call.params["masked"]):
        return batches, heads, depth
    if name == "mask":
        return batches, heads, (0, call.views["key"].extents[1])
    group = call.params["group"]
    held = heads[0] // group, (heads[1] - 1) // group + 1
    return batches, held, depth if name == "key" else channels


def _projected(call: KernelCall, name: str, window: Window) -> Others | None:
    """Return the reads of attention with its layers: the same batches of the layers' input, and of the mask those of attention."""
    if name == "mask":
        return _attended(call, name, window) if call.params["masked"] else None
    return _everything(call, name, window)


_RULES: dict[Audited, Rule] = {
    Audited.EVERYTHING: _everything,
    Audited.SAME: _same,
    Audited.LINES: _lines,
    Audited.GROUPS: _groups,
    Audited.REDUCED: _reduced,
    Audited.SAMPLED: _sampled,
    Audited.CONVOLUTION: _convolution,
    Audited.JOINED: _joined,
    Audited.CHAINED: _chained,
    Audited.PADDED: _padded,
    Audited.BY_SUMS: _by_sums,
    Audited.PRODUCT: _product,
    Audited.GATHERED: _gathered,
    Audited.LOOKED_UP: _looked_up,
    Audited.ATTENDED: _attended,
    Audited.PROJECTED: _projected,
    Audited.SEQUENCE: _sequence,
}

RULES = {row.name: _RULES[row.audited] for row in KERNELS}
"""One rule for each kernel of the microcode."""

_SCRATCH = frozenset(("gates", "scores", "squeezed", "hidden", "gate", "projected", "query", "key", "value"))


COPIED_BY_KERNEL = {"embedding_lookup_s8": ("input",)}
"""The operands that a kernel has the port copy, by kernel: they may be in any memory."""


def is_element_by_element(kernel: str, name: str) -> bool:
    """Return whether a kernel has read an element of this input before it writes that element, in ascending order."""
    if RULES[kernel] is _by_sums:
        return name != "sums"
    return RULES[kernel] is _same or kernel == "squeeze_excite_s8"


def block_scratch(kernel: str) -> str:
    """Return the scratch buffer of a kernel that goes through its rows in blocks of as many as the buffer holds; empty for other kernels."""
    return "between" if RULES[kernel] is _chained else ""


def rows_read(call: KernelCall, name: str) -> Reads:
    """Return the rows that a call reads of its input ``name`` to compute rows of its output."""
    return _along(call, name, 1)


def read_beside_rows(call: KernelCall, name: str, window: Window) -> Others | None:
    """Return what a call reads of its input ``name`` to compute a window of its output, without the rows; None: it reads nothing."""
    return RULES[call.kernel](call, name, window)


def read_window(call: KernelCall, name: str, window: Window) -> Window | None:
    """Return the window that a call reads of its input ``name`` to compute a window of its output; None: it reads nothing."""
    others = read_beside_rows(call, name, window)
    return None if others is None else (others[0], rows_read(call, name)(*window[1]), others[1], others[2])


def written_beside_rows(call: KernelCall, name: str, window: Window) -> Others:
    """Return what a call writes of its output, of a state or of its scratch to compute a window of its output, without the rows."""
    if name == "output":
        return window[0], window[2], window[3]
    _, _, cols, channels = call.views[name].extents
    if name.endswith("between"):
        return window[0], window[2], (0, channels)
    return (0, 1), (0, cols), (0, channels)


def rows_written(call: KernelCall, name: str) -> Reads:
    """Return the rows that a call writes of a result to compute rows of its output."""
    whole = 0, call.views[name].extents[1]
    return (lambda _first, _end: whole) if name in _SCRATCH else (lambda first, end: (first, end))
