# SPDX-License-Identifier: BSD-3-Clause
"""Operators of the domain ai.onnx.ml around neural networks: scaled inputs, linear models, and the classes of results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from openneutron.pytorch.onnx.operators.table import NodeView, Refused, Values, converts

DOMAIN = "ai.onnx.ml"

SMALLEST = 1e-30
"""The smallest divisor of Normalizer, as in onnx.reference."""


def _numbers(node: NodeView, name: str, kind: type = np.float32) -> np.ndarray[Any, Any]:
    return np.array(node.get(name, []), kind)


@converts("Scaler", domain=DOMAIN)
def _scaler(node: NodeView, x: Tensor) -> Values:
    return (x - node.constant("offset", _numbers(node, "offset"))) * node.constant("scale", _numbers(node, "scale"))


@converts("Binarizer", domain=DOMAIN)
def _binarizer(node: NodeView, x: Tensor) -> Values:
    return (x > node.get("threshold", 0.0)).to(x.dtype)


_NORMS: dict[str, Callable[[Tensor], Tensor]] = {
    "MAX": lambda x: torch.amax(torch.abs(x), 1, True),
    "L1": lambda x: torch.sum(torch.abs(x), 1, True),
    "L2": lambda x: torch.linalg.vector_norm(x, 2, 1, True),
}


@converts("Normalizer", domain=DOMAIN)
def _normalizer(node: NodeView, x: Tensor) -> Values:
    return x / torch.clamp(_NORMS[node.get("norm", "MAX")](x), min=SMALLEST)


@converts("ZipMap", domain=DOMAIN)
def _zip_map(node: NodeView, x: Tensor) -> Values:
    """A program has the scores as a tensor in the order of the classes, in place of a dictionary for each sample."""
    return x


@converts("ArrayFeatureExtractor", constants=(0,), domain=DOMAIN)
def _array_feature_extractor(node: NodeView, x: Any, places: Tensor) -> Values:
    """Convert to a gather along the last axis. Classes that are the numbers from 0 on are their own places."""
    if not isinstance(x, Tensor):
        if x.shape == (x.size,) and x.dtype == np.int64 and (x == np.arange(x.size)).all():
            return places.reshape(1, -1)
        x = node.constant("classes", x)
    taken = torch.index_select(x, x.dim() - 1, places.flatten())
    return taken.reshape(1, -1) if x.dim() == 1 else taken


@converts("LinearRegressor", domain=DOMAIN)
def _linear_regressor(node: NodeView, x: Tensor) -> Values:
    if (after := node.get("post_transform", "NONE")) != "NONE":
        raise Refused(f"has the post_transform {after}; NONE is read")
    return _linear(node, x, node.get("targets", 1))


def _linear(node: NodeView, x: Tensor, count: int) -> Tensor:
    weights, bias = _numbers(node, "coefficients"), _numbers(node, "intercepts")
    return F.linear(
        x,
        node.constant("weights", weights.reshape(count, -1)),
        node.constant("bias", bias) if bias.size else None,
    )


_SCORES: dict[str, Callable[[Tensor], Tensor]] = {
    "NONE": lambda scores: scores,
    "LOGISTIC": torch.sigmoid,
    "SOFTMAX": lambda scores: torch.softmax(scores, 1),
}


@converts("LinearClassifier", domain=DOMAIN)
def _linear_classifier(node: NodeView, x: Tensor) -> Values:
    classes, after = _numbers(node, "classlabels_ints", np.int64), node.get("post_transform", "NONE")
    if not classes.size:
        raise Refused("gives names of classes. Convert the model with whole numbers as classes")
    count = len(node.get("coefficients", [])) // x.shape[1]
    if after not in _SCORES or len(classes) != max(count, 2):
        raise Refused(f"has the post_transform {after} and {count} rows of coefficients for {len(classes)} classes")
    scores = _linear(node, x, count)
    scores = _SCORES[after](torch.cat([-scores, scores], 1) if count == 1 else scores)
    best = torch.argmax(scores, 1)
    is_plain = bool((classes == np.arange(len(classes))).all())
    return best if is_plain else node.constant("classes", classes)[best], scores
