# SPDX-License-Identifier: BSD-3-Clause
"""Re-export the fixed-point arithmetic of the operators' limits for kernel selection and its tables."""

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
