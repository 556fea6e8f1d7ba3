# SPDX-License-Identifier: BSD-3-Clause
"""The number formats of the NPU as torchao's quantization specs: int8 activations, int8 weights, int32 biases."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import torch
from torch.fx import GraphModule, Node
from torchao.quantization.pt2e import MovingAverageMinMaxObserver
from torchao.quantization.pt2e.fake_quantize import FakeQuantize, FusedMovingAvgObsFakeQuantize
from torchao.quantization.pt2e.quantizer import (
    DerivedQuantizationSpec,
    FixedQParamsQuantizationSpec,
    QuantizationAnnotation,
    QuantizationSpec,
    QuantizationSpecBase,
    SharedQuantizationSpec,
)
from torchao.quantization.pt2e.quantizer.quantizer import Q_ANNOTATION_KEY

from openneutron.ops.reductions import MOST_EXPONENTIALS
from openneutron.pytorch.operators.annotations import SOFTMAX
from openneutron.pytorch.quantizer.observers import (
    LEAST_ACTIVATION_SCALE,
    HistogramRangeObserver,
    LatestWeightObserver,
    LogProbabilityObserver,
    PerChannelWeightObserver,
    ProbabilityObserver,
    ReachableRangeObserver,
    RowRangeObserver,
    WeightObserver,
)

INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1


@dataclass(eq=True, frozen=True)
class ChosenSpec(QuantizationSpec):
    """The spec of an activation with an observer that the user chose. Its readers share it."""


@functools.cache
def activation_spec(is_qat: bool = False, observer: Any = None) -> QuantizationSpec:
    """int8 in [-128, 127], affine, one scale for the tensor. ``observer`` is a class of observers (in training, of fake
    quantizations) that takes the place of the usual one."""
    if observer is not None:
        made = observer.with_args(eps=LEAST_ACTIVATION_SCALE)
    elif is_qat:
        made = FusedMovingAvgObsFakeQuantize.with_args(observer=MovingAverageMinMaxObserver, eps=LEAST_ACTIVATION_SCALE)
    else:
        made = HistogramRangeObserver.with_args(eps=LEAST_ACTIVATION_SCALE)
    kind = QuantizationSpec if observer is None else ChosenSpec
    return kind(
        dtype=torch.int8,
        quant_min=-128,
        quant_max=127,
        qscheme=torch.per_tensor_affine,
        observer_or_fake_quant_ctr=made,
    )


@functools.cache
def row_spec(dim: int) -> QuantizationSpec:
    """int8 as ``activation_spec`` has it, of the range that matters to a softmax over ``dim``."""
    observer: Any = RowRangeObserver.with_args(dim=dim, eps=LEAST_ACTIVATION_SCALE)
    return replace(activation_spec(), observer_or_fake_quant_ctr=observer)


@functools.cache
def filled_spec(dim: int | None, is_qat: bool = False) -> QuantizationSpec:
    """int8 as ``activation_spec`` has it, of a tensor with fillers that are out of reach; ``dim``: of the softmax that reads it."""
    observer: Any = ReachableRangeObserver if dim is None else RowRangeObserver
    options = {"eps": LEAST_ACTIVATION_SCALE} | ({} if dim is None else {"dim": dim})
    made = FakeQuantize.with_args(observer=observer, **options) if is_qat else observer.with_args(**options)
    return replace(activation_spec(), observer_or_fake_quant_ctr=made)


@functools.cache
def probability_spec(is_qat: bool = False) -> QuantizationSpec:
    """Return ``activation_spec``'s int8 for a softmax's result, with LiteRT's scale 1/256 or a finer one."""
    observer: Any = ProbabilityObserver
    made = FakeQuantize.with_args(observer=observer) if is_qat else observer
    return replace(activation_spec(), observer_or_fake_quant_ctr=made)


@functools.cache
def log_probability_spec(is_qat: bool = False) -> QuantizationSpec:
    """Return ``activation_spec``'s int8 for a log_softmax's result, with LiteRT's scale 1/16 or a wider one."""
    observer: Any = LogProbabilityObserver
    made = FakeQuantize.with_args(observer=observer) if is_qat else observer
    return replace(activation_spec(), observer_or_fake_quant_ctr=made)


def is_probability_spec(spec: object) -> bool:
    """Return whether a spec is that of probabilities or of their logarithms."""
    return any(spec is made(is_qat) for made in (probability_spec, log_probability_spec) for is_qat in (False, True))


