# SPDX-License-Identifier: BSD-3-Clause
"""Random int8 graphs from a seed: one sampler for each operator of the table, alone or chained with branches."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from openneutron.ir import DType, Graph, QuantParams, Tensor, per_tensor
from openneutron.ops.elementwise import COMPARISONS
from tests.support import normalized, random_choices, random_composed, random_layers, random_movement, random_recurrent
from tests.support.random_builder import Builder, Sampler
from tests.support.random_layers import ACTIVATIONS
from tests.support.random_transposed import transpose_conv


def _reduction(op: str) -> Sampler:
    """Over any axes, of rows and columns more often than others."""

    def sample(b: Builder, source: Tensor) -> Tensor | None:
        rank = len(source.shape)
        axes = [axis for axis in range(rank) if b.random.random() < 0.5] or [rank - 1]
        if rank == 4 and b.random.random() < 0.4:
            axes = [1, 2]
        keep = bool(b.choice(True, False)) or len(axes) == rank
        shape = [1 if axis in axes else extent for axis, extent in enumerate(source.shape)]
        shape = [extent for axis, extent in enumerate(shape) if keep or axis not in axes]
        shared = op.startswith("reduce") or b.random.random() < 0.4
        given = [axis if b.random.random() < 0.7 else axis - rank for axis in axes]
        output = b.new(shape, source.quant if shared else None)
        return b.node(op, [source, b.integers(*given)], output, keep_dims=keep)

    return sample


def _extremum(op: str) -> Sampler:
    """With a constant of the same quantization."""

    def sample(b: Builder, source: Tensor) -> Tensor | None:
        shape = tuple(extent if b.random.random() < 0.6 else 1 for extent in source.shape)
        other = b.const(b.random.integers(-128, 128, shape).astype(np.int8), source.quant)
        operands = [source, other] if b.random.random() < 0.5 else [other, source]
        return b.node(op, operands, b.new(source.shape, source.quant))

    return sample


def prelu(b: Builder, source: Tensor) -> Tensor | None:
    """With slopes for each channel, for each element or any between."""
    shape = tuple(extent if b.random.random() < 0.5 else 1 for extent in source.shape)
    slopes = b.const(
        b.random.integers(-128, 128, shape[int(b.random.integers(len(shape))) :]).astype(np.int8), b.quant()
    )
    return b.node("prelu", [source, slopes], b.new(source.shape))


def squared_difference(b: Builder, source: Tensor) -> Tensor | None:
    """From a constant or from itself, with an output scale that LiteRT takes."""
    shape = tuple(extent if b.random.random() < 0.6 else 1 for extent in source.shape)
    other = b.const(b.random.integers(-128, 128, shape).astype(np.int8), b.quant())
    if b.random.random() < 0.1:
        other = source
    assert source.quant is not None and other.quant is not None
    square = max(source.quant.scale, other.quant.scale) ** 2
    operands = [source, other] if b.random.random() < 0.5 else [other, source]
    output = b.new(source.shape, b.quant(square * float(b.random.uniform(0.5, 600))))
    return b.node("squared_difference", operands, output)


def _two(op: str) -> Sampler:
    def sample(b: Builder, source: Tensor) -> Tensor | None:
        kind = b.choice("same", "constant", "broadcast", "other")
        shape = source.shape
        if kind == "broadcast" and len(shape) <= 4:
            shape = tuple(extent if b.random.random() < 0.5 else 1 for extent in shape)
        if kind == "same":
            other = source
        elif kind in ("constant", "broadcast"):
            other = b.const(b.random.integers(-128, 128, shape).astype(np.int8), b.quant())
        else:
            candidates = [t for t in b.tensors.values() if t.shape == shape and t.dtype is DType.INT8 and t.quant]
            candidates = [t for t in candidates if not t.quant.per_channel]
            other = candidates[int(b.random.integers(len(candidates)))]
        operands = [source, other] if b.random.random() < 0.5 else [other, source]
        return b.node(op, operands, b.new(source.shape), activation=b.choice(*ACTIVATIONS))

    return sample


def _table(op: str, quant: QuantParams | None = None, most_axes: int | None = None) -> Sampler:
    def sample(b: Builder, source: Tensor) -> Tensor | None:
        if most_axes is not None and len(source.shape) > most_axes:
            return None
        attrs = {"alpha": float(np.float32(b.random.uniform(-0.5, 1.5)))} if op == "leaky_relu" else {}
        shared = source.quant if quant is None and b.random.random() < 0.2 else quant
        return b.node(op, [source], b.new(source.shape, shared), **attrs)

    return sample


def neg(b: Builder, source: Tensor) -> Tensor | None:
    """From an input whose zero point turned in sign is one as well."""
    assert source.quant is not None
    if source.quant.zero_point == -128:
        source = b.node("quantize", [source], b.new(source.shape, per_tensor(source.quant.scale, 7)))
    assert source.quant is not None
    return b.node("neg", [source], b.new(source.shape, per_tensor(source.quant.scale, -source.quant.zero_point)))


def rsqrt(b: Builder, source: Tensor) -> Tensor | None:
    """Of values that are all 0 or above: LiteRT refuses others."""
    positive = b.node("quantize", [source], b.new(source.shape, per_tensor(float(b.random.uniform(0.01, 0.5)), -128)))
    return b.node("rsqrt", [positive], b.new(source.shape))


def sqrt(b: Builder, source: Tensor) -> Tensor | None:
    """Return the root of values that are not negative: LiteRT refuses others."""
    positive = b.node("quantize", [source], b.new(source.shape, per_tensor(float(b.random.uniform(0.01, 0.5)), -128)))
    return b.node("sqrt", [positive], b.new(source.shape))


def gelu(b: Builder, source: Tensor) -> Tensor | None:
    return b.node("gelu", [source], b.new(source.shape), approximate=b.choice(True, False))


def softmax(b: Builder, source: Tensor) -> Tensor | None:
    beta = b.choice(1.0, 0.5, 2.0)
    return b.node("softmax", [source], b.new(source.shape, per_tensor(1 / 256, -128)), beta=beta)


def softmax_rescaled(b: Builder, source: Tensor) -> Tensor | None:
    quant = per_tensor(b.choice(1 / 300, 1 / 5000, 2.0**-20), b.choice(-128, 0))
    return b.node("softmax_rescaled", [source], b.new(source.shape, quant), beta=b.choice(1.0, 0.5))


def log_softmax(b: Builder, source: Tensor) -> Tensor | None:
    return b.node("log_softmax", [source], b.new(source.shape, per_tensor(1 / 16, 127)))


def batch_matmul(b: Builder, source: Tensor) -> Tensor | None:
    """By a constant or by itself; either transposed, the constant's batches broadcast."""
    if len(source.shape) < 2:
        return None
    adj_x, adj_y = bool(b.choice(True, False)), bool(b.choice(True, False))
    depth = source.shape[-2] if adj_x else source.shape[-1]
    if b.random.random() < 0.2 and adj_x != adj_y:
        other = source
    else:
        batches = tuple(extent if b.random.random() < 0.6 else 1 for extent in source.shape[:-2])
        matrix = (b.up_to(9), depth) if adj_y else (depth, b.up_to(9))
        other = b.const(b.random.integers(-128, 128, (*batches, *matrix)).astype(np.int8), b.quant())
    columns = other.shape[-2] if adj_y else other.shape[-1]
    rows = source.shape[-1] if adj_x else source.shape[-2]
    assert source.quant is not None and other.quant is not None
    scale = source.quant.scale * other.quant.scale * 64 * depth**0.5
    output = b.new((*source.shape[:-2], rows, columns), b.quant(scale * float(b.random.uniform(0.3, 3))))
    return b.node("batch_matmul", [source, other], output, adj_x=adj_x, adj_y=adj_y)


