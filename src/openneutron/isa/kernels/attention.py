# SPDX-License-Identifier: BSD-3-Clause
"""Declare attention: scores, softmax and the product with the values for each row of the queries, in one call."""

from __future__ import annotations

from openneutron.isa.kernels.row import (
    CLAMP,
    Audited,
    CostClass,
    Operand,
    Row,
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

KERNELS = audited(
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
