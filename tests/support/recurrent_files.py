# SPDX-License-Identifier: BSD-3-Clause
"""LiteRT files with one recurrent operator of random weights and quantization."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from tests.support.litert_files import BUILTIN, FileBuilder

GATES = ("input", "forget", "cell", "output")


@dataclass(frozen=True, slots=True)
class Lstm:
    """The form of an LSTM. ``outputs`` differs from ``cells`` where the hidden state is projected."""

    batches: int = 1
    steps: int = 4
    inputs: int = 5
    cells: int = 6
    outputs: int = 0
    cifg: bool = False
    peephole: bool = False
    layer_norm: bool = False
    projection_bias: bool = True
    time_major: bool = False
    cell_clip: float = 0.0
    proj_clip: float = 0.0
    cell_bits: int = 11
    """The scale of the cell state is 2^-cell_bits."""
    gain: float = 1.0
    """The factor of all weights' scales: gates saturate where it is large."""
    activations: str = "int8"

    @property
    def features(self) -> int:
        """Return the features of a step's result."""
        return self.outputs or self.cells


class LstmFile(FileBuilder):
    """A file with one UNIDIRECTIONAL_SEQUENCE_LSTM between ``x`` and ``y``."""

    def __init__(self, form: Lstm, seed: int) -> None:
        super().__init__()
        self.form = form
        self.seed = seed
        self.generator = np.random.default_rng(seed)
        self.wide = form.activations == "int16"
        self.names = ""

    def _quantized(self, name: str, data: np.ndarray, scale: float) -> str:
        self.tensor(name, data.shape, data.dtype.name, scale, 0, data)
        self.set_scale(name, scale, 0)
        return name

    def set_scale(self, name: str, scale: float, zero_point: int) -> None:
        """Set the quantization of a tensor that is there."""
        quantization = schema.QuantizationParametersT()
        quantization.scale = np.array([scale], np.float32)
        quantization.zeroPoint = np.array([zero_point], np.int64)
        self.graph.tensors[self.places[name]].quantization = quantization

    def _activation(self, lowest: float, highest: float, farthest: int) -> tuple[float, int]:
        """Return the scale of an activation that reaches so far, and its zero point, which int16 has not."""
        scale, zero_point = (
            float(self.generator.uniform(lowest, highest)) / 128,
            self.generator.integers(-farthest, farthest),
        )
        return (scale / 256, 0) if self.wide else (scale, int(zero_point))

    def _weights(self, name: str, *shape: int) -> str:
        scale = float(self.generator.uniform(0.5, 1.5)) / 127 / shape[-1] ** 0.5 * 2 * self.form.gain
        return self._quantized(name, self.generator.integers(-127, 128, shape, np.int8), scale)

    def _variable(self, name: str, shape: tuple[int, ...], dtype: str, scale: float, zero_point: int) -> str:
        self.tensor(name, shape, dtype)
        self.set_scale(name, scale, zero_point)
        self.graph.tensors[self.places[name]].isVariable = True
        return name

    def _lead(self) -> tuple[int, int]:
        form = self.form
        return (form.steps, form.batches) if form.time_major else (form.batches, form.steps)

    def begin(self) -> tuple[float, int]:
        """Add the input ``x``, and return the quantization of the hidden state before its projection."""
        self.tensor("x", (*self._lead(), self.form.inputs), self.form.activations, *self._activation(1.28, 5.12, 40))
        return self._activation(1.0, 1.2, 10)

    def operands(self, source: str, hidden: tuple[float, int]) -> tuple[list[str | None], tuple[float, int]]:
        """Add a layer's weights and states; return its operands up to the cell state, and the quantization of its result."""
        form, draw, names = self.form, self.generator, self.names
        gates = GATES[1:] if form.cifg else GATES
        operands: list[str | None] = [source]
        operands += [self._weights(f"{names}w_{g}", form.cells, form.inputs) if g in gates else None for g in GATES]
        operands += [self._weights(f"{names}r_{g}", form.cells, form.features) if g in gates else None for g in GATES]
        holes = [g for g in ("input", "forget", "output") if form.peephole and g in gates]
        operands += [self._peephole(g) if g in holes else None for g in ("input", "forget", "output")]
        operands += [self._bias(g) if g in gates else None for g in GATES]
        state = hidden
        if form.outputs:
            state = self._activation(0.8, 1.6, 10)
            operands.append(self._weights(f"{names}projection", form.outputs, form.cells))
            bias = draw.integers(-3000, 3000, form.outputs, np.int32)
            operands.append(self._quantized(f"{names}projection_bias", bias, 1e-4) if form.projection_bias else None)
        else:
            operands += [None, None]
        operands.append(self._variable(f"{names}hidden", (form.batches, form.features), form.activations, *state))
        cell = self._variable(f"{names}cell", (form.batches, form.cells), "int16", 2.0**-form.cell_bits, 0)
        return [*operands, cell], state

    def layer(self, source: str, result: str, hidden: tuple[float, int]) -> None:
        """Add a UNIDIRECTIONAL_SEQUENCE_LSTM between these tensors, the second of which it adds too."""
        form = self.form
        gates = GATES[1:] if form.cifg else GATES
        operands, state = self.operands(source, hidden)
        operands += [self._layer_norm(g) if form.layer_norm and g in gates else None for g in GATES]
        self.tensor(result, (*self._lead(), form.features), form.activations, *state)
        self.recurrent(BUILTIN.UNIDIRECTIONAL_SEQUENCE_LSTM, operands, result, "UnidirectionalSequenceLSTMOptions")
        names = [self.places[name] for name in self._intermediates(hidden)]
        self.graph.operators[-1].intermediates = np.array(names, np.int32)

    def recurrent(self, builtin: int, operands: list[str | None], result: str, options: str, **fields: bool) -> None:
        """Add an operator with the options of the form; absent operands are None."""
        form = self.form
        clips = {"cellClip": form.cell_clip, "projClip": form.proj_clip, "timeMajor": form.time_major}
        tanh = schema.ActivationFunctionType.TANH
        self.operator(builtin, [], [result], options, fusedActivationFunction=tanh, **clips, **fields)
        places = [-1 if name is None else self.places[name] for name in operands]
        self.graph.operators[-1].inputs = np.array(places, np.int32)

    def bytes(self) -> bytes:
        """Return the file."""
        self.layer("x", "y", self.begin())
        return self.finish(["x"], ["y"])

    def _peephole(self, gate: str) -> str:
        return self._quantized(f"{self.names}p_{gate}", self._int16(), float(self.generator.uniform(0.5, 2)) / 32768)

    def _int16(self) -> np.ndarray:
        return self.generator.integers(-32767, 32768, self.form.cells, np.int16)

    def _bias(self, gate: str) -> str:
        most = 1 << (21 if self.form.layer_norm or self.wide else 13)
        dtype = np.int64 if self.wide else np.int32
        return self._quantized(
            f"{self.names}b_{gate}", self.generator.integers(-most, most, self.form.cells, dtype), 1e-4
        )

    def _layer_norm(self, gate: str) -> str:
        return self._quantized(f"{self.names}n_{gate}", self._int16(), float(self.generator.uniform(0.5, 2)) / 32768)

    def _intermediates(self, hidden: tuple[float, int]) -> list[str]:
        names = [self.tensor(f"{self.names}gate_{gate}", (0,), "int16") for gate in GATES]
        for name in names:
            self.set_scale(name, float(self.generator.uniform(3, 8)) / 32768, 0)
        return [*names, self.tensor(f"{self.names}unprojected", (0,), self.form.activations, *hidden)]


