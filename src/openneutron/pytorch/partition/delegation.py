# SPDX-License-Identifier: BSD-3-Clause
"""Place each node of a program on the NPU or the CPU, state reason and cost of each CPU fallback, and match names of nodes.

A name in ``operators_not_to_delegate`` is one of:

* an operator with its overload (``aten.add.Tensor``) or without (``aten.add``). ``::`` may stand for ``.``, and in a compile spec ``_``.
  The operator that the user wrote counts too: ``aten.silu`` names every node that a SiLU became.
* the path of a module (``features.3``), for all operators in it.
* a function that the outermost forward calls, as summaries show it (``conv2d (net.py:28)``).
* a node of the graph (``aten_convolution_default_1``).

``*``, ``?`` and ``[...]`` are wildcards. A name without wildcards matches a whole name.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

import executorch.kernels.quantized  # noqa: F401  (registers the quantize and dequantize operators)
import torch
from executorch.exir.dialects.edge.op.api import SchemaKind, to_variant
from executorch.exir.tracer import _default_decomposition_table
from executorch.runtime import Runtime
from torch.fx import Graph, Node
from torch.fx.node import map_arg
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from openneutron.errors import InvalidModelError, InvalidOptionError
from openneutron.ir.graph import Fallback, OnCpu
from openneutron.pytorch.graph.program import (
    CASTS,
    GETITEM,
    Reject,
    call_of,
    is_compute,
    is_pointwise,
    is_quantize,
    model_name,
    module_path,
    op_name,
    overload_of,
    short_name,
    source_line,
    title,
    written,
)
from openneutron.pytorch.lower.units import Groups, components
from openneutron.pytorch.operators.families import LOWER_RULES

UNITS = "units"
"""``NodeOnCpu.rule`` of a node that stays on the CPU because it exchanges float values with another node on the CPU."""

COST = "cost"
"""``NodeOnCpu.rule`` of an operator that stays on the CPU because the NPU and the conversions around it would take longer."""


@dataclass(frozen=True, slots=True)
class NodeOnCpu(OnCpu):
    """A node that stays on the CPU, with the reason.

    operator: the operator that the user wrote, and in brackets the ATen operator that it became (``silu
    (aten.sigmoid)``). name: the node's name in messages (``model_name``). module: the path of its module, or "".
    overload: the ATen operator with its overload. rule: the lowering rule or the stage that refused the node.
    """

    node: str = ""
    module: str = ""
    overload: str = ""
    rule: str = ""


@dataclass(frozen=True, slots=True)
class NodeOnNpu:
    """A node on the NPU. ``partition`` is the number of its delegate call. ``computes`` is False for a node that
    neither computes nor moves values, such as a view."""

    operator: str
    name: str
    node: str
    partition: int
    computes: bool = True
    module: str = ""


@dataclass(frozen=True, slots=True)
class Delegation:
    """The placement of every operator of one method on the NPU or the CPU. Quantize and dequantize nodes are not listed.

    ``str`` counts only operators that compute. ``cpu_parts`` is the number of delegate calls of a CPU backend such as XNNPACK.
    ``has_islands`` states that ``cut_by_cost`` compared the times of a partition on the NPU and on the CPU, or would have.
    """

    on_npu: tuple[NodeOnNpu, ...] = ()
    on_cpu: tuple[NodeOnCpu, ...] = ()
    partitions: int = 0
    cpu_parts: int = 0
    has_islands: bool = False

    @property
    def cause(self) -> NodeOnCpu | None:
        """Return the first CPU operator that is there for a reason of its own, and not because of another CPU
        operator. If there is none, return the first CPU operator, or None without CPU operators."""
        return next((item for item in self.on_cpu if item.rule != UNITS), next(iter(self.on_cpu), None))

    def __add__(self, later: Delegation) -> Delegation:
        """Return the placement of the operators of ``self`` and of ``later``, such as those of one method before and
        after ExecuTorch decomposes it. The delegate calls of ``later`` get the numbers after those of ``self``."""
        moved = (replace(item, partition=item.partition + self.partitions) for item in later.on_npu)
        return Delegation(
            (*self.on_npu, *moved),
            (*self.on_cpu, *later.on_cpu),
            self.partitions + later.partitions,
            self.cpu_parts + later.cpu_parts,
            self.has_islands or later.has_islands,
        )

    def __str__(self) -> str:
        npu, cpu = (sum(item.computes for item in items) for items in (self.on_npu, self.on_cpu))
        head = f"{npu} of {npu + cpu} operators on the NPU, in {self.partitions} delegate call{'' if self.partitions == 1 else 's'}"
        return "\n".join([head, *(str(item) for item in self.on_cpu)])


def counts(node: Node) -> bool:
    """Return whether a node is an operator in the user's model. Nodes whose result is no tensor, such as a size, are
    not, and neither are ``getitem`` nodes."""
    value = node.meta.get("val")
    has_tensor = value is None or isinstance(value, (torch.Tensor, list, tuple))
    return op_name(node) != GETITEM and has_tensor


def computes(node: Node) -> bool:
    """Return whether a node computes or moves values. Views, identities and dropouts in eval mode do neither."""
    rule = LOWER_RULES.get(op_name(node))
    if rule is None or not rule.renames or not node.args or not isinstance(node.args[0], Node):
        return True
    before, after = (each.meta.get("val") for each in (node.args[0], node))
    return not isinstance(before, torch.Tensor) or not isinstance(after, torch.Tensor) or before.dtype != after.dtype


KINDS: Mapping[str, Sequence[str]] = {
    kind: names.split()
    for kind, names in {
        "convolution": "convolution",
        "linear layer": "addmm mm linear",
        "matrix product": "bmm matmul",
        "softmax": "_softmax _log_softmax softmax",
        "gelu": "gelu",
        "normalization": "native_layer_norm native_group_norm _native_batch_norm_legit_no_training layer_norm",
        "sum": "add sub mul div rsub maximum minimum clamp relu neg abs where eq ne lt le gt ge logical_and logical_or logical_not "
        "hardtanh leaky_relu full_like full floor ceil",
        "move": "permute_copy slice_copy expand_copy constant_pad_nd repeat _to_copy _to_dim_order_copy clone select_copy "
        "split_with_sizes_copy embedding index_select upsample_nearest2d flip",
        "join": "cat",
        "reduction": "mean sum amax amin max min argmax argmin var any prod",
        "pool": "max_pool2d_with_indices avg_pool2d max_pool2d",
        "bilinear resize": "upsample_bilinear2d",
        "index": "index gather scatter index_put scatter_add",
        "sort": "sort topk",
    }.items()
}
"""The kinds of work of CPU operators for the cost model, each with its ATen operators. Pointwise operators that are not listed are
functions."""

KIND_OF = {name: kind for kind, names in KINDS.items() for name in names}


def work_of(node: Node) -> tuple[str, int]:
    """Return the kind of an operator's work (``KINDS``) and its amount, or ("", 0) if they are unknown. The amount is
    in multiply-accumulates for convolutions and matrix products, and in values for other kinds."""
    name = op_name(node).removeprefix("aten.").partition(".")[0]
    kind = KIND_OF.get(name, "function" if is_pointwise(node) else "")
    source = next(iter(node.all_input_nodes), node)
    values, given = _elements(node), _elements(source)
    if not kind or not values:
        return "", 0
    if kind in ("convolution", "linear layer", "matrix product"):
        is_depthwise = (
            kind == "convolution" and len(node.args) > 8 and node.args[8] == _extent(node, 1) == _extent(source, 1)
        )
        return ("depthwise convolution" if is_depthwise else kind), macs(node)
    if kind == "pool":
        return kind, values * math.prod(_pair(node.args[1]))
    return kind, given if kind in ("reduction", "sort") else values


def _pair(extents: Any) -> Sequence[int]:
    return (extents, extents) if isinstance(extents, int) else tuple(extents)


def _elements(node: Node) -> int:
    value = node.meta.get("val")
    value = value[0] if isinstance(value, (list, tuple)) and value else value
    if not isinstance(value, torch.Tensor) or any(not isinstance(extent, int) for extent in value.shape):
        return 0
    return value.numel()


def _extent(node: Node, axis: int) -> int | None:
    value = node.meta.get("val")
    return int(value.shape[axis]) if isinstance(value, torch.Tensor) and value.dim() > axis else None


def on_cpu(node: Node, reject: Reject, fallback: Fallback | None = None) -> NodeOnCpu:
    module = module_path(node)
    kind, amount = work_of(node)
    hints = [reject.hint] if reject.hint else []
    if not has_cpu_kernel(node):
        hints.append("ExecuTorch has no kernel for it on the CPU either: the program won't load.")
    return NodeOnCpu(
        operator=title(node),
        name=model_name(node),
        reason=reject.reason,
        suggestion=" ".join(hints),
        line=source_line(node),
        written=written(node),
        call=call_of(node),
        fallback=fallback,
        node=node.name,
        module=module,
        overload=op_name(node),
        rule=reject.rule,
        macs=macs(node),
        computes=computes(node),
        converts=_converts_input(node),
        kind=kind,
        amount=amount,
    )


def _converts_input(node: Node) -> bool:
    """Return whether the node casts an input of the model to float32 and only quantize nodes read the result. The
    cast is an operator of ``CASTS``; a dequantize node does not count."""
    overload = overload_of(node)
    source = node.args[0] if node.args else None
    if overload is None or overload._schema.name not in CASTS or node.meta["val"].dtype != torch.float32:
        return False
    return isinstance(source, Node) and source.op == "placeholder" and all(map(is_quantize, node.users))


def on_cpu_state(buffer: Node, reject: Reject) -> NodeOnCpu:
    """Return the CPU entry of a buffer that the model updates and that ExecuTorch, not the NPU program, keeps between runs."""
    return NodeOnCpu(
        "buffer", buffer.name, reject.reason, reject.hint, node=buffer.name, rule=reject.rule, computes=False
    )


def on_npu(nodes: Iterable[Node], partition: int) -> list[NodeOnNpu]:
    return [
        NodeOnNpu(title(node), model_name(node), node.name, partition, computes(node), module_path(node))
        for node in nodes
        if counts(node)
    ]


def fallbacks(graph: Graph, partitions: Sequence[Iterable[Node]]) -> dict[Node, Fallback]:
    """Return for each call on the CPU what it costs that the call is not on the NPU. The result is empty if there are
    no CPU calls, or no partitions.

    CPU calls that are connected by values form an island. All calls of an island have the same cost, that of the
    whole island.
    """
    part_of = {node: number for number, nodes in enumerate(partitions) for node in nodes}
    on_cpu = [node for node in graph.nodes if node.op == "call_function" and node not in part_of]
    if not on_cpu or not part_of:
        return {}

    def beside(node: Node) -> list[Node]:
        near = (*node.all_input_nodes, *node.users)
        return [other for other in near if other.op == "call_function" and other not in part_of]

    groups = Groups(graph.nodes, lambda node: part_of.get(node, node))
    found: dict[Node, Fallback] = {}
    for island in components(on_cpu, beside):
        on_npu = {*part_of, *island}
        level = groups.levels(on_npu.__contains__)
        without = len({level[node] for node in on_npu})
        cost = Fallback(len(partitions), without, _bytes(island, part_of))
        found |= dict.fromkeys(island, cost)
    return found


def _bytes(island: Sequence[Node], part_of: Mapping[Node, int]) -> int:
    come = {source for node in island for source in node.all_input_nodes if source in part_of}
    go = [node for node in island if any(user in part_of for user in node.users)]
    return sum(_size(node) for node in (*come, *go))


def _size(node: Node) -> int:
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or any(not isinstance(extent, int) for extent in value.shape):
        return 0
    return value.numel() * value.element_size()


FLOPS_PER_MAC = 2
"""``torch.utils.flop_counter`` counts a multiplication and an addition as two operations."""


def macs(node: Node) -> int:
    """Return the multiply-accumulates of a convolution or matrix product. Return 0 for other operators and for symbolic shapes.

    ``node`` is in the ATen or the edge dialect. A composite operator (``aten.linear``) has the count of its decomposition in torch.
    """
    overload = overload_of(node)
    if overload is None:
        return 0
    formula = flop_registry.get(overload.overloadpacket)
    composite = overload._can_decompose()
    if formula is None and not composite:
        return 0
    result = node.meta.get("val")
    args, kwargs = map_arg((node.args, node.kwargs), lambda source: source.meta.get("val"))
    if any(_varies(value) for value in (result, *(source.meta.get("val") for source in node.all_input_nodes))):
        return 0
    flops = (
        formula(*args, **kwargs, out_val=result) if formula is not None else _flops_of_pieces(overload, args, kwargs)
    )
    return int(flops) // FLOPS_PER_MAC


def _varies(value: object) -> bool:
    """Return whether a value, or an item of a list of values, is no tensor or a tensor with symbolic extents."""
    values = value if isinstance(value, (list, tuple)) else (value,)
    return any(
        not isinstance(each, torch.Tensor) or any(not isinstance(extent, int) for extent in each.shape)
        for each in values
    )


def _flops_of_pieces(overload: torch._ops.OpOverload, args: Any, kwargs: Any) -> int:
    """Return the operations that torch counts while the operator runs, decomposed, on tensors without data."""

    def without_data(value: Any) -> Any:
        return torch.empty_like(value, device="meta") if isinstance(value, torch.Tensor) else value

    given, named = torch.utils._pytree.tree_map(without_data, (args, kwargs))
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        overload(*given, **named)
    return counter.get_total_flops()


_VIEWS = frozenset(("aten.view_copy.default", "aten.alias_copy.default", "aten._assert_scalar.default"))
"""Operators that ExecuTorch's memory planning or emission removes."""


