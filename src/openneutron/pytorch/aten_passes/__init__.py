# SPDX-License-Identifier: BSD-3-Clause
"""Passes on ATen graphs, under the module and class names of ExecuTorch's NXP backend.

``from openneutron.pytorch.aten_passes.convert_div_to_mul import ConvertDivToMulPass`` works as in a script for that backend: importing
this package makes a module of each row of ``MODULES``. A row is here if this project has a pass for its purpose. Each pass changes a
graph module in place.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from types import ModuleType

from openneutron.pytorch.quantizer.passes.batch_norm import FoldBatchNorm, FoldSimulatedBatchNorm, SimulateBatchNorm
from openneutron.pytorch.quantizer.passes.constants import FoldConstants, ScalarsToTensors
from openneutron.pytorch.quantizer.passes.neutron_aten_pass_manager import NeutronAtenPassManager


@dataclass(frozen=True, slots=True)
class FuseBatchNormWithConvPass(FoldBatchNorm):
    """Fold each batch normalization in eval mode with constant statistics into the convolution that computes its
    input, if nothing else reads that convolution."""

    layers: tuple[str, ...] = ("convolution",)


@dataclass(frozen=True, slots=True)
class FuseBatchNormWithLinearPass(FoldBatchNorm):
    """Fold each batch normalization in eval mode with constant statistics into the linear layer that computes its
    input, if nothing else reads that layer and its result has two dimensions."""

    layers: tuple[str, ...] = ("linear",)


MODULES: dict[str, dict[str, type]] = {
    "convert_div_to_mul": {"ConvertDivToMulPass": ScalarsToTensors},
    "convert_scalar_to_attr": {"ConvertScalarToAttrPass": ScalarsToTensors},
    "fuse_batch_norm_with_conv_pass": {"FuseBatchNormWithConvPass": FuseBatchNormWithConvPass},
    "fuse_batch_norm_with_linear_pass": {"FuseBatchNormWithLinearPass": FuseBatchNormWithLinearPass},
    "neutron_aten_pass_manager": {"NeutronAtenPassManager": NeutronAtenPassManager},
    "remove_nodes_with_known_outputs": {"RemoveNodesWithKnownOutputs": FoldConstants},
    "simulated_linear_bn_fusion_passes": {
        "AddSimulatedLinearBatchNormFusionQATPass": SimulateBatchNorm,
        "RemoveSimulatedLinearBatchNormFusionQATPass": FoldSimulatedBatchNorm,
    },
}
"""The classes of each module below this package, by the name of the module and the name of the class."""

for _name, _classes in MODULES.items():
    _module = ModuleType(f"{__name__}.{_name}")
    vars(_module).update(_classes)
    sys.modules[_module.__name__] = globals()[_name] = _module
