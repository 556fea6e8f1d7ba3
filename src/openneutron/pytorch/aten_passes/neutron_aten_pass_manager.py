# SPDX-License-Identifier: BSD-3-Clause
"""The passes on ATen graphs that run before annotation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from torch.fx import GraphModule
from torch.fx.passes.infra.pass_base import PassResult

from openneutron.pytorch.aten_passes.fold_batch_norm import fold_batch_norm
from openneutron.pytorch.aten_passes.fold_constants import fold_constants
from openneutron.pytorch.aten_passes.make_functional import make_functional
from openneutron.pytorch.aten_passes.scalars_to_tensors import scalars_to_tensors

if TYPE_CHECKING:
    from openneutron.pytorch.backend.neutron_target_spec import NeutronTargetSpec

AtenPass = Callable[[GraphModule], Any]
"""Changes a graph module in place; returns whether it did (or fx's PassResult)."""


def _fold_linear(module: GraphModule) -> bool:
    return fold_batch_norm(module, ("linear",))


def default_passes(is_qat: bool = False) -> tuple[AtenPass, ...]:
    """The passes in order. In training weights stay as they are made, and the convolutions' batch norms: torchao folds those
    after training."""
    if is_qat:
        return (make_functional, scalars_to_tensors, _fold_linear)
    return (make_functional, fold_constants, scalars_to_tensors, fold_batch_norm)


class NeutronAtenPassManager:
    """Runs passes over an ATen graph module, each once, in order."""

    def __init__(
        self,
        neutron_target_spec: NeutronTargetSpec,
        passes: Sequence[AtenPass] | None = None,
        is_qat: bool = False,
    ) -> None:
        self.neutron_target_spec = neutron_target_spec
        self.passes = tuple(passes) if passes is not None else default_passes(is_qat)

    def __call__(self, module: GraphModule) -> PassResult:
        changed = False
        for one in self.passes:
            result = one(module)
            if isinstance(result, PassResult):
                module, result = result.graph_module, result.modified
            changed |= bool(result)
        return PassResult(module, changed)