def has_cpu_kernel(node: Node) -> bool:
    """Return whether a call can run on the CPU. Calls without an operator of a library (getitem, control flow, sizes)
    can, and so can calls that ExecuTorch removes from the program (``_VIEWS``)."""
    overload = overload_of(node)
    return overload is None or str(overload) in _VIEWS or has_kernel(overload)


@cache
def has_kernel(overload: torch._ops.OpOverload) -> bool:
    """Return whether ExecuTorch's runtime has a kernel for an operator. The result is also True for operators that
    return only lists of tensors or numbers, because the names of kernels do not show them."""
    if not any(isinstance(item.type, torch.TensorType) for item in overload._schema.returns):
        # The results are lists of tensors or numbers: ExecuTorch's emitter rejects the operators that it can't emit.
        return True
    schema = _out_schema(overload)
    if schema is None:
        return False
    name = f"{schema.name}.{schema.overload_name}" if schema.overload_name else schema.name
    return name in registered()


@cache
def _out_schema(overload: torch._ops.OpOverload) -> torch.FunctionSchema | None:
    """Return the schema of the operator's out variant, which ExecuTorch calls, or None if no out variant is registered."""
    try:
        return to_variant(overload, SchemaKind.out)._schema
    # ExecuTorch raises RuntimeErrors and AssertionErrors of several kinds for operators without an out variant.
    except Exception:
        return None


