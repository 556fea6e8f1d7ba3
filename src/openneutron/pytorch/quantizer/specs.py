# SPDX-License-Identifier: BSD-3-Clause
"""Quantization specs: the number formats of the NPU as torchao states them, and a user's settings for single modules and operators.

Activations are int8 or int16, weights int8, biases int32. Biases of layers on int16 activations are not quantized here: lowering
stores them as int64 in units of the accumulator.
"""

from __future__ import annotations

import difflib
import functools
import math
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, field, replace
from enum import Enum
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

import torch
from torch.fx import GraphModule, Node
from torchao.quantization.pt2e import MovingAverageMinMaxObserver
from torchao.quantization.pt2e.fake_quantize import FakeQuantize, FusedMovingAvgObsFakeQuantize
from torchao.quantization.pt2e.quantizer import (
    DerivedQuantizationSpec,
    FixedQParamsQuantizationSpec,
    QuantizationSpec,
    QuantizationSpecBase,
    SharedQuantizationSpec,
)
from torchao.quantization.pt2e.quantizer.quantizer import Q_ANNOTATION_KEY

from openneutron.errors import InvalidOptionError
from openneutron.ops.reductions import MOST_EXPONENTIALS
from openneutron.options import ACTIVATIONS, INT8, INT16
from openneutron.options.flags import check_choice
from openneutron.pytorch.graph.program import JOINS_OUTPUT, KEPT_FLOAT, LEFT_FLOAT, Change, is_move
from openneutron.pytorch.operators.annotations import MASKED, SOFTMAX
from openneutron.pytorch.quantizer.observers import (
    LEAST_ACTIVATION_SCALE,
    LEAST_WIDE_SCALE,
    HistogramRangeObserver,
    LatestWeightObserver,
    LogProbabilityObserver,
    MaskRangeObserver,
    MovingRangeObserver,
    PerChannelWeightObserver,
    ProbabilityObserver,
    ReachableRangeObserver,
    ReachedRangeObserver,
    RootRangeObserver,
    RowRangeObserver,
    WeightObserver,
    WholeRangeObserver,
)

_aten = torch.ops.aten

INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1

WIDE_FIXED_SCALE = 2.0**-15
"""The scale that LiteRT's 16-bit LOGISTIC, TANH and SOFTMAX have for their results."""


@dataclass(eq=True, frozen=True)
class ChosenSpec(QuantizationSpec):
    """A quantization spec whose observer the user chose. The nodes that read the tensor share this spec."""


@dataclass(eq=True, frozen=True)
class DecidedSpec(QuantizationSpec):
    """A quantization spec whose scale follows from the operator and calibration together: softmax, log_softmax, sigmoid and tanh.

    A result with this spec never takes over the scale of another tensor. Where a reader needs another scale, the result is requantized.
    """


@dataclass(frozen=True, slots=True)
class Stored:
    """The integer format of quantized activations: dtype, lowest and highest integer, quantization scheme, and the smallest scale.

    The smallest scale is that of a tensor whose values hardly differ. int16 is symmetric with the zero point 0, as in LiteRT's 16x8
    kernels.
    """

    dtype: torch.dtype
    low: int
    high: int
    scheme: torch.qscheme
    least_scale: float


STORED = {
    INT8: Stored(torch.int8, -128, 127, torch.per_tensor_affine, LEAST_ACTIVATION_SCALE),
    INT16: Stored(torch.int16, -32767, 32767, torch.per_tensor_symmetric, LEAST_WIDE_SCALE),
}
"""The formats of activations by their names in ``QuantizationOptions.activations``."""


def _spec(activations: str, observer: Any, kind: type[QuantizationSpec] = QuantizationSpec) -> QuantizationSpec:
    stored = STORED[activations]
    return kind(
        dtype=stored.dtype,
        quant_min=stored.low,
        quant_max=stored.high,
        qscheme=stored.scheme,
        observer_or_fake_quant_ctr=observer,
    )


