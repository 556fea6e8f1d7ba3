# SPDX-License-Identifier: BSD-3-Clause
"""The passes on ATen graphs that run before annotation."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch.fx import GraphModule, Node
from torch.fx.passes.infra.pass_base import PassResult

from openneutron.pytorch.backend.neutron_target_spec import NeutronTargetSpec
from openneutron.pytorch.quantizer.passes.arithmetic import (
    ComputedGains,
    JoinFactors,
    LogarithmsOfPowers,
    OuterProducts,
    SignedSizes,
    WholeNumbers,
    WrittenNorms,
)
from openneutron.pytorch.quantizer.passes.attention import BooleanMasks, WrittenAttention
from openneutron.pytorch.quantizer.passes.batch_norm import FIRST, FoldBatchNorm
from openneutron.pytorch.quantizer.passes.constants import DropUnitFactors, FoldConstants, ScalarsToTensors, SumsToMeans
from openneutron.pytorch.quantizer.passes.decompose import Decompose
from openneutron.pytorch.quantizer.passes.exported_forms import (
    Batches,
    CastRows,
    DropExpands,
    EarlyConversions,
    InlineWrappers,
    MakeFunctional,
    PlainCasts,
    PlainMoves,
    Recompose,
    StatedConversions,
)
from openneutron.pytorch.quantizer.passes.linear import FoldFactors, MaskedFills, ProductsToLinear, SplitProjections
from openneutron.pytorch.quantizer.passes.recurrent import CellLoops, WholeLayers
from openneutron.pytorch.quantizer.passes.slices import MergeSlices, PutsToJoins, SlicesOfJoins

AtenPass = Callable[[GraphModule], PassResult | None]
"""A function that changes a graph module in place, or returns another one. A pass of ours is a frozen dataclass."""


def default_passes(
    is_qat: bool = False, keep: Callable[[Node], bool] | None = None, litert_only: bool = False
) -> tuple[AtenPass, ...]:
    """Return the passes in the order in which they run.

    Composite operators for which ``keep`` returns True stay whole. With ``litert_only``, normalizations become
    operators of LiteRT. With ``is_qat``, weights stay as the model computes them, so that they can be trained. Batch
    normalizations after convolutions stay too, and torchao folds them after training;
    where ``prepare_training`` has run, no such normalization is left.
    """
    if is_qat:
        return (
            InlineWrappers(training=True),
            MakeFunctional(),
            PlainCasts(),
            Recompose(),
            CellLoops(keep),
            WholeLayers(keep, training=True),
            ComputedGains(keep),
            PutsToJoins(),
            Batches(keep),
            Decompose(keep, litert_only),
            PlainCasts(),
            DropExpands(),
            BooleanMasks(keep),
            ScalarsToTensors(training=True),
            SlicesOfJoins(),
            FoldBatchNorm(layers=("linear",)),
        )
    return (
        *FIRST,
        WholeNumbers(),
        CellLoops(keep),
        WholeLayers(keep),
        WrittenNorms(keep),
        ComputedGains(keep),
        PutsToJoins(),
        Batches(keep),
        Decompose(keep, litert_only),
        PlainCasts(),
        StatedConversions(),
        EarlyConversions(),
        DropExpands(),
        FoldConstants(),
        MaskedFills(),
        BooleanMasks(keep),
        WrittenAttention(keep),
        FoldConstants(),
        DropUnitFactors(),
        SumsToMeans(keep),
        SignedSizes(),
        LogarithmsOfPowers(keep),
        CastRows(),
        ScalarsToTensors(),
        JoinFactors(keep),
        OuterProducts(keep),
        ProductsToLinear(),
        SplitProjections(keep),
        FoldFactors(keep),
        SlicesOfJoins(),
        MergeSlices(keep),
        PlainMoves(),
    )


class NeutronAtenPassManager:
    """Runs passes over an ATen graph module, each once, in order. A pass with ``targets`` runs only if the graph
    calls one of them."""

    def __init__(
        self,
        neutron_target_spec: NeutronTargetSpec,
        passes: Sequence[AtenPass] | None = None,
        is_qat: bool = False,
        keep: Callable[[Node], bool] | None = None,
    ) -> None:
        self.neutron_target_spec = neutron_target_spec
        self.passes = tuple(passes) if passes is not None else default_passes(is_qat, keep)

    def __call__(self, module: GraphModule) -> PassResult:
        changed = False
        for one in self.passes:
            targets = getattr(one, "targets", None)
            if targets is not None and {node.target for node in module.graph.nodes}.isdisjoint(targets):
                continue
            result = one(module)
            if result is not None:
                module, changed = result.graph_module, changed or result.modified
        return PassResult(module, changed)
