# SPDX-License-Identifier: BSD-3-Clause
"""Random graphs of int16 activations from a seed, with int8 between conversions here and there.

Most samplers are those of int8 graphs (random_graphs.py): a wide builder makes int16 tensors of what they call int8.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from openneutron.ir import DType, Graph, QuantParams, Tensor, per_tensor
from openneutron.ir.graph import AttrValue
from openneutron.ops import BY_NAME, reject
from openneutron.ops.elementwise import COMPARISONS
from tests.support import random_graphs
from tests.support.random_builder import Builder, Sampler
from tests.support.random_graphs import MOST_ELEMENTS
from tests.support.random_layers import ACTIVATIONS

STEPS = 256
"""int16 steps in an int8 one: real values have the ranges that they have in int8 graphs."""


class WideBuilder(Builder):
    """A graph in the making whose activations are int16; constants keep their type while ``are_weights``, all while ``is_narrow``."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.are_weights = self.is_narrow = False

    def quant(self, scale: float | None = None) -> QuantParams:
        quant = super().quant(scale)
        if self.is_narrow:
            return quant
        return per_tensor(quant.scale / STEPS if scale is None else scale, 0)

    def new(self, shape: Sequence[int], quant: QuantParams | None = None, dtype: DType = DType.INT8) -> Tensor:
        if self.is_narrow or dtype not in (DType.INT8, DType.INT16):
            return super().new(shape, quant, dtype)
        scale = (quant or self.quant()).scale
        tensor = Tensor(f"t{len(self.tensors)}", tuple(shape), DType.INT16, per_tensor(scale, 0))
        self.tensors[tensor.name] = tensor
        return tensor

    def const(self, data: np.ndarray, quant: QuantParams | None = None) -> Tensor:
        if self.is_narrow or quant is None:
            return super().const(data, quant)
        if self.are_weights:
            return super().const(data.astype(np.int64) if data.dtype == np.int32 else data, quant)
        if data.dtype == np.int8:
            low = self.random.integers(0, STEPS, data.shape)
            return super().const((data.astype(np.int32) * STEPS + low).astype(np.int16), per_tensor(quant.scale, 0))
        return super().const(data, quant)

    def node(self, op: str, inputs: Sequence[Tensor | None], output: Tensor, **attrs: AttrValue) -> Tensor:
        if op in ("add", "sub") and not self.is_narrow:
            attrs["pot_scale_int16"] = bool(self.random.random() < 0.5)
        return super().node(op, inputs, output, **attrs)

    @contextmanager
    def weights(self) -> Iterator[None]:
        """Make constants as they are stated, with biases of 64 bits."""
        self.are_weights = True
        yield
        self.are_weights = False

    @contextmanager
    def narrow(self) -> Iterator[None]:
        """Make int8 tensors."""
        self.is_narrow = True
        yield
        self.is_narrow = False


def _layer(op: str) -> Sampler:
    """With int8 weights and int64 biases."""

    def sample(b: Builder, source: Tensor) -> Tensor | None:
        assert isinstance(b, WideBuilder)
        with b.weights():
            return random_graphs.SAMPLERS[op](b, source)

    return sample


def _two(op: str) -> Sampler:
    """With itself, a constant that may be broadcast, or any other tensor of its shape."""

    def sample(b: Builder, source: Tensor) -> Tensor | None:
        others = [
            t for t in b.tensors.values() if t.shape == source.shape and t.dtype is DType.INT16 and not t.is_constant
        ]
        shape = tuple(extent if b.random.random() < 0.7 else 1 for extent in source.shape)
        other = b.const(b.random.integers(-128, 128, shape).astype(np.int8), b.quant())
        if b.random.random() < 0.5:
            other = others[int(b.random.integers(len(others)))]
        operands = [source, other] if b.random.random() < 0.5 else [other, source]
        return b.node(op, operands, b.new(source.shape), activation=b.choice(*ACTIVATIONS))

    return sample


def prelu(b: Builder, source: Tensor) -> Tensor | None:
    """With int8 slopes."""
    assert isinstance(b, WideBuilder)
    shape = tuple(extent if b.random.random() < 0.5 else 1 for extent in source.shape)
    with b.narrow():
        slopes = b.const(b.random.integers(-128, 128, shape).astype(np.int8), b.quant())
    return b.node("prelu", [source, slopes], b.new(source.shape))


def _function(op: str) -> Sampler:
    def sample(b: Builder, source: Tensor) -> Tensor | None:
        quant = per_tensor(2.0**-15, 0) if BY_NAME[op].fixed_output else None
        attrs = {"alpha": float(np.float32(b.random.uniform(-1.0, 1.5)))} if op == "leaky_relu" else {}
        attrs |= {"beta": b.choice(1.0, 0.5, 2.0)} if op == "softmax" else {}
        attrs |= {"approximate": b.choice(True, False)} if op == "gelu" else {}
        if op == "rsqrt":  # LiteRT refuses values below 0.
            source = b.node("relu", [source], b.new(source.shape))
        return b.node(op, [source], b.new(source.shape, quant), **attrs)

    return sample


