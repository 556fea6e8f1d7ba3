# SPDX-License-Identifier: BSD-3-Clause
"""Find values for which int8 has too few steps.

States that a recurrence carries, states of recurrent layers, and powers become int16. Positions for an operator on the CPU stay float.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

import torch
from torch.fx import GraphModule, Node
from torchao.quantization.pt2e.quantizer import (
    FixedQParamsQuantizationSpec,
    QuantizationAnnotation,
    SharedQuantizationSpec,
)
from torchao.quantization.pt2e.quantizer.quantizer import Q_ANNOTATION_KEY, QuantizationSpecBase

from openneutron.ops.reductions import MOST_NORMALIZED
from openneutron.pytorch.graph.program import (
    STAYS_WHOLE,
    Change,
    Region,
    find_regions,
    is_move,
    is_pointwise,
    jumps,
    short_name,
)
from openneutron.pytorch.graph.rewriting import constant_of, number_of, results_of
from openneutron.pytorch.operators.annotations import MOVES, Kept, argument
from openneutron.pytorch.quantizer.specs import Place, fixed_spec, is_float, owner_of, root_spec, spec_at


def annotate_results(node: Node, kept: Kept) -> None:
    """Annotate the results of a call that also returns its state, such as an LSTM.

    The quantization spec of the call moves to the first result that is read. The other results share that spec, and the state is int16 with
    a fixed scale.
    """
    annotation = node.meta[Q_ANNOTATION_KEY]
    output, annotation.output_qspec = annotation.output_qspec, None
    wide = fixed_spec(kept.scale(node), 0, torch.int16) if output is not None else None
    state, first = argument(node, kept.argument), kept.beside(node)
    if isinstance(state, Node):
        annotation.input_qspec_map[state] = wide
    shared = output if output is None or isinstance(output, SharedQuantizationSpec) else SharedQuantizationSpec(first)
    for place, results in results_of(node).items():
        for result in results:
            spec = wide if place == kept.result else output if result is first else shared
            result.meta[Q_ANNOTATION_KEY] = QuantizationAnnotation({}, spec, _annotated=True)


def share_states(model: GraphModule) -> None:
    """Annotate each buffer that the model updates: its old and its new value get the same quantization, so that the
    buffer can be kept as integers.

    If operators fix two different quantizations, each value keeps its own.
    """
    order = {node: place for place, node in enumerate(model.graph.nodes)}
    for write in model.graph.find_nodes(op="call_function", target=torch.ops.aten.copy_.default):
        state, source = write.args[:2]
        if not isinstance(state, Node) or state.op != "get_attr" or not isinstance(source, Node):
            continue
        value: Place = source if spec_at((source, write)) is None else (source, write)
        # In the order of the graph: torchao recurses without end if a read shares the spec of a read that itself shares one.
        users = sorted(state.users, key=order.__getitem__)
        reads: list[tuple[Node, Node]] = [(state, user) for user in users if spec_at((state, user)) is not None]
        if reads and root_spec(source)[1] is None and Q_ANNOTATION_KEY not in write.meta:
            write.meta[Q_ANNOTATION_KEY] = QuantizationAnnotation(
                {value: SharedQuantizationSpec(reads[0])}, _annotated=True
            )
        for read in reads:
            _join(read, value, order)


def _join(one: Place, other: Place, order: Mapping[Node, int]) -> None:
    """Make two tensors share one quantization spec. The tensor that comes later in the graph shares the spec of the earlier one.

    If only the later spec is fixed, the earlier tensor shares it instead. Two fixed specs stay.
    """
    (first, spec), (second, other_spec) = sorted(
        (root_spec(one), root_spec(other)), key=lambda each: order[owner_of(each[0])]
    )
    if first == second or spec is None or other_spec is None:
        return
    if not isinstance(other_spec, FixedQParamsQuantizationSpec):
        _set_spec(second, SharedQuantizationSpec(first))
    elif not isinstance(spec, FixedQParamsQuantizationSpec):
        _set_spec(first, other_spec)


def _set_spec(place: Place, spec: QuantizationSpecBase) -> None:
    annotation = owner_of(place).meta[Q_ANNOTATION_KEY]
    if isinstance(place, Node):
        annotation.output_qspec = spec
    else:
        annotation.input_qspec_map[place[0]] = spec


READERS = {
    "aten.grid_sampler.default": 1,
    "aten.grid_sampler_2d.default": 1,
    "aten.grid_sampler_3d.default": 1,
    "torchvision.deform_conv2d.default": 2,
    "torchvision.roi_align.default": 1,
    "torchvision.roi_pool.default": 1,
}
"""Operators on the CPU that read positions, with the index of that argument. A step of an int8 position could be several pixels."""

MOST_COORDINATES = 4
"""The limit on the number of terms of a product or sum that counts as arithmetic on positions, such as an affine map."""

_PRODUCTS = ("aten.matmul.default", "aten.bmm.default", "aten.mm.default", "aten.linear.default")
_SUMS = ("aten.sum.dim_IntList", "aten.mean.dim")


def leave_positions_float(module: GraphModule, constants: Set[Node]) -> Set[Node]:
    """Return the nodes that stay float because they only compute positions, such as sampling points, for the CPU
    operators of ``READERS``.

    These are pointwise operators, operators that move values, and products and sums of few terms. The layer whose
    result they start from is not among them. The reason is stored in each node's ``meta`` (``STAYS_WHOLE``).
    """
    found: dict[Node, Node] = {}
    for node in reversed(module.graph.nodes):
        if node.op != "call_function" or node in constants or not is_float(node) or not node.users:
            continue
        readers = [_reader(user, node, found) for user in node.users]
        first = readers[0]
        if first is None or None in readers or not _is_arithmetic(node):
            continue
        found[node] = first
        why = (f"it computes positions for {short_name(first)} on the CPU, for which int8 has too few steps", "")
        node.meta["custom"] = {**node.meta.get("custom", {}), STAYS_WHOLE: why}
    return found.keys()


def _reader(user: Node, node: Node, found: dict[Node, Node]) -> Node | None:
    """Return the operator of ``READERS`` that gets positions from ``node`` through ``user``, or that ``user`` is.
    Return None if ``user`` reads the value for anything else."""
    if user in found:
        return found[user]
    place = READERS.get(str(user.target))
    return user if place is not None and argument(user, place) is node and user.args.count(node) == 1 else None


def _is_arithmetic(node: Node) -> bool:
    if is_pointwise(node) or str(node.target) in MOVES:
        return True
    if str(node.target) not in (*_PRODUCTS, *_SUMS) or not isinstance(node.args[0], Node):
        return False
    data, value = node.args[0].meta["val"], node.meta["val"]
    count = data.shape[-1] if str(node.target) in _PRODUCTS else data.numel() // max(value.numel(), 1)
    return bool(count <= MOST_COORDINATES)


_aten = torch.ops.aten

_POWERS = (_aten.pow.Tensor_Scalar, _aten.pow.Tensor_Tensor)

_ROOTS = (
    _aten.sqrt.default,
    _aten.rsqrt.default,
    _aten.log.default,
    _aten.log2.default,
    _aten.log10.default,
)
WIDENING = frozenset((*_ROOTS, *_POWERS))
"""Roots, logarithms and powers. A model without any of these operators has no sums of powers that must become int16."""

_MEANS_AND_SUMS = (
    _aten.mean.dim,
    _aten.mean.default,
    _aten.sum.dim_IntList,
    _aten.sum.default,
    _aten.avg_pool2d.default,
    _aten.add.Tensor,
)

_WEIGHTED_SUMS = (_aten.conv1d.default, _aten.conv2d.default)

MOST_TERMS = MOST_NORMALIZED
"""The limit on terms of a sum of powers that becomes int16.

