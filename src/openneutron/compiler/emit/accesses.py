# SPDX-License-Identifier: BSD-3-Clause
"""State the windows that each kernel reads and writes to compute a window of its output. These are the rules of the
audit.

``select/needs.py`` gives the rows, and the columns under sliding windows; stripes, rolling buffers and tiles ask it
too. All else comes from the rule (``Audited``) that a kernel's row names: the operands that are read at all, batches,
channels, other columns, scratch, and in-place writing. The compiler plans with the traits of calls and never with
these rules, so that the audit finds mistakes in the traits.
"""

from __future__ import annotations

from collections.abc import Callable

from openneutron.compiler.select.calls import KernelCall
from openneutron.compiler.select.needs import Reads, Span, reads_along
from openneutron.isa.kernels import KERNELS
from openneutron.isa.kernels.row import Audited

Window = tuple[Span, Span, Span, Span]
"""A range of batches, rows, columns and channels of a view."""

Others = tuple[Span, Span, Span]
"""The ranges of a window without its rows: batches, columns and channels."""

Rule = Callable[[KernelCall, str, Window], Others | None]
"""A function of a call, the name of an input, and a window of the output. It returns the ranges of the input that the
kernel reads for the window, without the rows, or None if the kernel reads nothing of the input."""


def whole_window(call: KernelCall, name: str) -> Window:
    """Return the window that covers a whole view."""
    batches, rows, cols, channels = call.views[name].extents
    return (0, batches), (0, rows), (0, cols), (0, channels)


def _along(call: KernelCall, name: str, axis: int) -> Reads:
    """Return the function from rows (``axis`` 1) or columns (``axis`` 2) of the output to those of an input that they
    need."""
    whole = 0, call.views[name].extents[axis]
    return reads_along(call, name, axis) or (lambda _first, _end: whole)


def _channels(call: KernelCall, name: str) -> Span:
    return 0, call.views[name].extents[3]


def _convolution(call: KernelCall, name: str, window: Window) -> Others:
    inputs, outputs = call.params["group_inputs"], call.params["group_outputs"]
    first, last = window[3][0] // outputs, (window[3][1] - 1) // outputs
    return window[0], _along(call, name, 2)(*window[2]), (first * inputs, (last + 1) * inputs)


def _joined(call: KernelCall, name: str, window: Window) -> Others:
    """Return the convolution's ranges for its input. The operand of the kernel that is joined to it has the ranges of
    the output."""
    return _convolution(call, name, window) if name == "input" else _same(call, name, window)


def _chained(call: KernelCall, name: str, window: Window) -> Others:
    """Return all channels at the window's columns for the input. Another operand has the ranges of the output."""
    return (_lines if name == "input" else _same)(call, name, window)


def _sampled(call: KernelCall, name: str, window: Window) -> Others:
    """Return the window's own channels at the columns under a sliding window, or at those that a table names."""
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
    """Return all channels at the window's columns."""
    return window[0], window[2], _channels(call, name)


def _groups(call: KernelCall, name: str, window: Window) -> Others:
    """Return all columns of the groups that contain the window's channels."""
    size = call.params["group_channels"]
    channels = window[3][0] // size * size, -(-window[3][1] // size) * size
    return window[0], (0, call.views[name].extents[2]), channels


def _everything(call: KernelCall, name: str, window: Window) -> Others:
    """Return all columns and channels of the window's batches."""
    return window[0], (0, call.views[name].extents[2]), _channels(call, name)


def _by_sums(call: KernelCall, name: str, window: Window) -> Others:
    """Return the output's own ranges; of the sums, all columns and channels of the window's batches."""
    return (_everything if name == "sums" else _same)(call, name, window)


def _reduced(call: KernelCall, name: str, window: Window) -> Others:
    """Return all columns of the window's batches and channels."""
    return window[0], (0, call.views[name].extents[2]), window[3]


