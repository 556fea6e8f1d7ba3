# SPDX-License-Identifier: BSD-3-Clause
"""Change weights and biases of a float model so that its int8 form is closer to it.

Equalization makes the magnitudes of the channels between two layers similar. The first layer's weights and bias are
divided by a factor for each channel, and the second layer's weights are multiplied by it. The result is exact if
only functions with f(c x) = c f(x) for c > 0, such as a ReLU, are between the layers. The factors are those of
SmoothQuant (Xiao et al., arXiv 2211.10438): the largest value of a channel to the power a, divided by its largest
weight to the power 1 - a. Cross-layer equalization (Nagel et al., arXiv 1906.04721) has the same form, but computes the factors only from weights. Before a depthwise convolution a is 1, because each of its channels has a scale of
its own. A ReLU6 has one bound for all channels. A channel that reaches the bound keeps its magnitude, and no other
channel grows beyond the bound, so that the result is the same on all samples. (The paper replaces ReLU6 by ReLU,
which changes the result.)

Bias correction and learned rounding compare the layers of the float model with those of the quantized one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter, Node
from torch.fx.node import map_arg
from torch.nn import functional

from openneutron.device.timings import advance
from openneutron.pytorch.graph.program import arguments_of, is_dequantize
from openneutron.pytorch.graph.rewriting import add_constant, constant_of
from openneutron.pytorch.quantizer.specs import INT32_MAX, INT32_MIN
from openneutron.pytorch.source.exporting import ModelInputs

_aten = torch.ops.aten


MOST_POSITIONS = 1024
"""The limit on positions of a layer's result that are used from each sample. They are spread evenly over the result."""

DAMPING = 0.01
"""The penalty on the squared distance from the float weights, relative to the mean energy of an input. Without the
penalty, the weights of inputs that are zero in all samples would be arbitrary, and few samples would determine many
weights badly (as in GPTQ, arXiv 2210.17323)."""

LEAST_ENERGY = 1e-12
"""The least penalty, which applies if all inputs are zero."""

PASSES = 4
"""The limit on passes of coordinate descent over all weights of a layer."""

BLOCK = 64
"""The number of weights whose changes are applied to the other weights at once.

Apart from rounding errors, the result does not depend on this number.
"""


