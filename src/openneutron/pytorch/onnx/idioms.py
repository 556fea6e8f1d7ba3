# SPDX-License-Identifier: BSD-3-Clause
"""Groups of nodes that exporters write for one operator of PyTorch, and the operator in their place.

An idiom is found at its last node. It becomes one step that reads the inputs of the group. The other nodes of the group stay if another
node reads them, and are left out of the module otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from openneutron.pytorch.onnx.operators import OPERATORS
from openneutron.pytorch.onnx.operators.table import OWN, NodeView, Values, converts

if TYPE_CHECKING:
    from openneutron.pytorch.onnx.graph import Importer, Step


class Idiom(NamedTuple):
    """The operator of the domain ``OWN`` that takes the place of a group, its attributes, and the names of its inputs."""

    operator: str
    attributes: Mapping[str, Any]
    inputs: tuple[str, ...]


Finder: TypeAlias = "Callable[[Importer, NodeView, tuple[str, ...]], Idiom | None]"

_FINDERS: dict[str, list[Finder]] = {}


def _ends(*operators: str) -> Callable[[Finder], Finder]:
    """Enter a function that finds an idiom whose last node is one of these operators."""

    def enter(finder: Finder) -> Finder:
        for operator in operators:
            _FINDERS.setdefault(operator, []).append(finder)
        return finder

    return enter


def idiom_of(importer: Importer, node: NodeView, inputs: tuple[str, ...]) -> Idiom | None:
    """Return the idiom that ends in a node, or None."""
    for finder in _FINDERS.get(node.operator, ()):
        if (found := finder(importer, node, inputs)) is not None:
            return found
    return None


def _made_by(importer: Importer, name: str, *operators: str) -> Step | None:
    """Return the step that computes a value, if it is one of these operators; copies are seen through."""
    step = importer.maker(name)
    while step is not None and _is_copy(importer, step):
        step = importer.maker(step.inputs[0])
    return step if step is not None and step.node.operator in operators else None


def _is_copy(importer: Importer, step: Step) -> bool:
    source = importer.shapes.get(step.inputs[0]) if step.inputs else None
    return step.node.operator == "Identity" or (
        step.node.operator == "Cast" and source is not None and source.dtype == importer.shapes[step.outputs[0]].dtype
    )


def _constant_and_other(importer: Importer, inputs: Sequence[str]) -> tuple[np.ndarray[Any, Any], str] | None:
    """Return the constant operand of two, and the name of the other; None if not exactly one is constant."""
    known = [name in importer.constants for name in inputs]
    if len(inputs) != 2 or known[0] == known[1]:
        return None
    return importer.constants[inputs[known.index(True)]], inputs[known.index(False)]


def _constant(importer: Importer, name: str, value: np.ndarray[Any, Any]) -> str:
    new = f"{name}@idiom"
    importer.constants[new] = value
    return new


# -- reciprocal of a root ----------------------------------------------------------------------------------------------


@_ends("Reciprocal")
def _find_rsqrt(importer: Importer, node: NodeView, inputs: tuple[str, ...]) -> Idiom | None:
    root = _made_by(importer, inputs[0], "Sqrt")
    return Idiom("Rsqrt", {}, root.inputs) if root else None


@converts("Rsqrt", domain=OWN)
def _rsqrt(node: NodeView, x: Tensor) -> Values:
    return torch.rsqrt(x)


# -- softmax and its logarithm, with the maximum subtracted ------------------------------------------------------------


@_ends("Div")
def _find_softmax(importer: Importer, node: NodeView, inputs: tuple[str, ...]) -> Idiom | None:
    """Find ``exp(x - max(x)) / sum(exp(x - max(x)))`` over one axis."""
    exponential = _made_by(importer, inputs[0], "Exp")
    summed = _made_by(importer, inputs[1], "ReduceSum")
    if not exponential or not summed or _made_by(importer, summed.inputs[0], "Exp") is not exponential:
        return None
    source = _less_maximum(importer, exponential.inputs[0], summed)
    return Idiom("Softmax", {"axis": _axis(importer, summed)}, (source,)) if source else None


@_ends("Sub")
def _find_log_softmax(importer: Importer, node: NodeView, inputs: tuple[str, ...]) -> Idiom | None:
    """Find ``z - log(sum(exp(z)))`` with ``z = x - max(x)`` over one axis."""
    logarithm = _made_by(importer, inputs[1], "Log")
    summed = logarithm and _made_by(importer, logarithm.inputs[0], "ReduceSum")
    exponential = summed and _made_by(importer, summed.inputs[0], "Exp")
    shifted = _made_by(importer, inputs[0], "Sub")
    if not summed or not exponential or not shifted or _made_by(importer, exponential.inputs[0], "Sub") is not shifted:
        return None
    source = _less_maximum(importer, inputs[0], summed)
    return Idiom("LogSoftmax", {"axis": _axis(importer, summed)}, (source,)) if source else None


def _less_maximum(importer: Importer, name: str, summed: Step) -> str | None:
    """Return the value whose maximum over the axis of a sum is subtracted in ``name``."""
    shifted = _made_by(importer, name, "Sub")
    maximum = shifted and _made_by(importer, shifted.inputs[1], "ReduceMax")
    if not shifted or not maximum or maximum.inputs[0] != shifted.inputs[0]:
        return None
    axis = _axis(importer, summed)
    return shifted.inputs[0] if axis is not None and axis == _axis(importer, maximum) else None


def _axis(importer: Importer, step: Step) -> int | None:
    """Return the axis of a reduction over a single axis that keeps this axis with the length 1. Return None if
    ``keepdims`` is 0, or if there are several axes, none are given, or they are not constant."""
    axes = _axes(importer, step)
    return axes[0] if len(axes) == 1 and step.node.get("keepdims", 1) else None


def _axes(importer: Importer, step: Step) -> tuple[int, ...]:
    """Return the axes of a reduction; none if they are not given, or no constants."""
    given = step.node.get("axes")
    if len(step.inputs) > 1 and step.inputs[1]:
        given = importer.constants.get(step.inputs[1])
    rank = importer.shapes[step.inputs[0]].dim()
    return () if given is None else tuple(int(axis) % rank for axis in np.ravel(given))


@converts("Softmax", domain=OWN)
def _softmax(node: NodeView, x: Tensor) -> Values:
    return F.softmax(x, node.get("axis"))


@converts("LogSoftmax", domain=OWN)
def _log_softmax(node: NodeView, x: Tensor) -> Values:
    return F.log_softmax(x, node.get("axis"))


@_ends("Where")
def _find_guarded_softmax(importer: Importer, node: NodeView, inputs: tuple[str, ...]) -> Idiom | None:
    """Find ``where(max(mask) == -inf, 0, softmax(scores + mask))``, which ONNX's definition of Attention has. It
    gives 0 for rows whose mask is all ``-inf``.

    It becomes the softmax alone: an int8 mask has no ``-inf``, and the result of a row without any key is not used.
    """
    softmax, equal = _made_by(importer, inputs[2], "Softmax"), _made_by(importer, inputs[0], "Equal")
    masked = softmax and _made_by(importer, softmax.inputs[0], "Add")
    operands = equal and _constant_and_other(importer, equal.inputs)
    largest = operands and _made_by(importer, operands[1], "ReduceMax")
    zero = importer.constants.get(inputs[1])
    if not softmax or not masked or not operands or not largest or zero is None or zero.any():
        return None
    last = importer.shapes[softmax.outputs[0]].dim() - 1
    axis = softmax.node.get("axis", -1 if softmax.node.version >= 13 else 1)
    if axis not in (-1, last) or not np.isneginf(operands[0]).all() or largest.inputs[0] not in masked.inputs:
        return None
    if _axis(importer, largest) != importer.shapes[largest.inputs[0]].dim() - 1:
        return None
    return Idiom("Softmax", {"axis": -1}, softmax.inputs)


# -- a mean as a sum over the number of its terms ----------------------------------------------------------------------


@_ends("Div")
def _find_mean(importer: Importer, node: NodeView, inputs: tuple[str, ...]) -> Idiom | None:
    summed, count = _made_by(importer, inputs[0], "ReduceSum"), importer.constants.get(inputs[1])
    axes = _axes(importer, summed) if summed else ()
    if not summed or not axes or count is None or not importer.shapes[inputs[0]].is_floating_point():
        return None
    shape, result = importer.shapes[summed.inputs[0]].shape, tuple(importer.shapes[inputs[0]].shape)
    if (count != np.prod([shape[axis] for axis in axes])).any() or count.ndim > len(result):
        return None
    if np.broadcast_shapes(count.shape, result) != result:
        return None
    return Idiom("Mean", {"axes": axes, "keepdims": summed.node.get("keepdims", 1)}, summed.inputs[:1])


@converts("Mean", domain=OWN)
def _mean(node: NodeView, x: Tensor) -> Values:
    return x.mean(node.get("axes"), bool(node.get("keepdims")))


# -- group normalization: an instance normalization of groups, and a factor and a bias for each channel -----------------


@_ends("Reshape")
def _find_group_norm(importer: Importer, node: NodeView, inputs: tuple[str, ...]) -> Idiom | None:
    """Find a normalization of (batch, groups, the rest) whose result has the shape of the operand again."""
    norm = _made_by(importer, inputs[0], "InstanceNormalization")
    grouped = norm and _made_by(importer, norm.inputs[0], "Reshape")
    if not norm or not grouped or inputs[1] not in importer.constants:
        return None
    scale, bias = (importer.constants.get(name) for name in norm.inputs[1:3])
    source = importer.shapes[grouped.inputs[0]]
    groups = importer.shapes[norm.inputs[0]].shape
    if scale is None or bias is None or (scale != 1).any() or bias.any() or source.dim() < 3:
        return None
    if len(groups) != 3 or groups[0] != source.shape[0] or source.shape[1] % groups[1]:
        return None
    if list(importer.constants[inputs[1]]) != list(source.shape):
        return None
    return Idiom("GroupNorm", {"groups": groups[1], "epsilon": norm.node.get("epsilon", 1e-5)}, grouped.inputs[:1])


@_ends("Mul", "Add")
def _find_affine(importer: Importer, node: NodeView, inputs: tuple[str, ...]) -> Idiom | None:
    """Find the factor or the bias for each channel behind a group normalization."""
    operands = _constant_and_other(importer, inputs)
    norm = operands and _made_by(importer, operands[1], "GroupNorm")
    if not operands or not norm or len(norm.inputs) != (1 if node.operator == "Mul" else 2):
        return None
    shape, value = importer.shapes[norm.inputs[0]].shape, operands[0]
    if value.size != shape[1] or value.ndim < len(shape) - 1 or value.shape[1 - len(shape)] != shape[1]:
        return None
    return Idiom(
        "GroupNorm",
        norm.node.attributes,
        (*norm.inputs, _constant(importer, node.names[0], value.reshape(-1))),
    )


@converts("GroupNorm", domain=OWN)
def _group_norm(node: NodeView, x: Tensor, scale: Tensor | None = None, bias: Tensor | None = None) -> Values:
    return F.group_norm(x, node.get("groups"), scale, bias, node.get("epsilon"))


# -- attention whose queries and keys are both scaled -------------------------------------------------------------------


@_ends("MatMul")
def _find_attention(importer: Importer, node: NodeView, inputs: tuple[str, ...]) -> Idiom | None:
    """Find the decomposition of ``scaled_dot_product_attention`` that torch.onnx writes: queries and keys are multiplied by the root of the
    scale."""
    softmax = _made_by(importer, inputs[0], "Softmax")
    if not softmax or len(importer.readers(softmax.outputs[0])) > 1 or importer.shapes[inputs[0]].dim() != 4:
        return None
    if softmax.node.get("axis", -1 if softmax.node.version >= 13 else 1) not in (-1, 3):
        return None
    product = _made_by(importer, softmax.inputs[0], "MatMul", "Add")
    mask: tuple[str, ...] = ()
    if product and product.node.operator == "Add":
        sides = [_made_by(importer, name, "MatMul") for name in product.inputs]
        if (sides[0] is None) == (sides[1] is None):
            return None
        place = 0 if sides[0] else 1
        mask, product = (product.inputs[1 - place],), sides[place]
    if not product:
        return None
    left, right = (_scaled(importer, name) for name in product.inputs)
    if left is None or right is None:
        return None
    (queries, first), (keys, second) = left, right
    return Idiom("Attention", {"scale": first * second}, (queries, _untransposed(importer, keys), inputs[1], *mask))


def _scaled(importer: Importer, name: str) -> tuple[str, float] | None:
    """Return the operand and the factor of a product with a number."""
    step = _made_by(importer, name, "Mul")
    operands = step and _constant_and_other(importer, step.inputs)
    return (operands[1], operands[0].item()) if operands and operands[0].size == 1 else None


_MOST_MOVES = 4
"""The most nodes between keys and their transposition: torch.onnx writes Reshape, Transpose and Reshape."""


def _untransposed(importer: Importer, name: str) -> str:
    """Return the value whose last two axes are exchanged in ``name``. A transposition is entered if no earlier value is this one."""
    shape = importer.shapes[name].shape
    wanted = (*shape[:-2], shape[-1], shape[-2])
    moves: list[Step] = []
    here = name
    while len(moves) < _MOST_MOVES and (step := importer.maker(here)) is not None:
        if step.node.operator not in ("Reshape", "Transpose", "Identity"):
            break
        moves.append(step)
        here = step.inputs[0]
        if here not in importer.shapes:
            break
        if importer.shapes[here].shape == wanted:
            places = torch.arange(int(np.prod(wanted))).reshape(wanted)
            if torch.equal(importer.computed(moves[::-1], {here: places})[name], places.transpose(-1, -2)):
                return here
    order = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
    importer.enter("Transpose", {"perm": order}, (name,), f"{name}@transposed")
    return f"{name}@transposed"


@converts("Attention", domain=OWN)
def _attention(node: NodeView, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Values:
    return F.scaled_dot_product_attention(q, k, v, mask, scale=node.get("scale"))


# -- a layer of constant weights and its bias ---------------------------------------------------------------------------


@_ends("Add")
def _find_linear(importer: Importer, node: NodeView, inputs: tuple[str, ...]) -> Idiom | None:
    operands = _constant_and_other(importer, inputs)
    product = operands and _made_by(importer, operands[1], "MatMul")
    if not operands or not product or len(importer.readers(product.outputs[0])) > 1:
        return None
    weights = importer.constants.get(product.inputs[1])
    if weights is None or weights.ndim != 2 or operands[0].shape != weights.shape[1:]:
        return None
    if importer.shapes[product.inputs[0]].dim() < 2:
        return None
    transposed = _constant(importer, f"{node.names[0]}.weights", np.ascontiguousarray(weights.T))
    return Idiom("Linear", {}, (product.inputs[0], transposed, _constant(importer, node.names[0], operands[0])))


@converts("Linear", domain=OWN)
def _linear(node: NodeView, x: Tensor, weights: Tensor, bias: Tensor) -> Values:
    return F.linear(x, weights, bias)


# -- products of dynamically quantized values ---------------------------------------------------------------------------


@_ends("Mul")
def _find_scaled_product(importer: Importer, node: NodeView, inputs: tuple[str, ...]) -> Idiom | None:
    """Find a product with integer weights and their scales behind it: a product with real weights."""
    operands = _constant_and_other(importer, inputs)
    product = operands and _made_by(importer, operands[1], "MatMulInteger", "ConvInteger")
    if not operands or not product or product.inputs[1] not in importer.constants:
        return None
    if not importer.shapes[product.outputs[0]].is_floating_point():
        return None
    weights, scale = importer.constants[product.inputs[1]], operands[0]
    zero = importer.constants.get(product.inputs[3]) if len(product.inputs) > 3 else None
    parts = [np.zeros(1) if one is None else np.asarray(one, np.float32).reshape(-1) for one in (zero, scale)]
    if product.node.operator == "ConvInteger":
        parts = [one.reshape(-1, *[1] * (weights.ndim - 1)) for one in parts]
    elif scale.size > 1 and scale.shape[-1:] != (scale.size,):
        return None
    real = ((weights.astype(np.float32) - parts[0]) * parts[1]).astype(np.float32)
    if real.shape != weights.shape:
        return None
    operator = product.node.operator.removesuffix("Integer")
    return Idiom(operator, product.node.attributes, (product.inputs[0], _constant(importer, node.names[0], real)))


OPERATORS.update({(OWN, operator): OPERATORS["", operator] for operator in ("MatMul", "Conv")})


# -- adaptive pooling with windows of different sizes -------------------------------------------------------------------

_LINEAR = ("Add", "Gather", "GatherND", "Where", "Transpose", "Reshape", "Unsqueeze", "Squeeze", "Identity")
"""The operators of which torch.onnx makes the sums of adaptive pooling. Each is linear if its other inputs are constants."""

_MOST_STEPS = 256


@_ends("Div")
def _find_adaptive_pool(importer: Importer, node: NodeView, inputs: tuple[str, ...]) -> Idiom | None:
    """Find an adaptive average pool that is written as sums of gathered elements, divided by the sizes of their
    windows.

    The nodes are computed on random values and compared with PyTorch's pool. Linear functions that agree there are
    equal.
    """
    sums = _made_by(importer, inputs[0], "Add")
    if not sums or inputs[1] not in importer.constants or importer.shapes[inputs[0]].dim() != 4:
        return None
    steps, source = _linear_part(importer, inputs[0])
    if source is None or not {"Gather", "Where"} <= {step.node.operator for step in steps}:
        return None
    shape, result = importer.shapes[source].shape, importer.shapes[inputs[0]].shape
    if len(shape) != 4 or shape[:2] != result[:2]:
        return None
    given = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    found = importer.computed(steps, {source: given})[inputs[0]] / torch.from_numpy(importer.constants[inputs[1]])
    if found.shape != result or not torch.allclose(found, F.adaptive_avg_pool2d(given, result[2:]), 1e-4, 1e-5):
        return None
    return Idiom("AdaptiveAveragePool", {"size": tuple(result[2:])}, (source,))


def _linear_part(importer: Importer, name: str) -> tuple[list[Step], str | None]:
    """Return the linear steps behind a value in their order, and the one value that they begin with; None if there are several."""
    wanted, sources = {name}, set[str]()
    steps: list[Step] = []
    for step in reversed(importer.steps):
        if not wanted.intersection(step.outputs):
            continue
        if step.node.operator not in _LINEAR or len(steps) >= _MOST_STEPS:
            sources |= wanted.intersection(step.outputs)
        else:
            steps.append(step)
            wanted |= {source for source in step.inputs if source and source not in importer.constants}
        wanted -= set(step.outputs)
    sources |= wanted
    return steps[::-1], sources.pop() if len(sources) == 1 else None


@converts("AdaptiveAveragePool", domain=OWN)
def _adaptive_average(node: NodeView, x: Tensor) -> Values:
    return F.adaptive_avg_pool2d(x, node.get("size"))


# -- batch normalization of a quantized value ----------------------------------------------------------------------------


@_ends("BatchNormalization")
def _find_quantized_scale(importer: Importer, node: NodeView, inputs: tuple[str, ...]) -> Idiom | None:
    """Find a batch normalization that reads quantized values, which onnxruntime's quantizer leaves where no convolution is in front."""
    source, parameters = inputs[0], inputs[1:5]
    if _made_by(importer, source, "DequantizeLinear") is None:
        return None
    if node.get("training_mode", 0) or not all(name in importer.constants for name in parameters):
        return None
    scale, bias, mean, variance = (importer.constants[name].astype(np.float64) for name in parameters)
    factors = scale / np.sqrt(variance + node.get("epsilon", 1e-5))
    offsets = (bias - mean * factors).astype(np.float32)
    names = (f"{node.names[0]}@{part}" for part in ("factors", "offsets"))
    return Idiom(
        "ChannelScale",
        {},
        (source, *(_constant(importer, *pair) for pair in zip(names, (factors, offsets), strict=True))),
    )


