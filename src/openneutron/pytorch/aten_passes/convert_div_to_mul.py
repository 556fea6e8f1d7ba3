# SPDX-License-Identifier: BSD-3-Clause
"""The pass that makes quotients products, the same that makes numbers in arithmetic constant tensors."""

from openneutron.pytorch.quantizer.passes.constants import ScalarsToTensors as ConvertDivToMulPass

__all__ = ["ConvertDivToMulPass"]