def _product(call: KernelCall, name: str, window: Window) -> Others:
    """Return the whole depth for the first operand of a matrix product, and the window's channels over all depth for
    the second."""
    return window[0], (0, 1), (0, call.params["depth"]) if name == "input_a" else window[3]


def _gathered(call: KernelCall, name: str, window: Window) -> Others:
    """Return all columns of the values. Of the indices, return the window's own columns."""
    if name == "indices":
        return window[0], window[2], _channels(call, name)
    return window[0], (0, call.views[name].extents[2]), window[3]


def _looked_up(call: KernelCall, name: str, window: Window) -> Others:
    """Return all entries of the table. Of the indices, return the window's own columns."""
    if name == "indices":
        return _lines(call, name, window)
    return (0, 1), (0, call.views[name].extents[2]), window[3]


def _sequence(call: KernelCall, name: str, _window: Window) -> Others | None:
    """Return all steps of an input or of a state.

    Return None for the scratch, and for a state whose first value comes from the parameter ``starts`` instead of
    memory.
    """
    starts = call.params["starts"]
    if name == "gates" or (name != "input" and starts == 1) or (name == "cell" and starts == 2):
        return None
    return (0, 1), (0, call.views[name].extents[2]), _channels(call, name)


def _attended(call: KernelCall, name: str, window: Window) -> Others:
    """Return the ranges that attention reads: the window's heads of the queries and of the mask.

    Of keys and values it reads the groups that these heads share: the whole depth of the keys, and the output's
    channels of the values.
    """
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
    """Return the ranges that attention with its own linear layers reads: all of its input for the window's batches,
    and the mask as in attention without layers."""
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
"""The rule of each kernel, by the kernel's name."""

_WHOLE = frozenset(
    ("gates", "scores", "squeezed", "hidden", "gate", "projected", "query", "key", "value", "memory", "cache")
)
"""Scratch, and states, that a call may write anywhere, whichever rows of its output it computes."""


COPIED_BY_KERNEL = {"embedding_lookup_s8": ("input",)}
"""The operands that a kernel copies itself through the port, by the kernel's name. They may be in any memory."""


def is_element_by_element(kernel: str, name: str) -> bool:
    """Return whether a kernel handles the elements in ascending order and reads each element of this input before it
    writes that element."""
    if RULES[kernel] is _by_sums:
        return name != "sums"
    return RULES[kernel] is _same or kernel == "squeeze_excite_s8"


def block_scratch(kernel: str) -> str:
    """Return the name of the scratch buffer whose rows set how many rows the kernel computes as one block. Return an
    empty string for a kernel without blocks."""
    return "between" if RULES[kernel] is _chained else ""


def rows_read(call: KernelCall, name: str) -> Reads:
    """Return the function from rows of a call's output to the rows of its input ``name`` that they need."""
    return _along(call, name, 1)


def read_beside_rows(call: KernelCall, name: str, window: Window) -> Others | None:
    """Return the batches, columns and channels of the input ``name`` that a call reads for a window of its output;
    None if it reads nothing of the input."""
    return RULES[call.kernel](call, name, window)


def read_window(call: KernelCall, name: str, window: Window) -> Window | None:
    """Return the window of the input ``name`` that a call reads for a window of its output; None if it reads nothing
    of the input."""
    others = read_beside_rows(call, name, window)
    return None if others is None else (others[0], rows_read(call, name)(*window[1]), others[1], others[2])


def written_beside_rows(call: KernelCall, name: str, window: Window) -> Others:
    """Return the batches, columns and channels that a call writes of its output, a state or its scratch for a window
    of its output."""
    if name == "output":
        return window[0], window[2], window[3]
    _, _, cols, channels = call.views[name].extents
    if name.endswith("between"):
        return window[0], window[2], (0, channels)
    return (0, 1), (0, cols), (0, channels)


def rows_written(call: KernelCall, name: str) -> Reads:
    """Return the function from rows of a call's output to the rows that the call writes of its result ``name``."""
    whole = 0, call.views[name].extents[1]
    return (lambda _first, _end: whole) if name in _WHOLE else (lambda first, end: (first, end))