_LARGEST_WEIGHT = 127

_CONVOLUTIONS = {3: F.conv1d, 4: F.conv2d}


@converts("ChannelScale", constants=(1,), domain=OWN)
def _channel_scale(node: NodeView, x: Tensor, factors: np.ndarray[Any, Any], offsets: Tensor) -> Values:
    """Return ``x * factors + offsets`` per channel, as a depthwise convolution with a kernel of one point. The int8
    weight of each channel stands for the channel's factor, with no error but that of float32.

    If the rank of ``x`` is neither 3 nor 4, return a product and a sum of floats.
    """
    if x.dim() not in _CONVOLUTIONS:
        along = [-1, *[1] * (x.dim() - 2)]
        real = node.constant("factors", factors.astype(np.float32).reshape(along))
        return x * real + (offsets.reshape(along) if x.dim() > 2 else offsets)
    scales = np.maximum(np.abs(factors) / _LARGEST_WEIGHT, np.finfo(np.float32).tiny).astype(np.float32)
    stored = (np.sign(factors) * _LARGEST_WEIGHT).astype(np.int8).reshape(-1, *[1] * (x.dim() - 1))
    weights = torch.ops.quantized_decomposed.dequantize_per_channel(
        node.constant("weights", stored),
        node.constant("scales", scales),
        node.constant("zeros", np.zeros(len(scales), np.int64)),
        *(0, -_LARGEST_WEIGHT, _LARGEST_WEIGHT, torch.int8),
    )
    return _CONVOLUTIONS[x.dim()](x, weights, offsets, groups=len(scales))