@cache
def decomposed() -> Container[Any]:
    """Return the operators that ExecuTorch decomposes."""
    return _default_decomposition_table().keys()


@cache
def registered() -> frozenset[str]:
    """Return the names of all kernels in ExecuTorch's runtime, such as ``aten::add.out``."""
    return frozenset(Runtime.get().operator_registry.operator_names)


NAMES_SHOWN = 4
"""The limit on operators that a message names."""


def check_kernels(program: Any, delegation: Delegation, name: str) -> None:
    """Check that ExecuTorch's runtime has a kernel for each operator that an emitted program calls outside of its
    delegates.

    Raises InvalidModelError if a kernel is missing, because the runtime would refuse to load the program. The message
    names each such operator with a layer that has it (``_in_words``). ``program`` is an
    ``executorch.exir.schema.Program``.
    """
    called = {
        f"{operator.name}.{operator.overload}" if operator.overload else operator.name
        for plan in program.execution_plan
        for operator in plan.operators
    }
    if lacking := sorted(called - registered()):
        _refuse([_in_words(operator, delegation) for operator in lacking], name)


def check_operators(graph: Graph, name: str) -> None:
    """Check a quantized ATen graph before anything is compiled: the runtime must have a kernel for each operator that
    certainly reaches the CPU unchanged.

    Such an operator has no lowering rule, ExecuTorch does not decompose it, and it is no pointwise function of one
    tensor, which may become a lookup table.

    Raises InvalidModelError as ``check_kernels`` does.
    """
    nodes = (node for node in graph.nodes if is_compute(node) and op_name(node) not in LOWER_RULES)
    if whole := list(filter(_stays_whole, nodes)):
        check_nodes(whole, name)


