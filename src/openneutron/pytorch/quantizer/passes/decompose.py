# SPDX-License-Identifier: BSD-3-Clause
"""Composite operators become the operators they are made of, so that each piece gets a quantization of its own."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses import FakeTensor, FakeTensorMode
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.passes.infra.pass_base import PassResult
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from openneutron.pytorch.graph.marks import STAYS_WHOLE
from openneutron.pytorch.graph.program import short_name
from openneutron.pytorch.graph.reject import REWRITE
from openneutron.pytorch.graph.rewriting import finished
from openneutron.pytorch.operators.decompositions import DECOMPOSITIONS
from openneutron.pytorch.operators.rules.decomposition import KEPT, Keep
from openneutron.pytorch.quantizer.passes.make_functional import MakeFunctional
from openneutron.pytorch.quantizer.passes.plain_casts import PlainCasts
from openneutron.pytorch.quantizer.passes.splice import splice
from openneutron.pytorch.quantizer.passes.torch_decompositions import (
    TorchDecomposition,
    is_implicit,
    is_known,
    torch_decompositions,
)

ALWAYS = frozenset(("aten.one_hot.default",))
"""Operators that are decomposed even where they stay float. ExecuTorch's own decomposition of them has assertions on
values. Its runtime has no kernel for these assertions, and may sort them behind the output."""

Traces = dict[Any, "Traced"]
"""Decompositions by operator, arguments, shapes and strides; a model repeats few distinct calls."""


@dataclass(frozen=True, slots=True, eq=False)
class Traced:
    """A call's decomposition as a graph on the call's tensors; None for a call that stays whole, with a reason."""

    graph_module: GraphModule | None
    whole: Keep = KEPT


@dataclass(frozen=True, slots=True)
class Decompose:
    """Replace each call of an operator in ``DECOMPOSITIONS`` by its decomposition until none is left, and each call
    without a rule of ours by PyTorch's own decomposition.

    Plain functions of other operators (CompositeImplicitAutograd) are always decomposed. Another decomposition of
    PyTorch's is used where it ends in operators with rules of ours; else the call stays whole, with the reason in
    ``STAYS_WHOLE``.

    keep: calls to leave alone. Pieces keep the module path and source line of the call, and say in ``meta["custom"]`` which
    operator they come from.
    """

    keep: Callable[[Node], bool] | None = None

    def __call__(self, module: GraphModule) -> PassResult:
        return finished(module, _decompose(module, self.keep, {}))


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
    """Puts the pieces in front of the node and takes it out; None, and nothing done, for a call that is left alone."""
    overload = node.target
    assert isinstance(overload, torch._ops.OpOverload)
    if not _has_fixed_shapes(node):
        return None
    sources = _sources(overload, node)
    traced = None if sources is None else _traced(overload, node, sources, traces)
    if traced is None or traced.graph_module is None or _lacks_a_result(traced.graph_module, node):
        if traced is not None and traced.whole.reason:
            why = (traced.whole.reason, traced.whole.hint)
            node.meta["custom"] = {**node.meta.get("custom", {}), STAYS_WHOLE: why}
        return None
    assert sources is not None
    return splice(module, node, traced.graph_module, sources)


def _lacks_a_result(graph_module: GraphModule, node: Node) -> bool:
    """Whether one of several results is used that the decomposition does not compute."""
    results = next(iter(reversed(graph_module.graph.nodes))).args[0]
    if not isinstance(results, (list, tuple)):
        return False
    return any(user.target is operator.getitem and results[user.args[1]] is None for user in node.users if user.users)


def _has_fixed_shapes(node: Node) -> bool:
    values = [item.meta.get("val") for item in (*node.all_input_nodes, node)]
    tensors = [value for value in tree_flatten(values)[0] if isinstance(value, torch.Tensor)]
    return all(isinstance(extent, int) for tensor in tensors for extent in tensor.shape)


def _sources(overload: torch._ops.OpOverload, node: Node) -> list[Node] | None:
    """Return the tensors of a call in the order of ``_arguments``; None where the shape of one is unknown."""
    sources = [leaf for leaf in tree_flatten(_arguments(overload, node))[0] if isinstance(leaf, Node)]
    return sources if all(isinstance(source.meta.get("val"), FakeTensor) for source in sources) else None


def _arguments(overload: torch._ops.OpOverload, node: Node) -> dict[str, Any]:
    """Return every argument of a call by name, with the schema's defaults."""
    names = [argument.name for argument in overload._schema.arguments]
    given = {item.name: item.default_value for item in overload._schema.arguments if item.has_default_value()}
    return given | dict(zip(names, node.args, strict=False)) | dict(node.kwargs)