# -- powers between floats of a quantized graph ---------------------------------------------------------------------------


@_ends("Pow")
def _find_power_of_floats(importer: Importer, node: NodeView, inputs: tuple[str, ...]) -> Idiom | None:
    """Find a power of a quantized graph whose result stays float, as in an RMSNormalization. Its exponent is a
    constant in ``_POWERS``.

    It becomes products and roots, because ExecuTorch can't write a program with a power.
    """
    exponent = importer.constants.get(inputs[1])
    if exponent is None or exponent.size != 1 or exponent.ndim > importer.shapes[inputs[0]].dim():
        return None
    read = float(exponent.reshape(()))
    if read not in _POWERS or not _is_between_floats(importer, node):
        return None
    return Idiom("PowerOfFloats", {"exponent": read}, inputs[:1])


@_ends("ReduceL2")
def _find_norm_of_floats(importer: Importer, node: NodeView, inputs: tuple[str, ...]) -> Idiom | None:
    """Find an L2 norm over constant axes in a quantized graph, if nothing quantizes its result. PyTorch would compute
    it with powers."""
    if not _is_between_floats(importer, node) or not all(name in importer.constants for name in inputs[1:] if name):
        return None
    axes = tuple(int(axis) for axis in importer.constants[inputs[1]]) if inputs[1:] and inputs[1] else node.get("axes")
    return Idiom("NormOfFloats", {"axes": axes, "keepdims": node.get("keepdims", 1)}, inputs[:1]) if axes else None


