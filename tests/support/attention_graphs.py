# SPDX-License-Identifier: BSD-3-Clause
"""Random attention as LiteRT's operators, in the forms that exporters write."""

from __future__ import annotations

import numpy as np

from openneutron.ir import Graph, QuantParams, Tensor, per_tensor
from tests.support.random_builder import Builder

Shape = tuple[int, ...]


def attention(seed: int, division_last: bool | None = None, spy: bool = False, heads_first: bool = False) -> Graph:
    """Return attention with or without a mask, with heads that share keys, or queries of other lengths than keys.

    ``division_last``: the product is divided by the sum of the exponentials. ``spy``: another operator reads the probabilities.
    ``heads_first``: the inputs and the output are [batch, head, row, channel], otherwise [batch, row, heads * channels].
    """
    b = Builder(seed)
    divides = bool(b.choice(True, False)) if division_last is None else division_last
    batches, groups, shared, depth = (
        int(b.choice(*options)) for options in ((1, 1, 2), (1, 2, 3), (1, 1, 2), (4, 9, 16))
    )
    queries, keys = b.up_to(40), b.up_to(40)
    fused = b.random.random() < 0.4 and shared == 1 and not heads_first
    if fused:
        queries = keys
        joined = b.input((batches, keys, 3 * groups * depth))
        q, k, v = (_slice(b, joined, place * groups * depth, groups * depth) for place in range(3))
    else:
        q, k, v = (
            b.input((batches, heads, length, depth) if heads_first else (batches, length, heads * depth))
            for length, heads in ((queries, groups * shared), (keys, groups), (keys, groups))
        )
    if b.random.random() < 0.4:
        q = b.node("logistic", [q], b.new(q.shape, per_tensor(1 / 256, -128)))
    query = _heads(b, q, groups * shared)
    if shared > 1:
        query = _reshape(b, query, (batches, groups, shared * queries, depth))
    key, value = _heads(b, k, groups), _heads(b, v, groups)
    scores = _scores(b, query, key)
    whole = (batches, groups * shared, queries, keys)
    scores = _reshape(b, scores, whole)
    if b.random.random() < 0.5:
        scores = _masked(b, scores)
    outputs = []
    if divides:
        parts, by = _exponentials(b, scores)
    else:
        parts = b.node("softmax", [scores], b.new(whole, per_tensor(1 / 256, -128)), beta=1.0)
        by = None
    if spy:
        outputs.append(b.node("logistic", [parts], b.new(whole, per_tensor(1 / 256, -128))))
    parts = _reshape(b, parts, (batches, groups, shared * queries, keys))
    made = b.node(
        "batch_matmul",
        [parts, value],
        b.new((batches, groups, shared * queries, depth), b.quant(0.02)),
        adj_x=False,
        adj_y=False,
    )
    made = _reshape(b, made, (batches, groups * shared, queries, depth))
    if by is not None:
        made = b.node(
            "mul", [made, by] if seed % 2 else [by, made], b.new(made.shape, b.quant(0.02)), activation="NONE"
        )
    if heads_first:
        return b.graph([*outputs, made])
    back = _transpose(b, made, (0, 2, 1, 3))
    outputs.append(_reshape(b, back, (batches, queries, groups * shared * depth)))
    return b.graph(outputs)


def block(
    seed: int,
    batches: int,
    tokens: int,
    heads: int,
    depth: int,
    joined: bool = False,
    normalized: bool = False,
    layer_norm: bool = False,
) -> Graph:
    """Return linear layers, attention of several heads, three linear layers and the sum with the input; ``joined``: one layer makes
    queries, keys and values; ``normalized``: of the input's lines of channels, each divided by its length; ``layer_norm``: of these lines,
    each with its mean subtracted and divided by its deviation."""
    b = Builder(seed)
    channels = heads * depth
    x = b.input((batches, tokens, channels), b.quant(0.05))
    line = (
        b.node("l2_normalization", [x], b.new(x.shape, per_tensor(1 / 128, 0)), activation="NONE") if normalized else x
    )
    if layer_norm:
        ones, zeros = (b.const(np.full(channels, value, np.float32), None) for value in (1, 0))
        line = b.node("layer_norm", [x, ones, zeros], b.new(x.shape, per_tensor(0.03, -4)), epsilon=1e-5, centred=True)
    if joined:
        made = _linear(b, line, 3 * channels)
        parts = [_slice(b, made, place * channels, channels) for place in range(3)]
    else:
        parts = [_linear(b, line, channels) for _ in range(3)]
    query, key, value = (_heads(b, part, heads) for part in parts)
    scores = _scores(b, query, key)
    weights = b.node("softmax", [scores], b.new(scores.shape, per_tensor(1 / 256, -128)), beta=1.0)
    out = b.new((batches, heads, tokens, depth), b.quant(0.02))
    b.node("batch_matmul", [weights, value], out, adj_x=False, adj_y=False)
    back = _linear(b, _reshape(b, _transpose(b, out, (0, 2, 1, 3)), (batches, tokens, channels)), channels)
    wide = _linear(b, back, 4 * channels)
    narrow = _linear(b, b.node("logistic", [wide], b.new(wide.shape, per_tensor(1 / 256, -128))), channels)
    return b.graph([b.node("add", [x, narrow], b.new(x.shape), activation="NONE", pot_scale_int16=True)])