@functools.cache
def activation_spec(is_qat: bool = False, observer: Any = None, activations: str = INT8) -> QuantizationSpec:
    """Return the per-tensor spec of activations: affine int8 in [-128, 127], or symmetric int16.

    ``observer`` is an observer class (for training, a fake-quantize class) that replaces the default one.
    """
    wide, eps = activations == INT16, STORED[activations].least_scale
    if observer is not None:
        return _spec(activations, observer.with_args(eps=eps), ChosenSpec)
    if is_qat and wide:
        # The fused operator has an affine zero point where all values have one sign.
        return _spec(activations, FakeQuantize.with_args(observer=MovingRangeObserver, eps=eps))
    if is_qat:
        made = FusedMovingAvgObsFakeQuantize.with_args(observer=MovingAverageMinMaxObserver, eps=eps)
        return _spec(activations, made)
    return _spec(activations, (WholeRangeObserver if wide else HistogramRangeObserver).with_args(eps=eps))


@functools.cache
def row_spec(dim: int, activations: str = INT8) -> QuantizationSpec:
    """Return ``activation_spec`` for the input of a softmax over the dimension ``dim``.

    The range covers the values that matter to the softmax; see ``RowRangeObserver``.
    """
    observer: Any = RowRangeObserver.with_args(dim=dim, eps=STORED[activations].least_scale)
    return _spec(activations, observer)


REACHES = {_aten.sigmoid.default: math.log(511), _aten.tanh.default: math.log(511) / 2}
"""Functions with an asymptote on both sides, and for each the |x| at which the result is half a step of LiteRT's int8 scale from the
asymptote.

The scales are 1/256 for sigmoid and 1/128 for tanh.
"""


_STEEP = frozenset(
    (
        *(
            getattr(_aten, name).default
            for name in ("log", "log2", "log10", "log1p", "logit", "sqrt", "rsqrt", "reciprocal")
        ),
        *(_aten.div.Tensor, _aten.pow.Tensor_Scalar, _aten.pow.Tensor_Tensor),
    )
)
"""Functions that magnify small differences of a sigmoid, such as a logarithm."""

_AFFINE = frozenset((_aten.add.Tensor, _aten.sub.Tensor, _aten.mul.Tensor, _aten.rsub.Scalar, _aten.neg.default))


def _is_magnified(node: Node) -> bool:
    """Return whether a function of ``_STEEP`` reads the node, directly or after additions and multiplications with constants."""
    return any(
        user.target in _STEEP
        or (
            user.target in _AFFINE
            and all(item is node or item.op == "get_attr" for item in user.all_input_nodes)
            and _is_magnified(user)
        )
        for user in node.users
    )


def reach_of(node: Node) -> float | None:
    """Return the |x| beyond which a node's value no longer matters to its readers, or None if every value matters.

    The result is not None where the node has readers, all of them are functions of ``REACHES``, and no function of
    ``_STEEP`` magnifies their results. Operators that only move values, in front of the node or behind it, are
    skipped.
    """
    while is_move(node, Change.TAKEN) and isinstance(node.args[0], Node):
        node = node.args[0]
    waiting = list(node.users)
    reaches: list[float] = []
    while waiting:
        user = waiting.pop()
        if is_move(user, Change.TAKEN) and len(user.all_input_nodes) == 1:
            waiting += user.users
        elif (reach := REACHES.get(user.target)) is not None and not _is_magnified(user):
            reaches.append(reach)
        else:
            return None
    return max(reaches, default=None)


@functools.cache
def saturating_spec(reach: float) -> QuantizationSpec:
    """Return the int8 ``activation_spec`` for the input of functions that are constant for |x| > ``reach``."""
    return _spec(INT8, HistogramRangeObserver.with_args(reach=reach, eps=STORED[INT8].least_scale))


@functools.cache
def powers_spec() -> QuantizationSpec:
    """Return the int16 spec of a sum of powers whose root or logarithm is taken."""
    return _spec(INT16, RootRangeObserver.with_args(eps=STORED[INT16].least_scale))