def _is_between_floats(importer: Importer, node: NodeView) -> bool:
    """Return whether the graph is quantized but no QuantizeLinear reads the node's result. Such a node can't become a
    lookup table from its quantized input to its quantized result."""
    if not any(step.node.operator == "DequantizeLinear" for step in importer.steps):
        return False
    return "QuantizeLinear" not in importer.readers(node.names[0])


_POWERS: dict[float, Callable[[Tensor], Tensor]] = {
    2.0: lambda x: x * x, 3.0: lambda x: x * x * x, 4.0: lambda x: (x * x) * (x * x), 0.5: torch.sqrt, -0.5: torch.rsqrt,
    -1.0: torch.reciprocal, -2.0: lambda x: torch.reciprocal(x * x),
}  # fmt: skip


@converts("PowerOfFloats", domain=OWN)
def _power_of_floats(node: NodeView, x: Tensor) -> Values:
    return _POWERS[node.get("exponent")](x)


@converts("NormOfFloats", domain=OWN)
def _norm_of_floats(node: NodeView, x: Tensor) -> Values:
    return torch.sqrt(torch.sum(x * x, node.get("axes"), bool(node.get("keepdims"))))


_POINTWISE = ("Add", "Sub", "Mul", "Cast", "Less", "GreaterOrEqual", "Not", "Where", "Identity")

