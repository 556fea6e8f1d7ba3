# SPDX-License-Identifier: BSD-3-Clause
"""The windows that each kernel reads and writes to compute a window of its output: the audit's rules.

Rows, and the columns under sliding windows, are those of ``select/needs.py``, the one rule that stripes, rolling buffers, tiles and the
audit ask. All else is written from the kernels' definitions (docs/microcode.md) and shared with nothing that schedules, so that a
mistake there does not hide itself here: the operands that are read at all, batches, channels, other columns, scratch, and in-place writing.
"""

from __future__ import annotations

from collections.abc import Callable

from openneutron.compiler.select.calls import KernelCall
from openneutron.compiler.select.needs import Reads, Span, reads_along

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


_KERNELS: tuple[tuple[Rule, tuple[str, ...]], ...] = (
    (_convolution, ("conv_2d_s8", "conv_2d_1x1_s8", "conv_2d_1x1_parts_s8", "depthwise_conv_2d_s8")),
    (_convolution, ("conv_2d_s16", "depthwise_conv_2d_s16")),
    (_sampled, ("average_pool_2d_s8", "max_pool_2d_s8", "average_pool_2d_s16", "max_pool_2d_s16")),
    (_sampled, ("resize_nearest_neighbor_s8", "resize_bilinear_s8", "resize_bilinear_s16")),
    (_same, ("add_s8", "mul_s8", "maximum_s8", "prelu_s8", "squared_difference_s8", "compare_s8", "select_s8")),
    (_same, ("lookup_s8", "copy_s8", "move_s8", "add_s16", "copy_s16")),
    (_same, ("mul_s16", "maximum_s16", "prelu_s16", "compare_s16")),
    (_same, ("rescale_s16", "rescale_s8s16", "rescale_s16s8", "lookup_s16", "logistic_s16")),
    (_joined, ("conv_2d_1x1_lookup_s8", "conv_2d_1x1_add_s8", "conv_2d_1x1_mul_s8")),
    (_chained, ("layer_norm_conv_2d_1x1_s8", "layer_norm_conv_2d_1x1_lookup_s8", "layer_norm_conv_2d_1x1_parts_s8")),
    (_chained, ("feed_forward_s8", "layer_norm_feed_forward_s8", "feed_forward_layer_norm_s8")),
    (_chained, ("conv_2d_1x1_add_layer_norm_s8",)),
    (_padded, ("pad_s8",)),
    (_lines, ("softmax_s8", "softmax_s16", "log_softmax_s8", "l2_normalization_s8", "arg_max_s8")),
    (_lines, ("layer_norm_s8", "layer_norm_s16")),
    (_groups, ("group_norm_s8", "group_norm_s16")),
    (_everything, ("group_sums_s8", "excitation_s8", "squeeze_excite_s8")),
    (_by_sums, ("group_norm_by_sums_s8", "group_norm_by_sums_lookup_s8")),
    (_product, ("batch_matmul_s8", "batch_matmul_s16")),
    (_attended, ("attention_s8",)),
    (_projected, ("conv_2d_1x1_parts_attention_s8",)),
    (_gathered, ("gather_s8",)),
    (_looked_up, ("embedding_lookup_s8",)),
    (_reduced, ("mean_s8", "sum_s8", "reduce_max_s8", "mean_s16", "sum_s16", "reduce_max_s16")),
    (_sequence, ("unidirectional_sequence_lstm_s8", "unidirectional_sequence_lstm_s16", "recurrent_s8", "svdf_s8")),
)

RULES = {kernel: rule for rule, kernels in _KERNELS for kernel in kernels}
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