def check_nodes(nodes: Iterable[Node], name: str) -> None:
    """Check that the runtime has a kernel for each of these nodes, which stay on the CPU. Raises InvalidModelError as ``check_kernels``
    does."""
    lacking = {f"{short_name(node)} ('{model_name(node)}')": node for node in nodes if not has_cpu_kernel(node)}
    if lacking:
        overloads = filter(None, map(overload_of, lacking.values()))
        _refuse(list(lacking), name, can_be_written=all(_out_schema(overload) is not None for overload in overloads))


def _stays_whole(node: Node) -> bool:
    """Return whether an operator certainly reaches the runtime unchanged. It does not if ExecuTorch decomposes it, if
    it changes an operand in place or returns an alias of one (ExecuTorch replaces it by a variant that copies), or if
    it is a pointwise function of one operand, which may become a lookup table."""
    overload = overload_of(node)
    if overload is None or overload in decomposed():
        return False
    if overload._schema.is_mutable or any(item.alias_info is not None for item in overload._schema.returns):
        return False
    return not is_pointwise(node) or len(node.all_input_nodes) > 1


def _refuse(lacking: Sequence[str], name: str, can_be_written: bool = True) -> None:
    """Raise InvalidModelError because the runtime has no kernel for the operators ``lacking``.

    can_be_written: whether ExecuTorch can write a program that calls these operators.
    """
    shown = lacking[:NAMES_SHOWN]
    more = f" and {len(lacking) - NAMES_SHOWN} more" if len(lacking) > NAMES_SHOWN else ""
    raise InvalidModelError(
        f"'{name}': ExecuTorch's runtime has no kernel for {', '.join(shown)}{more}, on the CPU, and would not load the "
        f"program. Write that part of the model with other operators{ANY_RUNTIME if can_be_written else ''}."
    )


