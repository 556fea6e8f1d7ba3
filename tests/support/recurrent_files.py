# SPDX-License-Identifier: BSD-3-Clause
"""LiteRT files with one recurrent operator of random weights and quantization."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from openneutron.litert.write import pack
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
        self.generator = np.random.default_rng(seed)
        self.wide = form.activations == "int16"

    def _quantized(self, name: str, data: np.ndarray, scale: float) -> str:
        self.tensor(name, data.shape, data.dtype.name, scale, 0, data)
        self._scale(name, scale, 0)
        return name

    def _scale(self, name: str, scale: float, zero_point: int) -> None:
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
        self._scale(name, scale, zero_point)
        self.graph.tensors[self.places[name]].isVariable = True
        return name

    def bytes(self) -> bytes:
        """Return the file."""
        form, draw = self.form, self.generator
        lead = (form.steps, form.batches) if form.time_major else (form.batches, form.steps)
        gates = GATES[1:] if form.cifg else GATES
        self.tensor("x", (*lead, form.inputs), form.activations, *self._activation(1.28, 5.12, 40))
        hidden = self._activation(1.0, 1.2, 10)
        operands: list[str | None] = ["x"]
        operands += [self._weights(f"w_{g}", form.cells, form.inputs) if g in gates else None for g in GATES]
        operands += [self._weights(f"r_{g}", form.cells, form.features) if g in gates else None for g in GATES]
        holes = [g for g in ("input", "forget", "output") if form.peephole and g in gates]
        operands += [self._peephole(g) if g in holes else None for g in ("input", "forget", "output")]
        operands += [self._bias(g) if g in gates else None for g in GATES]
        state = hidden
        if form.outputs:
            state = self._activation(0.8, 1.6, 10)
            operands.append(self._weights("projection", form.outputs, form.cells))
            bias = draw.integers(-3000, 3000, form.outputs, np.int32)
            operands.append(self._quantized("projection_bias", bias, 1e-4) if form.projection_bias else None)
        else:
            operands += [None, None]
        operands.append(self._variable("hidden", (form.batches, form.features), form.activations, *state))
        operands.append(self._variable("cell", (form.batches, form.cells), "int16", 2.0**-form.cell_bits, 0))
        operands += [self._layer_norm(g) if form.layer_norm and g in gates else None for g in GATES]
        self.tensor("y", (*lead, form.features), form.activations, *state)
        self.operator(
            BUILTIN.UNIDIRECTIONAL_SEQUENCE_LSTM,
            [],
            ["y"],
            "UnidirectionalSequenceLSTMOptions",
            fusedActivationFunction=schema.ActivationFunctionType.TANH,
            cellClip=form.cell_clip,
            projClip=form.proj_clip,
            timeMajor=form.time_major,
        )
        (operator,) = self.graph.operators
        operator.inputs = np.array([-1 if name is None else self.places[name] for name in operands], np.int32)
        operator.intermediates = np.array([self.places[name] for name in self._intermediates(hidden)], np.int32)
        self.graph.inputs = np.array([self.places["x"]], np.int32)
        self.graph.outputs = np.array([self.places["y"]], np.int32)
        return pack(self.model)

    def _peephole(self, gate: str) -> str:
        return self._quantized(f"p_{gate}", self._int16(), float(self.generator.uniform(0.5, 2)) / 32768)

    def _int16(self) -> np.ndarray:
        return self.generator.integers(-32767, 32768, self.form.cells, np.int16)

    def _bias(self, gate: str) -> str:
        most = 1 << (21 if self.form.layer_norm or self.wide else 13)
        dtype = np.int64 if self.wide else np.int32
        return self._quantized(f"b_{gate}", self.generator.integers(-most, most, self.form.cells, dtype), 1e-4)

    def _layer_norm(self, gate: str) -> str:
        return self._quantized(f"n_{gate}", self._int16(), float(self.generator.uniform(0.5, 2)) / 32768)

    def _intermediates(self, hidden: tuple[float, int]) -> list[str]:
        names = [self.tensor(f"gate_{gate}", (0,), "int16") for gate in GATES]
        for name in names:
            self._scale(name, float(self.generator.uniform(3, 8)) / 32768, 0)
        self.tensor("unprojected", (0,), self.form.activations, *hidden)
        return [*names, "unprojected"]


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