def patches(seed: int, planes: int, rows: int, cols: int, side: int, heads: int, depth: int, stride: int = 0) -> Graph:
    """Return attention over the patches of an image of ``planes``, [1, planes, rows * side, cols * side]: a transpose, a convolution of
    ``side`` x ``side`` and the same stride unless stated otherwise, a reshape to tokens, three linear layers and attention."""
    b = Builder(seed)
    stride, channels = stride or side, heads * depth
    image = _transpose(b, b.input((1, planes, rows * side, cols * side), b.quant(0.05)), (0, 2, 3, 1))
    assert image.quant is not None
    weights = b.random.integers(-127, 128, (channels, side, side, planes)).astype(np.int8)
    bias = b.random.integers(-900, 900, channels).astype(np.int32)
    rows, cols = ((image.shape[axis] - side) // stride + 1 for axis in (1, 2))
    made = b.node(
        "conv_2d",
        [image, b.const(weights, per_tensor(0.01, 0)), b.const(bias, per_tensor(0.01 * image.quant.scale, 0))],
        b.new((1, rows, cols, channels), b.quant(0.2)),
        padding="VALID",
        stride_h=stride,
        stride_w=stride,
        dilation_h=1,
        dilation_w=1,
        activation="NONE",
    )
    tokens = _reshape(b, made, (1, rows * cols, channels))
    query, key, value = (_heads(b, _linear(b, tokens, channels), heads) for _ in range(3))
    scores = _scores(b, query, key)
    parts = b.node("softmax", [scores], b.new(scores.shape, per_tensor(1 / 256, -128)), beta=1.0)
    out = b.new(query.shape, b.quant(0.02))
    return b.graph([b.node("batch_matmul", [parts, value], out, adj_x=False, adj_y=False)])


def windowed_block(seed: int, windows: int, side: int, heads: int, depth: int, shift: int = 0) -> Graph:
    """Return the first half of a Swin block: an image's lines divided by their lengths, in ``windows`` x ``windows`` windows of ``side`` x
    ``side`` positions, attention of several heads in each, a linear layer, and the sum with the image; then a convolution.

    ``shift``: the image is rolled by so many rows and columns, and back behind the attention.
    """
    b = Builder(seed)
    channels, size = heads * depth, windows * side
    image = (1, size, size, channels)
    x = b.node("logistic", [b.input(image)], b.new(image, per_tensor(1 / 256, -128)))
    line = b.node("l2_normalization", [x], b.new(image, per_tensor(1 / 128, 0)), activation="NONE")
    split = _reshape(b, _rolled(b, line, shift), (windows, side, windows, side, channels))
    tokens = (windows * windows, side * side, channels)
    made = _linear(b, _reshape(b, _transpose(b, split, (0, 2, 1, 3, 4)), tokens), 3 * channels)
    query, key, value = (_heads(b, _slice(b, made, place * channels, channels), heads) for place in range(3))
    scores = _scores(b, query, key)
    weights = b.node("softmax", [scores], b.new(scores.shape, per_tensor(1 / 256, -128)), beta=1.0)
    out = b.new(query.shape, b.quant(0.02))
    b.node("batch_matmul", [weights, value], out, adj_x=False, adj_y=False)
    back = _linear(b, _reshape(b, _transpose(b, out, (0, 2, 1, 3)), tokens), channels)
    split = _transpose(b, _reshape(b, back, (windows, windows, side, side, channels)), (0, 2, 1, 3, 4))
    whole = _rolled(b, _reshape(b, split, image), size - shift if shift else 0)
    added = b.node("add", [x, whole], b.new(image, b.quant(0.05)), activation="NONE", pot_scale_int16=True)
    return b.graph([b.node("logistic", [added], b.new(image, per_tensor(1 / 256, -128)))])


def _rolled(b: Builder, source: Tensor, shift: int) -> Tensor:
    """Return an image whose row and column r are those of number r + shift, counted in a circle."""
    for axis in (1, 2) if shift else ():
        parts = []
        for first, end in ((shift, source.shape[axis]), (0, shift)):
            shape = tuple(end - first if at == axis else extent for at, extent in enumerate(source.shape))
            begin = b.integers(*(first if at == axis else 0 for at in range(4)))
            parts.append(b.node("slice", [source, begin, b.integers(*shape)], b.new(shape, source.quant)))
        source = b.node("concatenation", parts, b.new(source.shape, source.quant), axis=axis, activation="NONE")
    return source


def _linear(b: Builder, source: Tensor, outputs: int) -> Tensor:
    assert source.quant is not None
    weights = b.const(b.random.integers(-127, 128, (outputs, source.shape[-1])).astype(np.int8), per_tensor(0.01, 0))
    bias = b.const(b.random.integers(-900, 900, outputs).astype(np.int32), per_tensor(0.01 * source.quant.scale, 0))
    shape = (*source.shape[:-1], outputs)
    return b.node(
        "fully_connected",
        [source, weights, bias],
        b.new(shape, b.quant(0.05)),
        activation="NONE",
        keep_num_dims=True,
        weights_format="DEFAULT",
    )


def _reshape(b: Builder, source: Tensor, shape: Shape) -> Tensor:
    if source.shape == shape:
        return source
    return b.node("reshape", [source, b.integers(*shape)], b.new(shape, source.quant), new_shape=shape)


def _transpose(b: Builder, source: Tensor, order: Shape) -> Tensor:
    shape = tuple(source.shape[axis] for axis in order)
    return b.node("transpose", [source, b.integers(*order)], b.new(shape, source.quant))


def _slice(b: Builder, source: Tensor, first: int, count: int) -> Tensor:
    shape = (*source.shape[:2], count)
    return b.node("slice", [source, b.integers(0, 0, first), b.integers(*shape)], b.new(shape, source.quant))


def _heads(b: Builder, source: Tensor, heads: int) -> Tensor:
    if len(source.shape) == 4:
        return source
    batches, length, channels = source.shape
    return _transpose(b, _reshape(b, source, (batches, length, heads, channels // heads)), (0, 2, 1, 3))


def _scores(b: Builder, query: Tensor, key: Tensor) -> Tensor:
    """Return query @ key, with the key transposed by the product or by an operator in front of it."""
    adj = bool(b.choice(True, False))
    other = key if adj else _transpose(b, key, (0, 1, 3, 2))
    assert query.quant is not None and key.quant is not None
    scale = query.quant.scale * key.quant.scale * float(np.sqrt(query.shape[-1])) * float(b.random.uniform(20, 80))
    shape = (*query.shape[:3], key.shape[2])
    return b.node("batch_matmul", [query, other], b.new(shape, b.quant(scale)), adj_x=False, adj_y=adj)


def _masked(b: Builder, scores: Tensor) -> Tensor:
    """Return the scores and a constant: a causal mask or a bias for all heads, or a bias for each."""
    assert scores.quant is not None
    batches, heads, queries, keys = scores.shape
    quant: QuantParams = per_tensor(64 / 255, 127)
    if b.random.random() < 0.5:
        mask = b.const(np.where(np.tri(queries, keys), 127, -128).astype(np.int8)[None, None], quant)
    else:
        shape = (int(b.choice(1, batches)), int(b.choice(1, heads)), queries, keys)
        mask = b.const(b.random.integers(-128, 128, shape).astype(np.int8), b.quant(scores.quant.scale))
    assert mask.quant is not None
    result = b.new(scores.shape, b.quant(max(scores.quant.scale, mask.quant.scale)))
    operands = [scores, mask] if b.random.random() < 0.7 else [mask, scores]
    return b.node("add", operands, result, activation="NONE", pot_scale_int16=True)


def _exponentials(b: Builder, scores: Tensor) -> tuple[Tensor, Tensor]:
    """Return the exponentials relative to each row's largest, and the reciprocals of their means."""
    assert scores.quant is not None
    rows = (*scores.shape[:3], 1)
    largest = b.node("reduce_max", [scores, b.integers(3)], b.new(rows, scores.quant), keep_dims=True)
    below = per_tensor(scores.quant.scale * float(b.random.uniform(0.8, 1.5)), 127)
    difference = b.new(scores.shape, below)
    b.node("sub", [scores, largest], difference, activation="NONE", pot_scale_int16=True)
    parts = b.node("exp", [difference], b.new(scores.shape, per_tensor(1 / 255, -128)))
    mean = b.node(
        "mean",
        [parts, b.integers(3)],
        b.new(rows, per_tensor(float(b.random.uniform(1, 3)) / 512, -128)),
        keep_dims=True,
    )
    table = b.const(b.random.integers(-128, 128, 256).astype(np.int8), None)
    return parts, b.node("lookup", [mean, table], b.new(rows, b.quant(0.1)))