def _traced(overload: torch._ops.OpOverload, node: Node, sources: list[Node], traces: Traces) -> Traced:
    """Return the decomposition of this call: the stored one of an equal call, or a new trace."""
    leaves, spec = tree_flatten(_arguments(overload, node))
    values = [source.meta["val"] for source in sources]
    plain = tuple("tensor" if isinstance(leaf, Node) else (type(leaf), str(leaf)) for leaf in leaves)
    layouts = tuple((tuple(value.shape), value.stride(), value.dtype) for value in values)
    key = (overload, str(spec), plain, layouts, tuple(source.meta["val"].requires_grad for source in sources))
    if key not in traces:
        function = DECOMPOSITIONS.get(str(overload))
        if function is not None:
            traces[key] = _trace_or_keep(lambda given: function(**given), leaves, spec, values)
        else:
            traces[key] = _traced_by_torch(overload, node, leaves, spec, values, traces)
    return traces[key]


def _trace_or_keep(
    function: Callable[[dict[str, Any]], Any], leaves: list[Any], spec: TreeSpec, values: list[FakeTensor]
) -> Traced:
    """Trace a decomposition of ours. A call without elements that the decomposition can't take stays whole."""
    try:
        return _trace(function, leaves, spec, values)
    except RuntimeError:
        if all(value.numel() for value in values):
            raise
        return Traced(None, KEPT)


def _traced_by_torch(
    overload: torch._ops.OpOverload,
    node: Node,
    leaves: list[Any],
    spec: TreeSpec,
    values: list[FakeTensor],
    traces: Traces,
) -> Traced:
    """Return the first usable decomposition of PyTorch's, itself decomposed further."""
    positional = [item.name for item in overload._schema.arguments if not item.kwarg_only]
    whole = KEPT
    for decomposition in torch_decompositions(node):
        graph_module = _trace_of_torch(decomposition, positional, leaves, spec, values)
        if graph_module is None or any(_is_unsafe(piece, overload) for piece in graph_module.graph.nodes):
            continue
        _decompose(graph_module, None, traces)
        graph_module.graph.eliminate_dead_code()
        unknown = next((piece for piece in graph_module.graph.nodes if not is_known(piece)), None)
        if unknown is None or is_implicit(overload):
            return Traced(graph_module)
        reason = f"{short_name(node)} is made of operators of which {short_name(unknown)} has no kernel"
        whole = Keep(reason, REWRITE)
    return Traced(None, whole)


def _trace_of_torch(
    decomposition: TorchDecomposition,
    positional: list[str],
    leaves: list[Any],
    spec: TreeSpec,
    values: list[FakeTensor],
) -> GraphModule | None:
    def call(given: dict[str, Any]) -> Any:
        places = [given.pop(name) for name in positional]
        return decomposition.function(*places, **given)

    try:
        graph_module = _trace(call, leaves, spec, values, decomposition.pre_dispatch).graph_module
    # Decompositions that look at values, or do not support such a call, may raise anything.
    except Exception:
        return None
    assert graph_module is not None
    MakeFunctional()(graph_module)
    PlainCasts()(graph_module)
    return graph_module


def _is_unsafe(node: Node, origin: torch._ops.OpOverload) -> bool:
    """Return whether a decomposition contains the operator itself, an operator that is random or writes to a tensor, or
    no ATen operator."""
    overload = node.target
    if node.op != "call_function" or overload is operator.getitem:
        return False
    if not isinstance(overload, torch._ops.OpOverload) or overload is origin or overload.namespace != "aten":
        return True
    return overload._schema.is_mutable or torch.Tag.nondeterministic_seeded in overload.tags


def _trace(
    function: Callable[[dict[str, Any]], Any],
    leaves: list[Any],
    spec: TreeSpec,
    values: list[FakeTensor],
    pre_dispatch: bool = True,
) -> Traced:
    """Trace a function on a call's arguments."""
    kept: list[Keep] = []

    def call(*tensors: torch.Tensor) -> Any:
        rest = iter(tensors)
        filled = [next(rest) if isinstance(leaf, Node) else leaf for leaf in leaves]
        result = function(tree_unflatten(filled, spec))
        if isinstance(result, Keep):
            kept.append(result)
            return tensors[0]
        return result

    with torch.no_grad(), values[0].fake_mode if values else FakeTensorMode():
        graph_module = make_fx(call, pre_dispatch=pre_dispatch)(*values)
    if kept:
        return Traced(None, kept[-1])
    for node in graph_module.graph.find_nodes(op="get_attr"):
        value = getattr(graph_module, str(node.target))
        constant = value.constant if isinstance(value, FakeTensor) else value
        assert isinstance(constant, torch.Tensor), "constants come from torch.full, ones, arange, tril"
        setattr(graph_module, str(node.target), constant)
    return Traced(graph_module)