def round_weights(pair: LayerPair) -> None:
    """Choose for each weight of the quantized layer the lower or the higher integer so that the layer's result is
    close to the float layer's (``nearest``).

    The weights change in place. Weights that are not constant, or that another layer also reads, stay as they are.
    """
    operand = pair.node.args[1]
    stored = pair.stored(operand)
    weight = constant_of(pair.real, pair.twin.args[1])
    if stored is None or weight is None or weight.shape != stored.shape or not isinstance(operand, Node):
        return
    if len(pair.quantized.graph.find_nodes(op="get_attr", target=operand.args[0].target)) > 1:
        return
    groups = arguments_of(pair.node).get("groups", 1)
    energy, wanted = _sums(pair, groups)
    scales = pair.scales(operand).reshape(-1, *[1] * (weight.dim() - 1)).expand(weight.shape[0], *weight.shape[1:])
    low, high = (int(bound) for bound in operand.args[-3:-1])

    def by_group(tensor: torch.Tensor) -> torch.Tensor:
        """Return the tensor as float64 in the shape [group, weight of an output, output]."""
        return tensor.double().reshape(groups, tensor.shape[0] // groups, -1).mT

    exact = by_group(weight) / by_group(scales)
    ends = exact.floor().clamp(low, high), exact.ceil().clamp(low, high)
    found = nearest(energy, wanted, by_group(stored), by_group(weight), by_group(scales), ends)
    pair.store(operand, found.mT.reshape(stored.shape))


def nearest(
    energy: torch.Tensor,
    wanted: torch.Tensor,
    rounded: torch.Tensor,
    weight: torch.Tensor,
    scales: torch.Tensor,
    ends: tuple[torch.Tensor, torch.Tensor],
) -> torch.Tensor:
    """Return the integer weights, each one of the two in ``ends``, whose products with the inputs are close to the wanted results.

    The distance is the sum of squared differences, plus a penalty (``DAMPING``) on the squared distance from the float
    weights. Coordinate descent makes at most ``PASSES`` passes over the weights.

    Args:
        energy: For every two inputs, the sum of their products over all samples, [group, weight, weight].
        wanted: For every input and every wanted result, the sum of their products over all samples, [group, weight,
            output].
        rounded: The integers to begin with, [group, weight, output]. The following tensors have the same shape.
        weight: The float weights.
        scales: The scales of the weights.
        ends: The lower and the higher integer of each weight.
    """
    count = energy.shape[1]
    damping = (DAMPING * energy.diagonal(dim1=1, dim2=2).mean(1)).clamp_min(LEAST_ENERGY)
    energy = energy + damping.reshape(-1, 1, 1) * torch.eye(count, dtype=energy.dtype)
    slope = energy @ (rounded * scales) - wanted - damping.reshape(-1, 1, 1) * weight
    rounded = rounded.clone()
    for _ in range(PASSES):
        before = rounded.clone()
        for first in range(0, count, BLOCK):
            block = slice(first, min(first + BLOCK, count))
            near, inside = slope[:, block].clone(), energy[:, block, block]
            for place in range(near.shape[1]):
                here = first + place
                step = near[:, place] / (inside[:, place, place, None] * scales[:, here])
                chosen = torch.round(rounded[:, here] - step).clamp(ends[0][:, here], ends[1][:, here])
                change = (chosen - rounded[:, here]) * scales[:, here]
                rounded[:, here] = chosen
                near += inside[:, :, place, None] * change[:, None]
            slope += energy[:, :, block] @ ((rounded[:, block] - before[:, block]) * scales[:, block])
        if torch.equal(before, rounded):
            break
    return rounded


def _sums(pair: LayerPair, groups: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return two sums over all samples, as ``energy`` and ``wanted`` of ``nearest``: the products of every two inputs
    of the layer, and the products of each input with each float result before the bias."""
    energy = wanted = torch.zeros(())
    for inputs, results in _rows(pair, groups):
        energy = energy + (inputs.mT @ inputs).double()
        wanted = wanted + (inputs.mT @ results).double()
    return energy, wanted


def _rows(pair: LayerPair, groups: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield for each sample the quantized layer's inputs, [group, position, weight], and the float layer's results
    before the bias, [group, position, output]. At most ``MOST_POSITIONS`` positions of a sample are taken, at equal
    distances."""
    twin = arguments_of(pair.twin)
    bias = None if twin["bias"] is None else constant_of(pair.real, twin["bias"])
    for mine, real in zip(pair.here, pair.there, strict=True):
        inputs, results = mine[pair.node.args[0]], real[pair.twin]
        if pair.node.target == LINEAR:
            inputs, results = (each.reshape(1, -1, each.shape[-1]) for each in (inputs, results))
        else:
            inputs = _unfolded(pair, inputs, groups)
            results = results.flatten(2).unflatten(1, (groups, -1)).transpose(0, 1).mT.flatten(1, 2)
        if bias is not None:
            results = results - bias.reshape(groups, 1, -1)
        step = -(-inputs.shape[1] // MOST_POSITIONS)
        yield inputs[:, ::step], results[:, ::step]


def _unfolded(pair: LayerPair, inputs: torch.Tensor, groups: int) -> torch.Tensor:
    """Return the input values from which a convolution computes each position of its result, as [group, position, weight]."""
    given = arguments_of(pair.node)
    weight = pair.stored(pair.node.args[1])
    assert weight is not None
    size = list(weight.shape[2:])
    settings = {name: list(given[name]) for name in ("stride", "padding", "dilation")}
    if pair.node.target == CONV_1D:
        inputs, size = inputs.unsqueeze(2), [1, *size]
        settings = {name: [0 if name == "padding" else 1, value[-1]] for name, value in settings.items()}
    patches = functional.unfold(inputs, size, **{n: v if len(v) == 2 else v * 2 for n, v in settings.items()})
    return patches.unflatten(1, (groups, -1)).transpose(0, 1).mT.flatten(1, 2)


CONV_1D, CONV_2D, LINEAR = _aten.conv1d.default, _aten.conv2d.default, _aten.linear.default


CHANNEL_AXES = {CONV_1D: 1, CONV_2D: 1, LINEAR: -1}


def correct_bias(pair: LayerPair) -> None:
    """Shift the bias of the quantized layer so that the mean of each output channel equals that of the float layer.

    An int32 bias changes in place. A float bias, which a layer on int16 activations has, is replaced by a new constant. A layer without a
    constant bias stays as it is.
    """
    node = pair.node
    operand = node.args[2] if len(node.args) > 2 else None
    stored = pair.stored(operand)
    if not isinstance(operand, Node) or (stored is None and operand.op != "get_attr"):
        return
    axis = CHANNEL_AXES[node.target]
    differences = []
    for mine, real in zip(pair.here, pair.there, strict=True):
        difference = (real[pair.twin] - computed(node, mine)).double()
        channel = axis % difference.dim()
        differences.append(difference.mean([other for other in range(difference.dim()) if other != channel]))
    shift = torch.stack(differences).mean(0)
    if stored is None:
        _replace(pair, operand, shift)
        return
    changed = stored.double() + torch.round(shift / pair.scales(operand))
    pair.store(operand, changed.clamp(INT32_MIN, INT32_MAX))


def _replace(pair: LayerPair, bias: Node, shift: torch.Tensor) -> None:
    """Replace the layer's float bias by a new constant, ``bias + shift``. The old tensor does not change, because the float module also has
    it."""
    changed = (attrgetter(str(bias.target))(pair.quantized).double() + shift).float()
    constant = add_constant(pair.quantized, pair.node, f"{bias.target}_corrected", changed)
    pair.node.update_arg(2, constant)
    for known in pair.here:
        known[constant] = changed


LAYERS = (CONV_1D, CONV_2D, LINEAR)

Values = dict[Node, Any]


@dataclass(frozen=True, slots=True, eq=False)
class LayerPair:
    """A layer of the quantized module (``node``) and the same layer of the float module (``twin``).

    ``here`` has, for each sample, the values of the quantized module's nodes before the layer. ``there`` has the same for the float module,
    and the result of ``twin``.
    """

    real: GraphModule
    quantized: GraphModule
    node: Node
    twin: Node
    here: Sequence[Values]
    there: Sequence[Values]

    def stored(self, operand: object) -> torch.Tensor | None:
        """Return the integers of a constant operand of the quantized layer; None for any other operand."""
        if not isinstance(operand, Node) or not is_dequantize(operand) or operand.args[0].op != "get_attr":
            return None
        found: torch.Tensor = attrgetter(str(operand.args[0].target))(self.quantized)
        return found

    def scales(self, operand: Node) -> torch.Tensor:
        """Return the scale or the scales of a constant operand, as float64."""
        scale = operand.args[1]
        if isinstance(scale, Node):
            return attrgetter(str(scale.target))(self.quantized).double()
        return torch.tensor(float(scale), dtype=torch.float64)

    def store(self, operand: Node, values: torch.Tensor) -> None:
        """Overwrite the stored integers of a constant operand with ``values``, in place, and recompute the
        dequantized operand in the values of each sample (``here``)."""
        stored = self.stored(operand)
        assert stored is not None
        stored.copy_(values.to(stored.dtype))
        for known in self.here:
            known[operand] = computed(operand, {**known, operand.args[0]: stored})


Change = Callable[[LayerPair], None]


def layer_by_layer(
    real: GraphModule, quantized: GraphModule, samples: Sequence[ModelInputs], changes: Sequence[Change]
) -> None:
    """Apply the changes to each layer, in execution order. The inputs of a layer are computed by the layers before it, after their changes.

    ``real`` is the float module, whose operators have the same names as those of ``quantized``.
    """
    twins = {node.name: node for node in real.graph.nodes}
    ends = {side: _last_uses(side) for side in (real, quantized)}
    there: list[Values] = [_inputs(real, call) for call in samples]
    here: list[Values] = [_inputs(quantized, call) for call in samples]
    order = {node: place for place, node in enumerate(real.graph.nodes)}
    nodes = list(real.graph.nodes)
    reached = done = 0
    total = sum(node.target in LAYERS and node.name in twins for node in quantized.graph.nodes)
    with torch.no_grad():
        for node in quantized.graph.nodes:
            if node.op in ("placeholder", "output"):
                continue
            twin = twins.get(node.name)
            if twin is not None and node.op == "call_function" and node.target in LAYERS:
                while reached <= order[twin]:
                    _step(real, nodes[reached], there, ends[real])
                    reached += 1
                for change in changes:
                    change(LayerPair(real, quantized, node, twin, here, there))
                done += 1
                advance(done, total)
            _step(quantized, node, here, ends[quantized])
    quantized.recompile()


def _inputs(module: GraphModule, call: ModelInputs) -> Values:
    return dict(zip(module.graph.find_nodes(op="placeholder"), call.leaves, strict=True))


def _last_uses(module: GraphModule) -> dict[Node, list[Node]]:
    """Return for each node the operands that no later node reads. Constants are not among them."""
    last = {source: node for node in module.graph.nodes for source in node.all_input_nodes}
    found: dict[Node, list[Node]] = {}
    for source, node in last.items():
        if source.op != "get_attr":
            found.setdefault(node, []).append(source)
    return found


def _step(module: GraphModule, node: Node, samples: list[Values], ends: dict[Node, list[Node]]) -> None:
    for values in samples:
        if node.op == "get_attr":
            values[node] = attrgetter(str(node.target))(module)
        elif node.op == "call_function" and node not in values:
            values[node] = computed(node, values)
        if node.op != "output":
            for source in ends.get(node, ()):
                values.pop(source, None)


def computed(node: Node, values: Values) -> Any:
    """Execute a node with the values of its operands, and return the result."""
    args, kwargs = map_arg((node.args, node.kwargs), values.__getitem__)
    assert callable(node.target)
    return node.target(*args, **kwargs)


CONVOLUTIONS = (_aten.conv1d.default, _aten.conv2d.default)
KEEPING = frozenset({
    _aten.relu.default, _aten.relu_.default, _aten.leaky_relu.default, _aten.leaky_relu_.default, _aten.dropout.default,
    _aten.max_pool2d.default, _aten.avg_pool2d.default, _aten.adaptive_avg_pool2d.default,
})  # fmt: skip
"""Operators outside of training with f(c x) = c f(x) for a positive factor c of each channel."""

CLAMPS = frozenset({
    _aten.relu6.default, _aten.relu6_.default, _aten.hardtanh.default, _aten.hardtanh_.default, _aten.clamp.default,
    _aten.clamp_.default,
})  # fmt: skip
"""Operators that clamp. A channel's factor c passes through them if the lower bound is 0 and the channel stays below the upper bound."""

NEAR = 1e-5
"""The relative distance from a bound within which a channel's largest value counts as equal to the bound. It covers the rounding of
float32."""

CONVOLUTION_EXPONENT = 0.5
LARGEST_FACTOR = 2.0**12
LEAST_VALUE = 1e-12


@dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """Two layers between which a factor of a channel passes through all operators. ``clamps`` are the operators with an upper bound."""

    first: Node
    second: Node
    clamps: tuple[Node, ...] = ()

    @property
    def is_linear(self) -> bool:
        return self.second.target == _aten.linear.default

    @property
    def source(self) -> Node:
        """Return the input of the second layer."""
        found = self.second.args[0]
        assert isinstance(found, Node)
        return found

    def channels_of(self, values: torch.Tensor) -> torch.Tensor:
        """Return the largest magnitude of each channel of a value between the layers."""
        spatial = 0 if self.is_linear else 2 if self.second.target == CONVOLUTIONS[1] else 1
        axis = values.dim() - 1 - spatial
        return values.abs().amax([other for other in range(values.dim()) if other != axis])


def pairs(module: GraphModule) -> Iterator[Pair]:
    """Yield the pairs of layers between which channels can be equalized, in execution order."""
    for node in module.graph.nodes:
        if not _is_layer(module, node):
            continue
        here = node
        clamps: list[Node] = []
        while len(here.users) == 1:
            (user,) = here.users
            bound = upper_bound(user)
            if (user.target in KEEPING or bound is not None) and user.all_input_nodes == [here]:
                here = user
                clamps += [user] if bound not in (None, math.inf) else []
                continue
            if _is_layer(module, user) and user.args[0] is here and _channels_fit(module, node, user):
                yield Pair(node, user, tuple(clamps))
            break


def upper_bound(node: Node) -> float | None:
    """Return the upper bound of a clamp with the lower bound 0, infinity if it has no upper bound, or None for any other operator."""
    if node.target not in CLAMPS:
        return None
    if node.target in (_aten.relu6.default, _aten.relu6_.default):
        return 6.0
    low, high = [*node.args[1:], None, None][:2]
    if not isinstance(low, (int, float)) or low != 0:
        return None
    return math.inf if high is None else float(high) if isinstance(high, (int, float)) and high > 0 else None


def _is_layer(module: GraphModule, node: Node) -> bool:
    if node.op != "call_function" or node.target not in (*CONVOLUTIONS, _aten.linear.default):
        return False
    given = arguments_of(node)
    bias = given["bias"]
    return constant_of(module, given["weight"]) is not None and (bias is None or constant_of(module, bias) is not None)


def _channels_fit(module: GraphModule, first: Node, second: Node) -> bool:
    """Return whether the output channels of the first layer are the input channels of the second layer."""
    before, weight = (constant_of(module, node.args[1]) for node in (first, second))
    assert before is not None and weight is not None
    if (first.target == _aten.linear.default) != (second.target == LINEAR):
        return False
    groups = arguments_of(second).get("groups", 1)
    return int(weight.shape[1]) * groups == before.shape[0] and (groups == 1 or weight.shape[1] == 1)


def equalize(module: GraphModule, samples: Iterable[ModelInputs], convolutions: bool, smooth: float | None) -> None:
    """Equalize the channels between pairs of layers, in place, so that the channels of a tensor have similar ranges.

    Convolutions are equalized if ``convolutions`` is True, and linear layers if ``smooth`` is not None. ``smooth`` is
    the exponent for both; without it, convolutions use ``CONVOLUTION_EXPONENT``. Changed weights are new constants,
    so that the module's old tensors do not change.
    """
    wanted = [pair for pair in pairs(module) if (smooth is not None if pair.is_linear else convolutions)]
    if not wanted:
        return
    largest = _Largest(module, {node: pair for pair in wanted for node in (pair.source, *pair.clamps)})
    with torch.no_grad():
        for call in samples:
            largest.run(*call.leaves)
        for pair in wanted:
            _apply(module, pair, largest.found, CONVOLUTION_EXPONENT if smooth is None else smooth)
    module.graph.eliminate_dead_code()
    module.recompile()


class _Largest(Interpreter):
    """Runs a module and stores in ``found`` the largest magnitude of each channel of some nodes over all runs."""

    def __init__(self, module: GraphModule, nodes: Mapping[Node, Pair]) -> None:
        super().__init__(module)
        self.found: dict[Node, torch.Tensor] = {}
        self._nodes = nodes

    def run_node(self, n: Node) -> torch.Tensor:
        result: torch.Tensor = super().run_node(n)
        if n in self._nodes:
            values = self._nodes[n].channels_of(result)
            self.found[n] = torch.maximum(self.found[n], values) if n in self.found else values
        return result


def _apply(module: GraphModule, pair: Pair, found: Mapping[Node, torch.Tensor], exponent: float) -> None:
    largest = found[pair.source]
    weight = constant_of(module, pair.second.args[1])
    assert weight is not None
    groups = arguments_of(pair.second).get("groups", 1)
    if groups > 1:
        factors = largest.clone()
    elif pair.is_linear:
        factors = _of_torchao(weight, largest, exponent)
    else:
        by_input = weight.abs().amax([axis for axis in range(weight.dim()) if axis != 1])
        factors = largest**exponent / by_input.clamp_min(LEAST_VALUE) ** (1 - exponent)
    factors = torch.where((largest > 0) & torch.isfinite(factors), factors, torch.ones(()))
    # A factor that is common to all channels changes nothing: divide by the geometric mean.
    factors = factors / factors.log().mean().exp()
    if pair.clamps:
        shares = [found[clamp] / (upper_bound(clamp) or math.inf) for clamp in pair.clamps]
        factors = below(factors, torch.stack(shares).amax(0))
    factors = factors.clamp(1 / LARGEST_FACTOR, LARGEST_FACTOR)
    _multiply(module, pair.first, 1, lambda old: old / _shaped(factors, old, 0))
    _multiply(module, pair.first, 2, lambda old: old / factors)
    if groups > 1:
        each = weight.shape[0] // groups
        _multiply(module, pair.second, 1, lambda old: old * _shaped(factors.repeat_interleave(each), old, 0))
    else:
        _multiply(module, pair.second, 1, lambda old: old * _shaped(factors, old, 1))


def below(factors: torch.Tensor, shares: torch.Tensor) -> torch.Tensor:
    """Return ``factors``, by which the first layer's channels are divided, changed so that the clamp after the layer
    clips as before.

    ``shares``: the largest value of each channel, as a share of the clamp's bound. A channel that reaches the bound
    (share about 1) gets the factor 1. The factors of all other channels are divided by the geometric mean of the
    given factors of the channels at the bound. If no channel reaches the bound, all factors are multiplied by one
    number, such that the largest channel after the division just reaches the bound. At the end, a factor below its
    channel's share is raised to the share, so that no channel exceeds the bound.
    """
    there = shares >= 1 - NEAR
    if bool(there.any()):
        factors = factors / factors[there].log().mean().exp()
    elif bool(shares.any()):
        factors = factors * (shares / factors).max()
    return torch.where(there, torch.ones(()), torch.maximum(factors, shares))


def _of_torchao(weight: torch.Tensor, largest: torch.Tensor, exponent: float) -> torch.Tensor:
    """Return the factors of torchao's SmoothQuant."""
    from torchao.prototype.smoothquant.core import RunningAbsMaxSmoothQuantObserver

    observer = RunningAbsMaxSmoothQuantObserver(weight, exponent)
    observer(largest.reshape(1, -1))
    factors: torch.Tensor = observer.compute_smoothing_factor()
    return factors


def _shaped(factors: torch.Tensor, weight: torch.Tensor, axis: int) -> torch.Tensor:
    return factors.reshape([-1 if here == axis else 1 for here in range(weight.dim())])


def _multiply(module: GraphModule, node: Node, place: int, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Replace a constant argument of a layer by the changed one: its weight (``place`` 1) or its bias (``place`` 2).

    Other readers of the constant keep the old one.
    """
    operand = node.args[place] if place < len(node.args) else None
    if not isinstance(operand, Node):
        return
    old = constant_of(module, operand)
    assert old is not None
    made = add_constant(module, node, f"{operand.target!s}_equalized", change(old))
    node.update_arg(place, made)
