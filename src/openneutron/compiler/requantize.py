# SPDX-License-Identifier: BSD-3-Clause
"""The fixed-point arithmetic that the operators' limits are made of, for the selection of kernels and their tables."""

from __future__ import annotations

from openneutron.ops.fixed_point import Multipliers, fit_multipliers, quantize_multiplier, quantize_multipliers
from openneutron.ops.rescaling import INT8_MAX, INT8_MIN, activation_range, convolution_scales

__all__ = [
    "INT8_MAX",
    "INT8_MIN",
    "Multipliers",
    "activation_range",
    "convolution_scales",
    "fit_multipliers",
    "quantize_multiplier",
    "quantize_multipliers",
]
