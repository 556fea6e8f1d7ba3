# SPDX-License-Identifier: BSD-3-Clause
"""Declare the kernels that run several kernels in one call, with the bytes of the separate calls.

* Joined: a linear layer or a norm, then an operator of its output in place. One dispatch costs more than such an operator.
* Chained: two kernels one after the other through a scratch buffer. Each position of the output needs only the same position of the operands,
  so that a call can go through its rows in blocks, with scratch for the rows of one block.
* Squeeze-excite blocks (arXiv 1709.01507): the mean of an image and two small layers, alone or with the product.
* Attention: scores, softmax and the product with the values, for each row of the queries.
* Attention with the linear layers of its queries, keys and values, batch by batch: scratch for one batch replaces a tensor of all batches.
"""

from __future__ import annotations

from dataclasses import replace

from openneutron.isa.kernels import elements, products, regions
from openneutron.isa.kernels.row import (
    CLAMP,
    INPUT_AND_OUTPUT,
    Audited,
    CostClass,
    Everything,
    Field,
    Operand,
    Packing,
    Part,
    Row,
    SameElement,
    SameRow,
    Traits,
    Work,
    audited,
    buffer,
    constant,
    factor,
    scratch,
    signed,
)

_SUM = (
    signed("sum_a_zero_point", "subtracted from a score"),
    signed("sum_a_multiplier", "of a score, as in add_s8"),
    signed("sum_a_shift", "0 or below"),
    signed("sum_b_zero_point", "subtracted from a mask's value"),
    signed("sum_b_multiplier", "of a mask's value; below 0 where it is subtracted"),
    signed("sum_b_shift", "0 or below"),
    *factor("sum", "of the sum"),
    signed("sum_zero_point", "added to the sum"),
    signed("sum_min", "the sum's lower bound, stored"),
    signed("sum_max", "the sum's upper bound, stored"),
)
_QUOTIENT = (
    *factor("mean", "of the sum of a row's exponentials, to their mean"),
    signed("mean_zero_point", "added to the mean"),
    signed("quotient_a_zero_point", "subtracted from a product"),
    signed("quotient_b_zero_point", "subtracted from the mean's entry in `reciprocal`"),
    *factor("quotient", "of the product of both, as in mul_s8"),
    signed("quotient_zero_point", "added to it"),
)

_ATTENTION_ALONE = audited(
    Audited.ATTENDED,
    Row(
        "attention_s8",
        "Attention of each row of the queries to all keys: batch_matmul_s8 of the query with the keys, add_s8 of a mask, softmax_s8, "
        "batch_matmul_s8 with the values. With `divides`, exponentials of a table take the place of the softmax, and their sum divides "
        "the product: reduce_max_s8, mean_s8, lookup_s8 and mul_s8.",
        (
            buffer("query", "int8; a column for each head, a row for each query"),
            buffer("output", "int8; a column for each head, a row for each query"),
            buffer("key", "int8; a column for each head, or for each group of heads, a row for each key; held whole"),
            buffer("value", "int8; columns and rows as the keys; held whole"),
            buffer(
                "mask", "int8; rows and columns as the output, a channel for each key; any buffer where `masked` is 0"
            ),
            scratch("scores", "int8; a channel for each channel of a query and for each key, side by side"),
            signed("work", "multiply-accumulates for each output channel of a window, rounded up"),
            signed("depth", "channels of a query and of a key that are taken, at most 32768"),
            signed("group", "heads of the query that share a head of the keys and values"),
            signed("tabled", "1: each value of the query becomes its entry in `table`"),
            *constant("table", "bytes; 256 entries by the stored value + 128"),
            signed("query_zero_point", "subtracted from a query"),
            signed("key_zero_point", "subtracted from a key"),
            *factor("score", "of a product of a query and a key, to a score"),
            signed("score_zero_point", "added to it"),
            signed("masked", "1: a mask is added to the scores"),
            *_SUM,
            signed("exp_count", "entries of `exp`, by the row's largest score less a score"),
            *constant("exp", "bytes; int32 exponentials as in softmax_s8, with `divides` int8"),
            signed("probability_multiplier", "of a probability of 16 fractional bits; 0: a probability has 8"),
            signed("probability_shift", "positive shifts left, at most 9"),
            signed(
                "probability_zero_point",
                "added to it, and subtracted from a probability in the product with the values",
            ),
            signed("value_zero_point", "subtracted from a value"),
            *factor("product", "of the product with the values"),
            signed("product_zero_point", "added to it"),
            signed("divides", "1: the product is divided by the sum of the row's exponentials"),
            *_QUOTIENT,
            *constant("reciprocal", "bytes; 256 entries by the mean of a row's exponentials + 128"),
            *CLAMP,
        ),
        41,
        ("work",),
        traits=Traits(
            operands=(
                Operand("query", SameRow()),
                Operand("key"),
                Operand("value"),
                Operand("mask", SameRow()),
                Operand("scores"),
            ),
            cost=Work(CostClass.ATTENTION, inputs="depth"),
            batches_apart=True,
            columns_apart=True,
        ),
    ),
)