@functools.cache
def weight_spec(channel_axis: int | None, is_qat: bool = False) -> QuantizationSpec:
    """int8 in [-127, 127], symmetric; one scale for each index of ``channel_axis``, or one for the tensor (None)."""
    observer: Any
    if channel_axis is None:
        observer = WeightObserver
        if is_qat:
            observer = FakeQuantize.with_args(observer=MovingAverageMinMaxObserver, averaging_constant=1.0)
        scheme = torch.per_tensor_symmetric
    else:
        observer = PerChannelWeightObserver
        if is_qat:
            # torchao hands the axis to observers by their name alone, and this one is inside another class.
            observer = FakeQuantize.with_args(observer=LatestWeightObserver, ch_axis=channel_axis)
        scheme = torch.per_channel_symmetric
    return QuantizationSpec(
        dtype=torch.int8,
        quant_min=-127,
        quant_max=127,
        qscheme=scheme,
        ch_axis=channel_axis,
        observer_or_fake_quant_ctr=observer,
    )


def row_dimension(node: Node) -> int | None:
    """Return the dimension over which every reader of ``node`` takes a softmax, at once or by exponentials of
    differences from the largest value; None where one does something else. ``node`` may be those differences too."""
    if node.users and all(str(user.target) == "aten.exp.default" for user in node.users):
        return _dimension_of_differences(node)
    found = {_row_of(user, node) for user in node.users}
    return found.pop() if len(found) == 1 else None


def has_own_scale(softmax: Node) -> bool:
    """Return whether a softmax's result may have another scale than LiteRT's 1/256: LiteRT's wider sum holds
    ``MOST_EXPONENTIALS`` values."""
    dim, rank = softmax.args[1], softmax.meta["val"].dim()
    extent = softmax.meta["val"].shape[dim] if isinstance(dim, int) and rank else None
    return isinstance(extent, int) and extent <= MOST_EXPONENTIALS


def _row_of(user: Node, node: Node) -> int | None:
    rank = node.meta["val"].dim()
    if str(user.target) in SOFTMAX:
        dim = user.args[1]
        return dim % rank if isinstance(dim, int) and rank else None
    if str(user.target) == "aten.amax.default":
        dims = {
            row_dimension(other) if str(other.target) == "aten.sub.Tensor" and other.args == (node, user) else None
            for other in user.users
        }
        return dims.pop() if len(dims) == 1 else None
    return row_dimension(user) if str(user.target) == "aten.sub.Tensor" and user.args[0] is node else None


def _dimension_of_differences(node: Node) -> int | None:
    if str(node.target) != "aten.sub.Tensor":
        return None
    data, largest = node.args[:2]
    if not isinstance(data, Node) or not isinstance(largest, Node) or str(largest.target) != "aten.amax.default":
        return None
    return _only_dimension(largest, data.meta["val"].dim()) if largest.args[0] is data else None


def _only_dimension(largest: Node, rank: int) -> int | None:
    dims = largest.args[1] if len(largest.args) > 1 else ()
    if isinstance(dims, (list, tuple)) and len(dims) == 1 and isinstance(dims[0], int) and largest.args[2:] == (True,):
        return dims[0] % rank
    return None


def act_qspec(is_qat: bool) -> QuantizationSpec:
    """Return ``activation_spec`` under the name it has in ExecuTorch's NXP backend."""
    return activation_spec(is_qat)


def wgt_qspec(is_qat: bool) -> QuantizationSpec:
    """Weights with one scale, under the name they have in ExecuTorch's NXP backend."""
    return weight_spec(None, is_qat)


wgt_fc_qspec = wgt_qspec


def is_per_channel(spec: QuantizationSpec) -> bool:
    return spec.qscheme in (torch.per_channel_symmetric, torch.per_channel_affine)


def fixed_spec(scale: float, zero_point: int) -> FixedQParamsQuantizationSpec:
    """int8 with these parameters, whatever calibration sees."""
    return FixedQParamsQuantizationSpec(
        dtype=torch.int8,
        scale=scale,
        zero_point=zero_point,
        quant_min=-128,
        quant_max=127,
        qscheme=torch.per_tensor_affine,
    )


