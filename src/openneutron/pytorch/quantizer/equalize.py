# SPDX-License-Identifier: BSD-3-Clause
"""Channels of like size between two layers, in float: each is divided behind the first layer and multiplied inside the second.

It is exact where only a function f(c x) = c f(x), c > 0, is between the layers, such as a ReLU. The factors are those of SmoothQuant (Xiao et
al., arXiv 2211.10438): the largest value of a channel to the power a, divided by its largest weight to the power 1 - a. Cross-layer
equalization (Nagel et al., arXiv 1906.04721) has the same form, with weights alone. In front of a depthwise convolution a is 1,
because each of its channels has a scale of its own.

A ReLU6 ends at one bound for all channels. A channel that reaches the bound keeps its size, and no other channel grows beyond
the bound, so that the result is the same on all samples. (The paper replaces ReLU6 by ReLU, which changes the result.)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch.fx import GraphModule, Interpreter, Node

from openneutron.pytorch.graph.program import arguments_of
from openneutron.pytorch.graph.rewriting import add_constant, constant_of
from openneutron.pytorch.source.exporting import ModelInputs

_aten = torch.ops.aten
CONVOLUTIONS = (_aten.conv1d.default, _aten.conv2d.default)
LINEAR = _aten.linear.default
KEEPING = frozenset({
    _aten.relu.default, _aten.relu_.default, _aten.leaky_relu.default, _aten.leaky_relu_.default, _aten.dropout.default,
    _aten.max_pool2d.default, _aten.avg_pool2d.default, _aten.adaptive_avg_pool2d.default,
})  # fmt: skip
"""Operators that a positive factor of a channel passes through, outside of training."""

CLAMPS = frozenset({
    _aten.relu6.default, _aten.relu6_.default, _aten.hardtanh.default, _aten.hardtanh_.default, _aten.clamp.default,
    _aten.clamp_.default,
})  # fmt: skip
"""Operators that a factor passes through where they begin at 0 and a channel stays below their upper bound."""

NEAR = 1e-5
"""A channel reaches a bound where its largest value is nearer than this, in parts of the bound: rounding of float32."""

CONVOLUTION_EXPONENT = 0.5
LARGEST_FACTOR = 2.0**12
LEAST_VALUE = 1e-12


@dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """Two layers with nothing between them but operators that a factor passes through, ``clamps`` among them."""

    first: Node
    second: Node
    clamps: tuple[Node, ...] = ()

    @property
    def is_linear(self) -> bool:
        return self.second.target == LINEAR

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
    """Yield the pairs of layers in a module, in execution order."""
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
    """Return the bound at which a clamp that begins at 0 ends, infinity for a ReLU in this form; None for other operators."""
    if node.target not in CLAMPS:
        return None
    if node.target in (_aten.relu6.default, _aten.relu6_.default):
        return 6.0
    low, high = [*node.args[1:], None, None][:2]
    if not isinstance(low, (int, float)) or low != 0:
        return None
    return math.inf if high is None else float(high) if isinstance(high, (int, float)) and high > 0 else None


def _is_layer(module: GraphModule, node: Node) -> bool:
    if node.op != "call_function" or node.target not in (*CONVOLUTIONS, LINEAR):
        return False
    given = arguments_of(node)
    bias = given["bias"]
    return constant_of(module, given["weight"]) is not None and (bias is None or constant_of(module, bias) is not None)


def _channels_fit(module: GraphModule, first: Node, second: Node) -> bool:
    """Return whether the channels of the first layer's result are those of the second layer's input."""
    before, weight = (constant_of(module, node.args[1]) for node in (first, second))
    assert before is not None and weight is not None
    if (first.target == LINEAR) != (second.target == LINEAR):
        return False
    groups = arguments_of(second).get("groups", 1)
    return int(weight.shape[1]) * groups == before.shape[0] and (groups == 1 or weight.shape[1] == 1)


def equalize(module: GraphModule, samples: Iterable[ModelInputs], convolutions: bool, smooth: float | None) -> None:
    """Change the weights of the pairs of ``convolutions``, and with an exponent ``smooth`` those of linear layers. In place; the
    tensors that the module had stay as they are."""
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
    """Keeps the largest magnitude of each channel of some nodes, over all runs."""

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
    # A factor that all channels have changes nothing.
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
    """Return factors with which a clamp computes the same. ``shares``: the largest value of each channel in parts of the bound.

    The channels that reach the bound have the factor 1. Without any, the largest channel just reaches it.
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
    """Give a layer another constant: its weight (1) or its bias (2). One that is read elsewhere too stays there."""
    operand = node.args[place] if place < len(node.args) else None
    if not isinstance(operand, Node):
        return
    old = constant_of(module, operand)
    assert old is not None
    made = add_constant(module, node, f"{operand.target!s}_equalized", change(old))
    node.update_arg(place, made)
