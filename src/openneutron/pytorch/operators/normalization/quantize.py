# SPDX-License-Identifier: BSD-3-Clause
"""Annotate normalizations: the input and the result have a scale each; gain and bias stay float until they are lowered."""

from __future__ import annotations

from openneutron.pytorch.operators.annotations import FUNCTION

RULES = {f"aten.{name}_norm.default": FUNCTION for name in ("layer", "rms", "group")}
