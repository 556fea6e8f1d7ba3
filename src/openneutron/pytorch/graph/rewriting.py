# SPDX-License-Identifier: BSD-3-Clause
"""The base classes of passes over ATen graphs, and the steps of passes: read and add constants, insert and replace calls."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Sequence, Set
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch._subclasses import FakeTensor
from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.node import map_arg
from torch.fx.passes.infra.pass_base import PassResult

from openneutron.pytorch.graph.program import STAYS_WHOLE, WRITTEN_AS, arguments_of, is_dequantize, is_getitem


def add_call(
    module: GraphModule, before: Node, target: Any, *args: object, origin: Node | None = None, **kwargs: object
) -> Node:
    """Insert a call before the node ``before`` and return it.

    The call has the metadata of ``origin`` (by default of ``before``), and a fake value that ``target`` computes.
    """
    origin = before if origin is None else origin
    with module.graph.inserting_before(before):
        node = module.graph.call_function(target, args, kwargs)
    values = map_arg(node.args, lambda source: source.meta["val"])
    found = map(_first_result, (origin, *node.all_input_nodes))
    mode = next(value.fake_mode for value in found if isinstance(value, FakeTensor))
    with torch.no_grad(), mode:
        node.meta = {**origin.meta, "val": target(*values, **kwargs)}
    return node


def behind(node: Node) -> Node:
    """Return the node in front of which a reader of ``node`` can be inserted: the first one after ``node`` that is no placeholder."""
    after = node.next
    while after.op == "placeholder":
        after = after.next
    return after


def _first_result(node: Node) -> Any:
    """Return the fake value of a node, or the first one where the node has several results; None without one."""
    value = node.meta.get("val")
    return value[0] if isinstance(value, (list, tuple)) and value else value


def finished(module: GraphModule, changed: bool) -> PassResult:
    """Return the result of a pass. If the graph changed, delete its unread nodes and recompile it first."""
    if changed:
        module.graph.eliminate_dead_code()
        module.recompile()
    return PassResult(module, changed)


@dataclass(frozen=True, slots=True)
class Pass:
    """A pass over a graph. The pass runs if the graph calls one of ``targets``.

    ``keep`` returns True for the nodes that the pass must not change; None: no such nodes.
    """

    keep: Callable[[Node], bool] | None = None

    targets: ClassVar[Collection[object]]

    def __call__(self, module: GraphModule) -> PassResult:
        """Change the graph in place."""
        raise NotImplementedError

    def is_kept(self, node: Node) -> bool:
        """Return whether the pass must not change a node."""
        return self.keep is not None and self.keep(node)


@dataclass(frozen=True, slots=True)
class NodePass(Pass):
    """A pass that rewrites the nodes that call one of ``targets``, one after another."""

    def __call__(self, module: GraphModule) -> PassResult:
        changed = False
        for node in list(module.graph.nodes):
            if node.op == "call_function" and node.target in self.targets and not self.is_kept(node):
                changed |= self.rewrite(module, node)
        return finished(module, changed)

    def rewrite(self, module: GraphModule, node: Node) -> bool:
        """Rewrite a node that calls one of ``targets``. Return whether the graph changed."""
        raise NotImplementedError


_FROM_WHERE = ("nn_module_stack", "stack_trace", "source_fn_stack", "torch_fn", "from_node")


def splice(module: GraphModule, node: Node, traced: GraphModule, sources: Sequence[Node]) -> list[Node]:
    """Replace ``node`` by copies of the nodes of a traced graph, and return the copies in order.

    ``sources`` are the nodes of ``module`` that the copies read in place of the traced graph's inputs. Readers of
    ``node`` read the traced graph's results instead. The copies have the module path and the source line of ``node``.
    Their metadata names its operator (key ``WRITTEN_AS``).
    """
    made: dict[Node, Any] = {}
    pieces: list[Node] = []
    for piece in traced.graph.nodes:
        if piece.op == "placeholder":
            made[piece] = sources[len(made)]
        elif piece.op == "output":
            result = map_arg(piece.args[0], made.__getitem__)
        elif piece.op == "get_attr":
            value = getattr(traced, str(piece.target))
            made[piece] = add_constant(module, node, f"{node.name}{piece.target}", value)
        else:
            with module.graph.inserting_before(node):
                copy = module.graph.node_copy(piece, made.__getitem__)
            copy.meta = {key: node.meta[key] for key in _FROM_WHERE if key in node.meta}
            copy.meta["val"] = piece.meta.get("val")
            copy.meta["custom"] = _notes(node, piece)
            made[piece] = copy
            pieces.append(copy)
    replace(node, result)
    return pieces


def retrace(module: GraphModule, node: Node, function: Callable[..., Any], sources: Sequence[Node]) -> bool:
    """Replace a call by the ATen operators of ``function``, traced on the values of ``sources``, and return True."""
    values = [source.meta["val"] for source in sources]
    with torch.no_grad(), values[0].fake_mode:
        traced = make_fx(function, pre_dispatch=True)(*values)
    splice(module, node, traced, sources)
    return True


def _notes(node: Node, piece: Node) -> dict[str, Any]:
    notes = {key: value for key, value in node.meta.get("custom", {}).items() if key != STAYS_WHOLE}
    own = piece.meta.get("custom", {})
    whole = {STAYS_WHOLE: own[STAYS_WHOLE]} if STAYS_WHOLE in own else {}
    return {**notes, WRITTEN_AS: notes.get(WRITTEN_AS, str(node.target)), **whole}


def replace(node: Node, result: Any) -> bool:
    """Remove a call, let its readers read ``result`` instead, and return True.

    ``result`` is a node. For a call with several results, it is a list with a node for each of them.
    """
    if isinstance(result, (list, tuple)):
        for user in list(node.users):
            assert user.target is operator.getitem, f"{user.name} reads all results of {node.name} at once"
            if user.users:
                user.replace_all_uses_with(result[user.args[1]])
            node.graph.erase_node(user)
    else:
        node.replace_all_uses_with(result)
    node.graph.erase_node(node)
    return True


def only_user(node: Node) -> Node | None:
    """Return the only reader of a node, or None if it has no reader or several."""
    return next(iter(node.users)) if len(node.users) == 1 else None


def results_of(node: Node) -> dict[int, list[Node]]:
    """Return the ``getitem`` nodes that read a call with several results and are themselves read, by the index of the result."""
    found: dict[int, list[Node]] = {}
    for user in node.users:
        if is_getitem(user) and user.users:
            found.setdefault(int(str(user.args[1])), []).append(user)
    return found


def constant_of(module: GraphModule, node: object) -> torch.Tensor | None:
    """Return the constant tensor of a ``get_attr`` node. Return None for anything else, such as state that a run changes."""
    if not isinstance(node, Node) or node.op != "get_attr" or is_state(node):
        return None
    held = held_by(module, node)
    return held.detach() if isinstance(held, torch.Tensor) else None


def number_of(module: GraphModule, item: object) -> float | None:
    """Return ``item`` as a float: a Python number, or a constant of one element; None for anything else."""
    if isinstance(item, (int, float)):
        return float(item)
    known = constant_of(module, item)
    return float(known) if known is not None and known.numel() == 1 else None


def held_by(module: GraphModule, node: Node) -> object:
    """Return the attribute of the module that a ``get_attr`` node reads, or None if there is no such attribute."""
    owner: object = module
    for part in str(node.target).split("."):
        owner = getattr(owner, part, None)
    return owner


def is_state(node: Node) -> bool:
    """Return whether a ``get_attr`` node's tensor, or a view of it, is written to when the model runs."""
    waiting, seen = [node], {node}
    while waiting:
        here = waiting.pop()
        for user in here.users:
            if not isinstance(user.target, torch._ops.OpOverload):
                continue
            schema = user.target._schema
            given = dict(zip((item.name for item in schema.arguments), user.args, strict=False)) | dict(user.kwargs)
            for argument in schema.arguments:
                if argument.alias_info is None or given.get(argument.name) is not here:
                    continue
                if argument.alias_info.is_write:
                    return True
                if user not in seen:
                    seen.add(user)
                    waiting.append(user)
    return False


