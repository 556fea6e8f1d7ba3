# SPDX-License-Identifier: BSD-3-Clause
"""Rewrite an exported graph to plain out-of-place calls, casts and moves, so that later passes have one form of each."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg
from torch.fx.passes.infra.pass_base import PassResult

from openneutron.pytorch.graph.program import WRITTEN_AS, arguments_of, is_functional
from openneutron.pytorch.graph.rewriting import (
    NodePass,
    add_call,
    add_constant,
    aliases,
    constant_of,
    finished,
    held_by,
    replace,
)
from openneutron.pytorch.operators.annotations import BYTES_AND_WORDS, annotation_rules

_aten = torch.ops.aten


Call: TypeAlias = tuple[Any, tuple[Any, ...]]
"""An operator and its arguments."""

Form: TypeAlias = Callable[[dict[str, Any]], Call | None]
"""A function that maps the arguments of a call to another call with the same result, or to None if there is no such call."""


def _form(target: Any, *arguments: object) -> Form:
    """Return a ``Form`` that calls ``target`` with these arguments. A string names an argument of the original call; other items are
    values."""
    return lambda given: (target, tuple(given[item] if isinstance(item, str) else item for item in arguments))


def _convolution(given: dict[str, Any]) -> Call | None:
    data = (given["input"], given["weight"], given["bias"])
    window = (given["stride"], given["padding"])
    axes = given["weight"].meta["val"].dim() - 2
    if not 1 <= axes <= 3:
        return None
    # Views of a signal as an image have one number for two axes.
    if any(len(each) != axes for each in (*window, given["dilation"])):
        return None
    if given["transposed"]:
        target = (_aten.conv_transpose1d.default, _aten.conv_transpose2d.input, _aten.conv_transpose3d.input)[axes - 1]
        return target, (*data, *window, given["output_padding"], given["groups"], given["dilation"])
    target = (_aten.conv1d.default, _aten.conv2d.default, _aten.conv3d.default)[axes - 1]
    return target, (*data, *window, given["dilation"], given["groups"])


def _linear(given: dict[str, Any]) -> Call | None:
    if given.get("beta", 1) != 1 or given.get("alpha", 1) != 1:
        return None
    data, bias = given.get("mat1", given["self"]), given["self"] if "mat1" in given else None
    weight = given["mat2"].args[0] if _is_transposed(given["mat2"]) else None
    if weight is None or (bias is not None and bias.meta["val"].dim() != 1):
        return None
    return _aten.linear.default, (data, weight, bias)


def _is_transposed(node: object) -> bool:
    if not isinstance(node, Node) or node.op != "call_function":
        return False
    exchanged = {_aten.t.default: (), _aten.permute.default: ([1, 0],), _aten.transpose.int: (0, 1)}.get(node.target)
    return exchanged is not None and tuple(map(_plain, node.args[1:])) == exchanged


def _plain(item: object) -> object:
    return list(item) if isinstance(item, (list, tuple)) else item


def _softmax(target: Any) -> Form:
    return lambda given: None if given["half_to_float"] else (target, (given["self"], given["dim"]))


_FORMS: dict[object, Form] = {
    _aten.convolution.default: _convolution,
    _aten.addmm.default: _linear,
    _aten.mm.default: _linear,
    _aten._softmax.default: _softmax(_aten.softmax.int),
    _aten._log_softmax.default: _softmax(_aten.log_softmax.int),
    _aten._adaptive_avg_pool2d.default: _form(_aten.adaptive_avg_pool2d.default, "self", "output_size"),
}

_FIRST_RESULTS: dict[object, Form] = {
    _aten._native_batch_norm_legit_no_training.default: _form(
        *(_aten.batch_norm.default, "input", "weight", "bias", "running_mean", "running_var"),
        *(False, "momentum", "eps", False),
    ),
    _aten._native_batch_norm_legit.no_stats: _form(
        *(_aten.batch_norm.default, "input", "weight", "bias", None, None, True, "momentum", "eps", False)
    ),
    _aten.native_layer_norm.default: _form(
        *(_aten.layer_norm.default, "input", "normalized_shape", "weight", "bias", "eps", False)
    ),
    _aten.native_group_norm.default: _form(_aten.group_norm.default, "input", "group", "weight", "bias", "eps", False),
    _aten.max_pool2d_with_indices.default: _form(
        *(_aten.max_pool2d.default, "self", "kernel_size", "stride", "padding", "dilation", "ceil_mode")
    ),
}
"""Forms for operators with several results. The other call computes only the first result."""


@dataclass(frozen=True, slots=True)
class Recompose(NodePass):
    """Rewrite the operators of a Core ATen decomposition as one call of the operator that was decomposed."""

    targets = (*_FORMS, *_FIRST_RESULTS)

    def rewrite(self, module: GraphModule, node: Node) -> bool:
        results = [node]
        if node.target in _FIRST_RESULTS:
            results = [user for user in node.users if user.users]
            if not all(user.target is operator.getitem and user.args[1] == 0 for user in results):
                return False
        call = (_FORMS | _FIRST_RESULTS)[node.target](arguments_of(node))
        if call is None:
            return False
        made = add_call(module, node, call[0], *call[1])
        for result in results:
            result.replace_all_uses_with(made)
        return True


WRAPPERS = {
    "wrap_with_set_grad_enabled": (1, 2),
    "wrap_with_autocast": (4, 5),
    "wrap": (0, 1),
    "tag_activation_checkpoint": (0, 1),
    "invoke_subgraph": (0, 2),
}
"""The argument indices of a wrapper's body and of the first tensor for the body."""

