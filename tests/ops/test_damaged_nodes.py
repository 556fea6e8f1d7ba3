# SPDX-License-Identifier: BSD-3-Clause
"""Nodes as a damaged file may hold them: each is refused with a reason, or compiles and runs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from openneutron.compiler import compile_graph
from openneutron.device.simulator import Simulator
from openneutron.errors import OpenNeutronError
from openneutron.ir import DType, Graph, QuantParams, Tensor
from openneutron.ops import BY_NAME, reject
from tests.support import oracle, random_graphs

LARGEST = 1 << 16
"""Elements of a tensor that is still worth compiling here."""


def damaged_tensor(tensor: Tensor, random: np.random.Generator) -> Tensor:
    """Another shape, type, scale or value."""
    choice = random.integers(5)
    shape = list(tensor.shape)
    if choice == 0 and shape:
        shape[random.integers(len(shape))] = int(random.choice([0, 1, 2, 3, 5]))
    elif choice == 1:
        shape = shape[1:]
    elif choice == 2 and tensor.quant is not None:
        scales = tuple(float(random.choice([0.0, -1.0, np.inf, scale])) for scale in tensor.quant.scales)
        return replace(tensor, quant=QuantParams(scales, tensor.quant.zero_points, tensor.quant.axis))
    elif choice == 3 and tensor.data is not None and tensor.dtype is DType.INT32:
        wild = random.choice(np.array([-9, -3, -1, 0, 1, 2, 7, 2**31 - 1]), tensor.shape)
        return replace(tensor, data=wild.astype(np.int32).reshape(tensor.shape))
    elif choice == 4 and tensor.data is not None:
        return replace(tensor, dtype=DType.FLOAT32, data=tensor.data.astype(np.float32))
    if tensor.data is None:
        return replace(tensor, shape=tuple(shape))
    return replace(tensor, shape=tuple(shape), data=np.resize(tensor.data, shape).astype(tensor.data.dtype), quant=None
                   if tensor.quant is None or tensor.quant.per_channel else tensor.quant)  # fmt: skip


def damaged(graph: Graph, random: np.random.Generator) -> Graph:
    tensors = dict(graph.tensors)
    names = sorted(tensors)
    for _ in range(int(random.integers(1, 3))):
        name = names[int(random.integers(len(names)))]
        tensors[name] = damaged_tensor(tensors[name], random)
    return replace(graph, tensors=tensors)


@pytest.mark.parametrize("op", sorted(BY_NAME))
def test_damaged_nodes_are_refused_or_run(op: str) -> None:
    random = np.random.default_rng(3)
    for seed in range(40):
        graph = damaged(random_graphs.single(op, seed), random)
        if any(reject(graph, node) is not None for node in graph.nodes):
            continue
        if any(tensor.elements > LARGEST for tensor in graph.tensors.values()):
            continue
        try:
            compiled = compile_graph(graph, oracle.TARGET)
        except OpenNeutronError:
            continue
        inputs = [np.zeros(tensor.shape, tensor.dtype.numpy) for tensor in compiled.inputs]
        Simulator(compiled.program).run(inputs)