class BidirectionalFile(LstmFile):
    """A file with a forward and a backward layer: as TensorFlow's converter writes Keras' ``Bidirectional(LSTM)``, or as one operator.

    ``whole_sequences``: the outputs of all steps, otherwise those of the last step of each direction.
    """

    def bytes(self, as_one: bool = False, whole_sequences: bool = True) -> bytes:
        """Return the file; files of one seed have the same weights."""
        hidden, form = self.begin(), self.form
        lead = self._lead() if whole_sequences else (form.batches,)
        if as_one:
            operands: list[list[str | None]] = []
            for direction in ("forward/", "backward/"):
                self._turn(direction)
                operands.append(self.operands("x", hidden)[0])
            self.tensor("y", (*lead, 2 * form.cells), form.activations, *hidden)
            values = [name for own in operands for name in own[1:18]]
            states = [name for own in operands for name in own[18:20]]
            operator, options = BUILTIN.BIDIRECTIONAL_SEQUENCE_LSTM, "BidirectionalSequenceLSTMOptions"
            self.recurrent(operator, ["x", *values, *states], "y", options, mergeOutputs=True)
            return self.finish(["x"], ["y"])
        source = self.graph.tensors[self.places["x"]].quantization
        self.constant("time", np.array([0 if form.time_major else 1], np.int32))
        self.tensor("reversed", (*self._lead(), form.inputs), form.activations, source.scale[0], source.zeroPoint[0])
        self.operator(BUILTIN.REVERSE_V2, ["x", "time"], ["reversed"], "ReverseV2Options")
        ends = []
        for direction, x in (("forward/", "x"), ("backward/", "reversed")):
            self._turn(direction)
            outputs = f"{direction}outputs"
            self.layer(x, outputs, hidden)
            ends.append(self._steps(outputs, hidden) if whole_sequences else self._last(outputs, hidden))
        self.tensor("y", (*lead, 2 * form.cells), form.activations, *hidden)
        self.operator(BUILTIN.CONCATENATION, ends, ["y"], "ConcatenationOptions", 2, axis=len(lead))
        return self.finish(["x"], ["y"])

    def _turn(self, direction: str) -> None:
        """Begin with the weights of a direction, which are the same in all files of one seed."""
        self.names, self.generator = direction, np.random.default_rng([self.seed, len(direction)])

    def _steps(self, outputs: str, hidden: tuple[float, int]) -> str:
        if self.names == "forward/":
            return outputs
        self.tensor("in_order", (*self._lead(), self.form.cells), self.form.activations, *hidden)
        self.operator(BUILTIN.REVERSE_V2, [outputs, "time"], ["in_order"], "ReverseV2Options")
        return "in_order"

    def _last(self, outputs: str, hidden: tuple[float, int]) -> str:
        form, last = self.form, f"{self.names}last"
        axis = 0 if form.time_major else 1
        bounds = {"begin": [0, 0, 0], "end": [0, 0, 0], "strides": [1, 1, 1]}
        bounds["begin"][axis] = -1
        for name, values in bounds.items():
            self.constant(f"{self.names}{name}", np.array(values, np.int32))
        self.tensor(last, (form.batches, form.cells), form.activations, *hidden)
        everything = 0b111 & ~(1 << axis)
        self.operator(
            BUILTIN.STRIDED_SLICE,
            [outputs, *(f"{self.names}{name}" for name in bounds)],
            [last],
            "StridedSliceOptions",
            2,
            beginMask=everything,
            endMask=0b111,
            shrinkAxisMask=1 << axis,
        )
        return last