AUTOCAST_ENABLED = 2
"""The index of the flag ``enabled`` among the arguments of autocast."""


@dataclass(frozen=True, slots=True)
class InlineWrappers:
    """Inline the bodies of wrappers that change no value: ``torch.no_grad()``, disabled autocast, checkpoints.

    For example, the rotary embeddings of Hugging Face's language models are computed under ``torch.no_grad()``, from
    constants only.

    Enabled autocast stays, because it changes the types of the results.

    training: a body of ``torch.no_grad()`` that reads a tensor stays too, because it must not be trained.
    """

    training: bool = False

    def __call__(self, module: GraphModule) -> PassResult:
        changed = False
        wrappers = [node for node in module.graph.nodes if isinstance(node.target, torch._ops.HigherOrderOperator)]
        waiting = [node for node in wrappers if self._is_inlined(module, node)]
        while waiting:
            copies = _inline(module, waiting.pop())
            waiting += [node for node in copies if self._is_inlined(module, node)]
            changed = True
        result = finished(module, changed)
        if changed:
            read = {str(node.target).split(".")[0] for node in module.graph.find_nodes(op="get_attr")}
            for name, child in list(module.named_children()):
                if isinstance(child, GraphModule) and name not in read:
                    module.delete_submodule(name)
        return result

    def _is_inlined(self, module: GraphModule, node: Node) -> bool:
        if node.op != "call_function" or not isinstance(node.target, torch._ops.HigherOrderOperator):
            return False
        name = node.target.name()
        if name not in WRAPPERS or _body(module, node) is None or node.kwargs:
            return False
        if name == "wrap_with_autocast":
            return not node.args[AUTOCAST_ENABLED]
        operands = node.args[WRAPPERS[name][1] :]
        return not (self.training and name == "wrap_with_set_grad_enabled" and not node.args[0] and operands)


def _body(module: GraphModule, node: Node) -> GraphModule | None:
    assert isinstance(node.target, torch._ops.HigherOrderOperator)
    body = node.args[WRAPPERS[node.target.name()][0]]
    if not isinstance(body, Node) or body.op != "get_attr":
        return None
    found = held_by(module, body)
    return found if isinstance(found, GraphModule) else None


def _inline(module: GraphModule, node: Node) -> list[Node]:
    """Replace the wrapper by copies of its body's nodes, and return the copies."""
    body = _body(module, node)
    assert body is not None and isinstance(node.target, torch._ops.HigherOrderOperator)
    place, first = WRAPPERS[node.target.name()]
    path = str(node.args[place].target)
    operands = iter(node.args[first:])
    made: dict[Node, Any] = {}
    results: Sequence[Any] = ()
    for inner in body.graph.nodes:
        if inner.op == "placeholder":
            made[inner] = next(operands)
        elif inner.op == "output":
            results = map_arg(inner.args[0], made.__getitem__)
        elif inner.op == "get_attr" and isinstance(value := held_by(body, inner), torch.Tensor):
            made[inner] = add_constant(module, node, f"{path}_{inner.target}", value)
            made[inner].meta = dict(inner.meta)
        else:
            with module.graph.inserting_before(node):
                made[inner] = module.graph.node_copy(inner, made.__getitem__)
            if inner.op == "get_attr":
                made[inner].target = f"{path}.{inner.target}"
    replace(node, results)
    return [copy for inner, copy in made.items() if inner.op == "call_function"]


