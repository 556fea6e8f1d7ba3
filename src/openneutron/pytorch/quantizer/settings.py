# SPDX-License-Identifier: BSD-3-Clause
"""The user's choice of number formats for an operator."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from torchao.quantization.pt2e.quantizer import QuantizationSpec


class Usual(Enum):
    """Stands for what the quantizer does where it is told nothing."""

    USUAL = "usual"


USUAL = Usual.USUAL

Choice: TypeAlias = QuantizationSpec | Usual | None
"""A spec, None for float, or the quantizer's own."""


@dataclass(frozen=True, slots=True)
class QuantizationConfig:
    """The number formats of an operator; whatever is left out is as usual, None stays float.

    input_activation, output_activation: for tensors that calibration sees. A result whose scale the operator fixes (sigmoid)
    or shares with its input (max pool) keeps that scale.
    weight: for constants that are multiplied with the input. Biases are int32 wherever input and weight are quantized.
    """

    input_activation: Choice = USUAL
    output_activation: Choice = USUAL
    weight: Choice = USUAL


AS_USUAL = QuantizationConfig()
