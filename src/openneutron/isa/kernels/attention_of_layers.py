# SPDX-License-Identifier: BSD-3-Clause
"""Declare attention of several batches with the linear layers of its queries, keys and values in one call, batch by batch.

Attention needs the layers' results of one batch at a time. The kernel runs the layers of a batch, then its attention, so that scratch for one
batch takes the place of a tensor of all batches. The bytes are those of the two calls.
"""

from __future__ import annotations

from dataclasses import replace

from openneutron.isa.kernels import attention, products
from openneutron.isa.kernels.row import CostClass, Operand, Row, Traits, Work, scratch
from openneutron.isa.kernels.several import Part

PROJECTED = "projected"
"""The scratch buffer for the layers' result of a batch."""

LAYERS = "layers_"
"""The prefix of the layers' fields, except those of the input and the output."""

_ROWS = {row.name: row for row in (*products.KERNELS, *attention.KERNELS)}
_LINEAR, _ATTENTION = _ROWS["conv_2d_1x1_parts_s8"], _ROWS["attention_s8"]

_OF_PROJECTED = ("query", "key", "value")
_ENDS = {
    "input": next(field for field in _LINEAR.fields if field.name == "input"),
    "output": scratch(PROJECTED, "int8; the layers' result of a batch, with a pitch of 0 from batch to batch"),
}

KERNELS = (
    Row(
        "conv_2d_1x1_parts_attention_s8",
        f"For each batch {_LINEAR.name} to `{PROJECTED}`, then {_ATTENTION.name} with the query, the key and the value in `{PROJECTED}`. A window "
        "of some rows computes all rows of the layers too.",
        (
            *(
                replace(own, written=True, scratch=True) if own.name in _OF_PROJECTED else own
                for own in _ATTENTION.fields
            ),
            *(
                _ENDS.get(own.name) or replace(own, name=f"{LAYERS}{own.name}", doc=f"of {_LINEAR.name}: {own.doc}")
                for own in _LINEAR.fields
            ),
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
            *((f"{LAYERS}{key}", packing) for key, packing in _LINEAR.packings),
        ),
    ),
)