_RETURNS_ITS_INPUT = frozenset(("aten::dropout", "aten::feature_dropout", "aten::to", "aten::_to_copy"))
"""Operators that may return their input itself although their schema does not state an alias."""


def aliases(node: Node, writer: Node) -> set[Node]:
    """Return this node, and all nodes whose values may share memory with this node's value.

    Aliases that are reached only through ``writer`` are left out.
    """
    found, waiting = {node}, [node]
    while waiting:
        here = waiting.pop()
        near = [user for user in here.users if _is_view_of(user, here)]
        near += [source for source in here.all_input_nodes if _is_view_of(here, source)]
        for other in near:
            if other not in found and other is not writer:
                found.add(other)
                waiting.append(other)
    return found


def _is_view_of(node: Node, source: Node) -> bool:
    overload = node.target
    if node.op != "call_function" or not isinstance(overload, torch._ops.OpOverload):
        return False
    if not node.args or node.args[0] is not source:
        return False
    returns = overload._schema.returns
    return overload._schema.name in _RETURNS_ITS_INPUT or any(item.alias_info is not None for item in returns)


def writes_views(graph: Graph) -> bool:
    """Return whether a call changes a tensor in place that a later call reads through another view.

    An example is ``y[:, :2] = x`` before a call that reads ``y``.
    """
    places = {node: place for place, node in enumerate(graph.nodes)}
    for node in graph.nodes:
        overload = node.target
        if node.op != "call_function" or not isinstance(overload, torch._ops.OpOverload) or not node.args:
            continue
        target = node.args[0]
        if not overload._schema.is_mutable or not isinstance(target, Node):
            continue
        others = aliases(target, node) - {target}
        if any(places[user] > places[node] for alias in others for user in alias.users):
            return True
    return False