_ROWS: dict[str, Row] = {
    row.name: row for rows in (products.KERNELS, _ATTENTION_ALONE, elements.KERNELS, regions.KERNELS) for row in rows
}
"""The rows of the parts; combined kernels that are parts themselves are added below."""


def _prefixed(own: Field, prefix: str, row: Row) -> Field:
    return replace(own, name=f"{prefix}{own.name}", doc=f"of {row.name}: {own.doc}")


def _packings(prefix: str, row: Row) -> tuple[tuple[str, Packing], ...]:
    return tuple((f"{prefix}{key}", packing) for key, packing in row.packings)


# -- joined kernels ----------------------------------------------------------------------------------------------------

THEN = "then_"
"""The prefix of the second kernel's fields."""

_WRITTEN = ("input", "input_a", "output")
"""The buffers of the second kernel that can be the output of the first."""


def _joined(name: str, first: str, second: str, code: int) -> Row:
    own, behind = _ROWS[first], _ROWS[second]
    fields = tuple(_prefixed(field, THEN, behind) for field in behind.fields if field.name not in _WRITTEN)
    others = tuple(
        Operand(f"{THEN}{operand.name}", SameElement())
        for operand in behind.traits.operands
        if operand.name not in _WRITTEN
    )
    return Row(
        name,
        f"{first}, then {second} in place: the output is its `{'input_a' if others else 'input'}`.",
        (*own.fields, *fields),
        code,
        own.taps,
        traits=Traits(
            (*own.traits.operands, *others),
            replace(own.traits.cost, moved=1),
            own.traits.exchanged,
            own.traits.batches_apart,
            joins=(first, second),
        ),
        packings=own.packings,
    )


_JOINED = (
    *audited(
        Audited.JOINED,
        _joined("conv_2d_1x1_lookup_s8", "conv_2d_1x1_s8", "lookup_s8", 47),
        _joined("conv_2d_1x1_add_s8", "conv_2d_1x1_s8", "add_s8", 48),
        _joined("conv_2d_1x1_mul_s8", "conv_2d_1x1_s8", "mul_s8", 49),
    ),
    *audited(Audited.BY_SUMS, _joined("group_norm_by_sums_lookup_s8", "group_norm_by_sums_s8", "lookup_s8", 50)),
)
_ROWS |= {row.name: row for row in _JOINED}