def bias_spec(
    data: Node,
    weight: Node,
    node: Node,
    per_channel: bool,
    output_scales: Callable[[torch.Tensor], torch.Tensor] | None = None,
) -> DerivedQuantizationSpec:
    """int32 in units of the input's scale times the weights', so that it adds to the accumulator as it is.

    ``output_scales`` makes of the weights' scales those of the output channels, where that is something else.
    """

    def product(observers: list[Any]) -> tuple[torch.Tensor, torch.Tensor]:
        assert len(observers) == 2
        weights = observers[1].calculate_qparams()[0]
        if output_scales is not None:
            weights = output_scales(weights)
        scale = observers[0].calculate_qparams()[0] * weights
        return scale, torch.zeros_like(scale, dtype=torch.int32)

    return DerivedQuantizationSpec(
        derived_from=[(data, node), (weight, node)],
        derive_qparams_fn=product,
        dtype=torch.int32,
        quant_min=INT32_MIN,
        quant_max=INT32_MAX,
        qscheme=torch.per_channel_symmetric if per_channel else torch.per_tensor_affine,
        ch_axis=0 if per_channel else None,
    )


Place: TypeAlias = Node | tuple[Node, Node]
"""The result of a node, or the value that a node takes from another one: (source, reader)."""


def _spec_at(place: Place) -> QuantizationSpecBase | None:
    annotation = _owner(place).meta.get(Q_ANNOTATION_KEY)
    if annotation is None:
        return None
    return annotation.output_qspec if isinstance(place, Node) else annotation.input_qspec_map.get(place[0])


def root_spec(place: Place) -> tuple[Place, QuantizationSpecBase | None]:
    """Return the place where the shared spec of a place begins, and the spec there."""
    while isinstance(spec := _spec_at(place), SharedQuantizationSpec):
        place = spec.edge_or_node
    return place, spec


def share_states(model: GraphModule) -> None:
    """Give the old and the new value of each buffer that the model changes one quantization, so that it can be kept as int8.

    Where both have a quantization that operators fix, and another one, they keep these.
    """
    order = {node: place for place, node in enumerate(model.graph.nodes)}
    for write in model.graph.find_nodes(op="call_function", target=torch.ops.aten.copy_.default):
        state, source = write.args[:2]
        if not isinstance(state, Node) or state.op != "get_attr" or not isinstance(source, Node):
            continue
        value: Place = source if _spec_at((source, write)) is None else (source, write)
        reads: list[tuple[Node, Node]] = [(state, user) for user in state.users if _spec_at((state, user)) is not None]
        if reads and root_spec(source)[1] is None and Q_ANNOTATION_KEY not in write.meta:
            write.meta[Q_ANNOTATION_KEY] = QuantizationAnnotation(
                {value: SharedQuantizationSpec(reads[0])}, _annotated=True
            )
        for read in reads:
            _join(read, value, order)


def _join(one: Place, other: Place, order: Mapping[Node, int]) -> None:
    """Give two places one spec. A shared spec refers to a place that comes before it in the graph."""
    (first, spec), (second, other_spec) = sorted(
        (root_spec(one), root_spec(other)), key=lambda each: order[_owner(each[0])]
    )
    if first == second or spec is None or other_spec is None:
        return
    if not isinstance(other_spec, FixedQParamsQuantizationSpec):
        _set_spec(second, SharedQuantizationSpec(first))
    elif not isinstance(spec, FixedQParamsQuantizationSpec):
        _set_spec(first, other_spec)


def _owner(place: Place) -> Node:
    return place if isinstance(place, Node) else place[1]


def _set_spec(place: Place, spec: QuantizationSpecBase) -> None:
    annotation = _owner(place).meta[Q_ANNOTATION_KEY]
    if isinstance(place, Node):
        annotation.output_qspec = spec
    else:
        annotation.input_qspec_map[place[0]] = spec


def product_specs(
    node: Node,
    products: Iterable[tuple[Node, Node | None]],
    data: Node,
    is_quantized: bool,
    chosen: tuple[Any] | None,
    is_qat: bool,
) -> dict[Node, Any]:
    """Return the specs of weights with one scale each, and of the biases that are added to their products with ``data``.

    ``chosen``: the spec that the user chose for weights, None to keep them float.
    """
    found: dict[Node, Any] = {}
    for weight, bias in products:
        found[weight] = weight_spec(None, is_qat) if chosen is None else chosen[0]
        if bias is not None and is_quantized and found[weight] is not None:
            found[bias] = bias_spec(data, weight, node, per_channel=False)
    return found
