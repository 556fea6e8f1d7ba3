# SPDX-License-Identifier: BSD-3-Clause
"""Samplers of recurrent layers that begin at 0."""

from __future__ import annotations

import numpy as np

from openneutron.ir import DType, Tensor, per_tensor
from openneutron.ops.recurrent import GRU_GATES
from tests.support.random_builder import Builder, Sampler

WITHOUT_REFERENCE = frozenset(("gru", "rnn", "bidirectional_sequence_lstm"))
"""Layers that LiteRT has no operator for, or none that computes on int8."""


def _sequence(b: Builder, source: Tensor) -> Tensor:
    """Return the tensor as [sequence, step, channel]."""
    if len(source.shape) == 3:
        return source
    shape = (1,) * (3 - len(source.shape)) + source.shape if len(source.shape) < 3 else (1, -1, source.shape[-1])
    whole = tuple(source.elements // source.shape[-1] if extent == -1 else extent for extent in shape)
    return b.node("reshape", [source, b.integers(*whole)], b.new(whole, source.quant), new_shape=whole)


def _weights(b: Builder, *shape: int) -> Tensor:
    scale = float(b.random.uniform(0.3, 3)) / 127 / shape[-1] ** 0.5
    return b.const(b.random.integers(-127, 128, shape, np.int8), per_tensor(scale, 0))


def _bias(b: Builder, units: int) -> Tensor:
    return b.const(b.random.integers(-4000, 4000, units, np.int32), per_tensor(1e-4, 0))


def _result(b: Builder, x: Tensor, units: int) -> Tensor:
    return b.new((*x.shape[:2], units), per_tensor(float(b.random.uniform(0.7, 1.3)) / 128, b.up_to(40) - 20))


def _states(b: Builder, y: Tensor, units: int, time_major: bool, cell_scale: float) -> list[Tensor]:
    sequences = y.shape[1 if time_major else 0]
    assert y.quant is not None
    hidden = b.const(np.full((sequences, units), y.quant.zero_point, np.int8), y.quant)
    return [hidden, b.const(np.zeros((sequences, units), np.int16), per_tensor(cell_scale, 0))]


def _direction(b: Builder, gates: int, inputs: int, units: int) -> list[Tensor | None]:
    """Return the weights and biases of an LSTM in one direction."""
    absent: list[Tensor | None] = [None] * (4 - gates)
    operands: list[Tensor | None] = []
    for columns in (inputs, units):
        operands += [*absent, *(_weights(b, units, columns) for _ in range(gates))]
    return [*operands, None, None, None, *absent, *(_bias(b, units) for _ in range(gates)), None, None]


def bidirectional(b: Builder, source: Tensor) -> Tensor | None:
    """An LSTM in both directions, of three or four gates."""
    if source.dtype is not DType.INT8:
        return None
    x, units, time_major = _sequence(b, source), b.up_to(12), bool(b.choice(False, True))
    operands: list[Tensor | None] = [x]
    for _ in range(2):
        operands += _direction(b, b.choice(3, 4), x.shape[-1], units)
    y = _result(b, x, 2 * units)
    for _ in range(2):
        operands += _states(b, y, units, time_major, 2.0 ** -b.choice(9, 11, 15))
    attrs = {"activation": "TANH", "cell_clip": b.choice(0.0, 0.5), "proj_clip": 0.0, "merge_outputs": True}
    return b.node("bidirectional_sequence_lstm", operands, y, **attrs, time_major=time_major)


def lstm(b: Builder, source: Tensor) -> Tensor | None:
    """An LSTM without peepholes, normalization and projection, of three or four gates."""
    if source.dtype is not DType.INT8:
        return None
    x, units, time_major = _sequence(b, source), b.up_to(12), bool(b.choice(False, True))
    gates = b.choice(3, 4)
    y = _result(b, x, units)
    assert y.quant is not None
    operands: list[Tensor | None] = [x, *_direction(b, gates, x.shape[-1], units)]
    operands += _states(b, y, units, time_major, 2.0 ** -b.choice(9, 11, 15))
    attrs = {"activation": "TANH", "cell_clip": b.choice(0.0, 0.5), "proj_clip": 0.0, "time_major": time_major}
    intermediates = (*((2.0**-12, 0),) * 4, (y.quant.scale, y.quant.zero_point))
    return b.node("unidirectional_sequence_lstm", operands, y, **attrs, intermediates=intermediates)


def gated(op: str) -> Sampler:
    """Return the sampler of a GRU or an RNN."""

    def sample(b: Builder, source: Tensor) -> Tensor | None:
        if source.dtype is not DType.INT8:
            return None
        x, units, time_major = _sequence(b, source), b.up_to(12), bool(b.choice(False, True))
        gates = len(GRU_GATES) if op == "gru" else 1
        y = _result(b, x, units)
        weights = [_weights(b, units, columns) for columns in (x.shape[-1], units) for _ in range(gates)]
        biases = [_bias(b, units) for _ in range(2 * gates)]
        states = _states(b, y, units, time_major, 2.0**-15)
        attrs = {"time_major": time_major, "backwards": bool(b.choice(False, True))}
        if op == "rnn":
            attrs["activation"] = b.choice("TANH", "RELU")
        return b.node(op, [x, *weights, *biases, *states], y, **attrs)

    return sample


def svdf(b: Builder, source: Tensor) -> Tensor | None:
    """An SVDF with a state of int16."""
    if source.dtype is not DType.INT8:
        return None
    shape = (source.elements // source.shape[-1], source.shape[-1])
    x = source
    if source.shape != shape:
        x = b.node("reshape", [source, b.integers(*shape)], b.new(shape, source.quant), new_shape=shape)
    units, rank, memory = b.up_to(8), b.up_to(3), b.up_to(6)
    filters = units * rank
    time = b.const(b.random.integers(-127, 128, (filters, memory)).astype(np.int16), per_tensor(0.002, 0))
    state = b.const(np.zeros((shape[0], filters * memory), np.int16), per_tensor(0.002, 0))
    operands = [x, _weights(b, filters, shape[1]), time, _bias(b, units), state]
    return b.node("svdf", operands, b.new((shape[0], units)), rank=rank, activation="RELU")


SAMPLERS: dict[str, Sampler] = {
    "unidirectional_sequence_lstm": lstm,
    "bidirectional_sequence_lstm": bidirectional,
    "gru": gated("gru"),
    "rnn": gated("rnn"),
    "svdf": svdf,
}