@functools.cache
def filled_spec(dim: int | None, is_qat: bool = False, activations: str = INT8) -> QuantizationSpec:
    """Return ``activation_spec`` for a tensor with fill values that are too low to matter. The observed range ignores them.

    ``dim`` is the dimension of the softmax that reads the tensor, or None.
    """
    observer: Any = ReachableRangeObserver if dim is None else RowRangeObserver
    options = {"eps": STORED[activations].least_scale} | ({} if dim is None else {"dim": dim})
    made = FakeQuantize.with_args(observer=observer, **options) if is_qat else observer.with_args(**options)
    return _spec(activations, made)


@functools.cache
def mask_spec(is_qat: bool = False, activations: str = INT8) -> QuantizationSpec:
    """Return ``activation_spec`` for a mask that is added to attention scores. Values below ``MASKED`` count as
    ``MASKED``."""
    observer: Any = MaskRangeObserver
    options = {"eps": STORED[activations].least_scale}
    made = FakeQuantize.with_args(observer=observer, **options) if is_qat else observer.with_args(**options)
    return _spec(activations, made)


def is_mask(node: Node) -> bool:
    """Return whether a node has readers and every reader clamps the value to at least ``MASKED``."""
    ends = ("aten.clamp.default", "aten.clamp_min.default")
    return bool(node.users) and all(str(user.target) in ends and user.args[1:2] == (MASKED,) for user in node.users)


@functools.cache
def probability_spec(is_qat: bool = False) -> QuantizationSpec:
    """Return the int8 spec of a softmax's result: LiteRT's scale 1/256, or a finer one for small probabilities."""
    observer: Any = ProbabilityObserver
    made = FakeQuantize.with_args(observer=observer) if is_qat else observer
    return _spec(INT8, made, DecidedSpec)


@functools.cache
def log_probability_spec(is_qat: bool = False) -> QuantizationSpec:
    """Return the int8 spec of a log_softmax's result: LiteRT's scale 1/16, or a coarser one for lower values."""
    observer: Any = LogProbabilityObserver
    made = FakeQuantize.with_args(observer=observer) if is_qat else observer
    return _spec(INT8, made, DecidedSpec)


@functools.cache
def reached_spec(scale: float, zero_point: int) -> QuantizationSpec:
    """Return an int8 spec with this scale and zero point. If calibration covers only a small part of the range, the
    spec has the scale and zero point of that part (``ReachedRangeObserver``)."""
    made: Any = ReachedRangeObserver.with_args(scale=scale, zero_point=zero_point)
    return _spec(INT8, made, DecidedSpec)


@functools.cache
def weight_spec(channel_axis: int | None, is_qat: bool = False) -> QuantizationSpec:
    """Return the symmetric int8 spec of weights in [-127, 127].

    Each channel along the axis ``channel_axis`` has a scale of its own. If ``channel_axis`` is None, the whole tensor
    has one scale.
    """
    observer: Any
    if channel_axis is None:
        observer = WeightObserver
        if is_qat:
            observer = FakeQuantize.with_args(observer=MovingAverageMinMaxObserver, averaging_constant=1.0)
        scheme = torch.per_tensor_symmetric
    else:
        observer = PerChannelWeightObserver
        if is_qat:
            # torchao gives the axis only to observers whose name it knows, and this one is inside another class.
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
    """Return the dimension over which all readers of ``node`` compute a softmax, or None if a reader does something else.

    The softmax is one call, or a decomposed one that begins with ``exp(x - amax(x))``. ``node`` may also be the difference ``x - amax(x)``.
    """
    if node.users and all(str(user.target) == "aten.exp.default" for user in node.users):
        return _dimension_of_differences(node)
    found = {_row_of(user, node) for user in node.users}
    return found.pop() if len(found) == 1 else None


def has_own_scale(softmax: Node) -> bool:
    """Return whether the result of a softmax may have another scale than LiteRT's 1/256.

    This is so if each softmax is over at most ``MOST_EXPONENTIALS`` elements. LiteRT's wider accumulator can hold the
    sum of that many exponentials.
    """
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
    """Return the spec of weights with one scale, under the name it has in ExecuTorch's NXP backend."""
    return weight_spec(None, is_qat)


