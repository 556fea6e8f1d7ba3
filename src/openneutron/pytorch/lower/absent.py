# SPDX-License-Identifier: BSD-3-Clause
"""The reasons for calls that no lowering rule takes."""

from __future__ import annotations

import torch
from torch.fx import Node

from openneutron import ops
from openneutron.pytorch.graph.pointwise import is_pointwise_operator
from openneutron.pytorch.graph.program import (
    LEFT_FLOAT,
    QUANTIZE_FIRST,
    REWRITE,
    STAYS_WHOLE,
    Reject,
    is_decomposed,
    is_dequantize,
    is_quantize,
    op_name,
    overload_of,
    short_name,
    written,
)
from openneutron.pytorch.operators.rules.tables import COUNTED_AT_RUN_TIME, is_computed, objection

QUANTIZER = "quantizer"
"""``Reject.rule`` where only the quantizer keeps a node from the NPU."""

LITERT_OF = {
    "bmm": "batch_matmul",
    "matmul": "batch_matmul",
    "split_with_sizes": "split_v",
    "stack": "pack",
    "unbind": "unpack",
    "index_select": "gather",
    "embedding": "gather",
    "flip": "reverse_v2",
    "repeat": "tile",
    "expand": "broadcast_to",
    "amax": "reduce_max",
    "amin": "reduce_min",
    "upsample_bilinear2d": "resize_bilinear",
    "upsample_nearest2d": "resize_nearest_neighbor",
    "reflection_pad2d": "mirror_pad",
}
"""Rows of the operator table by what ATen calls them, where the names differ."""

COMPUTED_WEIGHTS = Reject("its weights are computed at run time; they must be constant")

_ORDERS = "it puts values in order, for which there is no kernel"
_WITHOUT_ORDER = "argmax and max with a dimension, which have one, find the first of them."

NO_KERNEL_PLANNED = {
    **dict.fromkeys(("topk", "sort", "argsort", "kthvalue", "median", "mode"), Reject(_ORDERS, _WITHOUT_ORDER)),
    **dict.fromkeys(("nonzero", "masked_select", "unique", "unique2"), COUNTED_AT_RUN_TIME),
}
"""The reasons for operators that no kernel is planned for."""


def no_rule(node: Node) -> Reject:
    """Return why an operator without a lowering rule stays on the CPU."""
    name = short_name(node)
    overload = overload_of(node)
    if overload is None:
        return Reject(f"'{name}' is control flow or no operator of a library; those run on the CPU")
    if (against := objection(node)) is not None:
        return against
    base = name.rpartition(".")[2].strip("_").removesuffix("_copy")
    if base in NO_KERNEL_PLANNED:
        return NO_KERNEL_PLANNED[base]
    if (whole := stays_whole(node)) is not None:
        return whole
    value = node.meta.get("val")
    is_exact = isinstance(value, torch.Tensor) and not value.is_floating_point()
    if is_pointwise_operator(overload) or is_exact:
        return not_quantized(node)
    row = ops.BY_NAME.get(LITERT_OF.get(base, base))
    if row is not None and row.kernels and row.litert:
        return Reject(
            f"{name} is not connected for PyTorch yet; there is a kernel for it in .tflite files ({row.litert})"
        )
    return Reject(f"there is no kernel for {name}", REWRITE)


def stays_whole(node: Node) -> Reject | None:
    """Return why an operator that PyTorch can decompose, or one of its pieces, was quantized neither whole nor in
    pieces."""
    why = node.meta.get("custom", {}).get(STAYS_WHOLE)
    return None if why is None else Reject(*why)


def not_quantized(node: Node) -> Reject:
    """Return why a node's operands are no int8 values, as far as the node itself tells."""
    against = objection(node) or (_computed_weights(node) if op_name(node) == "aten.convolution.default" else None)
    if against is not None:
        return against
    for source in (node, *node.all_input_nodes):
        value = source.meta.get("val")
        if not isinstance(value, torch.Tensor):
            continue
        which = "its result is" if source is node else f"its input '{source.name}' is"
        if any(not isinstance(extent, int) for extent in value.shape):
            shape = ", ".join(str(extent) if isinstance(extent, int) else "?" for extent in value.shape)
            return Reject(
                f"{which} of shape [{shape}]; every extent must be a fixed number", "Export without dynamic_shapes."
            )
        if value.dtype not in (torch.float32, torch.int8, torch.int16):
            wider = value.is_floating_point()
            hint = "Convert model and inputs with .float()." if wider else ""
            return Reject(f"{which} {value.dtype}; what can be quantized is torch.float32", hint)
    if (whole := stays_whole(node)) is not None:
        return whole
    subject = f"'{written(node)}', which it is a part of" if is_decomposed(node) else "it"
    if left_float(node):
        return Reject(f"the quantizer has no rule for {subject}", rule=QUANTIZER)
    return Reject(f"{subject}{',' if is_decomposed(node) else ''} is not quantized", QUANTIZE_FIRST, QUANTIZER)


def _computed_weights(node: Node) -> Reject | None:
    """Object to a convolution whose weights are computed, or an input of the model."""
    weight = node.args[1]
    while isinstance(weight, Node) and (is_dequantize(weight) or is_quantize(weight)):
        weight = weight.args[0]
    return COMPUTED_WEIGHTS if isinstance(weight, Node) and is_computed(weight) else None


def left_float(node: Node) -> bool:
    """Return whether NeutronQuantizer saw the operator, or its origin, and did not quantize it."""
    return bool(node.meta.get("custom", {}).get(LEFT_FLOAT))