# -- chained kernels ---------------------------------------------------------------------------------------------------


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
    """Return the row of a kernel that runs ``first``, and then ``second`` on its result.

    One of these two parts reads its words where they are in the row: the part with more words. The kernel copies the
    words of the other part to a block of their own (runtime/kernels/chain.h). Therefore the row has words in this
    order: the input of the copied part if it is ``first``, or its output if it is ``second``; the word ``work``; all
    words of the part that is not copied; the words of the copied part without its input and output.
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
        packings=tuple(each for prefix, part in parts for each in _packings(prefix, part)),
    )


def _part(row: Row, prefix: str, source: str, result: str) -> Part:
    others = ((own.name, f"{prefix}{own.name}") for own in row.fields if own.refers and own.name not in _ENDS)
    return Part(row.name, prefix, (("input", source), ("output", result), *others))


def _chain(name: str, first: str, second: str, code: int) -> Row:
    row = _chained(name, _ROWS[first], _ROWS[second], code)
    _ROWS[name] = row
    return row


_CHAINED = audited(
    Audited.CHAINED,
    _chain("layer_norm_conv_2d_1x1_s8", "layer_norm_s8", "conv_2d_1x1_s8", 56),
    _chain("layer_norm_conv_2d_1x1_lookup_s8", "layer_norm_s8", "conv_2d_1x1_lookup_s8", 57),
    _chain("feed_forward_s8", "conv_2d_1x1_lookup_s8", "conv_2d_1x1_add_s8", 58),
    _chain("layer_norm_feed_forward_s8", "layer_norm_s8", "feed_forward_s8", 59),
    _chain("conv_2d_1x1_add_layer_norm_s8", "conv_2d_1x1_add_s8", "layer_norm_s8", 60),
    _chain("feed_forward_layer_norm_s8", "feed_forward_s8", "layer_norm_s8", 61),
    _chain("layer_norm_conv_2d_1x1_parts_s8", "layer_norm_s8", "conv_2d_1x1_parts_s8", 32),
)

# -- squeeze-excite blocks ---------------------------------------------------------------------------------------------


def _words(part: Part) -> tuple[Field, ...]:
    own = {name for name, _ in part.buffers}
    flag = (signed(part.flag, f"1: {part.kernel} follows in place"),) if part.flag else ()
    fields = (field for field in _ROWS[part.kernel].fields if field.name not in own)
    return (*flag, *(_prefixed(each, part.prefix, _ROWS[part.kernel]) if part.prefix else each for each in fields))


def _layer(prefix: str, source: str, result: str) -> tuple[Part, Part]:
    return (
        Part("conv_2d_1x1_s8", prefix, (("input", source), ("output", result))),
        Part("lookup_s8", prefix, (("input", result), ("output", result)), f"{prefix}tabled"),
    )


PARTS = (
    Part("mean_s8", "mean_", (("input", "input"), ("output", "squeezed"))),
    *_layer("first_", "squeezed", "hidden"),
    *_layer("second_", "hidden", "output"),
)


_INPUT, _OUTPUT = INPUT_AND_OUTPUT
_SCRATCH = (
    scratch("squeezed", "int8; the mean of each channel"),
    scratch("hidden", "int8; the result of the first layer"),
)
_BUFFERS = (_INPUT, _OUTPUT, *_SCRATCH)

EXCITATION = Row(
    "excitation_s8",
    "The excitation of a squeeze-excite block: mean_s8 of each channel of an image, conv_2d_1x1_s8 and lookup_s8, conv_2d_1x1_s8 and "
    "lookup_s8.",
    (
        *_BUFFERS,
        signed("work", "elements read for each output element of a window, rounded up"),
        *(field for part in PARTS for field in _words(part)),
    ),
    55,
    ("work",),
    traits=Traits((Operand("input"), Operand("squeezed"), Operand("hidden")), Work(CostClass.PARTS), parts=PARTS),
    packings=tuple(packing for part in PARTS for packing in _packings(part.prefix, _ROWS[part.kernel])),
)
_ROWS[EXCITATION.name] = EXCITATION

_PRODUCT = Part("mul_s8", "mul_", (("input_a", "input"), ("input_b", "gate"), ("output", "output")))
_IN_FRONT = Part(
    EXCITATION.name,
    "",
    (*((field.name, field.name) for field in _BUFFERS if field.name != "output"), ("output", "gate")),
)

SQUEEZE_EXCITE = Row(
    "squeeze_excite_s8",
    "A squeeze-excite block: excitation_s8 of an image, and mul_s8 of the image with its result.",
    (
        _OUTPUT,
        _INPUT,
        scratch("gate", "int8; the excitation's result"),
        *_SCRATCH,
        *_words(_IN_FRONT),
        *_words(_PRODUCT),
    ),
    54,
    EXCITATION.taps,
    traits=Traits(
        (Operand("input", Everything(in_place=True)), Operand("squeezed"), Operand("hidden"), Operand("gate")),
        Work(CostClass.PARTS),
        parts=(_IN_FRONT, _PRODUCT),
    ),
    packings=EXCITATION.packings,
)


# -- attention with its linear layers ----------------------------------------------------------------------------------


PROJECTED = "projected"
"""The scratch buffer that holds the result of the linear layers for one batch."""

LAYERS = "layers_"
"""The prefix of the layers' fields, except those of the input and the output."""

_LINEAR, _ATTENTION = _ROWS["conv_2d_1x1_parts_s8"], _ROWS["attention_s8"]

_OF_PROJECTED = ("query", "key", "value")
_LINEAR_ENDS = {
    "input": next(field for field in _LINEAR.fields if field.name == "input"),
    "output": scratch(PROJECTED, "int8; the layers' result of a batch, with a pitch of 0 from batch to batch"),
}

_ATTENTION_OF_LAYERS = audited(
    Audited.PROJECTED,
    Row(
        "conv_2d_1x1_parts_attention_s8",
        f"For each batch {_LINEAR.name} to `{PROJECTED}`, then {_ATTENTION.name} with the query, the key and the value in `{PROJECTED}`. A window "
        "of some rows computes all rows of the layers too.",
        (
            *(
                replace(own, written=True, scratch=True) if own.name in _OF_PROJECTED else own
                for own in _ATTENTION.fields
            ),
            *(_LINEAR_ENDS.get(own.name) or _prefixed(own, LAYERS, _LINEAR) for own in _LINEAR.fields),
        ),
        43,
        _ATTENTION.taps,
        traits=Traits(
            (Operand("input"), Operand("mask"), *map(Operand, (*_OF_PROJECTED, "scores", PROJECTED))),
            Work(CostClass.PARTS),
            parts=(
                Part(_LINEAR.name, LAYERS, (("input", "input"), ("output", PROJECTED))),
                Part(_ATTENTION.name, "", tuple((own.name, own.name) for own in _ATTENTION.fields if own.refers)),
            ),
            batches_apart=True,
            of_batch=PROJECTED,
        ),
        packings=(
            *_ATTENTION.packings,
            *_packings(LAYERS, _LINEAR),
        ),
    ),
)

KERNELS = (*_ATTENTION_ALONE, *_JOINED, *_CHAINED, EXCITATION, SQUEEZE_EXCITE, *_ATTENTION_OF_LAYERS)
