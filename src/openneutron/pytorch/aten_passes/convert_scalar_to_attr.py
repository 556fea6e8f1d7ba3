# SPDX-License-Identifier: BSD-3-Clause
"""The pass that makes numbers in arithmetic constant tensors."""

from openneutron.pytorch.quantizer.passes.constants import ScalarsToTensors as ConvertScalarToAttrPass

__all__ = ["ConvertScalarToAttrPass"]