def quantize(b: Builder, source: Tensor) -> Tensor | None:
    """To another scale, or to int8, where another operator may be, and back."""
    assert isinstance(b, WideBuilder)
    if b.random.random() < 0.3:
        return b.node("quantize", [source], b.new(source.shape))
    with b.narrow():
        inner: Tensor | None = b.node("quantize", [source], b.new(source.shape))
        assert inner is not None
        if b.random.random() < 0.6:
            count = len(b.nodes)
            inner = random_graphs.SAMPLERS[str(b.choice(*NARROW))](b, inner)
            if inner is None or inner.dtype is not DType.INT8 or not inner.shape:
                del b.nodes[count - 1 :]
                return None
    return b.node("quantize", [inner], b.new(inner.shape))


NARROW = ("add", "mul", "conv_2d", "depthwise_conv_2d", "hard_swish", "lookup", "transpose", "max_pool_2d")
"""Operators between conversions to int8 and back."""


def batch_matmul(b: Builder, source: Tensor) -> Tensor | None:
    """By a constant: the scales of int16 products are far apart from those of int8."""
    if len(source.shape) < 2:
        return None
    assert source.quant is not None
    depth, columns = source.shape[-1], b.up_to(9)
    shape = (*(extent if b.random.random() < 0.6 else 1 for extent in source.shape[:-2]), depth, columns)
    other = b.const(b.random.integers(-128, 128, shape).astype(np.int8), b.quant())
    assert other.quant is not None
    scale = source.quant.scale * other.quant.scale * 2**14 * depth**0.5 * float(b.random.uniform(0.3, 3))
    output = b.new((*source.shape[:-1], columns), per_tensor(scale, 0))
    return b.node("batch_matmul", [source, other], output, adj_x=False, adj_y=False)


LAYERS = ("conv_2d", "depthwise_conv_2d", "fully_connected", "transpose_conv", "batch_to_space_nd")

_OWN: dict[str, Sampler] = {
    **{op: _layer(op) for op in LAYERS},
    **{op: _two(op) for op in ("add", "sub", "mul")},
    **{op: _function(op) for op in ("softmax", "leaky_relu", "gelu", "rsqrt", "logistic", "tanh")},
    "prelu": prelu,
    "quantize": quantize,
    "batch_matmul": batch_matmul,
}

SAMPLERS: dict[str, Sampler] = {
    op: _OWN.get(op, random_graphs.SAMPLERS[op])
    for op in random_graphs.SAMPLERS
    if DType.INT16 in BY_NAME[op].types or op in COMPARISONS
}
"""One sampler for each operator that the table has for int16, in the order of the table's samplers."""


def single(op: str, seed: int) -> Graph | None:
    """A graph of one node of this operator, with those before it where it does not take every input; None where it takes no image."""
    for attempt in range(100):
        b = WideBuilder(seed * 1000 + attempt)
        source = b.input((b.choice(1, 1, 1, 2), b.up_to(9), b.up_to(9), b.choice(1, 3, 8, b.up_to(20))))
        output = SAMPLERS[op](b, source)
        if output is not None and output.elements <= MOST_ELEMENTS and not _is_refused(b, 0):
            return b.graph([output])
    return None


def several(seed: int, least: int = 3, most: int = 12) -> Graph:
    """A graph of about ``least`` to ``most`` nodes with branches, all of which compile; everything nobody reads is an output."""
    b = WideBuilder(seed)
    values = [
        b.input((b.choice(1, 1, 1, 2), b.up_to(9), b.up_to(9), b.choice(1, 3, 8, b.up_to(20))))
        for _ in range(b.up_to(2))
    ]
    others: list[Tensor] = []
    count, names = int(b.random.integers(least, most + 1)), [op for op in SAMPLERS if op not in random_graphs.ALONE]
    while len(b.nodes) < count:
        source = values[-1 - int(b.random.integers(min(3, len(values))))]
        before = len(b.nodes), len(b.inputs), dict(b.tensors)
        output = SAMPLERS[names[int(b.random.integers(len(names)))]](b, source)
        if output is None or output.elements > MOST_ELEMENTS or _is_refused(b, before[0]):
            del b.nodes[before[0] :], b.inputs[before[1] :]
            b.tensors = before[2]
            continue
        (values if output.dtype is DType.INT16 and output.shape else others).append(output)
    read = {name for node in b.nodes for name in node.inputs}
    unread = [value for value in values + others if value.name not in read and value.name not in b.inputs]
    return b.graph(unread or [b.tensors[b.nodes[-1].outputs[0]]])


def _is_refused(b: Builder, first: int) -> bool:
    graph = Graph("main", b.tensors, tuple(b.nodes), tuple(b.inputs), ())
    return any(reject(graph, node) is not None for node in b.nodes[first:])
