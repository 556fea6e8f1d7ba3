# SPDX-License-Identifier: BSD-3-Clause
"""Programs of a single kernel call of language models, whose buffers are inputs and outputs of the program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from openneutron import targets
from openneutron.compiler.driver import finish
from openneutron.compiler.schedule.schedule import whole_schedule
from openneutron.compiler.select.calls import (
    Constant,
    JobWeights,
    KernelCall,
    Storage,
    Storages,
    View,
    dense_pitches,
    storages_of_states,
)
from openneutron.device import neutron_jobs as jobs
from openneutron.ir import DType, Graph, State, Tensor
from openneutron.isa import Program
from openneutron.language.decoder import Matrix
from openneutron.language.program import matrix_words
from openneutron.options import CompileOptions
from openneutron.targets import Target
from tests.language.arithmetic import Floats, Heads

ONE_PART = jobs.KnownSizes(frozenset({16}), frozenset(), 1024)
PARTS = jobs.KnownSizes(frozenset({128}), frozenset(), 128)

TYPES = {1: DType.INT8, 4: DType.FLOAT32, 8: DType.INT64}


@dataclass(slots=True)
class Single:
    """The parts of a call: views of ``inputs`` in the order of the program's inputs, and of the output, scratch and states."""

    kernel: str
    params: Mapping[str, int]
    constants: Mapping[str, Constant]
    views: dict[str, View] = field(default_factory=dict)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    inputs: list[str] = field(default_factory=list)
    scratch: dict[str, int] = field(default_factory=dict)
    states: list[str] = field(default_factory=list)

    def add(self, name: str, rows: int, channels: int, size: int) -> None:
        """Add a buffer with so many rows and channels of elements of ``size`` bytes."""
        extents = (1, rows, 1, channels)
        self.tensors[name] = Tensor(name, (rows, channels), TYPES[size])
        self.views[name] = View(name, extents, dense_pitches(extents, size), element_bytes=size)

    def floats(self, name: str, rows: int, channels: int) -> None:
        self.add(name, rows, channels, 4)
        if name != "output":
            self.inputs.append(name)

    def integers(self, name: str, count: int) -> None:
        self.add(name, 1, count, 8)
        self.inputs.append(name)

    def state(self, name: str, size_bytes: int) -> None:
        self.add(name, 1, size_bytes, 1)
        self.states.append(name)

    def memory(self, name: str, size_bytes: int) -> None:
        self.add(name, 1, size_bytes, 1)
        del self.tensors[name]
        self.scratch[name] = size_bytes

    def program(self, target: Target | None = None) -> Program:
        target = targets.described("cortex-a55") if target is None else target
        call = KernelCall(self.kernel, "call", self.views, self.params, self.constants)
        states = tuple(State(name, name) for name in self.states)
        graph = Graph("single", self.tensors, (), tuple(self.inputs), ("output",), states)
        storages = {storage.name: storage for storage in storages_of_states(graph)}
        for position, name in enumerate(self.inputs):
            storages[name] = Storage(name, self.tensors[name].size_bytes, input=position)
        storages["output"] = Storage("output", self.tensors["output"].size_bytes, output=0)
        storages |= {name: Storage(name, size) for name, size in self.scratch.items()}
        made = Storages(storages, {name: name for name in storages})
        return finish(graph, graph, made, whole_schedule([call]), target, CompileOptions(target=target.name)).program


def span(position: int, count: int) -> npt.NDArray[np.int64]:
    return np.array([position, count], np.int64)


def floats_of(outputs: Sequence[npt.NDArray[np.uint8]], rows: int) -> Floats:
    """Return the only output, a row for each token."""
    (output,) = outputs
    return output.view(np.float32).reshape(rows, -1)


def bits(value: float) -> int:
    return int(np.float32(value).view(np.uint32))