def lookup(b: Builder, source: Tensor) -> Tensor | None:
    result = b.new(source.shape)
    entries = b.const(b.random.integers(-128, 128, 256).astype(np.int8), result.quant)
    return b.node("lookup", [source, entries], result)


SAMPLERS: dict[str, Sampler] = {
    "conv_2d": random_layers.conv_2d,
    "depthwise_conv_2d": random_layers.depthwise_conv_2d,
    "fully_connected": random_layers.fully_connected,
    "average_pool_2d": random_layers.pool("average_pool_2d"),
    "max_pool_2d": random_layers.pool("max_pool_2d"),
    "mean": _reduction("mean"),
    "reduce_max": _reduction("reduce_max"),
    "reduce_min": _reduction("reduce_min"),
    "add": _two("add"),
    "sub": _two("sub"),
    "mul": _two("mul"),
    "maximum": _extremum("maximum"),
    "minimum": _extremum("minimum"),
    "prelu": prelu,
    "squared_difference": squared_difference,
    "relu": _table("relu"),
    "relu6": _table("relu6"),
    "relu_n1_to_1": _table("relu_n1_to_1"),
    "relu_0_to_1": _table("relu_0_to_1"),
    "quantize": _table("quantize"),
    "abs": _table("abs"),
    "lookup": lookup,
    "exp": _table("exp"),
    "log": _table("log"),
    "logistic": _table("logistic", per_tensor(1 / 256, -128)),
    "tanh": _table("tanh", per_tensor(1 / 128, 0)),
    "neg": neg,
    "rsqrt": rsqrt,
    "gelu": gelu,
    "hard_swish": _table("hard_swish"),
    "leaky_relu": _table("leaky_relu"),
    "reshape": random_movement.reshape,
    "squeeze": random_movement.squeeze,
    "expand_dims": random_movement.expand_dims,
    "pad": random_movement.pad("pad"),
    "padv2": random_movement.pad("padv2"),
    "concatenation": random_movement.concatenation,
    "slice": random_movement.slice_,
    "strided_slice": random_movement.strided_slice,
    "transpose": random_movement.transpose,
    "softmax": softmax,
    "log_softmax": log_softmax,
    "l2_normalization": _table("l2_normalization", per_tensor(1 / 128, 0), most_axes=4),
    "softmax_rescaled": softmax_rescaled,
    "resize_nearest_neighbor": random_movement.resize_nearest_neighbor,
    "resize_bilinear": random_movement.resize_bilinear,
    "batch_matmul": batch_matmul,
    "gather": random_choices.gather(random_movement.indexed("gather")),
    "mirror_pad": random_movement.indexed("mirror_pad"),
    "reverse_v2": random_movement.indexed("reverse_v2"),
    "tile": random_movement.indexed("tile"),
    "broadcast_to": random_movement.indexed("broadcast_to"),
    "split": random_movement.pieces("split"),
    "split_v": random_movement.pieces("split_v"),
    "transpose_conv": transpose_conv,
    "unpack": random_movement.pieces("unpack"),
    "pack": random_movement.pack,
    **{op: random_choices.comparison(op) for op in COMPARISONS},
    "logical_and": random_choices.logical("logical_and", 2),
    "logical_or": random_choices.logical("logical_or", 2),
    "logical_not": random_choices.logical("logical_not", 1),
    "select_v2": random_choices.select_v2,
    "arg_max": random_choices.position("arg_max"),
    "arg_min": random_choices.position("arg_min"),
    "sqrt": sqrt,
    "elu": _table("elu"),
    "sum": random_composed.sum_,
    "depth_to_space": random_composed.depth_to_space,
    "space_to_depth": random_composed.space_to_depth,
    "space_to_batch_nd": random_composed.space_to_batch_nd,
    "batch_to_space_nd": random_composed.batch_to_space_nd,
    "gather_nd": random_composed.gather_nd,
    "embedding_lookup": random_composed.embedding_lookup,
    "scatter_nd": random_composed.scatter_nd,
    "sparse_to_dense": random_composed.sparse_to_dense,
    "dynamic_update_slice": random_composed.dynamic_update_slice,
    "one_hot": random_composed.one_hot,
    "matrix_diag": random_composed.matrix_diag,
    "matrix_set_diag": random_composed.matrix_set_diag,
    "dilate": random_composed.dilate,
    "fill": random_composed.fill,
    "shape": random_composed.extents("shape"),
    "rank": random_composed.extents("rank"),
    "select": random_composed.select,
    "reduce_any": random_composed.over_axes("reduce_any"),
    "reduce_all": random_composed.over_axes("reduce_all"),
    "cast": random_composed.cast,
    "bitcast": random_composed.bitcast,
    **random_recurrent.SAMPLERS,
    **normalized.SAMPLERS,
}
"""One sampler for each row of the operator table."""

