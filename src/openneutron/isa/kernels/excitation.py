# SPDX-License-Identifier: BSD-3-Clause
"""Declare the excitation of a squeeze-excite block (arXiv 1709.01507): the mean of an image and two small layers, in one call.

The mean and the layers take some hundred cycles each, the dispatch of a call some thousand. The kernel runs the kernels of the separate
calls one after the other, with the same bytes.
"""

from __future__ import annotations

from dataclasses import replace

from openneutron.isa.kernels import elements, products, regions
from openneutron.isa.kernels.row import (
    INPUT_AND_OUTPUT,
    CostClass,
    Field,
    Operand,
    Packing,
    Part,
    Row,
    Traits,
    Work,
    scratch,
    signed,
)

_ROWS = {row.name: row for row in (*products.KERNELS, *elements.KERNELS, *regions.KERNELS)}


def _words(part: Part) -> tuple[Field, ...]:
    own = {name for name, _ in part.buffers}
    flag = (signed(part.flag, f"1: {part.kernel} follows in place"),) if part.flag else ()
    fields = (field for field in _ROWS[part.kernel].fields if field.name not in own)
    renamed = (replace(each, name=part.prefix + each.name, doc=f"of {part.kernel}: {each.doc}") for each in fields)
    return (*flag, *renamed)


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


def _packings(part: Part) -> tuple[tuple[str, Packing], ...]:
    return tuple((part.prefix + name, packing) for name, packing in _ROWS[part.kernel].packings)


KERNELS = (
    Row(
        "excitation_s8",
        "The excitation of a squeeze-excite block: mean_s8 of each channel of an image, conv_2d_1x1_s8 and lookup_s8, conv_2d_1x1_s8 and "
        "lookup_s8.",
        (
            *INPUT_AND_OUTPUT,
            scratch("squeezed", "int8; the mean of each channel"),
            scratch("hidden", "int8; the result of the first layer"),
            signed("work", "elements read for each output channel of a window, rounded up"),
            *(field for part in PARTS for field in _words(part)),
        ),
        55,
        ("work",),
        traits=Traits(
            (Operand("input"), Operand("squeezed"), Operand("hidden")),
            Work(CostClass.PARTS),
            parts=PARTS,
        ),
        packings=tuple(packing for part in PARTS for packing in _packings(part)),
    ),
)
