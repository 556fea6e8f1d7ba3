# SPDX-License-Identifier: BSD-3-Clause
"""Faults of the kind that people make, in the compiler, the kernels and the lowering: tests must notice each of them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fault:
    """A mistake: ``before``, a text that occurs once in the file ``path``, became ``after``; ``tests`` must notice it."""

    kind: str
    path: str
    before: str
    after: str
    tests: tuple[str, ...]


FAULTS = (
    Fault(
        "a buffer is free one step before its last reader",
        "src/openneutron/compiler/place/place.py",
        "steps[name] = (first, index)",
        "steps[name] = (first, max(first, index - 1))",
        ("tests/compiler/test_sequences.py",),
    ),
    Fault(
        "a buffer may overlap another by one byte more than allowed",
        "src/openneutron/compiler/place/place.py",
        "high = min(high, start - furthest)",
        "high = min(high, start - furthest - 1)",
        ("tests/compiler/test_place.py", "tests/compiler/test_cascade.py"),
    ),
    Fault(
        "columns are cut by the pitch of rows",
        "src/openneutron/compiler/select/needs.py",
        "view.offset + span[0] * view.pitches[2]",
        "view.offset + span[0] * view.pitches[1]",
        ("tests/compiler/test_merge_columns.py",),
    ),
    Fault(
        "an output is written over an input that is read in another layout",
        "src/openneutron/compiler/select/calls.py",
        "and view.place == output",
        "and True",
        ("tests/compiler/test_views.py", "tests/compiler/test_copies_as_views.py"),
    ),
    Fault(
        "a slope's zero point is the data's",
        "src/openneutron/compiler/select/rules/elementwise.py",
        "_zero_points(data, slope, result) if dtype",
        "_zero_points(data, data, result) if dtype",
        ("tests/runtime/test_elementwise.py",),
    ),
    Fault(
        "one vector variant forgets an activation's upper bound",
        "runtime/kernels/conv_2d/avx2.h",
        "range.high_bytes = _mm_set1_epi8((char)(p->clamp_max ^ -128));",
        "range.high_bytes = _mm_set1_epi8(-1);",
        ("tests/runtime/test_conv.py",),
    ),
    Fault(
        "a negative number is shifted as one without a sign",
        "runtime/kernels/elements.h",
        "((x >> 31) & by.any)",
        "((int32_t)((uint32_t)x >> 31) & by.any)",
        ("tests/runtime/test_elementwise.py",),
    ),
    Fault(
        "a window reads one column behind its input",
        "runtime/kernels/conv_2d/convolution.h",
        "return row != NULL && col >= 0 && col < at->input->cols ?",
        "return row != NULL && col >= 0 && col <= at->input->cols ?",
        ("tests/runtime/test_conv.py", "tests/runtime/test_conv_fuzz.py"),
    ),
    Fault(
        "a maximum pool pads with 0 in place of the lowest value",
        "src/openneutron/pytorch/operators/pooling.py",
        "padded(context, source, window, image[2:], ends_of(context.dtype(data))[0])",
        "padded(context, source, window, image[2:])",
        ("tests/pytorch/test_pools.py",),
    ),
    Fault(
        "padding is counted from the first dimension",
        "src/openneutron/pytorch/operators/convolution.py",
        "amounts[-1 - place] = (flat[2 * place], flat[2 * place + 1])",
        "amounts[place] = (flat[2 * place], flat[2 * place + 1])",
        ("tests/pytorch/test_pads.py",),
    ),
)