def lstm_file(seed: int, **form: Any) -> bytes:
    """Return the file of an LSTM of this form."""
    return LstmFile(Lstm(**form), seed).bytes()


def random_lstm(seed: int) -> bytes:
    """Return the file of an LSTM of any form."""
    draw = np.random.default_rng(seed)
    cells = int(draw.integers(1, 20))
    peephole, projected = draw.random(2) < 0.4
    form = Lstm(
        batches=int(draw.integers(1, 4)),
        steps=int(draw.integers(1, 8)),
        inputs=int(draw.integers(1, 20)),
        cells=cells,
        outputs=int(cells if peephole else draw.integers(1, 20)) if projected else 0,
        cifg=bool(draw.random() < 0.3),
        peephole=bool(peephole),
        layer_norm=bool(draw.random() < 0.3),
        projection_bias=bool(draw.random() < 0.5),
        time_major=bool(draw.random() < 0.5),
        cell_clip=float(draw.choice([0.0, 0.7])),
        proj_clip=float(draw.choice([0.0, 0.4])),
        cell_bits=int(draw.integers(9, 16)),
        gain=float(draw.choice([0.3, 1.0, 3.0, 20.0])),
    )
    return LstmFile(form, seed).bytes()


def random_wide_lstm(seed: int) -> bytes:
    """Return the file of an LSTM of int16 activations, of any form that LiteRT for Microcontrollers computes."""
    draw = np.random.default_rng(seed)
    batches, steps, inputs, cells = draw.integers(1, (4, 8, 20, 20)).tolist()
    return lstm_file(
        seed,
        batches=batches,
        steps=steps,
        inputs=inputs,
        cells=cells,
        time_major=bool(draw.random() < 0.5),
        cell_clip=float(draw.choice([0.0, 0.7, 1e-7], p=[0.6, 0.3, 0.1])),
        cell_bits=int(draw.integers(0, 16)),
        gain=float(draw.choice([0.3, 1.0, 3.0, 20.0])),
        activations="int16",
    )