ANY_RUNTIME = (
    "; or pass DelegationOptions(any_runtime=True) (--any-runtime) for a .pte that runs where these kernels are"
)


def _in_words(operator: str, delegation: Delegation) -> str:
    """Return an operator for a message, with the name of one node on the CPU that calls it, such as ``aten.sort
    ('head')`` for ``aten::sort.values``.

    Return ``operator`` unchanged if no node on the CPU calls it.
    """
    packet = operator.partition(".")[0].replace("::", ".")
    node: NodeOnCpu | None = next((item for item in delegation.on_cpu if item.overload.startswith(f"{packet}.")), None)
    return operator if node is None else f"{packet} ('{node.name}')"


OPTION = "operators_not_to_delegate"

TAKEN_APART = {"aten.linear.default": ("aten.addmm.default", "aten.mm.default")}
"""Operators of the ATen graph that a CPU backend may decompose, with the operators that they become. Patterns match both."""

NEAREST, LIKENESS = 2, 0.7


def names_of(node: Node, edge_name: str | None = None) -> set[str]:
    """Return all names under which patterns can match a node. edge_name: the name of the node in the edge program."""
    return {edge_name or node.name, model_name(node), *_operators_of(node), *_modules_of(node)}


def matching(node: Node, patterns: Sequence[str], edge_name: str | None = None) -> str | None:
    """Return the first pattern that matches the node, or None. edge_name: see ``names_of``."""
    names = names_of(node, edge_name) if patterns else ()
    return next((pattern for pattern in patterns if _matches(pattern, names)), None)