ALONE = {"elu", "sum"}
"""Operators that LiteRT's reference kernels lack: these are compared with other kernels, which round other operators
differently."""

MOST_ELEMENTS = 20_000


def _input(b: Builder) -> Tensor:
    batches = b.choice(1, 1, 1, 2)
    return b.input((batches, b.up_to(9), b.up_to(9), b.choice(1, 3, 8, b.up_to(20))))


def single(op: str, seed: int) -> Graph:
    """A graph of one node of this operator, with one before it where it does not take every input."""
    for attempt in range(100):
        b = Builder(seed * 1000 + attempt)
        source = _input(b)
        if b.random.random() < 0.3 or op in ("expand_dims", "pack", "sparse_to_dense"):
            b = Builder(seed * 1000 + attempt)
            source = b.input(tuple(b.up_to(7) for _ in range(b.up_to(3))))
        output = SAMPLERS[op](b, source)
        if output is not None:
            return b.graph([output])
    raise AssertionError(f"no sample of {op} for seed {seed}")


def several(seed: int, least: int = 3, most: int = 12, frequent: Sequence[str] = ()) -> Graph:
    """A graph of ``least`` to ``most`` nodes with branches; everything nobody reads is an output. ``frequent``: operators that are drawn as
    often as all others together."""
    b = Builder(seed)
    values = [_input(b) for _ in range(b.up_to(2))]
    others: list[Tensor] = []
    count = int(b.random.integers(least, most + 1))
    names = sorted(SAMPLERS.keys() - ALONE - random_recurrent.SAMPLERS.keys() - normalized.SAMPLERS.keys())
    while len(b.nodes) < count:
        source = values[-1 - int(b.random.integers(min(3, len(values))))]
        drawn = frequent if frequent and b.random.random() < 0.5 else names
        output = SAMPLERS[drawn[int(b.random.integers(len(drawn)))]](b, source)
        if output is None:
            continue
        if output.elements > MOST_ELEMENTS:
            b.nodes.pop()
            continue
        # Not every sampler takes a single number.
        (values if output.dtype is DType.INT8 and output.shape else others).append(output)
    read = {name for node in b.nodes for name in node.inputs}
    unread = [value for value in values + others if value.name not in read and value.name not in b.inputs]
    if b.random.random() < 0.3:
        computed = [value for value in values if value.name not in b.inputs]
        unread.append(computed[int(b.random.integers(len(computed)))] if computed else unread[0])
    return b.graph(unread)
