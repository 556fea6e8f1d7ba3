# SPDX-License-Identifier: BSD-3-Clause
"""How pools, means and resizes are quantized."""

from __future__ import annotations

from torch.fx import Node

from openneutron.pytorch.quantizer.rules.table import FUNCTION, MOVE, AnnotationRule, Result


def _is_global(node: Node) -> bool:
    """Whether a pool leaves one row and column. LiteRT's MEAN, unlike its pools, rescales."""
    return tuple(node.meta["val"].shape[-2:]) == (1, 1)


RULES = {
    "aten.mean.dim": FUNCTION,
    "aten.adaptive_avg_pool2d.default": AnnotationRule(result=Result.SHARED, own_if=_is_global),
    "aten.max_pool2d.default": MOVE,
    "aten.avg_pool2d.default": MOVE,
    "aten.upsample_nearest2d.default": MOVE,
    "aten.upsample_nearest2d.vec": MOVE,
}
