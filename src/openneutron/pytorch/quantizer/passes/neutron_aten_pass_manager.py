# SPDX-License-Identifier: BSD-3-Clause
"""The passes on ATen graphs that run before annotation: their table, and the pass that decomposes composite operators."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch._decomp import core_aten_decompositions, decomposition_table
from torch._subclasses import FakeTensor, FakeTensorMode
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.passes.infra.pass_base import PassResult
from torch.utils._pytree import TreeSpec, tree_flatten, tree_leaves, tree_unflatten

from openneutron.pytorch.backend.neutron_target_spec import NeutronTargetSpec
from openneutron.pytorch.graph.program import (
    REWRITE,
    STAYS_WHOLE,
    arguments_of,
    is_pointwise_operator,
    overload_of,
    short_name,
)
from openneutron.pytorch.graph.rewriting import finished, splice
from openneutron.pytorch.operators.annotations import annotation_rules
from openneutron.pytorch.operators.families import DECOMPOSITIONS, LOWER_RULES
from openneutron.pytorch.operators.rules.tables import KEPT, OWN_OPERATORS, Keep
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

ALWAYS = frozenset(("aten.one_hot.default",))
"""Operators that are decomposed even if they stay float.

ExecuTorch's own decomposition of them has assertions on values. ExecuTorch's runtime has no kernel for these
assertions, and its sorting of nodes may place them after the output.
"""


@dataclass(frozen=True, slots=True)
class Traces:
    """The decompositions that were traced so far, by operator, arguments, shapes and strides. Equal calls share one
    trace, since a model has few distinct calls.

    ``litert_only``: see ``Decompose``.
    """

    litert_only: bool
    made: dict[Any, Traced] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Traced:
    """The decomposition of a call, as a graph whose inputs are the call's tensors. For a call that is not decomposed,
    the graph is None, and ``whole`` has the reason if one is known."""

    graph_module: GraphModule | None
    whole: Keep = KEPT


@dataclass(frozen=True, slots=True)
class Decompose:
    """Replace each call of an operator in ``DECOMPOSITIONS`` by its decomposition, until no such call is left.

    For an operator without a rule in this project, PyTorch's own decomposition is used, if it ends in operators that
    have rules. An operator that PyTorch itself defines as a function of other operators (CompositeImplicitAutograd)
    is decomposed in any case. A call that can't be decomposed stays, with the reason in its ``meta``
    (``STAYS_WHOLE``) if one is known.

    keep: a function that returns True for calls that must not change. litert_only: also decompose the calls that
    ``OWN_OPERATORS`` would keep.

    New nodes keep the module path and source line of the call, and ``meta["custom"]`` names the operator that was
    decomposed.
    """

    keep: Callable[[Node], bool] | None = None
    litert_only: bool = False

    def __call__(self, module: GraphModule) -> PassResult:
        return finished(module, _decompose(module, self.keep, Traces(self.litert_only)))


def _decompose(module: GraphModule, keep: Callable[[Node], bool] | None, traces: Traces) -> bool:
    waiting = [node for node in module.graph.nodes if _is_composite(node)]
    changed = False
    while waiting:
        node = waiting.pop()
        if keep is not None and keep(node) and str(node.target) not in ALWAYS:
            continue
        pieces = _replace(module, node, traces)
        changed |= pieces is not None
        waiting += [piece for piece in pieces or () if _is_composite(piece)]
    return changed


def _is_composite(node: Node) -> bool:
    if node.op != "call_function":
        return False
    return str(node.target) in DECOMPOSITIONS or bool(torch_decompositions(node))


def _replace(module: GraphModule, node: Node, traces: Traces) -> list[Node] | None:
    """Replace a call by the nodes of its decomposition and return them. Return None if the call is not decomposed."""
    overload = node.target
    assert isinstance(overload, torch._ops.OpOverload)
    if not _has_fixed_shapes(node):
        return None
    sources = _sources(node)
    traced = None if sources is None else _traced(overload, node, sources, traces)
    if traced is None or traced.graph_module is None or _lacks_a_result(traced.graph_module, node):
        if traced is not None and traced.whole.reason:
            why = (traced.whole.reason, traced.whole.hint)
            node.meta["custom"] = {**node.meta.get("custom", {}), STAYS_WHOLE: why}
        return None
    assert sources is not None
    return splice(module, node, traced.graph_module, sources)


def _lacks_a_result(graph_module: GraphModule, node: Node) -> bool:
    """Return whether the decomposition does not compute a result of the call that another node reads."""
    results = next(iter(reversed(graph_module.graph.nodes))).args[0]
    if not isinstance(results, (list, tuple)):
        return False
    return any(user.target is operator.getitem and results[user.args[1]] is None for user in node.users if user.users)


def _has_fixed_shapes(node: Node) -> bool:
    values = [item.meta.get("val") for item in (*node.all_input_nodes, node)]
    tensors = [value for value in tree_flatten(values)[0] if isinstance(value, torch.Tensor)]
    return all(isinstance(extent, int) for tensor in tensors for extent in tensor.shape)


def _sources(node: Node) -> list[Node] | None:
    """Return the tensors of a call in the order of ``arguments_of``; None if the shape of one is unknown."""
    sources = [leaf for leaf in tree_flatten(arguments_of(node))[0] if isinstance(leaf, Node)]
    return sources if all(isinstance(source.meta.get("val"), FakeTensor) for source in sources) else None


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """A call of an operator: the leaves and the structure of its arguments, and the values of its tensors."""

    node: Node
    leaves: list[Any]
    spec: TreeSpec
    values: list[FakeTensor]


def _traced(overload: torch._ops.OpOverload, node: Node, sources: list[Node], traces: Traces) -> Traced:
    """Return the decomposition of a call: the stored one of an equal call, or a new trace."""
    leaves, spec = tree_flatten(arguments_of(node))
    values = [source.meta["val"] for source in sources]
    call = Call(node, leaves, spec, values)
    plain = tuple("tensor" if isinstance(leaf, Node) else (type(leaf), str(leaf)) for leaf in leaves)
    layouts = tuple((tuple(value.shape), value.stride(), value.dtype) for value in values)
    key = (overload, str(spec), plain, layouts, tuple(value.requires_grad for value in values))
    if key not in traces.made:
        traces.made[key] = _traced_anew(overload, call, traces)
    return traces.made[key]


def _traced_anew(overload: torch._ops.OpOverload, call: Call, traces: Traces) -> Traced:
    name = str(overload)
    function = DECOMPOSITIONS.get(name)
    if function is None:
        return _traced_by_torch(overload, call, traces)
    has_operator = None if traces.litert_only else OWN_OPERATORS.get(name)

    def decomposed(given: dict[str, Any]) -> Any:
        return KEPT if has_operator is not None and has_operator(**given) else function(**given)

    try:
        return _trace(decomposed, call)
    except RuntimeError:
        # A call without elements that the decomposition can't take stays whole.
        if all(value.numel() for value in call.values):
            raise
        return Traced(None)


def _traced_by_torch(overload: torch._ops.OpOverload, call: Call, traces: Traces) -> Traced:
    """Return the first usable one of PyTorch's decompositions, itself decomposed further where it contains such calls."""
    positional = [item.name for item in overload._schema.arguments if not item.kwarg_only]
    whole = KEPT
    for decomposition in torch_decompositions(call.node):
        graph_module = _trace_of_torch(decomposition, positional, call)
        if graph_module is None or any(_is_unsafe(piece, overload) for piece in graph_module.graph.nodes):
            continue
        _decompose(graph_module, None, traces)
        graph_module.graph.eliminate_dead_code()
        unknown = next((piece for piece in graph_module.graph.nodes if not is_known(piece)), None)
        if unknown is None or is_implicit(overload):
            return Traced(graph_module)
        reason = f"{short_name(call.node)} is made of operators of which {short_name(unknown)} has no kernel"
        whole = Keep(reason, REWRITE)
    return Traced(None, whole)


