# SPDX-License-Identifier: BSD-3-Clause
"""Fourier transforms of constant lengths, as products with constant matrices."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from openneutron.pytorch.onnx.operators.table import NodeView, Refused, Values, converts, integers
from openneutron.pytorch.sound import fourier

_Weights: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]

MOST_WEIGHTS = 1 << 24
"""The most weights of a transform: a transform of 2,048 complex values, or of 4,096 real ones to one half of their spectrum, has as many."""


@converts("DFT", structure=(1, 2))
def _dft(node: NodeView, x: Tensor, length: Any = None, axes: Any = None) -> Values:
    """Convert to a linear layer over the axis of the transform and the two parts of complex values."""
    axis = node.get("axis", 1 if node.version < 20 else -2)
    at = (axis if axes is None else integers(axes)[0]) % x.dim()
    given, parts = x.shape[at], x.shape[-1]
    one_sided, inverse = bool(node.get("onesided", 0)), bool(node.get("inverse", 0))
    count = (2 * (given - 1) if one_sided and inverse else given) if length is None else integers(length)[0]
    if inverse and one_sided:
        if parts != 2:
            raise Refused("has real values as one half of a spectrum, which has complex values")
        weights = _to_real(count)
    else:
        weights = _to_complex(count, parts, one_sided, inverse)
    made = np.zeros((*weights.shape[:2], given, parts))  # further values have no weight, and missing ones are 0
    both = min(given, weights.shape[2])
    made[:, :, :both] = weights[:, :, :both]
    is_last = at == x.dim() - 2
    rows = (x if is_last else x.movedim(at, -2)).flatten(-2)
    y = F.linear(rows, node.constant("transform", made.reshape(-1, given * parts).astype(np.float32)))
    y = y.unflatten(-1, made.shape[:2])
    return y if is_last else y.movedim(-2, at)


def _checked(length: int, parts: int) -> None:
    if not 0 < length * length * parts <= MOST_WEIGHTS:
        raise Refused(f"transforms {length} values; the matrix of a transform has 1 to {MOST_WEIGHTS} weights")


def _to_complex(length: int, parts: int, one_sided: bool, inverse: bool = False) -> _Weights:
    """Return the weights [bins, 2, length, parts] from real values (one part) or complex values to the spectrum, or to
    the values that have it."""
    _checked(length, parts)
    rows = fourier(length, length // 2 + 1 if one_sided else length)
    rows = rows.conj() / length if inverse else rows
    return np.stack([np.stack([each.real, each.imag], 1) for each in (rows, 1j * rows)[:parts]], -1)


def _to_real(length: int) -> _Weights:
    """Return the weights [length, 1, bins, 2] from one half of a spectrum to the real values that have it."""
    _checked(length, 1)
    rows = fourier(length, length // 2 + 1).T / length
    rows[:, 1 : (length + 1) // 2] *= 2  # the other half has the conjugate values
    return np.stack([rows.real, rows.imag], -1)[:, None]


@converts("STFT", structure=(1, 3), constants=(2,))
def _stft(node: NodeView, x: Tensor, step: Any, window: Any = None, length: Any = None) -> Values:
    """Convert to one convolution, whose weights are the transform times the window, as in ``openneutron.pytorch.sound.Spectrum``."""
    if isinstance(window, Tensor):
        raise Refused("has a window that is computed from data")
    x = x.unsqueeze(-1) if x.dim() == 2 else x  # torch.onnx writes real values so
    size = len(window) if length is None else integers(length)[0]
    weights = _to_complex(size, x.shape[-1], bool(node.get("onesided", 1)))
    if window is not None:
        weights = weights * window.astype(np.float64)[:, None]
    bins = len(weights)
    kernel = weights.transpose(1, 0, 3, 2).reshape(2 * bins, -1, size).astype(np.float32)
    y = F.conv1d(x.transpose(1, 2), node.constant("transform", kernel), stride=integers(step)[0])
    return y.unflatten(1, (2, bins)).permute(0, 3, 2, 1)