def add_constant(module: GraphModule, before: Node, stem: str, value: torch.Tensor, origin: Node | None = None) -> Node:
    """Register ``value`` as a buffer, and return a new ``get_attr`` node for it before the node ``before``.

    The buffer's name is ``stem``, with underscores at its end where that name is in use. The new node has a fake value if ``origin``
    (by default ``before``) has one.
    """
    name = stem.replace(".", "_")
    while hasattr(module, name):
        name += "_"
    module.register_buffer(name, value)
    with module.graph.inserting_before(before):
        node = module.graph.get_attr(name)
    sample = _first_result(before if origin is None else origin)
    if isinstance(sample, FakeTensor):
        node.meta["val"] = sample.fake_mode.from_tensor(value, static_shapes=True)
    return node


def has_shared_dequantize(graph: Graph) -> bool:
    return any(is_dequantize(node) and len(node.users) > 1 for node in graph.nodes)


def duplicate_dequantize(graph: Graph) -> bool:
    """Copy each dequantize node that several nodes read, so that each has one reader. Return whether the graph changed."""
    changed = False
    for node in list(graph.nodes):
        if not is_dequantize(node):
            continue
        # A result keeps the original node, since the program's signature has results by name.
        for user in sorted(node.users, key=lambda user: user.op != "output")[1:]:
            with graph.inserting_after(node):
                twin = graph.node_copy(node)
            user.replace_input_with(node, twin)
            changed = True
    return changed


def constant_nodes(model: GraphModule) -> Set[Node]:
    """Return the constants of a graph and the nodes that depend only on constants."""
    found: set[Node] = set()
    for node in model.graph.nodes:
        sources = node.all_input_nodes
        if (node.op == "get_attr" and not is_state(node)) or (
            node.op == "call_function" and sources and found.issuperset(sources)
        ):
            found.add(node)
    return found


_aten = torch.ops.aten

NORMS = (_aten._native_batch_norm_legit_functional.default, _aten._native_batch_norm_legit.default)
"""The operators with running statistics that ``run_decompositions`` turns batch normalizations in training into."""

COUNTER = "num_batches_tracked"


def to_inference(module: GraphModule, with_dropout: bool = True) -> bool:
    """Change a graph in place for inference: batch normalizations use their running statistics, if they have any.
    With ``with_dropout``, dropouts are turned off too.

    Return whether the graph may compute other values than before. If so, it also no longer updates running statistics
    and counters of batches.
    """
    changed = False
    for node in list(module.graph.nodes):
        if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
            continue
        if node.target in NORMS:
            changed |= _to_running(module, node)
        elif node.target is _aten.native_dropout.default and with_dropout:
            changed |= node.args[2] is not False
            for user in list(node.users):
                if user.target is operator.getitem and user.args[1] == 0:
                    user.replace_all_uses_with(node.args[0])
                if not user.users:
                    module.graph.erase_node(user)
            if not node.users:  # as a random operator it is never dead
                module.graph.erase_node(node)
        elif with_dropout or node.target is _aten.batch_norm.default:
            changed |= _set_arguments(node)
    if changed:
        _drop_writes(module)
        module.graph.eliminate_dead_code()
        module.recompile()
    return changed


def _set_arguments(node: Node) -> bool:
    """Set the arguments of a call that select training, such as ``training`` and ``dropout_p``, to those of inference.

    Return whether the call may compute other values now. A batch normalization without running statistics stays as it is.
    """
    given = arguments_of(node)
    if "momentum" in given and given.get("running_mean") is None:
        return False  # the statistics of the batch are the only ones
    wanted: dict[str, Any] = {"train": False, "training": False, "use_input_stats": False, "dropout_p": 0.0}
    assert isinstance(node.target, torch._ops.OpOverload)
    changed = False
    for place, item in enumerate(node.target._schema.arguments):
        if item.name not in wanted or given[item.name] in (None, wanted[item.name]):
            continue
        # In a recurrent layer without dropout the flag changes nothing.
        changed |= given.get("dropout", 1.0) != 0.0
        if place < len(node.args):
            node.update_arg(place, wanted[item.name])
        else:
            node.update_kwarg(item.name, wanted[item.name])
    return changed


def _to_running(module: GraphModule, norm: Node) -> bool:
    given = arguments_of(norm)
    statistics = given["running_mean"], given["running_var"]
    if None in statistics:
        return False
    arguments = (
        given["input"],
        given["weight"],
        given["bias"],
        *statistics,
        False,
        given["momentum"],
        given["eps"],
        False,
    )
    result = add_call(module, norm, _aten.batch_norm.default, *arguments)
    kept = {0: result, 3: statistics[0], 4: statistics[1]}
    for user in list(norm.users):
        if user.target is operator.getitem and user.args[1] in kept:
            user.replace_all_uses_with(kept[user.args[1]])
    return True


def _drop_writes(module: GraphModule) -> None:
    """Remove the updates of ``num_batches_tracked``, and each copy of a tensor to itself."""
    for node in list(module.graph.nodes):
        if node.op != "call_function" or node.target not in (_aten.add_.Tensor, _aten.copy_.default):
            continue
        state, source = node.args[:2]
        counts = isinstance(state, Node) and str(state.target).rpartition(".")[2] == COUNTER
        if (counts or state is source) and not node.users:
            module.graph.erase_node(node)