wgt_fc_qspec = wgt_qspec


def is_per_channel(spec: QuantizationSpec) -> bool:
    return spec.qscheme in (torch.per_channel_symmetric, torch.per_channel_affine)


def fixed_spec(scale: float, zero_point: int, dtype: torch.dtype = torch.int8) -> FixedQParamsQuantizationSpec:
    """Return a spec with this scale and zero point that calibration does not change. Values outside of the range saturate."""
    ends = torch.iinfo(dtype)
    return FixedQParamsQuantizationSpec(
        dtype=dtype,
        scale=scale,
        zero_point=zero_point,
        quant_min=ends.min,
        quant_max=ends.max,
        qscheme=torch.per_tensor_affine,
    )


def whole_spec(bounds: tuple[int, int]) -> FixedQParamsQuantizationSpec | None:
    """Return the int8 spec with the scale 1 that represents each integer of the closed range ``bounds`` exactly.

    Return None unless the range is inside [-128, 127] or [0, 255], or has exactly 256 integers.
    """
    low, high = bounds
    if low >= -128 and high <= 127:
        return fixed_spec(1.0, 0)
    if high - low == 255:
        return fixed_spec(1.0, -128 - low)
    return fixed_spec(1.0, -128) if low >= 0 and high <= 255 else None


def wide_fixed_spec() -> FixedQParamsQuantizationSpec:
    """Return the int16 spec with the scale 1/32768, which LiteRT requires for the results of sigmoid, tanh and softmax."""
    return fixed_spec(WIDE_FIXED_SCALE, 0, torch.int16)


def type_of(node: Node) -> str | None:
    """Return the quantized type of a node's result, ``int8`` or ``int16``. Return None if the result has another
    type, or no annotation (yet)."""
    dtype = getattr(root_spec(node)[1], "dtype", None)
    return next((name for name, stored in STORED.items() if stored.dtype == dtype), None)


def decided(node: Node, activations: str) -> QuantizationSpecBase | None:
    """Return the spec of a node's result if its operator determines the scale (``DecidedSpec`` or fixed), and its
    type is ``activations``.

    Return None for any other result. A result of another type has no say in a reader's scale, because it is
    requantized for the reader in any case.
    """
    spec = root_spec(node)[1]
    is_fixed = isinstance(spec, (FixedQParamsQuantizationSpec, DecidedSpec))
    return spec if is_fixed and type_of(node) == activations else None


def leader(data: Sequence[Node], activations: str) -> Node | None:
    """Return the operand of an operator whose scale the other operands share.

    It is the first operand whose scale is not decided by the operator that computes it (``decided``), so that no
    operand is forced into the range of, say, a sigmoid. If all scales are decided, it is the first operand, provided
    that all specs are equal. Otherwise return None.
    """
    specs = [decided(item, activations) for item in data]
    free = next((item for item, spec in zip(data, specs, strict=True) if spec is None), None)
    if free is not None:
        return free
    return data[0] if all(spec == specs[0] for spec in specs) else None


def shares(item: Node, first: Node, activations: str) -> bool:
    """Return whether an operand shares the scale of ``first``, the ``leader`` of the operands. An operand whose scale
    its own operator decides is requantized instead, unless both have the same DecidedSpec, such as that of
    probabilities."""
    spec = decided(item, activations)
    return spec is None or (isinstance(spec, DecidedSpec) and spec is decided(first, activations))


def bias_spec(
    data: Node,
    weight: Node,
    node: Node,
    per_channel: bool,
    output_scales: Callable[[torch.Tensor], torch.Tensor] | None = None,
) -> DerivedQuantizationSpec:
    """Return the int32 spec of a bias with the scale (input scale * weight scale), so that the accumulator needs no rescaling for the bias.

    ``output_scales`` is a function that maps the scales of the weights to the scales of the output channels, for operators where these
    differ.
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
"""A tensor in the quantizer's graph: the result of a node, or one operand of a reader as the pair (source, reader)."""


