# SPDX-License-Identifier: BSD-3-Clause
"""The fold of batch normalizations into linear layers."""

from dataclasses import dataclass

from openneutron.pytorch.quantizer.passes.batch_norm import FoldBatchNorm


@dataclass(frozen=True, slots=True)
class FuseBatchNormWithLinearPass(FoldBatchNorm):
    """Fold each batch normalization after a linear layer into that layer."""

    layers: tuple[str, ...] = ("linear",)
