# SPDX-License-Identifier: BSD-3-Clause
"""The passes that simulate folded batch normalizations in quantization-aware training, and fold them after it."""

from openneutron.pytorch.quantizer.passes.batch_norm import (
    FoldSimulatedBatchNorm as RemoveSimulatedLinearBatchNormFusionQATPass,
)
from openneutron.pytorch.quantizer.passes.batch_norm import (
    SimulateBatchNorm as AddSimulatedLinearBatchNormFusionQATPass,
)

__all__ = ["AddSimulatedLinearBatchNormFusionQATPass", "RemoveSimulatedLinearBatchNormFusionQATPass"]
