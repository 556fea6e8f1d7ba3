# SPDX-License-Identifier: BSD-3-Clause
"""Declare kernels that run two kernels of a sequence one after the other in one call, through a scratch buffer.

The parts are a normalization or a linear layer and the linear layer behind it. The bytes are those of the two calls. Each position of the
output needs the same position of the operands alone, so that a call can go through its rows in blocks, with scratch for the rows of a block.
"""

from __future__ import annotations

from dataclasses import replace

from openneutron.isa.kernels import joined, normalization, products
from openneutron.isa.kernels.row import CostClass, Field, Operand, Row, SameRow, Traits, Work, scratch, signed
from openneutron.isa.kernels.several import Part

BETWEEN = "between"
"""The scratch buffer that holds the first kernel's output and the second kernel's input."""

FIRST, SECOND = "first_", "second_"
"""The prefixes of both kernels' fields, except those of the input and the output."""

_ENDS = ("input", "output")

_BETWEEN = scratch(
    BETWEEN,
    "int8; the output of the first kernel and the input of the second one; where it holds fewer rows, the call goes in blocks of them",
)
_WORK = signed("work", "multiply-accumulates of both kernels for each output channel of a window, rounded up")


def _chained(name: str, first: Row, second: Row, code: int) -> Row:
    """Return the row of a kernel that runs both parts.

    The part with more words finds them in place (runtime/kernels/chain.h). The words of the row are the end of the other part, the work, all
    words of the part in place, and the words of the other part without its ends.
    """
    (source,) = (own for own in first.fields if own.name == "input")
    (result,) = (own for own in second.fields if own.name == "output")
    copies_first = len(first.fields) < len(second.fields)
    if copies_first:
        end, ends, (kept, copied) = source, {"input": _BETWEEN, "output": result}, ((SECOND, second), (FIRST, first))
    else:
        end, ends, (kept, copied) = result, {"input": source, "output": _BETWEEN}, ((FIRST, first), (SECOND, second))
    in_place = [ends.get(each.name) or _prefixed(each, *kept) for each in kept[1].fields]
    rest = [_prefixed(each, *copied) for each in copied[1].fields if each.name not in _ENDS]
    parts = ((FIRST, first), (SECOND, second))
    operands = [
        Operand(f"{prefix}{each.name}", SameRow())
        for prefix, part in parts
        for each in part.traits.operands
        if each.name != "input"
    ]
    exchanged = tuple(
        (f"{prefix}{one}", f"{prefix}{other}") for prefix, part in parts for one, other in part.traits.exchanged or ()
    )
    return Row(
        name,
        f"{first.name} to `{BETWEEN}`, then {second.name} of `{BETWEEN}`.",
        (end, _WORK, *in_place, *rest),
        code,
        ("work",),
        traits=Traits(
            (Operand("input", SameRow()), Operand(BETWEEN, SameRow()), *operands),
            Work(CostClass.PARTS),
            exchanged,
            batches_apart=True,
            between=BETWEEN,
            in_blocks=(BETWEEN, *(f"{prefix}{name}" for prefix, part in parts for name in part.traits.in_blocks)),
            parts=(_part(first, FIRST, "input", BETWEEN), _part(second, SECOND, BETWEEN, "output")),
        ),
        packings=tuple((f"{prefix}{key}", packing) for prefix, part in parts for key, packing in part.packings),
    )


def _part(row: Row, prefix: str, source: str, result: str) -> Part:
    others = ((own.name, f"{prefix}{own.name}") for own in row.fields if own.refers and own.name not in _ENDS)
    return Part(row.name, prefix, (("input", source), ("output", result), *others))


def _prefixed(own: Field, prefix: str, row: Row) -> Field:
    return replace(own, name=f"{prefix}{own.name}", doc=f"of {row.name}: {own.doc}")


_ROWS = {row.name: row for row in (*products.KERNELS, *normalization.KERNELS, *joined.KERNELS)}
_NORM, _LINEAR, _PARTS = _ROWS["layer_norm_s8"], _ROWS["conv_2d_1x1_s8"], _ROWS["conv_2d_1x1_parts_s8"]
_LOOKUP, _ADD = _ROWS["conv_2d_1x1_lookup_s8"], _ROWS["conv_2d_1x1_add_s8"]
_FEED_FORWARD = _chained("feed_forward_s8", _LOOKUP, _ADD, 58)

KERNELS = (
    _chained("layer_norm_conv_2d_1x1_s8", _NORM, _LINEAR, 56),
    _chained("layer_norm_conv_2d_1x1_lookup_s8", _NORM, _LOOKUP, 57),
    _FEED_FORWARD,
    _chained("layer_norm_feed_forward_s8", _NORM, _FEED_FORWARD, 59),
    _chained("conv_2d_1x1_add_layer_norm_s8", _ADD, _NORM, 60),
    _chained("feed_forward_layer_norm_s8", _FEED_FORWARD, _NORM, 61),
    _chained("layer_norm_conv_2d_1x1_parts_s8", _NORM, _PARTS, 32),
)