def random_floats(seed: int, *shape: int) -> Floats:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def random_matrix(seed: int, rows: int, columns: int, group: int = 0) -> Matrix:
    """Return a matrix of int8 weights, or of int4 weights in groups, some with negative scales and one with 0."""
    random = np.random.default_rng(seed)
    if not group:
        values = random.integers(-127, 128, (rows, columns), dtype=np.int8)
        return Matrix(values, random.random(rows, np.float32) / np.float32(90))
    wide = jobs.padded_k(columns, group)
    nibbles = random.integers(0, 256, (rows, wide // 2), dtype=np.uint8)
    scales = random.normal(size=(rows, wide // group)).astype(np.float32)
    scales[0, 0] = 0
    weights, channel_scales = jobs.int4_weights(nibbles, scales, group)
    weights.codes[:, columns:] = 0
    return Matrix(weights.values[:, :columns], channel_scales, weights)


def parameters(matrix: Matrix, release: str, sizes: jobs.KnownSizes) -> tuple[dict[str, int], dict[str, Constant]]:
    packed = JobWeights(matrix.values, release, sizes, matrix.int4)
    return matrix_words(packed, matrix), {"weights": packed, "scales": matrix.scales}


def linear_call(matrix: Matrix, release: str, sizes: jobs.KnownSizes, rows: int, memory: int, **given: int) -> Single:
    """Return a linear layer of so many rows, with room for the integers of ``memory`` rows."""
    words, constants = parameters(matrix, release, sizes)
    names = ("last", "add", "cap_bits", "job_from", "job_channels", "few_channels", "job_rows", "job_kind", "flipped")
    bias = random_floats(5, matrix.rows) if matrix.bias is None else matrix.bias
    constants = {**constants, "bias": bias, "job": np.zeros(0, np.int32)}
    call = Single("dynamic_linear_f32", {**dict.fromkeys(names, 0), **words, **given}, constants)
    call.floats("input", rows, matrix.columns)
    call.floats("residual", rows, matrix.rows)
    call.integers("span", 2)
    call.floats("output", 1 if given.get("last") else rows, matrix.rows)
    packed = constants["weights"]
    assert isinstance(packed, JobWeights)
    job_rows = given.get("job_rows", 0)
    operands = -(-job_rows * packed.inputs // 64) * 64 * (2 if given.get("flipped") else 1)
    lines = operands + 4 * len(packed.parts) * job_rows * packed.channels
    call.memory("memory", max(memory * packed.inputs, lines + 128 if job_rows else 0))
    return call


def attention_call(facts: Heads, positions: int, rows: int, source_rows: int = 0) -> Single:
    """Return the call of an attention, or of cross attention to the keys and values of a source."""
    ones, size = np.ones(facts.size, np.float32), facts.size
    params = {
        "heads": facts.heads, "groups": facts.groups, "size": size, "positions": positions, "cross": int(source_rows > 0), "window": facts.window,
        "rotated": 0 if facts.table is None else facts.table.shape[1], "interleaved": int(facts.interleaved),
        "normed": int(facts.query_norm is not None), "scale_bits": bits(facts.scale), "cap_bits": bits(facts.cap),
        "epsilon_bits": bits(facts.epsilon),
    }  # fmt: skip
    constants = {
        "rotary": np.zeros((0, 0), np.float32) if facts.table is None else facts.table,
        "query_scale": ones if facts.query_norm is None else facts.query_norm,
        "key_scale": ones if facts.key_norm is None else facts.key_norm,
    }
    call = Single("cached_attention_f32", params, constants)
    appended = 2 * facts.groups * size
    call.floats("input", rows, facts.heads * size + (0 if source_rows else appended))
    call.integers("span", 2)
    if source_rows:
        call.floats("source", source_rows, appended)
        call.integers("source_span", 2)
    else:
        call.views |= {"source": call.views["input"], "source_span": call.views["span"]}
    call.floats("output", rows, facts.heads * size)
    call.state("cache", 2 * facts.groups * positions * (size + 4))
    call.memory("scores", 4 * positions + 2 * size)
    return call
