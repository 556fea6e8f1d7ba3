# SPDX-License-Identifier: BSD-3-Clause
"""The windows that each kernel reads and writes to compute a window of its output: the audit's rules.

The rules are written from the kernels' definitions (docs/microcode.md) and shared with nothing that schedules, so that a mistake there
does not hide itself here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from openneutron.compiler.select.calls import KernelCall
from openneutron.compiler.select.constants import Maps

Span = tuple[int, int]
"""First and end."""

Window = tuple[Span, Span, Span, Span]
"""Batches, rows, columns and channels of a view."""

Rule = Callable[[KernelCall, str, Window], Window]
"""(call, input, window of the output) to the window of the input that is read."""


def whole_window(call: KernelCall, name: str) -> Window:
    """Return all of a view."""
    batches, rows, cols, channels = call.views[name].extents
    return (0, batches), (0, rows), (0, cols), (0, channels)


def _taps(span: Span, stride: int, before: int, kernel: int, dilation: int, extent: int) -> Span:
    """Return the part that a sliding window touches of an input's rows or columns."""
    first = span[0] * stride - before
    end = (span[1] - 1) * stride - before + (kernel - 1) * dilation + 1
    return max(0, min(first, extent)), max(0, min(end, extent))


def _slid(call: KernelCall, name: str, window: Window) -> tuple[Span, Span]:
    p = call.params
    _, rows, cols, _ = call.views[name].extents
    return (
        _taps(window[1], p["stride_h"], p["pad_top"], p["kernel_h"], p.get("dilation_h", 1), rows),
        _taps(window[2], p["stride_w"], p["pad_left"], p["kernel_w"], p.get("dilation_w", 1), cols),
    )


def _convolution(call: KernelCall, name: str, window: Window) -> Window:
    inputs, outputs = call.params["group_inputs"], call.params["group_outputs"]
    first, last = window[3][0] // outputs, (window[3][1] - 1) // outputs
    return window[0], *_slid(call, name, window), (first * inputs, (last + 1) * inputs)


def _joined(call: KernelCall, name: str, window: Window) -> Window:
    """Return the accesses of the convolution, and of the other operand those of the joined kernel: the same elements as its output."""
    return _convolution(call, name, window) if name == "input" else window


def _chained(call: KernelCall, name: str, window: Window) -> Window:
    """Return all channels of the same places of the input, and of another operand the same elements as the output."""
    return _lines(call, name, window) if name == "input" else window


def _pool(call: KernelCall, name: str, window: Window) -> Window:
    return window[0], *_slid(call, name, window), window[3]


def _same(_call: KernelCall, _name: str, window: Window) -> Window:
    return window


def _padded(call: KernelCall, name: str, window: Window) -> Window:
    before = [call.params[f"pad_{side}"] for side in ("batch", "top", "left", "channel")]
    spans = [
        (max(0, min(first - pad, extent)), max(0, min(end - pad, extent)))
        for (first, end), pad, extent in zip(window, before, call.views[name].extents, strict=True)
    ]
    return spans[0], spans[1], spans[2], spans[3]


def _mapped(call: KernelCall, name: str, window: Window, maps: int) -> Window:
    """Return the window of which the first ``maps`` tables name input rows, and as many input columns."""
    tables = call.constants["map"]
    assert isinstance(tables, Maps)
    _, rows, cols, _ = call.views[name].extents
    spans = []
    for span, own, extent in ((window[1], tables.rows, rows), (window[2], tables.cols, cols)):
        read = [min(max(int(own[table, place]), 0), extent - 1) for table in range(maps) for place in range(*span)]
        spans.append((min(read), max(read) + 1))
    return window[0], spans[0], spans[1], window[3]


def _lines(call: KernelCall, name: str, window: Window) -> Window:
    """Return all channels of the same places."""
    return window[0], window[1], window[2], (0, call.views[name].extents[3])


