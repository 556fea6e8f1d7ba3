# SPDX-License-Identifier: BSD-3-Clause
"""Random graphs of what moves data without computing, around operators that may write in place: reshapes, transposes, slices
and concatenations of one small cube, so that many tensors share memory and are read by several views."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from openneutron.compiler import CompileOptions
from openneutron.ir import Graph, Node, Tensor, constant
from tests.support import oracle

SIDE = 4
CUBE = (1, SIDE, SIDE, SIDE)
POOL: dict[str, Any] = {
    "padding": "SAME",
    "kernel_h": 2,
    "kernel_w": 2,
    "stride_h": 1,
    "stride_w": 1,
    "activation": "NONE",
}
OPERATORS = 9


@dataclass(slots=True)
class Sampler:
    """A graph of cubes that grows by one operator, or a few that lead back to a cube, at a time."""

    random: np.random.Generator
    nodes: list[Node] = field(default_factory=list)
    tensors: list[Tensor] = field(default_factory=list)
    cubes: list[str] = field(default_factory=lambda: ["x"])

    def integers(self, *values: int) -> str:
        self.tensors.append(constant(f"k{len(self.tensors)}", np.array(values, np.int32)))
        return self.tensors[-1].name

    def add(self, op: str, inputs: tuple[str, ...], shape: tuple[int, ...] = CUBE, **attributes: object) -> str:
        self.tensors.append(oracle.activation(f"t{len(self.tensors)}", shape))
        self.nodes.append(Node(op, inputs, (self.tensors[-1].name,), attributes))
        return self.tensors[-1].name

    def reshaped(self, source: str) -> str:
        long = self.add("reshape", (source, self.integers(1, 1, SIDE, SIDE * SIDE)), (1, 1, SIDE, SIDE * SIDE))
        return self.add("reshape", (long, self.integers(*CUBE)))

    def transposed(self, source: str) -> str:
        order = (0, *(int(axis) + 1 for axis in self.random.permutation(3)))
        return self.add("transpose", (source, self.integers(*order)))

    def turned(self, source: str) -> str:
        """Both parts along an axis, the second one in front."""
        axis, cut = int(self.random.integers(1, 4)), int(self.random.integers(1, SIDE))
        parts = []
        for first, count in ((cut, SIDE - cut), (0, cut)):
            begin, size = [0] * 4, list(CUBE)
            begin[axis], size[axis] = first, count
            parts.append(self.add("slice", (source, self.integers(*begin), self.integers(*size)), tuple(size)))
        return self.add("concatenation", tuple(parts), axis=axis, activation="NONE")

    def moved(self, source: str) -> str:
        return (self.reshaped, self.transposed, self.turned)[int(self.random.integers(0, 3))](source)

    def grow(self) -> None:
        kind = int(self.random.integers(0, 8))
        one, other = (str(self.random.choice(self.cubes[-3:])) for _ in range(2))
        if kind < 2:
            made = self.moved(one)
        elif kind == 2:
            made = self.add("add", (one, self.moved(self.moved(one))), activation="NONE")
        elif kind == 3:
            made = self.add("max_pool_2d", (one,), **POOL)
        elif kind == 4:
            made = self.add("relu", (one,))
        elif kind == 5:
            made = self.add("maximum", (one, other))
        else:
            made = self.add("add", (one, other), activation="NONE")
        self.cubes.append(made)

    def graph(self) -> Graph:
        self.cubes.append(self.add("max_pool_2d", ("x",), **POOL))
        for _ in range(OPERATORS):
            self.grow()
        used = {name for node in self.nodes for name in node.inputs}
        outputs = [name for name in self.cubes if name not in used]
        return oracle.graph_of([oracle.activation("x", CUBE)], self.nodes, self.tensors, outputs)


@pytest.mark.parametrize("first", range(0, 320, 80))
def test_views_of_one_memory(first: int) -> None:
    """Every program goes through the compiler's check, and gives LiteRT's bytes."""
    for seed in range(first, first + 80):
        io = ("arena", "caller")[seed % 2]
        options = CompileOptions(prefetch_constants=seed % 4 == 0, io_place=io)
        oracle.assert_bit_exact(Sampler(np.random.default_rng(seed)).graph(), (seed,), options)