Longer sums, such as those of decomposed normalizations, stay int8: the rounding errors of many terms average out.
"""


@dataclass(frozen=True, slots=True)
class WidePowers:
    """The nodes that become int16 because they compute sums of powers for a root or a logarithm.

    ``nodes`` has all of them. ``sums`` are those that add the powers, or move such sums. ``ends`` are the last nodes
    of the pointwise functions that take the root or logarithm; their results are int8.
    """

    nodes: Set[Node] = frozenset()
    sums: Set[Node] = frozenset()
    ends: Set[Node] = frozenset()

    def rescales(self, node: Node) -> bool:
        """Return whether a node is a sum of powers with a scale of its own. An average pool that is no such sum shares the scale of its
        input."""
        return node in self.sums and node.target in _MEANS_AND_SUMS

    def having(self, states: Set[Node]) -> WidePowers:
        """Return these nodes together with the nodes of carried states."""
        return replace(self, nodes=self.nodes | states) if states else self


NOTHING_WIDE = WidePowers()


def find_wide_powers(
    module: GraphModule, nodes: Sequence[Node], runs_inside: Callable[[Node], Node | None]
) -> WidePowers:
    """Return the nodes that compute roots or logarithms of sums of powers: the powers, the sums, and the pointwise
    functions that read the sums.

    nodes: the nodes that may be quantized, in execution order. runs_inside: as in ``find_regions``.
    """

    def exponent(node: Node) -> float | None:
        return number_of(module, node.args[1]) if node.target in _POWERS else None

    def is_power(node: Node) -> bool:
        is_product = node.target is _aten.mul.Tensor and node.args[0] is node.args[1]
        return is_product or node.target is _aten.square.default or (exponent(node) or 0.0) > 1

    def is_root(node: Node) -> bool:
        return node.target in _ROOTS or 0 < abs(exponent(node) or 1.0) < 1

    found: set[Node] = set()
    sums: set[Node] = set()
    ends: set[Node] = set()
    free = set(nodes)
    regions = find_regions(nodes, lambda node: number_of(module, node) is not None, runs_inside)
    by_end = {region.end: region for region in regions}
    for region in regions:
        if any(map(is_root, region.nodes)) and not any(map(jumps, region.nodes)):
            behind = _powers_behind(module, region.root, free, by_end, is_power)
            if behind is not None and not any(_is_result(node) or jumps(node) for node in behind.nodes):
                found |= {*region.nodes, *behind.nodes}
                sums |= behind.sums
                ends.add(region.end)
    return WidePowers(found, sums, ends)


def _is_result(node: Node) -> bool:
    return any(user.op == "output" for user in node.users)


def _terms_of(module: GraphModule, source: Node) -> int | None:
    """Return the number of elements in the first operand of ``source`` for each element of the result. For a
    reduction, that is the number of terms of each sum.

    It is 1 if ``source`` adds two tensors of the same shape or only moves values, and None for an operator that is
    neither a sum nor a move. A convolution counts as a sum of the values in its window if its weights are constants
    of at least 0 and it has no bias, as in a p-norm over windows.
    """
    if str(source.target) in MOVES:
        return 1
    if source.target in _WEIGHTED_SUMS:
        weights = constant_of(module, source.args[1])
        is_sum = weights is not None and argument(source, 2) is None and bool((weights >= 0).all())
        return weights[0].numel() if weights is not None and is_sum else None
    if source.target not in _MEANS_AND_SUMS:
        return None
    data = source.all_input_nodes[0]
    return int(data.meta["val"].numel() / max(source.meta["val"].numel(), 1))


def _powers_behind(
    module: GraphModule,
    source: Node,
    free: Set[Node],
    by_end: dict[Node, Region],
    is_power: Callable[[Node], bool],
) -> WidePowers | None:
    """Return the nodes that compute ``source``, a sum of powers, from the powers on. ``source`` may also only move
    the values of such a sum.

    Return None for any other node, and for a sum of more than ``MOST_TERMS`` terms.
    """
    count = _terms_of(module, source)
    if source not in free or count is None or count > MOST_TERMS:
        return None
    nodes, sums = {source}, {source}
    terms = source.all_input_nodes if source.target is _aten.add.Tensor else source.all_input_nodes[:1]
    for term in terms:
        region = by_end.get(term)
        if region is not None and any(is_power(node) for node in region.nodes):
            nodes |= set(region.nodes)
            continue
        behind = _powers_behind(module, term, free, by_end, is_power)
        if behind is None:
            return None
        nodes |= behind.nodes
        sums |= behind.sums
    return WidePowers(nodes, sums) if len(nodes) > 1 else None


CARRYING = frozenset((_aten.mul.Tensor, _aten.add.Tensor))
"""The operators that update a carried state (``find_carried_states``). A model without one of them has no such state."""

LEAST_CARRIED = 3
"""The least number of consecutive updates of a state for which it becomes int16. Each update adds two roundings."""


def find_carried_states(module: GraphModule, nodes: Sequence[Node]) -> Set[Node]:
    """Return the sums and products that update the states of an unrolled recurrence, which become int16.

    The update of such a state is ``gate * state + new`` with a computed gate, at least ``LEAST_CARRIED`` times in
    succession. Examples are linear attention, selective scans and the cells of recurrent layers. LiteRT's LSTM stores
    its cell as int16 too. If ``new`` is a product, it belongs to the update too, and so do operators that only move
    values between the steps.

    nodes: the nodes that may be quantized, in execution order.
    """
    free = set(nodes)

    def is_product(node: Node) -> bool:
        is_call = node in free and node.target is _aten.mul.Tensor and is_float(node)
        return is_call and all(isinstance(item, Node) and constant_of(module, item) is None for item in node.args)

    lengths: dict[Node, int] = {}
    carried: dict[Node, set[Node]] = {}
    for node in nodes:
        if node.target is not _aten.add.Tensor or not is_float(node) or node.kwargs or len(node.args) != 2:
            continue
        terms = [_behind_moves(item, free) for item in node.args if isinstance(item, Node)]
        products = [(term, moves) for term, moves in terms if is_product(term)]
        lengths[node], carried[node] = 1, {node}.union(*({term, *moves} for term, moves in products))
        for term, _ in products:
            for state, between in (_behind_moves(item, free) for item in term.all_input_nodes):
                if lengths.get(state, 0) >= lengths[node]:
                    lengths[node] = lengths[state] + 1
                    carried[node] |= {*carried[state], *between}
    return {item for node, length in lengths.items() if length >= LEAST_CARRIED for item in carried[node]}


def _behind_moves(node: Node, free: Set[Node]) -> tuple[Node, list[Node]]:
    """Return the node whose values reach ``node`` through operators that only move values, and these operators in a list.

    Return ``node`` itself and an empty list if ``node`` does not move values.
    """
    moves: list[Node] = []
    while node in free and is_move(node, Change.PERMUTED):
        moves.append(node)
        (node,) = node.all_input_nodes
    return node, moves