def owner_of(place: Place) -> Node:
    """Return the node whose ``meta`` has the annotation for a tensor: the node itself, or the reader of an operand."""
    return place if isinstance(place, Node) else place[1]


def spec_at(place: Place) -> QuantizationSpecBase | None:
    """Return the spec that the annotation states for a tensor, or None."""
    annotation = owner_of(place).meta.get(Q_ANNOTATION_KEY)
    if annotation is None:
        return None
    return annotation.output_qspec if isinstance(place, Node) else annotation.input_qspec_map.get(place[0])


def root_spec(place: Place) -> tuple[Place, QuantizationSpecBase | None]:
    """Follow shared specs to the tensor that has a spec of its own. Return this tensor and its spec, or None as its spec if it has no
    annotation."""
    while isinstance(spec := spec_at(place), SharedQuantizationSpec):
        place = spec.edge_or_node
    return place, spec


def product_specs(
    node: Node,
    products: Iterable[tuple[Node, Node | None]],
    first: Node,
    spec: QuantizationSpecBase | None,
    is_counted: bool,
) -> dict[Node, QuantizationSpecBase | None]:
    """Return a dict with the spec of each weight and bias of an operator with several matrix products, such as a
    recurrent layer.

    ``products`` has pairs of a weight and its bias (None: no bias). Each weight gets ``spec``, which has one scale
    for the tensor. With ``is_counted``, each bias is int32 with the scale of ``first`` times the scale of its weight.
    Otherwise, or if ``spec`` is None, the dict has no biases.
    """
    specs: dict[Node, QuantizationSpecBase | None] = {}
    for weight, bias in products:
        specs[weight] = spec
        if bias is not None and is_counted and spec is not None:
            specs[bias] = bias_spec(first, weight, node, per_channel=False)
    return specs


def is_float(node: Node) -> bool:
    """Return whether the value of a node is a float32 tensor. A parameter without metadata counts as one."""
    value = node.meta.get("val")
    if value is None and node.op == "get_attr":
        return True
    return isinstance(value, torch.Tensor) and value.dtype == torch.float32


@dataclass(frozen=True, slots=True)
class Usual:
    """The marker for a spec that the quantizer chooses.

    ``observer``: the observer class for a tensor whose range no operator determines. None: the default observer.
    """

    observer: Any = None


USUAL = Usual()

Choice: TypeAlias = QuantizationSpec | Usual | None
"""How a tensor is quantized: by a spec, or by the quantizer's own choice. None keeps it float."""


@dataclass(frozen=True, slots=True)
class QuantizationConfig:
    """The number formats of an operator. A field that is not given is chosen by the quantizer. None keeps the tensor
    float.

    input_activation, output_activation: the formats of tensors that calibration observes. A result whose scale the
    operator fixes (sigmoid) or shares with its input (max pool) keeps that scale.

    weight: the format of constants that are multiplied with the input. A bias is int32 if input and weight are int8.

    activations: the type of inputs and outputs without a spec, ``int8`` or ``int16``. None: the type in the next less
    specific setting. Operators that only move values take the type of their input or of their readers, so that no
    conversion is added for them alone.

    Raises InvalidOptionError for an unknown type.
    """

    input_activation: Choice = USUAL
    output_activation: Choice = USUAL
    weight: Choice = USUAL
    activations: str | None = None

    def __post_init__(self) -> None:
        if self.activations is not None:
            check_choice("QuantizationConfig.activations", self.activations, ACTIVATIONS)


AS_USUAL = QuantizationConfig()


_CHOSEN = "openneutron_config"
"""The key of ``node.meta`` for the override of the operator that a pass rewrote to this node."""

NAMES_SHOWN = 3


class By(Enum):
    """The kinds of names that a pattern can match. If several overrides match a node, the kind that is listed last takes precedence."""

    OPERATOR = "operator"
    MODULE_TYPE = "module type"
    MODULE_NAME = "module name"


_SPECIAL_LAST = tuple(By)