MOST_INDICES = 1 << 17
"""The most rows of a table for which indices are followed. A vocabulary has up to 256,000 rows, and most have fewer."""


def plain_indices(importer: Importer, name: str, rows: int) -> str:
    """Return the value whose elements are the indices ``name`` wherever they are from 0 to ``rows`` - 1, or ``name`` itself.

    tf2onnx adds the number of rows to negative indices in nine nodes on integers. Indices that are no constants are not negative here.
    """
    steps: dict[tuple[str, ...], Step] = {}
    sources, waiting = set(), [name]
    while waiting:
        value = waiting.pop()
        step = importer.maker(value)
        if value in importer.constants:
            if importer.constants[value].size != 1:
                return name
        elif step is None or step.node.operator not in _POINTWISE:
            sources.add(value)
        elif step.outputs not in steps:
            steps[step.outputs] = step
            waiting += step.inputs
    if not steps or len(sources) != 1 or rows > MOST_INDICES:
        return name
    (source,) = sources
    held, made = importer.shapes[source], importer.shapes[name]
    if held.shape != made.shape or held.dtype not in (torch.int32, torch.int64) or made.dtype != held.dtype:
        return name
    every = torch.arange(rows, dtype=held.dtype)
    found = importer.computed([step for step in importer.steps if step.outputs in steps], {source: every})[name]
    return source if torch.equal(found, every) else name
