# SPDX-License-Identifier: BSD-3-Clause
"""The quantization of pads: as their input, whose range then reaches what is padded with."""

from __future__ import annotations

from openneutron.pytorch.operators.rules.annotation import MOVE

RULES = {
    "aten.constant_pad_nd.default": MOVE,
    "aten.pad.default": MOVE,
    **{f"aten.{mode}_pad{n}d.default": MOVE for mode in ("reflection", "replication") for n in (1, 2, 3)},
}