@dataclass(frozen=True, slots=True)
class MakeFunctional:
    """Rewrite ``x.relu_()`` to ``x.relu()``, for every operator that has an in-place and an out-of-place form.

    An operator stays if another view of the memory of ``x`` is read later, because that reader must see the new
    values. It also stays if ``x`` is a buffer or parameter of the model, or a view of one.
    """

    def __call__(self, module: GraphModule) -> PassResult:
        calls = [node for node in module.graph.nodes if node.op == "call_function"]
        return PassResult(module, not all(map(is_functional, calls)) and _make_functional(module))


def _make_functional(module: GraphModule) -> bool:
    places = {node: place for place, node in enumerate(module.graph.nodes)}
    changed = False
    for node in list(module.graph.nodes):
        functional = _functional_form(node)
        if functional is None or not isinstance(node.args[0], Node):
            continue
        target = node.args[0]
        shared = aliases(target, node)
        if any(alias.op == "get_attr" for alias in shared):
            continue
        others = shared - {target}
        if any(places.get(user, 0) > places[node] for alias in others for user in alias.users):
            continue
        for user in list(target.users):
            if places.get(user, 0) > places[node]:
                user.replace_input_with(target, node)
        node.target = functional
        changed = True
    if changed:
        module.recompile()
    return changed


def _functional_form(node: Node) -> torch._ops.OpOverload | None:
    """Return the out-of-place overload with the same arguments, if ``node`` is an in-place ATen call on its first argument."""
    overload = node.target
    if node.op != "call_function" or not isinstance(overload, torch._ops.OpOverload) or overload.namespace != "aten":
        return None
    name = overload._schema.name.removeprefix("aten::")
    if not name.endswith("_") or name.startswith("_") or not overload._schema.is_mutable:
        return None
    packet = getattr(torch.ops.aten, name[:-1], None)
    return getattr(packet, overload._overloadname, None) if packet is not None else None


_ASSERTIONS = (_aten._assert_tensor_metadata.default, _aten._assert_async.default, _aten._assert_async.msg)
"""Assertions on types and layouts, and on values; ExecuTorch's runtime has no kernels for them."""


_CONVERSIONS = (_aten.to.dtype, _aten.to.dtype_layout, _aten.to.device, _aten.type_as.default)


@dataclass(frozen=True, slots=True)
class PlainCasts(NodePass):
    """Rewrite ``x.to(...)`` and ``x.type_as(y)`` to ``_to_copy``, which only casts, and remove assertions.

    A device or a layout in ``x.to`` is dropped. If x already has the type, the call is removed, unless it asks for a
    copy or a memory format. Export adds assertions on types and layouts to such calls. They always hold in a graph
    with fixed types. Assertions on values are removed too, because ExecuTorch's runtime has no kernels for
    assertions.
    """

    targets = (*_ASSERTIONS, *_CONVERSIONS)

    def rewrite(self, module: GraphModule, node: Node) -> bool:
        if node.target in _ASSERTIONS:
            module.graph.erase_node(node)
            return True
        source = node.args[0]
        assert isinstance(source, Node)
        if node.meta["val"].dtype != source.meta["val"].dtype:
            node.target, node.args = _aten._to_copy.default, (source,)
            node.kwargs = {"dtype": node.meta["val"].dtype}
            return True
        given = arguments_of(node)
        if given.get("copy") or given.get("memory_format") is not None:
            return False
        return replace(node, source)