@dataclass(frozen=True, slots=True)
class Svdf:
    """The form of an SVDF."""

    sequences: int = 1
    inputs: int = 6
    units: int = 4
    rank: int = 2
    memory: int = 5
    state: str = "int16"


def svdf_file(form: Svdf, seed: int) -> bytes:
    """Return a file with one SVDF between ``x`` and ``y``."""
    draw = np.random.default_rng(seed)
    b = FileBuilder()
    filters = form.units * form.rank

    def stated(name: str, scale: float) -> str:
        quantization = schema.QuantizationParametersT()
        quantization.scale = np.array([scale], np.float32)
        quantization.zeroPoint = np.zeros(1, np.int64)
        b.graph.tensors[b.places[name]].quantization = quantization
        return name

    def made(name: str, most: int, shape: tuple[int, ...], dtype: str, scale: float) -> str:
        b.tensor(name, shape, dtype, data=draw.integers(-most, most, shape).astype(dtype))
        return stated(name, scale)

    state_scale, time_scale = (0.002, 0.001) if form.state == "int16" else (0.05, 0.02)
    b.tensor("x", (form.sequences, form.inputs), "int8", float(draw.uniform(0.01, 0.05)), int(draw.integers(-40, 40)))
    operands = [
        "x",
        made("features", 127, (filters, form.inputs), "int8", float(draw.uniform(0.005, 0.02))),
        made("time", 127, (filters, form.memory), form.state, time_scale),
        made("bias", 500, (form.units,), "int32", state_scale * time_scale),
        stated(b.tensor("state", (form.sequences, filters * form.memory), form.state), state_scale),
    ]
    b.graph.tensors[b.places["state"]].isVariable = True
    b.tensor("y", (form.sequences, form.units), "int8", float(draw.uniform(0.01, 0.05)), int(draw.integers(-40, 40)))
    b.operator(BUILTIN.SVDF, operands, ["y"], "SVDFOptions", 3, rank=form.rank, fusedActivationFunction=1)
    return b.finish(["x"], ["y"])


def random_svdf(seed: int, state: str = "int16") -> bytes:
    """Return the file of an SVDF of any form with a state of this type."""
    sequences, inputs, units, rank, memory = np.random.default_rng(seed).integers(1, (4, 20, 9, 4, 9)).tolist()
    return svdf_file(Svdf(sequences, inputs, units, rank, memory, state), seed)
