# SPDX-License-Identifier: BSD-3-Clause
"""The fold of batch normalizations into convolutions."""

from dataclasses import dataclass

from openneutron.pytorch.quantizer.passes.batch_norm import FoldBatchNorm


@dataclass(frozen=True, slots=True)
class FuseBatchNormWithConvPass(FoldBatchNorm):
    """Fold each batch normalization after a convolution into that convolution."""

    layers: tuple[str, ...] = ("convolution",)
