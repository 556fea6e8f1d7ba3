# SPDX-License-Identifier: BSD-3-Clause
"""Variances and standard deviations as means of squares."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from openneutron.pytorch.operators.rules.decomposition import KEPT, Keep, decomposes


def _variance(x: Tensor, dims: list[int], correction: float, keepdim: bool) -> Tensor | Keep:
    """Of a whole dimension the squares' mean is taken, and their number corrected by a factor: sums would be large."""
    count = math.prod(x.shape[dim] for dim in dims)
    if count <= correction:
        return KEPT  # It is NaN or infinite.
    apart = x - x.mean(dims, keepdim=True)
    squares = (apart * apart).mean(dims, keepdim=keepdim)
    return squares if correction == 0 else squares * (count / (count - correction))


def _rule(root: bool, with_mean: bool) -> Callable[..., Any]:
    def rule(**given: Any) -> Any:
        x = given["self"]
        dims = [dim % x.dim() for dim in (given.get("dim") or range(x.dim()))]
        correction = float(given["unbiased"]) if "unbiased" in given else given["correction"]
        keepdim = given.get("keepdim", False)
        spread = _variance(x, dims, 1.0 if correction is None else float(correction), keepdim)
        if isinstance(spread, Keep):
            return spread
        spread = torch.sqrt(spread) if root else spread
        return (spread, x.mean(dims, keepdim=keepdim)) if with_mean else spread

    return rule


for _root, _name in ((False, "var"), (True, "std")):
    for _form in ("default", "dim", "correction"):
        decomposes(f"aten.{_name}.{_form}")(_rule(_root, False))
        decomposes(f"aten.{_name}_mean.{_form}")(_rule(_root, True))