@dataclass(frozen=True, slots=True)
class Names:
    """All names that patterns may match in a model."""

    known: dict[By, frozenset[str]]

    def __or__(self, other: Names) -> Names:
        return Names({by: self.known[by] | other.known[by] for by in By})


NO_NAMES = Names(dict.fromkeys(By, frozenset()))


@dataclass(frozen=True, slots=True)
class Override:
    """The quantization config of all nodes that a pattern matches. The config None keeps these nodes float.

    said: the user's call that made the override, for messages.
    """

    by: By
    pattern: str
    config: QuantizationConfig | None
    said: str

    def matches(self, node: Node) -> bool:
        """Return whether the pattern matches a node. A pattern for a module's name or type matches all nodes inside of the module."""
        return any(self.fits(name) for name in _names_of(node, self.by))

    def over(self, other: Override | None) -> Override:
        """Return this override. If it states no type of activations, the result has the type that ``other`` states."""
        if self.config is None or self.config.activations is not None or other is None or other.config is None:
            return self
        return replace(self, config=replace(self.config, activations=other.config.activations))

    def fits(self, name: str) -> bool:
        if fnmatchcase(name, self.pattern):
            return True
        if self.by is By.MODULE_NAME:
            return False
        # aten.add matches all its overloads, and Linear matches torch.nn.modules.linear.Linear.
        short = name.rpartition(".")[0 if self.by is By.OPERATOR else 2]
        return fnmatchcase(short, self.pattern)


@dataclass(frozen=True, slots=True)
class Overrides:
    """All overrides of a user, in the order of the calls. rest: the config of nodes that no pattern matches."""

    given: tuple[Override, ...] = ()
    rest: QuantizationConfig | None = field(default_factory=lambda: AS_USUAL)

    def __bool__(self) -> bool:
        return bool(self.given) or self.rest != AS_USUAL

    def having(self, override: Override) -> Overrides:
        return replace(self, given=(*self.given, override))

    def of(self, node: Node) -> QuantizationConfig | None:
        """Return the config of a node, or None if the node stays float."""
        if not self:
            return AS_USUAL
        override = self._of(node)
        if override is None:
            return self.rest
        config = override.config
        if config is None or config.activations is not None or self.rest is None:
            return config
        return replace(config, activations=self.rest.activations)

    def keeps_float(self, node: Node) -> bool:
        return self.of(node) is None

    def mark(self, module: GraphModule) -> None:
        """Store the override of each node in its ``meta``, so that nodes that passes derive from the node inherit the override.

        A node that stays float also gets the name of the user's call.
        """
        for node in module.graph.nodes:
            if node.op != "call_function":
                continue
            override = self._of(node)
            if override is not None:
                node.meta[_CHOSEN] = override
            if self.of(node) is None:
                said = override.said if override is not None else "set_global"
                node.meta["custom"] = {**node.meta.get("custom", {}), KEPT_FLOAT: said}

    def check(self, names: Names) -> None:
        """Raise InvalidOptionError for a pattern that matches nothing."""
        for override in self.given:
            known = names.known[override.by]
            if not any(override.fits(name) for name in known):
                raise InvalidOptionError(_unknown(override, known))

    def _of(self, node: Node) -> Override | None:
        found: Override | None = node.meta.get(_CHOSEN)
        for override in sorted(self.given, key=lambda each: _SPECIAL_LAST.index(each.by)):
            special = found is None or _SPECIAL_LAST.index(override.by) >= _SPECIAL_LAST.index(found.by)
            if special and override.matches(node):
                found = override.over(found)
        return found


def module_name(name: str, config: QuantizationConfig | None, said: str) -> Override:
    return Override(By.MODULE_NAME, name, config, f"{said} '{name}'")


def module_type(kind: type | str, config: QuantizationConfig | None, said: str) -> Override:
    """Return the override for all modules of a class. ``kind`` is the class, its name, or its name with the name of its Python module."""
    pattern = kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__qualname__}"
    return Override(By.MODULE_TYPE, pattern, config, f"{said} '{pattern.rpartition('.')[2]}'")


