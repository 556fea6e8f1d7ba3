# SPDX-License-Identifier: BSD-3-Clause
"""The quantization of operators that only move values or rename dimensions: as their input."""

from __future__ import annotations

from openneutron.pytorch.operators.rules.annotation import MOVE

RULES = {
    "aten.cat.default": MOVE,
    "aten.alias.default": MOVE,
    "aten.clone.default": MOVE,
    "aten.contiguous.default": MOVE,
    "aten.detach.default": MOVE,
    "aten.dropout.default": MOVE,
    "aten.feature_dropout.default": MOVE,
    "aten.expand.default": MOVE,
    "aten.flatten.using_ints": MOVE,
    "aten.flip.default": MOVE,
    "aten.permute.default": MOVE,
    "aten.repeat.default": MOVE,
    "aten.reshape.default": MOVE,
    "aten.slice.Tensor": MOVE,
    "aten.squeeze.default": MOVE,
    "aten.squeeze.dim": MOVE,
    "aten.squeeze.dims": MOVE,
    "aten.t.default": MOVE,
    "aten.transpose.int": MOVE,
    "aten.unsqueeze.default": MOVE,
    "aten.view.default": MOVE,
}