def _groups(call: KernelCall, name: str, window: Window) -> Window:
    """Return all rows and columns of the groups of channels."""
    size = call.params["group_channels"]
    _, rows, cols, _ = whole_window(call, name)
    return window[0], rows, cols, (window[3][0] // size * size, -(-window[3][1] // size) * size)


def _blocks(call: KernelCall, name: str, window: Window) -> Window:
    """Return all columns and channels of so many rows for each row of the output."""
    size = call.params["block_rows"]
    _, rows, cols, channels = call.views[name].extents
    return window[0], (window[1][0] * size, min(window[1][1] * size, rows)), (0, cols), (0, channels)


def _by_sums(call: KernelCall, name: str, window: Window) -> Window:
    """Return the same elements, and all sums of the same batches."""
    _, *others = whole_window(call, name)
    return (window[0], others[0], others[1], others[2]) if name == "sums" else window


def _reduced(call: KernelCall, name: str, window: Window) -> Window:
    """Return all rows and columns of the same batches and channels."""
    _, rows, cols, _ = call.views[name].extents
    return window[0], (0, rows), (0, cols), window[3]


def _product(call: KernelCall, name: str, window: Window) -> Window:
    """Return the rows of a, or the columns of b; both along the whole depth."""
    depth = (0, call.params["depth"])
    return (window[0], window[1], (0, 1), depth) if name == "input_a" else (window[0], depth, (0, 1), window[3])


def _gathered(call: KernelCall, name: str, window: Window) -> Window:
    """Return any column of the same rows, by the indices of the same columns."""
    _, _, cols, channels = call.views[name].extents
    if name == "indices":
        return window[0], (0, 1), window[2], (0, channels)
    return window[0], window[1], (0, cols), window[3]


def _sequence(call: KernelCall, name: str, window: Window) -> Window:
    """Return all steps of the same rows; a state where it is not set at the start; nothing of the scratch."""
    _, _, cols, channels = call.views[name].extents
    unread = name == "gates" or (name != "input" and call.params["starts"] == 1)
    rows = (window[1][0], window[1][0]) if unread else window[1]
    return (0, 1), rows, (0, cols), (0, channels)


def _attended(call: KernelCall, name: str, window: Window) -> Window:
    """Return the reads of attention: the output's rows of queries and mask; of the heads' groups all keys, and all values' output channels."""
    batches, rows, heads, channels = window
    depth, (_, keys, _, _) = (0, call.params["depth"]), call.views["key"].extents
    if name == "query" or (name == "mask" and not call.params["masked"]):
        return batches, rows, heads, depth
    if name == "mask":
        return batches, rows, heads, (0, keys)
    group = call.params["group"]
    held = heads[0] // group, (heads[1] - 1) // group + 1
    return batches, (0, keys), held, depth if name == "key" else channels


def _projected(call: KernelCall, name: str, window: Window) -> Window:
    """Return the reads of attention with its layers: all rows of the same batches of the layers' input, and of the mask those of attention."""
    if name == "mask":
        unread = window[0], (0, 0), window[2], (0, 0)
        return _attended(call, name, window) if call.params["masked"] else unread
    _, rows, cols, channels = whole_window(call, name)
    return window[0], rows, cols, channels


def _excited(call: KernelCall, name: str, window: Window) -> Window:
    """Return the whole image of the same batches."""
    _, rows, cols, channels = whole_window(call, name)
    return window[0], rows, cols, channels


_KERNELS: tuple[tuple[Rule, tuple[str, ...]], ...] = (
    (_convolution, ("conv_2d_s8", "conv_2d_1x1_s8", "conv_2d_1x1_parts_s8", "depthwise_conv_2d_s8")),
    (_convolution, ("conv_2d_s16", "depthwise_conv_2d_s16")),
    (_pool, ("average_pool_2d_s8", "max_pool_2d_s8", "average_pool_2d_s16", "max_pool_2d_s16")),
    (_same, ("add_s8", "mul_s8", "maximum_s8", "prelu_s8", "squared_difference_s8", "compare_s8", "select_s8")),
    (_same, ("lookup_s8", "copy_s8", "move_s8", "add_s16", "copy_s16")),
    (_same, ("mul_s16", "maximum_s16", "prelu_s16", "compare_s16")),
    (_same, ("rescale_s16", "rescale_s8s16", "rescale_s16s8", "lookup_s16", "logistic_s16")),
    (_joined, ("conv_2d_1x1_lookup_s8", "conv_2d_1x1_add_s8", "conv_2d_1x1_mul_s8")),
    (_chained, ("layer_norm_conv_2d_1x1_s8", "layer_norm_conv_2d_1x1_lookup_s8", "layer_norm_conv_2d_1x1_parts_s8")),
    (_chained, ("feed_forward_s8", "layer_norm_feed_forward_s8", "feed_forward_layer_norm_s8")),
    (_chained, ("conv_2d_1x1_add_layer_norm_s8",)),
    (_padded, ("pad_s8",)),
    (partial(_mapped, maps=1), ("resize_nearest_neighbor_s8",)),
    (partial(_mapped, maps=2), ("resize_bilinear_s8", "resize_bilinear_s16")),
    (_lines, ("softmax_s8", "softmax_s16", "log_softmax_s8", "l2_normalization_s8", "arg_max_s8")),
    (_lines, ("layer_norm_s8", "layer_norm_s16")),
    (_groups, ("group_norm_s8", "group_norm_s16")),
    (_blocks, ("group_sums_s8",)),
    (_by_sums, ("group_norm_by_sums_s8", "group_norm_by_sums_lookup_s8")),
    (_product, ("batch_matmul_s8", "batch_matmul_s16")),
    (_attended, ("attention_s8",)),
    (_projected, ("conv_2d_1x1_parts_attention_s8",)),
    (_excited, ("excitation_s8", "squeeze_excite_s8")),
    (_gathered, ("gather_s8",)),
    (_reduced, ("mean_s8", "sum_s8", "reduce_max_s8", "mean_s16", "sum_s16", "reduce_max_s16")),
    (_sequence, ("unidirectional_sequence_lstm_s8", "unidirectional_sequence_lstm_s16", "recurrent_s8", "svdf_s8")),
)

RULES = {kernel: rule for rule, kernels in _KERNELS for kernel in kernels}
"""One rule for each kernel of the microcode."""

_SCRATCH = frozenset(("gates", "scores", "squeezed", "hidden", "gate", "projected", "query", "key", "value"))


def is_element_by_element(kernel: str, name: str) -> bool:
    """Return whether a kernel has read an element of this input before it writes that element, in ascending order."""
    if RULES[kernel] is _by_sums:
        return name != "sums"
    return RULES[kernel] is _same or kernel == "squeeze_excite_s8"


def block_scratch(kernel: str) -> str:
    """Return the scratch buffer of a kernel that goes through its rows in blocks of as many as the buffer holds; empty for other kernels."""
    return "between" if RULES[kernel] is _chained else ""


def read_window(call: KernelCall, name: str, window: Window) -> Window:
    """Return the window that a call reads of its input ``name`` to compute a window of its output."""
    return RULES[call.kernel](call, name, window)


def written_window(call: KernelCall, name: str, window: Window) -> Window:
    """Return the window that a call writes of a state or of its scratch to compute a window of its output."""
    _, rows, cols, channels = call.views[name].extents
    if name.endswith("between"):
        return window[0], window[1], window[2], (0, channels)
    return (0, 1), (0, rows) if name in _SCRATCH else window[1], (0, cols), (0, channels)