@dataclass(frozen=True, slots=True)
class StatedConversions(NodePass):
    """Insert a conversion to float for each integer or boolean operand of float arithmetic.

    Without the conversion, PyTorch promotes the operands inside of the operator. A separate conversion of a constant can be folded, and one
    of an input can be delegated.
    """

    targets = frozenset(
        (
            *(
                getattr(_aten, name).Tensor
                for name in ("add", "sub", "mul", "div", "rsub", "eq", "ne", "lt", "le", "gt", "ge")
            ),
            *(getattr(_aten, name).default for name in ("maximum", "minimum", "atan2")),
            _aten.pow.Tensor_Tensor,
        )
    )

    def rewrite(self, module: GraphModule, node: Node) -> bool:
        operands = [item for item in node.args[:2] if isinstance(item, Node)]
        types = {item: item.meta["val"].dtype for item in operands if isinstance(item.meta.get("val"), torch.Tensor)}
        if len(types) < len(set(operands)) or not _is_float_arithmetic(node, types.values()):
            return False
        converted = [item for item, dtype in types.items() if not dtype.is_floating_point]
        for item in converted:
            node.replace_input_with(item, _as_float(module, node, item))
        return bool(converted)


def _is_float_arithmetic(node: Node, types: Collection[torch.dtype]) -> bool:
    """Return whether the operator computes on float32: its result is float32, or an operand of a comparison is."""
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and torch.float32 in (value.dtype, *types)


def _as_float(module: GraphModule, before: Node, source: Node) -> Node:
    """Return a conversion of integers or booleans to float32 in front of a call."""
    with module.graph.inserting_before(before):
        node = module.graph.call_function(_aten._to_copy.default, (source,), {"dtype": torch.float32})
    node.meta = {**before.meta, "val": source.meta["val"].to(torch.float32)}
    return node


@dataclass(frozen=True, slots=True)
class EarlyConversions(NodePass):
    """Convert integers to float before their elements are moved: ``x.permute(...).float()`` becomes
    ``x.float().permute(...)``.

    The values that are moved are then quantized, so that the NPU can move them.
    """

    targets = (_aten._to_copy.default,)

    def rewrite(self, module: GraphModule, node: Node) -> bool:
        changed = False
        while (move := _move_behind(module, node)) is not None:
            (source,) = move.all_input_nodes
            early = _as_float(module, move, source)
            late = add_call(module, node, move.target, early, *move.args[1:])
            replace(node, late)
            node, changed = early, True
        return changed


def _move_behind(module: GraphModule, node: Node) -> Node | None:
    """Return the node that moves the integers that ``node`` converts to float32, or None if no node moves them."""
    move = node.args[0]
    if not isinstance(move, Node) or move.op != "call_function" or node.meta["val"].dtype != torch.float32:
        return None
    if (
        move.meta["val"].dtype not in (*BYTES_AND_WORDS, torch.int32, torch.int64)
        or move.kwargs
        or len(move.all_input_nodes) != 1
    ):
        return None
    rule = annotation_rules().get(str(move.target))
    is_move = rule is not None and rule.is_shared(move) and rule.data == (0,) and isinstance(move.args[0], Node)
    return move if is_move and constant_of(module, move.args[0]) is None else None


_CASTS = (_aten._to_copy.default, _aten.to.dtype)


@dataclass(frozen=True, slots=True)
class CastRows(NodePass):
    """Cast a constant embedding table instead of the rows that are looked up in it, and remove casts of booleans
    through integers.

    Rewrite ``embedding(table, index).to(dtype)`` to ``embedding(table.to(dtype), index)`` if the table is a constant,
    and ``mask.to(integer).to(float)`` to ``mask.to(float)`` for a boolean mask. For example, one-hot vectors of
    positions in float then need one lookup and no cast.
    """

    targets = _CASTS

    def rewrite(self, module: GraphModule, node: Node) -> bool:
        source = node.args[0]
        if not isinstance(source, Node) or not isinstance(node.meta.get("val"), torch.Tensor):
            return False
        if source.target is _aten.embedding.default:
            return _cast_table(module, node, source)
        if not _is_cast_boolean(source) or not node.meta["val"].is_floating_point():
            return False
        (boolean,) = source.all_input_nodes
        node.replace_input_with(source, boolean)
        return True


