# SPDX-License-Identifier: BSD-3-Clause
"""Select kernel calls for recurrent layers: one call for all steps of all sequences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from openneutron.compiler.select.calls import (
    Constant,
    KernelCall,
    View,
    dense_pitches,
    kept_in_place,
    quant_of,
    requantization,
    selects,
    whole,
    wide_requantization,
)
from openneutron.compiler.select.tables import sigmoid_table
from openneutron.ir import Graph, Node, Tensor
from openneutron.isa.rows import LANES
from openneutron.ops import recurrent as layer
from openneutron.ops.rescaling import quantize_multiplier, quantize_multipliers, reduced_multipliers

_ANY_CELL = 2**15
"""The bound of the cell state of an int16 layer for which the file states no bound. No stored cell state exceeds this value."""


def sequence_view(tensor: Tensor, time_major: bool) -> View:
    """Return the view of a tensor of sequences, with a row for each sequence and a column for each step.

    The tensor is [step, sequence, channel] with ``time_major``, otherwise [sequence, step, channel].
    """
    first, second, channels = tensor.shape
    size = tensor.dtype.size_bytes
    column = channels * size
    if time_major:
        pitches = (first * second * column, column, second * column, size)
        return View(tensor.name, (1, second, first, channels), pitches, element_bytes=size)
    extents = (1, first, second, channels)
    return View(tensor.name, extents, dense_pitches(extents, size), element_bytes=size)


def state_view(tensor: Tensor, sequences: int) -> View:
    """Return the view of a state, with a row for each sequence."""
    extents = (1, sequences, 1, tensor.elements // sequences)
    size = tensor.dtype.size_bytes
    return View(tensor.name, extents, dense_pitches(extents, size), element_bytes=size)


def stacked(graph: Graph, node: Node, places: Iterable[int]) -> npt.NDArray[np.int8]:
    """Return the weight matrices [unit, input] at these operand positions, concatenated along the units, as int8 [row,
    1, 1, input]."""
    found = [graph.given(node, place).data for place in places]
    return np.concatenate([np.asarray(data) for data in found])[:, None, None, :]


def matrix_table(
    weights: npt.NDArray[np.int8],
    bias: npt.NDArray[np.int32] | None,
    zero_point: int,
    factors: Sequence[float],
) -> npt.NDArray[np.int32]:
    """Return the requantization table (``requantization``) of a matrix that consists of several matrices of equal
    height, one above the other. ``factors`` has the rescaling factor of each of them, and ``zero_point`` is that of
    the input."""
    sums = weights.astype(np.int64).sum(axis=(1, 2, 3))
    multipliers, shifts = quantize_multipliers(np.repeat(factors, len(weights) // len(factors)))
    return requantization(bias, sums, zero_point, multipliers, shifts)


def initial_states(graph: Graph, node: Node, zeros: Sequence[tuple[int, str, int]]) -> tuple[bool, list[KernelCall]]:
    """Return True and no calls if all states are constants of 0 before the first step. Otherwise return False and the
    calls that copy the initial values to the results.

    ``zeros`` has for each state the index of its operand, the name of its result, and the stored value of 0. A state
    that is updated in place needs no copy.
    """
    given = [(graph.given(node, place), graph[result], zero) for place, result, zero in zeros]
    if all(source.data is not None and np.all(source.data == zero) for source, _, zero in given):
        return True, []
    calls = []
    kept = kept_in_place(graph)
    for source, result, _ in given:
        if result.name in kept:
            continue
        views = {"input": whole(source), "output": View(result.name, whole(source).extents, whole(source).pitches)}
        calls.append(KernelCall("copy_s8", result.name, views))
    return False, calls


@selects("unidirectional_sequence_lstm")
def unidirectional_sequence_lstm(graph: Graph, node: Node) -> list[KernelCall]:
    """Select the LSTM kernel of the layer's type for all steps of all sequences, after copies of states that are not 0."""
    output, hidden, cell, gates = (graph[name] for name in node.outputs)
    _, sequences = layer.steps_and_sequences(graph, node)
    zero = quant_of(hidden).zero_point
    starts, copies = initial_states(graph, node, ((layer.HIDDEN, hidden.name, zero), (layer.CELL, cell.name, 0)))
    views = {
        "input": sequence_view(graph.given(node, 0), node["time_major"]),
        "output": sequence_view(output, node["time_major"]),
        "hidden": state_view(hidden, sequences),
        "cell": state_view(cell, sequences),
        "gates": state_view(gates, 1),
    }
    cells, outputs = graph.given(node, layer.FIRST_HIDDEN_WEIGHTS + 3).shape
    inputs = graph.given(node, 0).shape[-1]
    cell_clip, output_clip = layer.quantized_clips(graph, node)
    multiplier, shift = quantize_multiplier(layer.hidden_factor(graph, node))
    params = {
        "work": -(-cells * (inputs + outputs) // outputs),
        "inputs": inputs,
        "cells": cells,
        "outputs": outputs,
        "backwards": int(node.attrs.get("backwards", False)),
        "starts": int(starts),
        "first_hidden": zero,
        "cell_shift": layer.cell_shift(graph, node),
        "hidden_multiplier": multiplier,
        "hidden_shift": shift,
    }
    if layer.is_wide(graph, node):
        params["cell_clip"] = cell_clip if node["cell_clip"] > 0 else _ANY_CELL
        constants = _wide_products(graph, node) | {"sigmoid": sigmoid_table()}
        return [*copies, KernelCall("unidirectional_sequence_lstm_s16", node.name, views, params, constants)]
    params |= {
        "cifg": int(len(layer.gates_of(graph, node)) < len(layer.GATES)),
        "cell_clip": cell_clip,
        "hidden_zero_point": layer.hidden_zero_point(graph, node),
        "projected": int(layer.is_projected(graph, node)),
        "output_zero_point": zero,
        "output_clip": output_clip,
        "peephole": int(layer.has_peephole(graph, node)),
        "layer_norm": int(layer.has_layer_norm(graph, node)),
    }
    constants = {**_products(graph, node), **_projection(graph, node), "coefficients": _coefficients(graph, node)}
    return [*copies, KernelCall("unidirectional_sequence_lstm_s8", node.name, views, params, constants)]


def _products(graph: Graph, node: Node) -> dict[str, Constant]:
    gates, factors = layer.gates_of(graph, node), layer.gate_factors(graph, node)
    of_input = stacked(graph, node, (layer.FIRST_INPUT_WEIGHTS + gate for gate in gates))
    of_hidden = stacked(graph, node, (layer.FIRST_HIDDEN_WEIGHTS + gate for gate in gates))
    bias = None
    if not layer.has_layer_norm(graph, node):
        bias = np.concatenate([np.asarray(graph.given(node, layer.FIRST_BIAS + gate).data) for gate in gates])
    zero_points = quant_of(graph.given(node, 0)).zero_point, quant_of(graph.given(node, layer.HIDDEN)).zero_point
    return {
        "input_weights": of_input,
        "input_requant": matrix_table(of_input, bias, zero_points[0], [factors[gate][0] for gate in gates]),
        "hidden_weights": of_hidden,
        "hidden_requant": matrix_table(of_hidden, None, zero_points[1], [factors[gate][1] for gate in gates]),
    }


def _wide_products(graph: Graph, node: Node) -> dict[str, Constant]:
    factors, biases = layer.gate_factors(graph, node), range(layer.FIRST_BIAS, layer.FIRST_BIAS + len(layer.GATES))
    bias = np.concatenate([np.asarray(graph.given(node, place).data) for place in biases])
    found: dict[str, Constant] = {}
    sides = (("input", layer.FIRST_INPUT_WEIGHTS, bias), ("hidden", layer.FIRST_HIDDEN_WEIGHTS, None))
    for number, (side, first, added) in enumerate(sides):
        matrix = stacked(graph, node, range(first, first + len(layer.GATES)))
        units = len(matrix) // len(layer.GATES)
        multipliers = reduced_multipliers(np.repeat([factors[gate][number] for gate in range(len(layer.GATES))], units))
        found[f"{side}_weights"] = matrix
        found[f"{side}_requant"] = wide_requantization(added, len(matrix), *multipliers)
    return found


def _projection(graph: Graph, node: Node) -> dict[str, Constant]:
    if not layer.is_projected(graph, node):
        return {"projection": np.zeros((0, 1, 1, 0), np.int8), "projection_requant": np.zeros((3, 0), np.int32)}
    weights = stacked(graph, node, (layer.PROJECTION,))
    bias = graph.operand(node, layer.PROJECTION_BIAS)
    values = None if bias is None else np.asarray(bias.data)
    table = matrix_table(weights, values, layer.hidden_zero_point(graph, node), [layer.projection_factor(graph, node)])
    return {"projection": weights, "projection_requant": table}


def _coefficients(graph: Graph, node: Node) -> npt.NDArray[np.int32]:
    cells = graph.given(node, layer.FIRST_HIDDEN_WEIGHTS + 3).shape[0]
    rows = [
        _row(graph, node, layer.FIRST_PEEPHOLE + layer.SEEING.index(gate), *quantize_multiplier(factor), 0)
        for gate, factor in layer.peephole_factors(graph, node).items()
    ]
    scales = layer.norm_scales(graph, node)
    for gate, scale in scales.items():
        multiplier, shift = quantize_multiplier(scale)
        guard = max(1, int(np.float32(10000) * np.float32(scale)))
        rows.append(_row(graph, node, layer.FIRST_NORM + gate, multiplier, shift + 12, guard))
    rows += [_row(graph, node, layer.FIRST_BIAS + gate, 0, 0, 0) for gate in scales]
    return np.stack(rows) if rows else np.zeros((0, cells + 3), np.int32)


def _row(graph: Graph, node: Node, place: int, *words: int) -> npt.NDArray[np.int32]:
    data = np.asarray(graph.given(node, place).data, np.int32)
    return np.concatenate([np.array(words, np.int32), data])


KINDS = {"gru": 0, "TANH": 1, "RELU": 2}
"""The parameter ``kind`` of recurrent_s8, by the operator or by the activation of an RNN."""


@selects("gru", "rnn")
def gated(graph: Graph, node: Node) -> list[KernelCall]:
    """Select recurrent_s8 for all steps of all sequences, after copies of states that are not 0."""
    output, hidden, cell = (graph[name] for name in node.outputs)
    _, sequences = layer.steps_and_sequences(graph, node)
    zero = quant_of(output).zero_point
    places = layer.state_places(node)
    states = ((places[0], hidden.name, zero), (places[1], cell.name, 0))
    # If the kernel computes the state of the units from the hidden state, its operand is not read.
    starts, copies = initial_states(graph, node, states[:1] if node.attrs.get("from_hidden") else states)
    back = quantize_multiplier(1 / layer.state_factor(graph, node))
    cells, inputs = layer.units_of(graph, node)[0], graph.given(node, 0).shape[-1]
    multiplier, shift = quantize_multiplier(layer.state_factor(graph, node))
    params = {
        "work": inputs + cells,
        "inputs": inputs,
        "cells": cells,
        "outputs": cells,
        "backwards": int(node.attrs.get("backwards", False)),
        # A hidden state of first values alone is not in memory; the units' state that follows from it is 0.
        "starts": 1 if starts else 2 * bool(node.attrs.get("from_hidden")),
        "first_hidden": zero,
        "kind": KINDS[node.attrs.get("activation", node.op)],
        "state_bits": layer.state_bits(graph, node),
        "output_multiplier": multiplier,
        "output_shift": shift,
        "output_zero_point": zero,
        "state_multiplier": back[0],
        "state_shift": back[1],
    }
    views = {
        "input": sequence_view(graph.given(node, 0), node["time_major"]),
        "output": sequence_view(output, node["time_major"]),
        "hidden": state_view(hidden, sequences),
        "cell": state_view(cell, sequences),
    }
    factors = layer.product_factors(graph, node)
    constants: dict[str, Constant] = {}
    for side, vector in (("input", graph.given(node, 0)), ("hidden", output)):
        weights = [
            _whole_blocks(np.asarray(graph.given(node, at).data)) for at in layer.places(node, f"{side}_weights")
        ]
        biases = [_whole_blocks(np.asarray(graph.given(node, at).data)) for at in layer.places(node, f"{side}_biases")]
        matrix = np.concatenate(weights)[:, None, None, :]
        own = [pair[side == "hidden"] for pair in factors]
        constants[f"{side}_weights"] = matrix
        constants[f"{side}_requant"] = matrix_table(matrix, np.concatenate(biases), quant_of(vector).zero_point, own)
    return [*copies, KernelCall("recurrent_s8", node.name, views, params, constants)]


def _whole_blocks(data: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the array padded with rows of zeros to a whole number of blocks of 8 rows."""
    return np.pad(data, [(0, -data.shape[0] % LANES), *[(0, 0)] * (data.ndim - 1)])


@selects("svdf")
def svdf(graph: Graph, node: Node) -> list[KernelCall]:
    """Select svdf_s8 for one step of all sequences, after a copy of the state if it is not 0."""
    output, state = (graph[name] for name in node.outputs)
    data, kept = graph.given(node, 0), graph.given(node, layer.RESULTS)
    starts, copies = initial_states(graph, node, ((layer.RESULTS, state.name, 0),))
    features, time = (np.asarray(graph.given(node, at).data) for at in (layer.FEATURES, layer.TIME))
    factor, result_factor = layer.filter_factors(graph, node)
    multiplier, shift = quantize_multiplier(result_factor)
    sequences, inputs = data.shape
    bias = graph.operand(node, layer.FILTER_BIAS)
    params = {
        "work": node["rank"] * (inputs + time.shape[1]),
        "inputs": inputs,
        "filters": len(features),
        "rank": node["rank"],
        "memory": time.shape[1],
        "state_bytes": kept.dtype.size_bytes,
        "starts": int(starts),
        "output_multiplier": multiplier,
        "output_shift": shift,
        "output_zero_point": quant_of(output).zero_point,
    }
    size = state.size_bytes // sequences
    held = (1, sequences, 1, size)
    views = {
        "input": _rows(data),
        "output": _rows(output),
        "state": View(state.name, held, dense_pitches(held)),
    }
    matrix = features[:, None, None, :]
    constants = {
        "weights": matrix,
        "requant": matrix_table(matrix, None, quant_of(data).zero_point, [factor]),
        "time_weights": time.astype(np.int16),
        "bias": np.zeros(output.shape[-1], np.int32) if bias is None else np.asarray(bias.data),
    }
    return [*copies, KernelCall("svdf_s8", node.name, views, params, constants)]


def _rows(tensor: Tensor) -> View:
    """Return the view of a matrix with its rows as rows, one column, and its columns as channels."""
    rows, channels = tensor.shape
    extents = (1, rows, 1, channels)
    return View(tensor.name, extents, dense_pitches(extents))