def _trace_of_torch(decomposition: TorchDecomposition, positional: list[str], call: Call) -> GraphModule | None:
    def function(given: dict[str, Any]) -> Any:
        places = [given.pop(name) for name in positional]
        return decomposition.function(*places, **given)

    try:
        graph_module = _trace(function, call, decomposition.pre_dispatch).graph_module
    # Decompositions that look at values, or do not support such a call, may raise anything.
    except Exception:
        return None
    assert graph_module is not None
    MakeFunctional()(graph_module)
    PlainCasts()(graph_module)
    return graph_module


def _is_unsafe(node: Node, origin: torch._ops.OpOverload) -> bool:
    """Return whether a decomposition that contains this node must not be used.

    This is so if the node calls ``origin``, the decomposed operator itself, an operator that is random or writes to a
    tensor, or an operator outside of ATen.
    """
    overload = node.target
    if node.op != "call_function" or overload is operator.getitem:
        return False
    if not isinstance(overload, torch._ops.OpOverload) or overload is origin or overload.namespace != "aten":
        return True
    return overload._schema.is_mutable or torch.Tag.nondeterministic_seeded in overload.tags


def _trace(function: Callable[[dict[str, Any]], Any], call: Call, pre_dispatch: bool = True) -> Traced:
    kept: list[Keep] = []

    def traced(*tensors: torch.Tensor) -> Any:
        rest = iter(tensors)
        filled = [next(rest) if isinstance(leaf, Node) else leaf for leaf in call.leaves]
        result = function(tree_unflatten(filled, call.spec))
        if isinstance(result, Keep):
            kept.append(result)
            return tensors[0]
        return result

    with torch.no_grad(), call.values[0].fake_mode if call.values else FakeTensorMode():
        graph_module = make_fx(traced, pre_dispatch=pre_dispatch)(*call.values)
    if kept:
        return Traced(None, kept[-1])
    for node in graph_module.graph.find_nodes(op="get_attr"):
        value = getattr(graph_module, str(node.target))
        constant = value.constant if isinstance(value, FakeTensor) else value
        assert isinstance(constant, torch.Tensor), "constants come from torch.full, ones, arange, tril"
        setattr(graph_module, str(node.target), constant)
    return Traced(graph_module)