def _cast_table(module: GraphModule, node: Node, lookup: Node) -> bool:
    table = constant_of(module, lookup.args[0])
    if table is None or len(lookup.args) != 2 or lookup.kwargs:
        return False
    cast = add_constant(module, node, f"{lookup.name}_rows", table.to(node.meta["val"].dtype))
    rows = add_call(module, node, _aten.embedding.default, cast, lookup.args[1])
    node.replace_all_uses_with(rows)
    return True


def _is_cast_boolean(node: Node) -> bool:
    if node.target not in _CASTS or not isinstance(node.args[0], Node):
        return False
    before, here = (item.meta["val"].dtype for item in (node.args[0], node))
    return before == torch.bool and not here.is_floating_point and here != torch.bool


@dataclass(frozen=True, slots=True)
class PlainMoves(NodePass):
    """Rewrite ``transpose`` and ``t`` to ``permute``, and ``squeeze`` of one axis to ``squeeze`` of a list of axes.

    ExecuTorch then has no need to decompose the program again.
    """

    targets = (_aten.transpose.int, _aten.t.default, _aten.squeeze.dim)

    def rewrite(self, module: GraphModule, node: Node) -> bool:
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor) or node.kwargs:
            return False
        if node.target is _aten.squeeze.dim:
            node.target, node.args = _aten.squeeze.dims, (node.args[0], [node.args[1]])
            return True
        order: list[Any] = list(range(value.dim()))
        if order:
            one, other = node.args[1:] if len(node.args) == 3 else (0, -1)
            order[one], order[other] = order[other], order[one]
        node.target, node.args = _aten.permute.default, (node.args[0], order)
        return True


_AXES: dict[object, int] = {
    _aten.conv1d.default: 1,
    _aten.conv1d.padding: 1,
    _aten.conv2d.default: 2,
    _aten.conv2d.padding: 2,
    _aten.conv_transpose1d.default: 1,
    _aten.conv_transpose2d.input: 2,
}


@dataclass(frozen=True, slots=True)
class Batches(NodePass):
    """Rewrite a convolution whose input has no batch axis to a convolution of a batch of one."""

    targets = _AXES

    def rewrite(self, module: GraphModule, node: Node) -> bool:
        data, *others = arguments_of(node).values()
        if data.meta["val"].dim() != _AXES[node.target] + 1:
            return False
        assert isinstance(node.target, torch._ops.OpOverload)
        batch = add_call(module, node, _aten.unsqueeze.default, data, 0)
        layer = add_call(module, node, node.target, batch, *others)
        result = add_call(module, node, _aten.squeeze.dim, layer, 0)
        for made in (batch, layer, result):
            notes = node.meta.get("custom", {})
            made.meta["custom"] = {**notes, WRITTEN_AS: notes.get(WRITTEN_AS, str(node.target))}
        return replace(node, result)


_BROADCASTING = frozenset(
    (
        _aten.add.Tensor,
        _aten.sub.Tensor,
        _aten.mul.Tensor,
        _aten.div.Tensor,
        _aten.maximum.default,
        _aten.minimum.default,
    )
)


@dataclass(frozen=True, slots=True)
class DropExpands(NodePass):
    """Rewrite ``x * y.expand_as(x)`` to ``x * y``, if the shape of the result does not change."""

    targets = (_aten.expand.default,)

    def rewrite(self, module: GraphModule, node: Node) -> bool:
        source = node.args[0]
        assert isinstance(source, Node)
        readers = [user for user in node.users if broadcasts(user, node, source.meta["val"].shape)]
        for user in readers:
            user.args = (*(source if item is node else item for item in user.args[:2]), *user.args[2:])
        return bool(readers)


def broadcasts(user: Node, operand: Node, shape: Sequence[int]) -> bool:
    """Return whether ``user`` has the same result if ``operand`` has a smaller shape that broadcasts to its present shape."""
    if user.target not in _BROADCASTING or len(user.args) < 2:
        return False
    tensors = [item for item in user.args[:2] if isinstance(item, Node) and isinstance(item.meta.get("val"), Tensor)]
    shapes = [shape if item is operand else item.meta["val"].shape for item in tensors]
    if not all(isinstance(extent, int) for one in shapes for extent in one):
        return False
    return bool(torch.broadcast_shapes(*shapes) == user.meta["val"].shape)