def operator(target: object, config: QuantizationConfig | None, said: str) -> Override:
    """Return the override for an operator overload, or for all overloads of an operator.

    ``target`` is the overload, the operator, or the name of either; ``aten::add`` is the same as ``aten.add``.
    """
    pattern = str(target).replace("::", ".")
    return Override(By.OPERATOR, _out_of_place(pattern), config, f"{said} '{pattern}'")


def any_of(item: object, config: QuantizationConfig | None, said: str) -> Override:
    """Return the override for a class of modules, an operator, or a name. A name with ``aten.`` or ``aten::`` at the
    start is that of an operator, any other that of a module. Raises InvalidOptionError for any other item."""
    if isinstance(item, type):
        return module_type(item, config, said)
    if isinstance(item, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return operator(item, config, said)
    if not isinstance(item, str):
        raise InvalidOptionError(
            f"{said}: {item!r} is a {type(item).__name__}; give the name of a module or operator, or a class of modules."
        )
    return (operator if item.startswith(("aten.", "aten::")) else module_name)(item, config, said)


def names_in(module: GraphModule) -> Names:
    """Return the names of the modules, module types and operators of a model."""
    calls = [node for node in module.graph.nodes if node.op == "call_function"]
    known = {by: frozenset(name for node in calls for name in _names_of(node, by)) for by in By}
    # A module of constants alone (a batch norm that was folded) has no nodes.
    known[By.MODULE_NAME] |= {name for name, _ in module.named_modules() if name}
    return Names(known)


def unmark(module: GraphModule) -> None:
    """Remove the overrides that ``Overrides.mark`` stored in the ``meta`` of nodes."""
    for node in module.graph.nodes:
        node.meta.pop(_CHOSEN, None)


def _names_of(node: Node, by: By) -> Iterable[str]:
    if by is By.OPERATOR:
        return (_out_of_place(str(node.target)),)
    stack = node.meta.get("nn_module_stack") or {}
    if by is By.MODULE_NAME:
        paths = (str(path).removeprefix("L['self'].").removeprefix("L__self___") for path, _ in stack.values())
        return tuple(path for path in paths if path)
    return tuple(
        kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__qualname__}" for _, kind in stack.values()
    )


def _out_of_place(name: str) -> str:
    """Return the name of the out-of-place operator, such as ``aten.relu.default`` for ``aten.relu_.default``.
    Patterns and nodes are compared by these names, so that a pattern matches both forms."""
    parts = name.split(".")
    if len(parts) > 1 and not parts[1].startswith("_"):
        parts[1] = parts[1].removesuffix("_")
    return ".".join(parts)


def _unknown(override: Override, known: Iterable[str]) -> str:
    if override.by is By.MODULE_TYPE:
        known = {name.rpartition(".")[2] for name in known}
    names = sorted(name for name in known if not name.startswith("<"))
    pattern = override.pattern.rpartition(".")[2] if override.by is By.MODULE_TYPE else override.pattern
    near = difflib.get_close_matches(pattern, names, NAMES_SHOWN, 0.5)
    hint = f" Did you mean {' or '.join(repr(name) for name in near)}?" if near else ""
    if not near and names:
        shown = ", ".join(repr(name) for name in names[:NAMES_SHOWN])
        hint = f" There are {shown}{' and others' if len(names) > NAMES_SHOWN else ''}."
    return f"{override.said}: the model has no such {override.by.value}.{hint}"


def mark_left_float(model: GraphModule, constants: Set[Node]) -> None:
    """Set the key ``LEFT_FLOAT`` in ``meta["custom"]`` of each call that stays float without a user's setting. The
    partitioner's reasons read this key.

    Constants do not get the key, nor do calls that join the dequantized parts of a result of the model.
    """
    for node in model.graph.nodes:
        custom = node.meta.get("custom", {})
        wanted = KEPT_FLOAT in custom or JOINS_OUTPUT in custom or Q_ANNOTATION_KEY in node.meta
        if node.op == "call_function" and not wanted and node not in constants:
            node.meta["custom"] = {**custom, LEFT_FLOAT: True}
