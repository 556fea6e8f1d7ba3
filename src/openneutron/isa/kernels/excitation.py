# SPDX-License-Identifier: BSD-3-Clause
"""Declare squeeze-excite blocks (arXiv 1709.01507) in one call: the mean of an image and two small layers, and with them the product.

The mean and the layers take some hundred cycles each, the dispatch of a call some thousand. The kernels run those of the separate calls
one after the other, with the same bytes.
"""

from __future__ import annotations

from dataclasses import replace

from openneutron.isa.kernels import elements, products, regions
from openneutron.isa.kernels.row import (
    INPUT_AND_OUTPUT,
    CostClass,
    Everything,
    Field,
    Operand,
    Packing,
    Row,
    Traits,
    Work,
    scratch,
    signed,
)
from openneutron.isa.kernels.several import Part

_ROWS: dict[str, Row] = {row.name: row for row in (*products.KERNELS, *elements.KERNELS, *regions.KERNELS)}


def _words(part: Part) -> tuple[Field, ...]:
    own = {name for name, _ in part.buffers}
    flag = (signed(part.flag, f"1: {part.kernel} follows in place"),) if part.flag else ()
    fields = (field for field in _ROWS[part.kernel].fields if field.name not in own)
    of = f"of {part.kernel}: " if part.prefix else ""
    renamed = (replace(each, name=part.prefix + each.name, doc=of + each.doc) for each in fields)
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
    packings=tuple(packing for part in PARTS for packing in _packings(part)),
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
    packings=_packings(_IN_FRONT),
)

KERNELS = (EXCITATION, SQUEEZE_EXCITE)