_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd

REWRITTEN_LATER = frozenset(
    f"aten.{name}"
    for name in ("batch_norm.default", "div.Scalar", "div.Tensor", "reciprocal.default", "to.dtype", "to.dtype_layout")
)
"""Operators that have no annotation rule, because passes after ``Decompose`` rewrite them."""

FACTORIES = frozenset(
    f"aten.{name}"
    for name in (
        "arange.default",
        "arange.start",
        "arange.start_step",
        "empty.memory_format",
        "eye.default",
        "eye.m",
        "full.default",
        "full_like.default",
        "ones.default",
        "ones_like.default",
        "scalar_tensor.default",
        "tril.default",
        "triu.default",
        "zeros.default",
        "zeros_like.default",
    )
)
"""Operators whose results are constants if their inputs are."""


def is_known(node: Node) -> bool:
    """Return whether a call needs no decomposition because this project has a rule for it.

    A rule is an annotation rule, a lowering rule for integers and booleans, a pass that rewrites the call, or a lookup table (pointwise
    operators of one tensor).
    """
    overload = overload_of(node)
    if overload is None:
        return True
    name = str(overload)
    exact = name in LOWER_RULES and LOWER_RULES[name].exact
    if name in annotation_rules() or exact or name in REWRITTEN_LATER or name in FACTORIES:
        return True
    values = [source.meta.get("val") for source in node.all_input_nodes]
    numbers = [value for value in values if isinstance(value, torch.Tensor) and value.dim() == 0]
    return is_pointwise_operator(overload) and len(values) - len(numbers) <= 1


def is_implicit(overload: torch._ops.OpOverload) -> bool:
    """Return whether an operator is only a function of other operators, which PyTorch calls in its place (CompositeImplicitAutograd)."""
    return overload.has_kernel_for_dispatch_key(_COMPOSITE)


@dataclass(frozen=True, slots=True)
class TorchDecomposition:
    """PyTorch's decomposition of an operator. ``function`` takes the operator's own arguments.

    pre_dispatch: True if the trace may have composite operators such as linear and softmax. It is False for
    decompositions written in C++, whose traces have the operators beneath, such as addmm and _softmax.
    """

    function: Callable[..., Any]
    pre_dispatch: bool


def torch_decompositions(node: Node) -> list[TorchDecomposition]:
    """Return PyTorch's decompositions of a call, the preferred one first.

    The list is empty if this project has a rule for the call, if PyTorch has no decomposition of it, if it writes to
    its arguments, or if it returns no tensor. The list is also empty if a tensor of the call is complex or has a
    float type other than float32, because such tensors are not quantized.
    """
    overload = overload_of(node)
    if overload is None or str(overload) in DECOMPOSITIONS or overload._schema.is_mutable or is_known(node):
        return []
    values = [item.meta.get("val") for item in (node, *node.all_input_nodes)]
    tensors = [value for value in tree_leaves(values) if isinstance(value, torch.Tensor)]
    if not isinstance(tree_leaves(values[0])[0], torch.Tensor):
        return []
    if any(tensor.is_complex() or (tensor.is_floating_point() and tensor.dtype != torch.float32) for tensor in tensors):
        return []
    view = _view_of(overload)
    if view is not None:
        return [TorchDecomposition(view, True)]
    found = [TorchDecomposition(_python()[overload], True)] if overload in _python() else []
    return [*found, TorchDecomposition(overload.decompose, False)] if is_implicit(overload) else found


def _view_of(overload: torch._ops.OpOverload) -> torch._ops.OpOverload | None:
    """Return the operator that returns a view where an operator such as ``aten.narrow_copy`` returns a copy; None for
    other operators."""
    namespace, _, name = overload._schema.name.partition("::")
    if namespace != "aten" or not name.endswith("_copy"):
        return None
    packet = getattr(torch.ops.aten, name.removesuffix("_copy"), None)
    return getattr(packet, overload._overloadname, None)


@cache
def _python() -> Mapping[Any, Callable[..., Any]]:
    """Return the decompositions in Python that lead to core ATen operators. ExecuTorch also applies them, after
    quantization."""
    core = core_aten_decompositions()
    return {key: value for key, value in decomposition_table.items() if key in core}


AtenPass = Callable[[GraphModule], PassResult | None]
"""A function that changes a graph module in place, or returns another one. A pass of ours is a frozen dataclass."""


def default_passes(
    is_qat: bool = False, keep: Callable[[Node], bool] | None = None, litert_only: bool = False
) -> tuple[AtenPass, ...]:
    """Return the passes in the order in which they run.

    Composite operators for which ``keep`` returns True are not decomposed. With ``litert_only``, normalizations are
    decomposed to operators of LiteRT. With ``is_qat``, the weights stay as the model computes them, so that they can
    be trained. With ``is_qat``, batch normalizations after convolutions also stay, and torchao folds them after
    training. If ``prepare_training`` has run before, none of these are left.
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