def check_names(patterns: Sequence[str], graphs: Iterable[Graph], more: Iterable[str] = ()) -> None:
    """Raise InvalidOptionError for a pattern that matches no node of the graphs (and none of ``more``)."""
    if not patterns:
        return
    nodes = [node for graph in graphs for node in graph.nodes if is_compute(node)]
    there = {name for node in nodes for name in names_of(node)} | set(more)
    for pattern in patterns:
        if _matches(pattern, there):
            continue
        near = _nearest(pattern, nodes)
        hint = f" Did you mean {' or '.join(repr(name) for name in near)}?" if near else ""
        raise InvalidOptionError(f"{OPTION}: '{pattern}' names no operator, node or module of the model.{hint}")


def _nearest(pattern: str, nodes: Sequence[Node]) -> list[str]:
    """Return at most ``NEAREST`` names of the model that are similar to an unknown name, best first."""
    own = {name for node in nodes for name in (node.name, model_name(node))} | {
        path for node in nodes for path in _modules_of(node)
    }
    own |= {
        base for node in nodes for base in (_base(op_name(node)), f"aten.{written(node)}") if not base.endswith(".")
    }
    return difflib.get_close_matches(pattern, sorted(own), NEAREST, LIKENESS)


def _base(name: str) -> str:
    return ".".join(name.split(".")[:2])


def _matches(pattern: str, names: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for name in names)


def _operators_of(node: Node) -> Iterable[str]:
    for name in (op_name(node), *TAKEN_APART.get(op_name(node), ())):
        yield from _forms(name)
    if said := written(node):
        for overload in {"default", *_overloads(said)}:
            yield from _forms(f"aten.{said}.{overload}")


def _overloads(name: str) -> Iterable[str]:
    """Return the names of the overloads of an ATen operator, or () if there is no such operator."""
    packet = getattr(torch.ops.aten, name, None)
    return packet.overloads() if isinstance(packet, torch._ops.OpOverloadPacket) else ()


def _forms(name: str) -> Iterable[str]:
    """Yield the forms in which a user may write an operator's name in a pattern: ``aten.view_copy.default``,
    ``aten.view_copy`` and ``aten.view``. Each form is also yielded with ``_`` for the first dot, because a compile
    spec turns ``aten::view`` into ``aten_view``."""
    parts = name.split(".")
    if len(parts) < 2:
        return
    base = ".".join(parts[:2])
    for form in (name, base, base.removesuffix("_copy")):
        yield form
        yield form.replace(".", "_", 1)


def _modules_of(node: Node) -> Iterable[str]:
    path = module_path(node)
    while path:
        yield path
        path = path.rpartition(".")[0]


def of_stages(found: Delegation) -> Delegation:
    """Return the delegation with a new reason for CPU operators of the steps after the network: these steps are computed in float."""
    reason = "it is a step after the network's results, which is computed in float"
    return replace(
        found,
        on_cpu=tuple(
            replace(item, reason=reason, suggestion="") if item.module.startswith("later.") else item
            for item in found.on_cpu
        ),
    )
